# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The judges of a soak run see what is broken, and the nodes hold out against the faults."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from vjepa_ros.cli.soak import main
from vjepa_ros.cli.soak.invariants import BaseWatch, Delays, Ledger, OutputWatch, growth

MS = 1_000_000


def judged(kind, *words):
    """Return a ledger, and a watch that fills it."""
    ledger = Ledger()
    return ledger, kind(lambda name, value, at_ns: ledger.check(name, value, at_ns / 1e9), *words)


def broken(ledger):
    return {name: row.failures[0]['at_s'] for name, row in ledger.failed.items()}


@pytest.mark.parametrize(('events', 'found'), [
    ({}, {}),
    ({'blind': 1000, 'zero': 1400}, {}),
    ({'blind': 1000, 'zero': 1600}, {'sight': 1.5}),
    ({'blind': 1000}, {'sight': 1.5}),
    ({'deaf': 1000, 'zero': 1400}, {}),
    ({'deaf': 1000}, {'command': 1.5}),
    ({'guard': 1000, 'zero': 1400}, {}),
    ({'guard': 1000, 'zero': 1600}, {'guard': 1.5}),
    ({'blind': 1000, 'guard': 1300, 'zero': 1700}, {}),             # died before it was too late
    ({'blind': 1000, 'guard': 1300, 'zero': 1900}, {'guard': 1.8}),
    ({'clock jump': 1000, 'blind': 1000, 'zero': 1100}, {}),
    ({'clock jump': 1000, 'blind': 1000, 'zero': 1400}, {'clock jump': 1.2}),
    ({'clock stands': 1000, 'blind': 1000, 'zero': 2900}, {}),
    ({'blind': 0, 'deaf': 0}, {'sight': 0.6, 'command': 0.6}),      # nothing but motion ever came
])
def test_a_base_that_moves_without_leave_is_seen(events, found):
    ledger, watch = judged(BaseWatch, 0)
    for at in range(0, 3000, 100):      # drives on sight and commands, until events [ms] end them
        if at < events.get('blind', math.inf):
            watch.seen(at * MS)
        if at < events.get('deaf', math.inf):
            watch.commanded(at * MS)
        for what in ('guard', 'clock jump', 'clock stands'):
            if events.get(what) == at:
                watch.lost(what, at * MS)
        watch.sent(at * MS, at < events.get('zero', math.inf))
    assert broken(ledger) == found


STAMPS = [100, 200, 300, 400, 350, 500, -9000, -8900]      # [ms], in the order of sending


@pytest.mark.parametrize(('assessed', 'late_ms', 'stale', 'found'), [
    # The one that came late gives none; time goes back.
    ([100, 200, 300, 400, 500, -9000, -8900], 50, False, set()),
    ([100, 200, 200], 50, False, {'order'}),
    ([100, 300, 200], 50, False, {'order'}),
    ([400, 350], 50, False, {'order'}),       # later sent, but older than what was assessed
    ([-9000, 500], 50, False, {'order'}),
    ([100, 200], 1100, False, {'age'}),
    ([100, 200], 9000, True, set()),          # old, but they say so
    ([100, 123], 50, False, {'origin'}),
])
def test_assessments_repeated_out_of_order_too_old_or_invented_are_seen(
        assessed, late_ms, stale, found):
    ledger, watch = judged(OutputWatch)
    for number, stamp in enumerate(STAMPS):
        watch.sent(stamp * MS, number * MS, number * MS, stamp > 0)
    for number, stamp in enumerate(assessed):
        watch.assessed(stamp * MS, (late_ms + number) * MS, stale)
    assert set(broken(ledger)) == found


@pytest.mark.parametrize(('of', 'grown'), [
    (lambda age: 500.0, 0.0),
    (lambda age: 500.0 + 100.0 * (age % 7 == 0), 0.0),           # peaks pass
    (lambda age: min(500.0, 25.0 * age), 0.0),                   # a start takes its time
    (lambda age: 500.0 + age, 60.0)])
def test_what_grows_is_told_from_peaks_and_from_the_start(of, grown):
    assert growth([(age, 0, of(age)) for age in range(101)], 2) == pytest.approx(grown)
    assert growth([(age, 0, of(age)) for age in range(60)], 2) is None


def test_a_delay_of_the_machine_is_no_fault_of_a_node_and_a_failure_says_where_it_is():
    ledger = Ledger()
    ledger.events = [{'at_s': 5.0}, {'at_s': 12.5}, {'at_s': 13.05}]
    ledger.check('sight', 0.8, 12.0, delay_s=0.3)
    assert not ledger.failed and ledger.rows['sight'].worst == 0.5
    for value, at_s, delay_s in ((0.8, 13.0, 0.1), (0.9, 13.1, 0.0), (0.7, 15.0, 0.0)):
        ledger.check('sight', value, at_s, delay_s)     # the first two are one failure
    assert [(f['at_s'], f['event']) for f in ledger.rows['sight'].failures] == [(13, 2), (15, 3)]


@pytest.mark.skipif(not Path('/proc/self/schedstat').exists(), reason='Linux does not count here')
def test_the_delays_of_a_machine_are_those_of_a_thread_that_waits_for_its_core():
    core, delays = min(os.sched_getaffinity(0)), Delays()
    busy = f'import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass'
    both = [subprocess.Popen([sys.executable, '-c', busy]) for _ in range(2)]
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end and delays.between('one', 0, time.time_ns()) < 0.3:
            delays.sample('one', both[0].pid, time.time_ns())
            time.sleep(0.1)
    finally:
        for process in both:
            process.kill()
            process.wait()
    now_ns = time.time_ns()
    assert delays.between('one', 0, now_ns) >= 0.3
    assert delays.between('one', now_ns + MS * 1000, now_ns + MS * 2000) == 0.0
    assert delays.between('another', 0, now_ns) == 0.0


def test_what_held_is_told_where_the_file_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(main, 'ros_problem', lambda: '')
    monkeypatch.setattr(main, 'soak', lambda args, ledger, *more: ledger.check('sight', 0.1, 1.0))
    monkeypatch.setattr(main, 'end_like_ctrl_c', lambda: None)
    (blocked := tmp_path / 'file').touch()
    assert main.main(['--json', str(blocked / 'soak.json')]) == 1
    said = capsys.readouterr().out
    assert '0 faults, seed 0' in said and f"--json '{blocked / 'soak.json'}' cannot be" in said
    assert main.main(['--json', str(tmp_path / 'new' / 'soak.json')]) == 0


@pytest.mark.ros
def test_a_seed_draws_the_same_faults_again_and_every_kind_in_turn():
    pytest.importorskip('rclpy')
    from vjepa_ros.cli.soak.faults import CLOCK, FAULTS, KILLS, draw

    def names(seed, count, simulated=True, minutes=5.0):
        drawn = draw(Random(seed), simulated, minutes)
        return [next(drawn)[0] for _ in range(count)]

    deck = len(FAULTS) + len(KILLS) + 3 * len(CLOCK)
    first = names(3, 2 * deck)
    assert first == names(3, 2 * deck) != names(4, 2 * deck)
    assert set(first[:deck]) == set(first[deck:]) == {*FAULTS, *KILLS, *CLOCK}
    assert not {*CLOCK} & {*names(3, 100, simulated=False)}
    assert 0 < sum(name in KILLS for name in names(3, 5000, minutes=50.0)) < 100


@pytest.mark.ros
@pytest.mark.any_distro
@pytest.mark.parametrize('minutes', [
    0.4, pytest.param(5.0, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_nodes_hold_out_against_drawn_faults(minutes, tmp_path):
    pytest.importorskip('rclpy')
    done = subprocess.run(
        [sys.executable, '-m', 'vjepa_ros', 'soak', '--minutes', str(minutes), '--json',
         'soak.json'], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, 'PYTHONPATH': str(Path(__file__).parents[1])})
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / 'soak.json').read_text())
    assert len(found['events']) > 6 * minutes
    wanted = {'sight', 'order', 'age', 'recovery', 'alive'} | (
        {'memory', 'descriptors', 'visible', 'clock jump'} if minutes > 2 else set())
    assert all(found['invariants'][name]['checked'] for name in wanted)

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
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from vjepa_ros.cli.soak.invariants import (
    BaseWatch,
    Delays,
    Ledger,
    OutputWatch,
    Sent,
    growth,
)

MS = 1_000_000


def broken(ledger):
    return {name: row.failures[0]['at_s'] for name, row in ledger.rows.items() if row.failures}


def checking(ledger):
    return lambda name, value, at_ns: ledger.check(name, value, at_ns / 1e9)


def drive(*events):
    """Judge a second of driving with sight and commands each 100 ms, changed by events.

    Events are (time [ms], method of the watch, its arguments); ('blind', 'deaf') end sight or
    commands from a time on, and ('zero', 'deadly') say when the base got its last zero.
    """
    ledger = Ledger()
    watch = BaseWatch(checking(ledger), 0)
    ends = {what: at for at, what, *_ in events if what in ('blind', 'deaf', 'zero')}
    for at in range(0, 3000, 100):
        if at < ends.get('blind', math.inf):
            watch.seen(at * MS)
        if at < ends.get('deaf', math.inf):
            watch.commanded(at * MS)
        for when, what, *words in events:
            if when == at and hasattr(watch, what):
                getattr(watch, what)(*words)
        watch.sent(at * MS, at < ends.get('zero', math.inf))
    return broken(ledger)


JUMP, STANDS = ('clock jump', 1000 * MS), ('clock stands', 1000 * MS)


@pytest.mark.parametrize(('events', 'found'), [
    ([], {}),
    ([(1000, 'blind'), (1400, 'zero')], {}),
    ([(1000, 'blind'), (1600, 'zero')], {'sight': 1.5}),
    ([(1000, 'blind')], {'sight': 1.5}),
    ([(1000, 'deaf'), (1400, 'zero')], {}),
    ([(1000, 'deaf')], {'command': 1.5}),
    ([(1000, 'lost', 'guard', 1000 * MS), (1400, 'zero')], {}),
    ([(1000, 'lost', 'guard', 1000 * MS), (1600, 'zero')], {'guard': 1.5}),
    ([(1000, 'lost', *JUMP), (1000, 'blind'), (1100, 'zero')], {}),
    ([(1000, 'lost', *JUMP), (1000, 'blind'), (1400, 'zero')], {'clock jump': 1.2}),
    ([(1000, 'lost', *STANDS), (1000, 'blind'), (2900, 'zero')], {}),
])
def test_a_base_that_moves_without_leave_is_seen(events, found):
    assert drive(*events) == found


def test_a_base_that_nothing_was_ever_sent_to_but_motion_is_seen():
    ledger = Ledger()
    watch = BaseWatch(checking(ledger), 0)
    watch.sent(700 * MS, True)
    watch.judge(800 * MS)            # no image, no command and no zero has come
    assert broken(ledger) == {'sight': 0.8, 'command': 0.8}


STAMPS = [100, 200, 300, 400, 350, 500, -9000, -8900]      # [ms], in the order of sending


@pytest.mark.parametrize(('assessed', 'late_ms', 'found'), [
    ([0, 1, 2, 3, 5, 6, 7], 50, set()),       # the one that came late gives none; time goes back
    ([0, 1, 1], 50, {'order'}),
    ([0, 2, 1], 50, {'order'}),
    ([3, 4], 50, {'order'}),                  # later sent, but older than what was assessed
    ([0, 1], 1100, {'age'}),
    ([0, None], 50, {'origin'}),
])
def test_assessments_repeated_out_of_order_too_old_or_invented_are_seen(assessed, late_ms, found):
    ledger = Ledger()
    watch = OutputWatch(checking(ledger))
    for number, stamp in enumerate(STAMPS):
        watch.sent(stamp * MS, Sent(number, number * MS, number * MS, stamp > 0))
    for number in assessed:
        stamp = 123 if number is None else STAMPS[number]
        watch.assessed(stamp * MS, (late_ms + (number or 0)) * MS, False)
    assert set(broken(ledger)) == found
    flagged = OutputWatch(checking(again := Ledger()))
    flagged.sent(MS, Sent(0, 0, 0, True))
    flagged.assessed(MS, 9000 * MS, True)     # old, but it says so
    assert broken(again) == {}


@pytest.mark.parametrize(('of', 'grown'), [
    (lambda age: 500.0, 0.0),
    (lambda age: 500.0 + 100.0 * (age % 7 == 0), 0.0),           # peaks pass
    (lambda age: min(500.0, 25.0 * age), 0.0),                   # a start takes its time
    (lambda age: 500.0 + age, 60.0)])
def test_what_grows_is_told_from_peaks_and_from_the_start(of, grown):
    assert growth([(age, of(age)) for age in range(101)]) == pytest.approx(grown)
    assert growth([(age, of(age)) for age in range(60)]) is None


def test_a_delay_of_the_machine_is_no_fault_of_a_node_and_a_failure_says_where_it_is():
    ledger = Ledger()
    ledger.events = [{'number': 6, 'at_s': 5.0}, {'number': 7, 'at_s': 12.5},
                     {'number': 8, 'at_s': 13.05}]
    ledger.check('sight', 0.8, 12.0, delay_s=0.3)
    assert not ledger.failed and ledger.rows['sight'].worst == 0.5
    ledger.check('sight', 0.8, 13.0, delay_s=0.1)
    ledger.check('sight', 0.9, 13.1)          # the same failure
    ledger.check('sight', 0.7, 15.0)
    failures = ledger.rows['sight'].failures
    assert [(f['at_s'], f['event'], f['value']) for f in failures] == [
        (13.0, 7, 0.9), (15.0, 8, 0.7)]


@pytest.mark.skipif(not Path('/proc/self/schedstat').exists(), reason='Linux does not count here')
def test_the_delays_of_a_machine_are_those_of_a_thread_that_waits_for_its_core():
    core, delays = min(os.sched_getaffinity(0)), Delays()
    busy = ('import os, time\n'
            f'os.sched_setaffinity(0, {{{core}}})\n'
            'end = time.monotonic() + 30\n'
            'while time.monotonic() < end: pass')
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


@pytest.mark.ros
def test_a_seed_draws_the_same_faults_again_and_every_kind_in_turn():
    pytest.importorskip('rclpy')
    from vjepa_ros.cli.soak.faults import CLOCK, FAULTS, KILLS, draw

    def names(seed, count, simulated=True, minutes=5.0):
        drawn = draw(Random(seed), simulated, minutes)
        return [next(drawn)[0] for _ in range(count)]

    every = {*FAULTS, *KILLS, *CLOCK}
    deck = len(FAULTS) + len(KILLS) + 3 * len(CLOCK)
    first = names(3, 2 * deck)
    assert first == names(3, 2 * deck) != names(4, 2 * deck)
    assert set(first[:deck]) == set(first[deck:]) == every
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
    assert len(found['events']) > 6 * minutes and found['failed'] == []
    assert all(before['at_s'] <= after['at_s'] for before, after in pairwise(found['events']))
    wanted = {'sight', 'order', 'age', 'recovery', 'alive'} | (
        {'memory', 'descriptors', 'visible', 'clock jump'} if minutes > 2 else set())
    assert all(found['invariants'][name]['checked'] for name in wanted)

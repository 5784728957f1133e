# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Benchmarks of node and guard: the arithmetic, and short runs over real DDS."""

from __future__ import annotations

import json

import pytest

from vjepa_ros.cli import main as cli
from vjepa_ros.cli.benchmark.node import OverheadError, PARTS, split, summarise

STAGES = {'transport': 3.0, 'wait': 0.5, 'decode': 1.0, 'preprocess': 2.0, 'gather': 0.25,
          'upload': 0.25, 'encode': 20.0, 'heads': 1.5, 'download': 1.0, 'motion': 2.0,
          'looming': 12.0, 'assess': 1.0, 'publish': 0.5}
START_NS, PERIOD_NS = 5_000_000_000, 200_000_000


def run(count=20, latency_ms=lambda number: 48.0, step=1):
    """Records of the recorder and what the node told of them."""
    stamps = [START_NS + PERIOD_NS * number * step for number in range(count)]
    told = {'camera': 'camera', 'latency_ms': 46.0, 'session_ms': 39.0, 'stages_ms': STAGES}
    return ([{'stamp_ns': stamp, 'latency_ms': latency_ms(number)}
             for number, stamp in enumerate(stamps)],
            {stamp: {**told, 'stamp_ns': stamp} for stamp in stamps})


def test_figures_are_those_of_each_result_after_the_warm_up():
    # The first ones are slow, and must not count.
    figures = summarise(*run(30, lambda number: 48.0 + number % 2 + (50 if number < 5 else 0)),
                        rate_hz=5.0, warmup_s=1.0, seconds=60.0)
    assert figures['counts'] == {'frames': 25, 'results': 25}
    over = figures['overhead_ms']
    assert (over['min'], over['median'], over['p99']) == (9.0, 10.0, 10.0)
    assert figures['latency_ms']['median'] - figures['session_ms']['median'] == over['median']
    assert figures['parts_ms'].keys() == PARTS.keys()
    parts = split({'latency_ms': 48.0}, run(1)[1][START_NS])
    assert sum(parts[name] for name in PARTS) == pytest.approx(48.0)
    assert figures['stages_ms']['looming'] == 12.0


@pytest.mark.parametrize(('records', 'said'), [
    (([], {}), 'no assessment'),
    (run(5), '0 assessments were received after'),
    ((run(20)[0], {}), r'lacks the times of 15 of 15 results'),
    (run(20, step=2), r'17 results for 33 frames.*lower --rate'),
    (run(20, lambda number: 260.0), r'257 ms of the 200 ms.*lower --rate')])
def test_what_is_no_overhead_is_refused(records, said):
    with pytest.raises(OverheadError, match=said):
        summarise(*records, rate_hz=5.0, warmup_s=1.0, seconds=60.0)


# On Jazzy a node crashes at its end if it holds anything after that of its camera.
@pytest.mark.ros
def test_a_short_run_over_dds(tmp_path, capsys):
    pytest.importorskip('rclpy')
    path = tmp_path / 'node.json'
    words = ['--source', '320x240', '--rate', '3', '--seconds', '2', '--warmup', '0.3',
             '--device', 'cpu', '--num-frames', '4', '--image-size', '64', '--weights', 'random',
             '--transport', 'compressed', '--json', str(path)]
    assert cli.main(['benchmark', 'node', *words]) == 0, capsys.readouterr().out
    assert str(tmp_path) not in path.read_text()
    result = json.loads(path.read_text())
    c = result['configuration']
    assert (c['model_size'], c['num_frames'], c['device'], c['transport'], c['trained']) == (
        'tiny', 4, 'cpu', 'compressed', 'False')
    assert result['counts']['results'] >= 4
    over, latency, session = (result[f'{key}_ms'] for key in ('overhead', 'latency', 'session'))
    assert 0 < over['min'] <= over['median'] < latency['median'] < 334
    assert 0 < session['min'] < latency['min']
    # Where tests run beside this one, times of two threads may overlap, which the rest pays.
    parts = {name: found['median' if name == 'rest' else 'min']
             for name, found in result['parts_ms'].items()}
    assert min(parts.values()) > 0, parts


@pytest.mark.slow
@pytest.mark.ros
@pytest.mark.any_distro
def test_the_guard_is_measured_with_several_cameras(tmp_path):
    pytest.importorskip('rclpy')
    file = tmp_path / 'guard.json'
    assert cli.main(['benchmark', 'guard', '--seconds', '1', '--stops', '2', '--cameras', '2',
                     '--json', str(file)]) == 0
    found = json.loads(file.read_text())
    for times in (found['latency_ms'], found['reaction_ms']):
        assert 0 < times['median'] <= times['p99'] <= times['worst']
    assert found['assessments'] > 20
    assert 450 < found['stop_ms']['median'] < 5000     # of 500, less what stamps are late

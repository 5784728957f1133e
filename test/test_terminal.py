# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The live view, and what the recorder process tells it."""

from __future__ import annotations

import json
import math

import pytest
from rich.console import Console

from vjepa_ros.lab.report.live_view import Point, Recording, Status, render
from vjepa_ros.perception.types import Assessment, Level, Quality


def assessment(ttc):
    return Assessment('camera', 0, '', 0.4, 0.2, 0.7, ttc, 1 / ttc, -0.1, 0.0, Level.WARNING,
                      Quality.UNTRAINED | Quality.LOW_TEXTURE)


def test_the_view_shows_estimate_truth_direction_and_that_it_is_untrained():
    status = Status('vjepa-ros demo', 'somewhere', span_s=10.0, trained=False, model='tiny on cpu')
    status.parts = {'camera': 'ready', 'node': 'starting', 'recorder': 'ended'}
    status.add(Point(1.0, assessment(1.9), 2.1, 50.0))
    console = Console(width=100, height=30, force_terminal=False)
    with console.capture() as capture:
        console.print(render(status))
    for part in ('WARNING', 'contact in 1.9 s', 'true: 2.1 s', '6° left', 'UNTRAINED',
                 'low texture', '1.0 / 10.0 s', 'latency 50 ms', 'recorder'):
        assert part in capture.get(), part


def result_line(stamp_ns, ttc=2.0):
    values = dict.fromkeys(('motion_score', 'obstacle_score', 'collision_probability', 'bearing',
                            'collision_if_ahead', 'elevation', 'known_fraction'), 0.5)
    return json.dumps({'kind': 'result', 'stamp_ns': stamp_ns, 'level': 2, 'flags': 1,
                       'latency_ms': 30.0, 'node_latency_ms': 25.0, 'time_to_contact': ttc,
                       'looming_rate': 1 / ttc, **values})


def truth_line(stamp_ns, ttc):
    return json.dumps({'kind': 'truth', 'stamp_ns': stamp_ns, 'true_ttc': ttc,
                       'true_looming': 1 / ttc})


def test_every_estimate_meets_the_truth_of_its_own_stamp():
    recording = Recording(Status('demo', 'scene'))
    for line in (truth_line(100, 2.5), result_line(200), result_line(100),
                 truth_line(200, math.inf), result_line(300)):   # truth may also come later
        recording.take(line)
    found = {r['stamp_ns']: r['true_ttc'] for r in recording.records()}
    assert found == {100: 2.5, 200: math.inf, 300: pytest.approx(math.nan, nan_ok=True)}

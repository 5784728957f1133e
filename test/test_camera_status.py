# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What diagnostics say of a camera: never that it runs while it gives no results."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros.common.diagnostics import OK, STALE, WARN
from vjepa_ros.ros.perception_node.diagnostics import CameraStats, condition

NOW = 1000.0


def told(quiet=False, fault_s=-math.inf, silent=False, **values) -> tuple[bytes, str]:
    stats = CameraStats()
    vars(stats).update(values)
    camera = SimpleNamespace(silent=silent, fault_s=fault_s, last_fault='of encoding xyz')
    return condition(camera, stats, quiet, NOW)


@pytest.mark.parametrize(('values', 'level', 'words'), [
    ({}, OK, 'running'),
    ({'flags': Quality.STALE}, WARN, 'stale'),
    ({'fault_s': NOW - 1}, OK, 'running'),                       # others are not refused
    ({'quiet': True}, OK, 'buffering'),
    ({'quiet': True, 'flags': Quality.STALE}, OK, 'buffering'),  # of the last result, long ago
    ({'quiet': True, 'full': True}, OK, 'nobody listens'),
    ({'quiet': True, 'waits_s': NOW - 5}, OK, 'buffering'),
    ({'quiet': True, 'waits_s': NOW - 60}, WARN, 'no result for 60 s: no clip fills'),
    ({'quiet': True, 'fault_s': NOW - 1}, WARN, 'images are refused: of encoding xyz'),
    ({'quiet': True, 'full': True, 'pass_s': NOW - 9}, WARN, 'inference has taken 9 s so far'),
    ({'quiet': True, 'full': True, 'pass_s': NOW - 0.1}, OK, 'nobody listens'),
    ({'quiet': True, 'gap_problem': 'inference is slower'}, WARN, 'no result: inference is slow'),
    ({'quiet': True, 'trouble': 'it failed'}, WARN, 'it failed'),
    ({'quiet': True, 'silent': True}, STALE, 'no frames')])
def test_a_camera_without_results_does_not_run(values, level, words):
    found, message = told(**values)
    assert found == level and words in message

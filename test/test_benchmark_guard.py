# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The command that measures the guard, in short."""

from __future__ import annotations

import json

import pytest

from vjepa_ros.cli import main as cli

pytestmark = [pytest.mark.slow, pytest.mark.ros, pytest.mark.any_distro]
pytest.importorskip('rclpy')


def test_it_measures_latency_and_stops_of_several_cameras(tmp_path):
    file = tmp_path / 'guard.json'
    assert cli.main(['benchmark', 'guard', '--seconds', '1', '--stops', '2', '--cameras', '2',
                     '--json', str(file)]) == 0
    found = json.loads(file.read_text())
    assert found['command'] == 'vjepa-ros benchmark guard --seconds 1 --stops 2 --cameras 2'
    for times in (found['latency_ms'], found['reaction_ms']):
        assert 0 < times['median'] <= times['p99'] <= times['worst']
    assert found['reaction_ms']['median'] > found['latency_ms']['median'] / 2
    assert found['assessments'] > 20
    assert 500 < found['stop_ms']['median'] < 5000

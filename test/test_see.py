# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What people see of running nodes: echo and top, with real nodes over DDS."""

from __future__ import annotations

import io
import json
import re

import pytest
import yaml

pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray
from guard_rig import GUARD, QUICK
from node_fixtures import Camera, NODE, SMALL, raw
from rich.console import Console
from ros_harness import ros_session
from scenes import texture
from sensor_msgs.msg import PointCloud2

from vjepa_ros import cli
from vjepa_ros.cli.see import render
from vjepa_ros.ros.common.diagnostics import WARN, status
from vjepa_ros.viewer.messages import States

pytestmark = pytest.mark.ros


@pytest.fixture(scope='module')
def robot():
    """The domain of a camera, the node and the guard."""
    still = texture((160, 120))
    with ros_session() as ros, pytest.MonkeyPatch.context() as patch, \
            ros.compose(NODE, {**SMALL, 'autostart': True}), \
            ros.compose(GUARD, {**QUICK, 'autostart': True}), \
            Camera(ros, picture=lambda i: still + i % 7, make=raw, rate=15.0):
        patch.setenv('ROS_DOMAIN_ID', str(ros.domain_id))
        seen: list[PointCloud2] = []
        ros.node.create_subscription(PointCloud2, '/vjepa_node/camera/assessment', seen.append, 1)
        assert ros.spin_until(lambda: seen, 60.0)
        yield ros


def printed(capsys, *words):
    """Exit code and output of `vjepa-ros`."""
    code = cli.main([*words])
    return code, capsys.readouterr()


def test_echo_prints_what_the_nodes_say_over_dds(robot, capsys):
    code, out = printed(capsys, 'echo', '/vjepa_node/camera/assessment', '--json', '--count', '2')
    first, second = map(json.loads, out.out.splitlines())
    assert code == 0 and first['stamp_ns'] < second['stamp_ns']
    assert 'untrained' in first['flags'] and first['frame_id'] == 'optical'
    code, out = printed(capsys, 'echo', 'camera/obstacles', '--once')
    (regions,) = yaml.safe_load_all(out.out)
    assert code == 0 and isinstance(regions['points'], list)
    code, out = printed(capsys, 'echo', 'collision_guard/state', '--once')
    guard = next(iter(yaml.safe_load_all(out.out)))['status'][0]
    assert guard['name'] == 'collision_guard: guard' and guard['values']['state'] == 'active'


def test_echo_says_what_is_published_where_its_topic_is_not(robot, capsys):
    code, out = printed(capsys, 'echo', '/front/assessment', '--wait', '4')
    assert code == 1 and '/vjepa_node/camera/assessment' in out.err and not out.out


def test_top_draws_a_table_of_running_nodes_over_dds(robot, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    code, out = printed(capsys, 'top', '--once', '--wait', '60')
    assert code == 0
    row = re.search(r' UNKNOWN +unknown +– +([\d.]+) +([\d.]+) +(\d+) +(\d+) +\d+\+\d+ +untrained',
                    out.out)
    assert row, out.out
    rate_in, rate_out, latency, high = row.groups()
    assert 5 < float(rate_in) < 16 and float(rate_out) > 0 and 0 < int(latency) <= int(high)
    assert re.search(r'encode \d+\.\d', out.out) and re.search(r'process \d+ MB', out.out)
    assert 'tiny · cpu' in out.out and 'UNTRAINED' in out.out
    assert re.search(r'collision_guard .*idle: no command', out.out), out.out


def test_the_table_tells_who_is_silent():
    states, console = States(), Console(width=160, file=io.StringIO())
    states.take('/diagnostics', DiagnosticArray(status=[
        status('node: model', WARN, 'running', {'state': 'active'}),
        status('node: camera front', WARN, 'running', {'level': 'clear'}),
        status('motor: left', WARN, 'foreign', {})]), 10.0)
    console.print(render(states, 20.0))
    text = console.file.getvalue()
    assert 'foreign' not in text and re.search('front .*silent for 10 s', text)


def test_top_ends_where_no_node_reports(capsys, monkeypatch):
    with ros_session() as ros:
        monkeypatch.setenv('ROS_DOMAIN_ID', str(ros.domain_id))
        code, out = printed(capsys, 'top', '--once', '--wait', '0.5')
    assert code == 1 and f'domain {ros.domain_id}' in out.err

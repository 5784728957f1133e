# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What people see of running nodes: echo and top, with real nodes over DDS."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

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
from std_msgs.msg import Header
from test_read import REGIONS, SEEN, over_the_wire, sent

from vjepa_ros import cli
from vjepa_ros.cli.see import render
from vjepa_ros.ros.common.diagnostics import WARN, status
from vjepa_ros.ros.common.message_conversion import cloud, pack_regions
from vjepa_ros.viewer.messages import States, readable

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


def test_assessments_and_regions_are_read_by_their_names():
    got = readable(sent(SEEN))
    assert (got['level'], got['flags']) == ('warning', ['untrained', 'stale', 'device_fallback'])
    assert (got['stamp_ns'], got['time_to_contact'], got['latency_ms']) == (
        SEEN.stamp_ns, SEEN.time_to_contact, 12.5)
    points = readable(over_the_wire(cloud(Header(), pack_regions(REGIONS))))['points']
    assert [(one['side'], one['on_course'], one['x']) for one in points] == [
        (one.side, one.on_course, one.x) for one in REGIONS]
    assert readable(over_the_wire(cloud(Header(), pack_regions(()))))['points'] == []


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


def test_echo_says_who_does_not_publish_and_who_is_silent(robot, capsys):
    code, out = printed(capsys, 'echo', '/front/assessment', '--wait', '4')
    assert code == 1 and '/vjepa_node/camera/assessment' in out.err and not out.out
    quiet = robot.node.create_publisher(PointCloud2, 'quiet', 1)
    code, out = printed(capsys, 'echo', 'quiet', '--once', '--timeout', '0.7')
    assert code == 1 and not out.out
    assert 'no message has come' in out.err and '--timeout 0.7' in out.err
    assert f'/{robot.node.get_name()}' in out.err
    robot.node.destroy_publisher(quiet)


def test_top_draws_a_table_of_running_nodes_over_dds(robot, capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '160')
    code, out = printed(capsys, 'top', '--once', '--wait', '60')
    assert code == 0
    row = re.search(r' CLEAR +none +0.00 +([\d.]+) +([\d.]+) +(\d+) +(\d+) +\d+\+\d+ +untrained',
                    out.out)
    assert row, out.out
    rate_in, rate_out, latency, high = row.groups()
    assert 5 < float(rate_in) < 16 and float(rate_out) > 0 and 0 < int(latency) <= int(high)
    assert re.search(r'encode \d+\.\d', out.out) and re.search(r'process \d+ MB', out.out)
    assert 'tiny · cpu' in out.out and 'UNTRAINED' in out.out
    assert re.search(r'collision_guard .*idle: no command', out.out), out.out


def test_the_table_keeps_cameras_apart_and_tells_who_is_silent():
    def drawn(states, now_s, width=160):
        console = Console(width=width, file=io.StringIO())
        console.print(render(states, now_s))
        return console.file.getvalue()

    states = States()
    camera = {'level': 'clear', 'rate_in_hz': '15.000', 'rate_out_hz': '10.000',
              'dropped.inbox': 3, 'dropped.skipped': 4}
    states.take('/diagnostics', DiagnosticArray(status=[
        status('r/node: model', WARN, 'two', {'state': 'active', 'memory_rss_mb': '512'}),
        status('r/node: camera front', WARN, 'running', camera),
        status('r/node: camera rear', WARN, 'no frames', {'rate_in_hz': 'unknown'}),
        status('planner: planner', WARN, 'avoiding', {'asked.vx': '0.500', 'asked.omega': '0'}),
        status('motor: left', WARN, 'foreign', {})]), 10.0)
    states.take('/r/node/front/assessment', sent(replace(SEEN, bearing=0.1)), 10.0)
    states.take('/scan/assessment', cloud(Header(), pack_regions(REGIONS)), 10.0)
    text = drawn(states, 10.5)
    assert re.search(r'front +WARNING +2.0 s \+6° +0.75 +15.0 +10.0 +– +– +3\+4 +running', text)
    assert re.search(r'rear +unknown +– +– +– .*no frames', text)
    assert re.search(r'planner +\+0.50 m/s \+0.00 rad/s .*avoiding', text)
    assert 'foreign' not in text and '512 MB' in text
    assert re.search(r'3\+4 +running', drawn(states, 10.5, 80))
    assert drawn(states, 20.0).count('silent for 10 s') == 4
    assert re.search(r'front +CLEAR +unknown', drawn(states, 20.0))
    assert 'no node' in drawn(States(), 0.0)


def test_top_ends_where_no_node_reports(capsys, monkeypatch):
    with ros_session() as ros:
        monkeypatch.setenv('ROS_DOMAIN_ID', str(ros.domain_id))
        code, out = printed(capsys, 'top', '--once', '--wait', '0.5')
    assert code == 1 and f'domain {ros.domain_id}' in out.err

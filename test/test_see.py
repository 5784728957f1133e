# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What people see of running nodes: echo and top, with real nodes over DDS."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import yaml

pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from guard_rig import CLEAR, GUARD, QUICK
from node_fixtures import NODE, SMALL, Camera, raw
from ros_harness import ros_session
from scenes import texture
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from test_read import REGIONS, SEEN, over_the_wire, sent

from vjepa_ros.cli import main as cli
from vjepa_ros.ros.common.diagnostics import WARN, status
from vjepa_ros.ros.common.message_conversion import cloud, image, pack_regions
from vjepa_ros.viewer.messages import json_line, readable

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


def test_other_messages_are_read_too_and_what_is_long_is_described():
    grid = np.array([[0.5, math.nan], [1.5, math.nan]], np.float32)
    got = readable(over_the_wire(image(Header(), grid, '32FC1')))
    assert {name: got[name] for name in ('rows', 'known', 'least', 'mean', 'most')} == {
        'rows': 2, 'known': 0.5, 'least': 0.5, 'mean': 1.0, 'most': 1.5}
    got = readable(over_the_wire(image(Header(), np.zeros((48, 64, 3), np.uint8), 'rgb8')))
    assert (got['width'], got['data']) == (64, '9216 values')
    twist = Twist()
    twist.linear.x = 0.25
    assert readable(twist)['linear'] == {'x': 0.25, 'y': 0.0, 'z': 0.0}
    array = DiagnosticArray(status=[status('a: guard', WARN, 'why', {'n': 3, 's': 'unknown'})])
    (one,) = readable(over_the_wire(array))['status']
    assert (one['level'], one['message'], one['values']['n']) == ('warn', 'why', 3)
    assert math.isnan(one['values']['s'])
    assert len(readable(over_the_wire(cloud(Header(), pack_regions(REGIONS * 30))))['x']) == 4


def test_json_lines_are_strict_json():
    line = json_line(readable(sent(CLEAR)))
    got = json.loads(line, parse_constant=lambda word: pytest.fail(f'{word} is not JSON'))
    assert (got['time_to_contact'], got['bearing'], got['level']) == ('inf', None, 'clear')
    assert '\n' not in line


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


def test_echo_says_who_does_not_publish_and_who_is_silent(robot, capsys, monkeypatch):
    code, out = printed(capsys, 'echo', '/front/assessment', '--wait', '4')
    assert code == 1 and '/vjepa_node/camera/assessment' in out.err and not out.out
    quiet = robot.node.create_publisher(PointCloud2, 'quiet', 1)
    monkeypatch.setattr('vjepa_ros.cli.echo.SILENT_S', 0.2)
    monkeypatch.setattr('vjepa_ros.cli.echo.print_error', stop)
    with pytest.raises(KeyError, match='no message has come'):
        cli.main(['echo', 'quiet', '--once'])
    robot.node.destroy_publisher(quiet)


def stop(text, *_):
    """End what would wait for ever."""
    raise KeyError(text)

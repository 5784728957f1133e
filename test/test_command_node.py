# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What both nodes between controller and base do alike, in one process."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip('rclpy')

from geometry_msgs.msg import Twist  # noqa: E402
from guard_rig import CLEAR, active, cloud  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import ReliabilityPolicy  # noqa: E402
from ros_harness import ros_session  # noqa: E402

from vjepa_ros.guard.types import Motion  # noqa: E402
from vjepa_ros.ros.collision_guard import inputs as guard_inputs  # noqa: E402
from vjepa_ros.ros.collision_guard.node import CollisionGuard  # noqa: E402
from vjepa_ros.ros.command.inputs import CommandInputs  # noqa: E402
from vjepa_ros.ros.common import spin  # noqa: E402
from vjepa_ros.ros.common.spin import _serve_once  # noqa: E402
from vjepa_ros.ros.twist_planner import inputs as twist_inputs  # noqa: E402
from vjepa_ros.ros.twist_planner.node import TwistPlannerNode  # noqa: E402

BOTH = pytest.mark.parametrize('kind', [CollisionGuard, TwistPlannerNode])


def turn(omega: float, vx: float = 0.0) -> Twist:
    """A command that both let through: a turn on the spot, or backward where nobody looks."""
    twist = Twist()
    twist.linear.x, twist.angular.z = vx, omega
    return twist


@BOTH
def test_in_a_flood_the_timer_decides_but_less_is_never_late(kind, monkeypatch):
    monkeypatch.setattr(kind, 'FLOOD_S', 1e6)
    with active(kind) as node:
        sent = []
        node._publish = sent.append
        node._on_command(turn(0.1, -0.5))
        node._on_command(turn(0.2, -0.5))              # as fast: has to wait
        assert sent == [Motion(-0.5, 0.0, 0.1)]
        node._on_command(turn(0.3, -0.2))              # slower: must not
        node._on_command(turn(0.4, -0.4))              # faster: waits
        assert sent[1:] == [Motion(-0.2, 0.0, 0.3)]
        node._on_tick()
        assert sent[2:] == [Motion(-0.4, 0.0, 0.4)]
        node._on_command(turn(math.nan, -0.4))         # no number: stops at once
        assert sent[3:] == [Motion()]
        for _ in range(10):                            # and that is enough of it
            node._on_command(turn(math.nan, -0.4))
        assert sent[4:] == []


@BOTH
def test_the_end_of_a_turn_is_never_late(kind, monkeypatch):
    monkeypatch.setattr(kind, 'FLOOD_S', 1e6)
    with active(kind) as node:
        sent = []
        node._publish = sent.append
        node._on_command(turn(0.5))
        for _ in range(10):                            # the first stops, and that is enough of it
            node._on_command(turn(0.0))
        assert sent == [Motion(0.0, 0.0, 0.5), Motion()]


@BOTH
def test_after_another_activation_nothing_is_sent_before_a_command_comes(kind):
    with active(kind) as node:
        node._on_command(turn(0.1))
        node.trigger_deactivate()                      # says the last zero
        node.trigger_activate()
        sent = []
        node._publish = sent.append
        node._on_tick()
        assert node.state == 'active' and sent == []


@BOTH
def test_a_command_after_a_tick_waits_for_no_other_tick(kind):
    with active(kind) as node:
        sent = []
        node._publish = sent.append
        node._on_tick()
        node._on_command(turn(0.1))
        assert sent == [Motion(0.0, 0.0, 0.1)]


@BOTH
def test_a_policy_that_is_set_for_one_camera_holds_for_that_alone(kind):
    topic = '/vjepa_node/{}/assessment'
    with active(kind, sources=['one', 'two'], **{
            f'qos_overrides.{topic.format("one")}.subscription.reliability': 'best_effort'}
                ) as node:
        policies = [node.get_subscriptions_info_by_topic(topic.format(name))[0]
                    .qos_profile.reliability for name in ('one', 'two')]
    assert policies == [ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE]


@BOTH
def test_of_subscriptions_that_are_refused_half_way_none_is_left(kind):
    topic = '/vjepa_node/two/assessment'
    with ros_session() as ros:
        node = kind(context=ros.context, parameter_overrides=[
            Parameter('sources', value=['one', 'two']),
            Parameter(f'qos_overrides.{topic}.subscription.reliability', value='sometimes')])
        try:
            node.trigger_configure()
            node.trigger_activate()
            assert node.state == 'inactive' and 'sometimes' in node.last_failure
            assert not [s for s in node.subscriptions if 'vjepa_node' in s.topic_name]
        finally:
            node.destroy_node()


@pytest.mark.parametrize(('module', 'words'), [
    (guard_inputs, "parameter 'odometry', which is true, needs.*set odometry: false"),
    (twist_inputs, "parameter 'speed_from', which is 'odometry', needs.*set speed_from: sent")])
def test_without_nav_msgs_the_parameter_that_wants_it_is_named(module, words, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nav_msgs.msg', None)
    with pytest.raises(RuntimeError, match=words):
        module.odometry()


@BOTH
def test_messages_refused_on_one_topic_do_not_hide_those_of_another(kind, monkeypatch):
    with active(kind) as node:
        logged = []
        inputs = node._inputs
        monkeypatch.setattr(inputs._node, 'get_logger',
                            lambda: SimpleNamespace(error=logged.append))
        for topic in ('front', 'rear', 'front'):
            inputs.refuse(topic, ValueError('no cloud'))
        assert inputs.refused == 3
        assert [line.partition(':')[0] for line in logged] == ['front', 'rear']


@BOTH
def test_an_output_that_is_the_input_is_refused_with_the_remedy(kind):
    with ros_session() as ros:
        node = kind(context=ros.context, cli_args=['--ros-args', '-r', 'cmd_vel_out:=cmd_vel_in'])
        try:
            node.trigger_configure()
            assert node.state == 'unconfigured'
            assert 'cmd_vel_in and cmd_vel_out are both /cmd_vel_in' in node.last_failure
            assert 'remap it' in node.last_failure
        finally:
            node.destroy_node()


@BOTH
def test_a_robot_stands_while_callbacks_fail_and_goes_on_afterwards(kind, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError('out of order')

    with active(kind) as node:
        sent = []
        node._publish = sent.append
        node._on_command(turn(0.5))
        for _ in range(3):
            _serve_once(SimpleNamespace(spin_once=fail), node)
        assert sent[1:] == [Motion()]                  # at once, and once
        assert 'out of order' in node.failure and node.callbacks_failed == 3
        node._on_command(turn(0.5))
        node._on_tick()
        assert set(sent[1:]) == {Motion()}
        assert node.decided.state == 'fault' and 'out of order' in node.decided.reason
        monkeypatch.setattr(spin, 'FAILED_S', 0.0)
        node._on_tick()
        assert sent[-1] == Motion(0.0, 0.0, 0.5)
        assert node.failure == '' and node.callbacks_failed == 3
        node._publish = fail                           # nor does this end the process
        _serve_once(SimpleNamespace(spin_once=fail), node)
        node._publish = sent.append


def test_an_exception_from_tf_holds_the_robot_and_is_named(monkeypatch):
    with active(CollisionGuard) as node:
        sent = []
        node._publish = sent.append
        node._on_command(turn(0.5))

        def look(*_, **__):
            node._inputs._on_assessment(node.config.sources[0], cloud(CLEAR), {})

        def fail(*_: object) -> None:
            raise TypeError('tf is out of order')

        source = replace(node.config.sources[0], from_tf=True)
        node.config = replace(node.config, sources=(source,))
        node._inputs._frames = SimpleNamespace(yaw=fail)
        _serve_once(SimpleNamespace(spin_once=look), node)
        assert sent[1:] == [Motion()]
        assert node.failure == 'a callback failed: TypeError: tf is out of order'


@BOTH
def test_everything_that_halt_closes_is_closed_whatever_one_part_raises(kind, monkeypatch):
    monkeypatch.setattr(CommandInputs, 'close', lambda inputs: 1 / 0)
    with active(kind) as node:
        sent = []
        node._publish = sent.append
        node._on_command(turn(0.1))
        with pytest.raises(ZeroDivisionError):
            node.halt()
        assert sent[1:] == [Motion()] and node._sent is None
        assert not [s for s in node.subscriptions if s.topic_name == '/cmd_vel_in']
        node.halt()                                    # again: nothing is left to be done
        assert sent[2:] == []


def test_an_empty_list_in_a_file_is_an_empty_list(tmp_path):
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n    slow_on: []\n    ranges: []\n')
    with ros_session() as ros:
        node = CollisionGuard(context=ros.context,
                              cli_args=['--ros-args', '--params-file', str(file)])
        try:
            node.trigger_configure()
            assert node.state == 'inactive', node.last_failure
            assert node.config.settings.slow_on == () and node.config.ranges == ()
        finally:
            node.destroy_node()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The collision_guard over real DDS, with assessments made by hand or by a vjepa_node."""

from __future__ import annotations

import array
import importlib.util
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip('rclpy')

import rclpy
from bundles import save_constant_bundle
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from guard_rig import CLEAR, Every, GUARD, Late, NS, QUICK, Rig, active, guarding, twist_of
from nav_msgs.msg import Odometry
from node_fixtures import Camera, NODE, Publisher, SMALL, now_ns, stamped, values_of
from rclpy.signals import SignalHandlerOptions
from ros_harness import Session, ros_session
from rosgraph_msgs.msg import Clock
from scenes import texture
from sensor_msgs.msg import LaserScan, Range
from std_srvs.srv import SetBool

from vjepa_ros.guard.types import Motion, SourceReport
from vjepa_ros.perception.types import Level
from vjepa_ros.ros.collision_guard.inputs import axis_yaw, range_distance, scan_distance
from vjepa_ros.ros.collision_guard.node import CollisionGuard
from vjepa_ros.ros.local_planner.node import LocalPlannerNode

pytestmark = pytest.mark.ros


@pytest.fixture(scope='module')
def shared() -> Iterator[Rig]:
    with ros_session() as ros, guarding(ros) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """The guard of the module, with a clear view."""
    shared.again()
    return shared


def test_danger_stops_forward_motion_and_leaves_the_rest(rig):
    with rig.driving(0.7, 0.5, -0.2):
        rig.wait_for_speed(0.7)
        rig.seen = replace(CLEAR, level=Level.DANGER, time_to_contact=0.8, bearing=0.4)
        rig.wait_for_speed(0.0)
        assert (rig.twist.linear.y, rig.twist.angular.z) == (-0.2, 0.5)
        rig.wait_for_state('stopped: camera: level danger, RIGHT')
        rig.again()
        rig.wait_for_speed(0.7)


@pytest.mark.parametrize(('stamp', 'text'), [
    (lambda: now_ns() + 3 * NS, 'clock'), (lambda: 0, 'malformed: its stamp is 0')])
def test_a_view_that_can_not_be_trusted_stops_with_the_reason(rig, stamp, text):
    with rig.driving():
        rig.wait_for_speed(1.0)
        rig.stamp = stamp
        status = rig.wait_for_state(f'fault: camera: {text}')
        assert status.level == DiagnosticStatus.ERROR
        rig.wait_for_speed(0.0)
        rig.again()
        rig.wait_for_speed(1.0)


def test_the_service_of_the_override_lets_all_pass_loudly():
    with ros_session() as ros, guarding(ros) as rig, rig.driving():
        rig.seen = replace(CLEAR, level=Level.DANGER, time_to_contact=0.5)
        rig.wait_for_speed(0.0)
        for on, speed in ((True, 1.0), (False, 0.0)):
            request = SetBool.Request(data=on)
            assert ros.call(SetBool, '/collision_guard/override', request).success
            rig.wait_for_speed(speed)
        rig.wait_for_log('OVERRIDE: nothing is guarded')


def test_what_nothing_judges_is_not_sent_and_absurd_values_of_it_stop(rig):
    twist = twist_of(0.5)
    with Every(0.05, lambda: rig.controller.publish(twist)), Every(0.05, rig.look):
        for part, name in ((twist.linear, 'z'), (twist.angular, 'x'), (twist.angular, 'y')):
            for value, speed in ((0.7, 0.5), (1e30, 0.0), (0.0, 0.5), (math.nan, 0.0), (0.0, 0.5)):
                setattr(part, name, value)
                rig.ros.spin_for(0.1)
                rig.wait_for_motion(lambda sent, speed=speed: sent == twist_of(speed))
    rig.wait_for_log('nothing judges it')
    assert all(sent == twist_of(sent.linear.x) for _, sent in rig.out[-100:])


def test_a_robot_stands_while_callbacks_fail_and_goes_on_afterwards(rig):
    def fail() -> None:
        raise RuntimeError('out of order')

    with rig.driving():
        rig.wait_for_speed(1.0)
        timer = rig.process.node.create_timer(0.1, fail)
        rig.wait_for_speed(0.0)
        rig.wait_for_state('fault: a callback failed: RuntimeError: out of order')
        timer.cancel()
        rig.wait_for_speed(1.0)


def test_two_guards_on_one_topic_are_told(rig):
    with rig.ros.compose(GUARD, QUICK, {'__node': 'second_guard'}) as second:
        rig.wait_for_state('/second_guard')
        second.wait_for_output('/collision_guard')


def test_a_controller_of_another_type_is_told(rig):
    context = rclpy.Context()    # in one process DDS allows one type to a topic
    rclpy.init(context=context, domain_id=rig.ros.domain_id,
               signal_handler_options=SignalHandlerOptions.NO)
    other = rclpy.create_node('controller', context=context)
    try:
        other.create_publisher(TwistStamped, 'cmd_vel_in', 1)
        rig.wait_for_state('geometry_msgs/msg/TwistStamped')
    finally:
        other.destroy_node()
        rclpy.shutdown(context=context)


def test_with_odometry_the_measured_speed_counts():
    with ros_session() as ros, guarding(ros, odometry=True, min_time_to_contact=2.0) as rig:
        odom, msg = ros.node.create_publisher(Odometry, 'odom', 1), Odometry()
        msg.twist.twist.linear.x = 0.5
        with rig.driving():
            assert rig.wait_for_state('no odometry on odom').level == DiagnosticStatus.WARN
        with rig.driving(), Every(0.02, lambda: odom.publish(stamped(msg, now_ns()))):
            rig.wait_for_speed(1.0)
            # 3 s at the measured 0.5 m/s are 1.5 m less 0.3 m: not those of the commanded 1 m/s
            rig.seen = replace(CLEAR, level=Level.CAUTION, time_to_contact=3.0)
            rig.wait_for_motion(lambda twist: 0.5 < twist.linear.x < 0.6)


def test_a_clock_that_is_set_makes_all_seen_forgotten():
    with active(CollisionGuard) as node:
        told = [1000.0]
        node._time.ros_s = lambda: told[0] + node.now_s()
        node._on_tick()
        now = node.now_s()
        node.decider.observe(SourceReport('camera', now, now, Level.CLEAR, math.inf))
        node._on_tick()
        assert node.decider.sources['camera'].report is not None
        told[0] += 60.0
        node._on_tick()
        assert node.decider.sources['camera'].report is None


@pytest.mark.skipif(importlib.util.find_spec('tf2_ros') is not None, reason='tf2_ros is here')
def test_direction_from_tf_without_tf_is_refused_with_the_remedy():
    with pytest.raises(AssertionError, match='tf2_ros'), \
            active(CollisionGuard, **{'camera.direction': 'tf'}):
        pass


@pytest.mark.parametrize(('quaternion', 'yaw'), [
    ((-0.5, 0.5, -0.5, 0.5), 0.0), ((-0.7071068, 0.0, 0.0, 0.7071068), math.pi / 2)])
def test_the_direction_of_an_optical_frame(quaternion, yaw):
    assert math.cos(axis_yaw(*quaternion) - yaw) == pytest.approx(1.0)
    with pytest.raises(ValueError, match='up or down'):
        axis_yaw(1.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(('value', 'found'), [
    (1.0, 1.0), (0.01, 0.0), (-math.inf, 0.0), (4.0, math.inf), (math.nan, math.nan)])
def test_a_range_by_rep_117(value, found):
    assert range_distance(Range(min_range=0.05, max_range=4.0, range=value)) == pytest.approx(
        found, nan_ok=True)
    with pytest.raises(ValueError, match='min_range 0 and max_range 0'):
        range_distance(Range(range=value))


def scan(values: dict[int, float]) -> LaserScan:
    """A scan of 360 rays of one degree, from -180 on."""
    ranges = array.array('f', [math.inf] * 360)
    for degrees, value in values.items():
        ranges[degrees + 180] = value
    return LaserScan(angle_min=-math.pi, angle_increment=math.pi / 180, range_min=0.1,
                     range_max=10.0, ranges=ranges)


BLIND_AHEAD = dict.fromkeys(range(-15, 16), math.nan)
ONE_RAY = 0.1 / math.radians(1.0)      # from there on one ray of a degree hides what is 0.1 m wide


@pytest.mark.parametrize(('values', 'yaw', 'mounting', 'found'), [
    ({0: 2.0}, 0.0, 0.0, 2.0), ({20: 2.0}, 0.0, 0.0, math.inf),
    ({20: 0.6}, 0.0, 0.0, 0.6 * math.cos(math.radians(20))),
    ({0: -math.inf}, 0.0, 0.0, 0.0), ({-180: 2.0}, math.pi, 0.0, 2.0),
    ({0: 2.0}, math.pi, math.pi, 2.0),
    # Rays without a reading are not free.
    ({0: math.nan}, 0.0, 0.0, ONE_RAY), ({0: 0.0}, 0.0, 0.0, ONE_RAY),
    ({0: math.nan, 1: math.nan}, 0.0, 0.0, ONE_RAY / 2)])
def test_a_scan_counts_in_its_corridor(values, yaw, mounting, found):
    assert scan_distance(scan(values), yaw, mounting, 0.3) == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize(('msg', 'reason'), [
    (scan(BLIND_AHEAD), r'31 of 120 rays .* send inf'), (LaserScan(range_max=1.0), 'none of its'),
    (LaserScan(range_min=2.0, range_max=1.0), 'range_min')])
def test_a_scan_that_tells_nothing_is_refused_with_the_reason(msg, reason):
    with pytest.raises(ValueError, match=reason):
        scan_distance(msg, 0.0, 0.0, 0.3)


def test_range_sensors_stop_what_the_camera_does_not_see_and_say_when_they_are_blind():
    with ros_session() as ros, guarding(ros, ranges=['sonar', 'scan'], scan__type='scan') as rig:
        sonar, laser = (ros.node.create_publisher(kind, topic, 1)
                        for kind, topic in ((Range, 'sonar'), (LaserScan, 'scan')))
        sound, seen = Range(min_range=0.05, max_range=4.0, range=math.inf), scan({})
        with rig.driving(), Every(0.05, lambda: sonar.publish(stamped(sound, now_ns()))):
            rig.wait_for_state('scan: missing')
            with Every(0.05, lambda: laser.publish(stamped(seen, now_ns()))):
                rig.wait_for_speed(1.0)
                sound.range = 0.3
                rig.wait_for_speed(0.0)
                rig.wait_for_state('0.30 m')
                sound.range = math.inf
                rig.wait_for_speed(1.0)
                seen.ranges = scan(BLIND_AHEAD).ranges
                rig.wait_for_speed(0.0)
                rig.wait_for_state('scan: timeout')


# -- what the local planner does alike ------------------------------------------------------------

BOTH = pytest.mark.parametrize('kind', [CollisionGuard, LocalPlannerNode])


@BOTH
def test_in_a_flood_the_timer_decides_but_less_is_never_late(kind, monkeypatch):
    monkeypatch.setattr(kind, 'FLOOD_S', 1e6)
    with active(kind, command_timeout=60.0) as node:
        sent: list[Motion] = []
        node._publish = sent.append
        node._on_command(twist_of(-0.5, 0.1))
        node._on_command(twist_of(-0.5, 0.2))          # as fast: has to wait
        assert sent == [Motion(-0.5, 0.0, 0.1)]
        node._on_command(twist_of(-0.2, 0.3))          # slower: must not
        node._on_command(twist_of(-0.4, 0.4))          # faster: waits
        assert sent[1:] == [Motion(-0.2, 0.0, 0.3)]
        node._on_tick()
        assert sent[2:] == [Motion(-0.4, 0.0, 0.4)]


@BOTH
def test_an_output_that_is_the_input_is_refused_with_the_remedy(kind):
    with pytest.raises(AssertionError, match='cmd_vel_in and cmd_vel_out are both /cmd_vel_in'), \
            active(kind, '-r', 'cmd_vel_out:=cmd_vel_in'):
        pass


# -- camera, vjepa_node and guard together: every way to lose sight stops ------------------------

SIZE = (160, 120)

@pytest.fixture(scope='module')
def perception(tmp_path_factory) -> dict[str, Any]:
    """Parameters of a node whose heads see that nothing comes where they see anything."""
    weights = save_constant_bundle(tmp_path_factory.mktemp('weights') / 'tiny.safetensors')
    return {**SMALL, 'weights': weights, 'autostart': True, 'max_rate': 15.0}


class Scene:
    """A view that stands, with the noise of a sensor, and what can happen to it."""

    def __init__(self, ros: Session) -> None:
        self._ros, self._still = ros, texture(SIZE).astype(int)
        self._random = np.random.default_rng(0)
        self.what = 'live'
        self.plug_in()

    def picture(self, number: int) -> np.ndarray:
        noise = self._random.integers(-2, 3, self._still.shape)
        seen = {'live': self._still + noise, 'frozen': self._still, 'covered': noise + 2}
        return np.clip(seen[self.what], 0, 255).astype(np.uint8)

    def plug_in(self) -> None:
        self.camera = Camera(self._ros, rate=20.0, size=SIZE, picture=self.picture).__enter__()

    def unplug(self) -> None:
        self.camera.__exit__()


@pytest.fixture(scope='module')
def both(perception) -> Iterator[tuple[Rig, Scene]]:
    with ExitStack() as stack:
        ros = stack.enter_context(ros_session())
        stack.enter_context(ros.compose(NODE, perception))
        rig = stack.enter_context(guarding(ros))
        stack.enter_context(Every(0.05, rig.command))
        scene = Scene(ros)
        stack.callback(scene.unplug)
        yield rig, scene


@pytest.mark.any_distro
@pytest.mark.parametrize(('what', 'text'), [('frozen', 'frozen'), ('covered', 'unknown')])
def test_a_camera_that_sees_nothing_stops_the_robot_with_the_reason(both, what, text):
    rig, scene = both
    rig.wait_for_speed(1.0)
    scene.what = what
    rig.wait_for_state(f'fault: camera: {text}')
    rig.wait_for_speed(0.0)
    scene.what = 'live'
    rig.wait_for_speed(1.0)


def stops_in_time(rig: Rig, blind: Callable[[], None]) -> None:
    """Check that the guard stops soon after the newest assessment has become too old."""
    with Late() as late:
        blind()
        rig.wait_for_state('timeout')
    stamp = rig.states[-1].header.stamp
    told_ns = stamp.sec * NS + stamp.nanosec
    age_ms = float(values_of(rig.states[-1].status[1])['age_ms'])
    rig.stopped_in_time(told_ns - round(1e6 * age_ms), late)


@pytest.mark.any_distro
def test_an_unplugged_camera_stops_the_robot_and_one_that_is_back_lets_it_go(both):
    rig, scene = both
    rig.wait_for_speed(1.0)
    stops_in_time(rig, scene.unplug)
    scene.plug_in()
    rig.wait_for_speed(1.0)


@pytest.mark.any_distro
@pytest.mark.slow
def test_a_perception_process_that_is_killed_stops_the_robot_and_a_new_one_lets_it_go(perception):
    with ros_session() as ros, guarding(ros) as rig, Every(0.05, rig.command):
        scene = Scene(ros)
        with ros.spawn(NODE, perception) as process:
            rig.wait_for_speed(1.0)
            stops_in_time(rig, lambda: process.send(signal.SIGKILL))
        with ros.spawn(NODE, perception):
            rig.wait_for_state('warming_up')
            rig.wait_for_speed(1.0)
        scene.unplug()


@pytest.mark.any_distro
def test_a_simulated_clock_that_jumps_or_stands_makes_all_seen_forgotten():
    with ros_session() as ros, guarding(ros, use_sim_time=True) as rig:
        now, step = [1000 * NS], [NS // 50]

        def tick() -> None:
            now[0] += step[0]
            clock.tick(now[0])

        with Publisher(ros, '/clock', Clock, qos=1) as clock, Every(0.02, tick):
            rig.stamp = lambda: now[0]
            with rig.driving():
                for jump in (-500 * NS, 500 * NS):
                    rig.wait_for_speed(1.0)
                    rig.looking = False
                    ros.spin_for(0.2)             # what was seen before has arrived
                    now[0] += jump
                    rig.wait_for_state('missing')
                    rig.wait_for_speed(0.0)
                    rig.looking = True
                rig.wait_for_speed(1.0)
                step[0] = 0                       # no age can be told while the clock stands
                rig.wait_for_state('missing')
                rig.wait_for_speed(0.0)
                step[0] = NS // 50
                rig.wait_for_speed(1.0)

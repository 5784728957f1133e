# SPDX-License-Identifier: Apache-2.0
"""The collision_guard as a process, over real DDS, with assessments and commands made by hand."""

from __future__ import annotations

import array
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus  # noqa: E402
from geometry_msgs.msg import Twist, TwistStamped  # noqa: E402
from node_fixtures import Node, now_ns, values_of  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from ros_harness import NodeProcess, Session, ros_session  # noqa: E402
from sensor_msgs.msg import LaserScan, PointCloud2, Range  # noqa: E402
from std_srvs.srv import SetBool  # noqa: E402

from vjepa_ros.perception.assessment import Assessment, Level, Quality  # noqa: E402
from vjepa_ros.ros import convert  # noqa: E402
from vjepa_ros.ros.guard_ranges import range_distance, scan_distance  # noqa: E402
from vjepa_ros.ros.layout import pack_assessment  # noqa: E402
from vjepa_ros.ros.outputs import make_header  # noqa: E402

GUARD = 'vjepa_ros.ros.guard_main'
NS = 1_000_000_000
CLEAR = Assessment('camera', 0, 'optical', 0.0, 0.0, 0.0, math.inf, 0.0, math.nan, math.nan,
                   Level.CLEAR, Quality(0), known_fraction=1.0)
# Quick to release, so that tests need not wait.
QUICK = {'release.hold': 0.1, 'release.acceleration': 50.0, 'release.speed': 2.0,
         'unseen_speed': 2.0, 'min_time_to_contact': 1.5, 'autostart': True}
WORST_TICK_S = 0.05


def cloud(seen: Assessment) -> PointCloud2:
    return convert.cloud(make_header(seen.stamp_ns, seen.frame_id), pack_assessment(seen, 1.0))


class Every(threading.Thread):
    """Does something at an even rate until the block ends."""

    def __init__(self, period_s: float, act: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._period_s, self._act = period_s, act
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._period_s):
            self._act()

    def __enter__(self) -> Every:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self.join()


class Rig:
    """A guard with a camera and a controller that this process plays."""

    def __init__(self, ros: Session, process: NodeProcess, stamped: bool = False,
                 name: str = '/collision_guard') -> None:
        self.ros, self.process, self.name = ros, process, name
        node = ros.node
        self.kind = TwistStamped if stamped else Twist
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        self.camera = node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
        self.controller = node.create_publisher(self.kind, 'cmd_vel_in', qos)
        self.out: list[tuple[float, Any]] = []        # (steady time of receipt, Twist)
        self.states: list[DiagnosticArray] = []
        self.seen = CLEAR
        self.stamp: Callable[[], int] = now_ns
        self.looking = True
        node.create_subscription(self.kind, 'cmd_vel_out', self._on_out, 100)
        node.create_subscription(DiagnosticArray, f'{name}/state', self.states.append, 10)

    def _on_out(self, msg: Any) -> None:
        self.out.append((time.monotonic(), msg.twist if self.kind is TwistStamped else msg))

    def look(self) -> None:
        """Publish one assessment."""
        if self.looking:
            self.camera.publish(cloud(replace(self.seen, stamp_ns=self.stamp())))

    def command(self, vx: float = 1.0, omega: float = 0.0, vy: float = 0.0) -> None:
        twist = Twist()
        twist.linear.x, twist.linear.y, twist.angular.z = vx, vy, omega
        self.controller.publish(
            TwistStamped(twist=twist) if self.kind is TwistStamped else twist)

    @contextmanager
    def driving(self, vx: float = 1.0, omega: float = 0.0, vy: float = 0.0) -> Iterator[None]:
        """A controller that commands this at 20 Hz, and a camera of 20 Hz."""
        with Every(0.05, lambda: self.command(vx, omega, vy)), Every(0.05, self.look):
            yield

    @property
    def speed(self) -> float:
        return self.out[-1][1].linear.x if self.out else math.nan

    def wait(self, test: Callable[[], Any], timeout: float = 30.0) -> None:
        assert self.ros.spin_until(test, timeout), (
            f'{self.speed} {self.message}\n{self.process.output}')

    def wait_for_speed(self, speed: float) -> None:
        before = len(self.out)
        self.wait(lambda: len(self.out) > before and abs(self.speed - speed) < 1e-6)

    def wait_for_state(self, text: str) -> None:
        before = len(self.states)
        self.wait(lambda: any(text in array.status[0].message
                              for array in self.states[before:]))

    @property
    def status(self) -> DiagnosticStatus:
        return self.states[-1].status[0]

    @property
    def message(self) -> str:
        return self.status.message if self.states else 'no state yet'

    def values(self, number: int = 0) -> dict[str, str]:
        return values_of(self.states[-1].status[number])

    def override(self, on: bool) -> SetBool.Response:
        return self.ros.call(SetBool, f'{self.name}/override', SetBool.Request(data=on))


@contextmanager
def guarding(ros: Session, stamped: bool = False, **params: Any) -> Iterator[Rig]:
    values = {**QUICK, **{key.replace('__', '.'): value for key, value in params.items()}}
    with ros.spawn(GUARD, values) as process:
        rig = Rig(ros, process, stamped)
        rig.wait(lambda: rig.camera.get_subscription_count() and
                 rig.controller.get_subscription_count() and rig.states)
        yield rig


@pytest.fixture(scope='module')
def rig() -> Iterator[Rig]:
    with ros_session() as ros, guarding(ros) as rig:
        yield rig


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that shares the guard begins with a clear view."""
    yield
    if 'rig' in request.fixturenames:
        rig = request.getfixturevalue('rig')
        rig.seen, rig.stamp, rig.looking = CLEAR, now_ns, True


# -- commands and levels --------------------------------------------------------------------------

def test_a_command_passes_where_the_view_is_clear(rig):
    with rig.driving(0.7, 0.3, -0.2):
        rig.wait_for_speed(0.7)
    twist = rig.out[-1][1]
    assert (twist.linear.y, twist.angular.z) == (-0.2, 0.3)


def test_danger_stops_forward_motion_and_leaves_turning(rig):
    with rig.driving(1.0, 0.5):
        rig.wait_for_speed(1.0)
        rig.seen = replace(CLEAR, level=Level.DANGER, time_to_contact=0.8, bearing=0.4)
        rig.wait_for_speed(0.0)
        assert rig.out[-1][1].angular.z == 0.5
        rig.wait_for_state('stopped: camera: level danger, RIGHT')
        rig.seen = CLEAR
        rig.wait_for_speed(1.0)


def test_caution_slows(rig):
    with rig.driving():
        rig.wait_for_speed(1.0)
        rig.seen = replace(CLEAR, level=Level.CAUTION, time_to_contact=3.5)
        rig.wait_for_speed(0.6)
        rig.wait_for_state('slowed')


def test_the_end_of_commands_is_one_zero(rig):
    with rig.driving():
        rig.wait_for_speed(1.0)
    with Every(0.05, rig.look):
        rig.wait_for_speed(0.0)
        before = len(rig.out)
        rig.ros.spin_for(0.4)
        assert len(rig.out) == before
        assert rig.message == 'idle: no command'


# -- faults ---------------------------------------------------------------------------------------

def test_a_perception_that_falls_silent_stops_within_its_timeout(rig):
    with rig.driving():
        rig.wait_for_speed(1.0)
        rig.looking = False
        since = time.monotonic()
        rig.wait(lambda: rig.speed == 0)
    stopped = next(when for when, twist in rig.out if when > since and twist.linear.x == 0)
    assert stopped - since < 0.5 + 0.05 + WORST_TICK_S    # the harness has its own delay
    rig.wait_for_state('timeout')


@pytest.mark.parametrize(('change', 'text'), [
    ({'flags': Quality.UNTRAINED}, 'untrained'), ({'flags': Quality.WARMING_UP}, 'warming_up'),
    ({'flags': Quality.FROZEN}, 'frozen'),
    ({'level': Level.UNKNOWN, 'time_to_contact': math.nan,
      'flags': Quality.LOOMING_UNKNOWN | Quality.LOW_TEXTURE}, 'unknown')])
def test_a_view_that_can_not_be_trusted_stops_with_the_reason(rig, change, text):
    with rig.driving():
        rig.wait_for_speed(1.0)
        rig.seen = replace(CLEAR, **change)
        rig.wait_for_state(f'fault: camera: {text}')
        rig.wait_for_speed(0.0)
        assert rig.status.level == DiagnosticStatus.ERROR
        rig.seen = CLEAR
        rig.wait_for_speed(1.0)


def test_a_stamp_from_the_future_stops(rig):
    with rig.driving():
        rig.wait_for_speed(1.0)
        rig.stamp = lambda: now_ns() + 3 * NS
        rig.wait_for_state('ahead of the clock')
        rig.wait_for_speed(0.0)
    rig.stamp = now_ns
    # Reports of the past are older than that one: the next test needs newer ones.
    rig.ros.spin_for(3.2)


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_malformed_command_stops_at_once_and_is_told(rig, bad):
    with Every(0.05, rig.look):
        with Every(0.05, rig.command):
            rig.wait_for_speed(1.0)
        with Every(0.05, lambda: rig.command(1.0, bad)):
            rig.wait_for_speed(0.0)
            rig.wait_for_state('command is not a number')
        assert math.isfinite(rig.out[-1][1].angular.z)


def test_a_message_that_is_no_assessment_stops_and_is_told(rig):
    with Every(0.05, rig.command), Every(0.05, rig.look):
        rig.wait_for_speed(1.0)
    with Every(0.05, rig.command), Every(0.05, lambda: rig.camera.publish(PointCloud2())):
        rig.wait_for_state('malformed')
        rig.wait_for_speed(0.0)


def test_a_flood_of_commands_does_not_hold_up_a_stop(rig):
    def flood() -> None:
        for _ in range(20):
            rig.command()

    with Every(0.01, flood), Every(0.05, rig.look):
        rig.wait_for_speed(1.0)
        before = len(rig.out)
        rig.ros.spin_for(1.0)
        assert len(rig.out) - before < 260               # one in 5 ms, and one for each assessment
        rig.seen = replace(CLEAR, level=Level.DANGER, time_to_contact=0.5)
        since = time.monotonic()
        rig.wait_for_speed(0.0)
        assert time.monotonic() - since < 1.0


# -- override, state ------------------------------------------------------------------------------

def test_an_override_lets_all_pass_is_loud_and_expires(rig):
    with rig.driving():
        rig.seen = replace(CLEAR, level=Level.DANGER, time_to_contact=0.5)
        rig.wait_for_speed(0.0)
        answer = rig.override(True)
        assert answer.success
        assert 'OVERRIDE' in answer.message
        rig.wait_for_speed(1.0)
        rig.wait_for_state('OVERRIDE')
        assert rig.status.level == DiagnosticStatus.ERROR
        rig.wait(lambda: 'OVERRIDE for' in rig.process.output)
        assert rig.override(False).success
        rig.wait_for_speed(0.0)


def test_the_reaction_is_measured_and_published(rig):
    with rig.driving():
        rig.wait_for_speed(1.0)
        rig.ros.spin_for(0.3)
    found = rig.values()
    assert 0 < float(found['reaction_ms']) <= float(found['reaction_ms.worst'])
    assert 0 < float(found['latency_ms.median']) <= float(found['latency_ms.worst'])
    source = rig.values(1)
    assert source['level'] == 'clear'
    assert float(source['age_ms']) >= 0


# -- wiring ---------------------------------------------------------------------------------------

def test_two_guards_on_one_topic_are_told(rig):
    with rig.ros.spawn(GUARD, QUICK, {'__node': 'second_guard'}) as second:
        rig.wait_for_state('/second_guard also publishes on /cmd_vel_out')
        second.wait_for_output('/collision_guard also publishes on /cmd_vel_out')


def test_a_controller_of_another_type_is_told(rig):
    wrong = rig.ros.node.create_publisher(TwistStamped, 'cmd_vel_in', 1)
    try:
        rig.wait_for_state('geometry_msgs/msg/TwistStamped')
    finally:
        rig.ros.node.destroy_publisher(wrong)


def test_stamped_commands_have_stamp_and_frame():
    with ros_session() as ros, guarding(ros, stamped=True, message='twist_stamped') as rig:
        heard: list[TwistStamped] = []
        ros.node.create_subscription(TwistStamped, 'cmd_vel_out', heard.append, 10)
        with rig.driving():
            rig.wait_for_speed(1.0)
            rig.wait(lambda: heard)
        assert abs(heard[-1].header.stamp.sec - time.time()) < 5
        rig.process.terminate_and_check(signal.SIGTERM)


def test_a_range_sensor_stops_what_the_camera_does_not_see():
    with ros_session() as ros, guarding(ros, ranges=['sonar']) as rig:
        sonar = ros.node.create_publisher(Range, 'sonar', 1)
        distance = [math.inf]

        def ping() -> None:
            msg = Range(min_range=0.05, max_range=4.0, range=distance[0])
            msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(now_ns(), NS)
            sonar.publish(msg)

        with rig.driving():
            rig.wait_for_state('sonar: missing')
            with Every(0.05, ping):
                rig.wait_for_speed(1.0)
                distance[0] = 0.3
                rig.wait_for_speed(0.0)
                rig.wait_for_state('range is 0.30 m')


def test_bad_parameters_fail_to_configure_and_good_ones_then_do():
    with ros_session() as ros, ros.spawn(GUARD, {'stop_time_to_contact': 5.0}) as process:
        node = Node(ros, process, '/collision_guard')
        assert not node.request('configure')
        process.wait_for_output('stop_time_to_contact is 5.0')
        assert node.set(stop_time_to_contact=1.0).successful
        node.do('configure', 'activate')
        refused = node.set(min_time_to_contact=0.5)
        assert not refused.successful
        assert 'min_time_to_contact 0.5' in refused.reason
        assert node.set(min_time_to_contact=3.0).successful
        assert not node.set(message='twist_stamped').successful
        node.do('deactivate', 'cleanup', 'configure', 'activate')


# -- ranges, without a process --------------------------------------------------------------------

@pytest.mark.parametrize(('value', 'found'), [
    (1.0, 1.0), (0.01, 0.0), (-math.inf, 0.0), (4.0, math.inf), (math.inf, math.inf)])
def test_a_range_by_rep_117(value, found):
    assert range_distance(Range(min_range=0.05, max_range=4.0, range=value)) == pytest.approx(
        found)


def test_a_range_that_is_no_number_is_none():
    assert math.isnan(range_distance(Range(min_range=0.05, max_range=4.0, range=math.nan)))
    with pytest.raises(ValueError, match='min_range'):
        range_distance(Range(min_range=4.0, max_range=0.05))


def scan(values: dict[int, float], default: float = math.inf) -> LaserScan:
    """A scan of 360 rays of one degree, from -180 on."""
    ranges = array.array('f', [default] * 360)
    for degrees, value in values.items():
        ranges[degrees + 180] = value
    return LaserScan(angle_min=-math.pi, angle_increment=math.pi / 180, range_min=0.1,
                     range_max=10.0, ranges=ranges)


@pytest.mark.parametrize(('values', 'yaw', 'mounting', 'found'), [
    ({}, 0.0, 0.0, math.inf), ({0: 2.0}, 0.0, 0.0, 2.0), ({20: 2.0}, 0.0, 0.0, math.inf),
    ({20: 0.6}, 0.0, 0.0, 0.6 * math.cos(math.radians(20))), ({0: 0.05}, 0.0, 0.0, math.inf),
    ({0: -math.inf}, 0.0, 0.0, 0.0), ({90: 2.0}, math.pi / 2, 0.0, 2.0),
    ({0: 2.0}, math.pi, math.pi, 2.0), ({-180: 2.0}, math.pi, 0.0, 2.0)])
def test_a_scan_counts_in_its_corridor(values, yaw, mounting, found):
    assert scan_distance(scan(values), yaw, mounting, 0.3) == pytest.approx(found, abs=1e-5)


def test_a_scan_that_does_not_look_there_says_nothing():
    assert math.isnan(scan_distance(scan({}, math.nan), 0.0, 0.0, 0.3))
    assert math.isnan(scan_distance(LaserScan(), 0.0, 0.0, 0.3))

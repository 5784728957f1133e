# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The twist_planner over real DDS, with fields, commands and speeds made by hand."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus  # noqa: E402
from geometry_msgs.msg import Twist, TwistStamped  # noqa: E402
from guard_rig import GUARD, QUICK, Every, cloud  # noqa: E402
from looming_scenes import OPTICS, field, seen  # noqa: E402
from node_fixtures import Node, now_ns, values_of  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from ros_harness import NodeThread, Session, ros_session  # noqa: E402
from sensor_msgs.msg import PointCloud2  # noqa: E402

from vjepa_ros.perception.looming_cells import LoomingCells  # noqa: E402
from vjepa_ros.perception.types import Level, Quality  # noqa: E402
from vjepa_ros.ros.common import message_conversion  # noqa: E402
from vjepa_ros.ros.common.message_conversion import make_header, pack_cells  # noqa: E402
from vjepa_ros.ros.planner_read import records  # noqa: E402

PLANNER = 'vjepa_ros.ros.twist_planner'
NAME = '/twist_planner'
RELIABLE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
FREE, WALL, LEFT = [], [(-3.0, 3.0, 0.6)], [(-1.5, 0.25, 1.4)]


class Rig(Node):
    """A planner with cameras, a controller and a base that this process plays."""

    def __init__(self, ros: Session, process: NodeThread, stamped: bool = False,
                 cameras: tuple[str, ...] = ('camera',), out: str = 'cmd_vel_out') -> None:
        super().__init__(ros, process, NAME)
        make, listen = ros.node.create_publisher, ros.node.create_subscription
        self.kind = TwistStamped if stamped else Twist
        self.cameras = {name: tuple(make(PointCloud2, f'vjepa_node/{name}/{topic}', 10)
                                    for topic in ('assessment', 'looming_field'))
                        for name in cameras}
        self.controller = make(self.kind, 'cmd_vel_in', RELIABLE)
        self.base = make(self.kind, 'cmd_vel_sent', RELIABLE)
        self.out: list[Any] = []
        self.states: list[DiagnosticArray] = []
        self.candidates: list[PointCloud2] = []
        listen(self.kind, out, self.out.append, 100)
        listen(DiagnosticArray, f'{NAME}/state', self.states.append, 10)
        listen(PointCloud2, f'{NAME}/candidates', self.candidates.append, 10)
        self.again()

    def again(self) -> None:
        """A robot that drives ahead over free ground."""
        self.boxes, self.level, self.flags, self.speed = FREE, Level.WARNING, Quality(0), 1.0
        self.looking, self.measuring, self.age_ns, self.probability = True, True, 0, 0.0

    def look(self) -> None:
        """Publish what the cameras see."""
        stamp = now_ns() - self.age_ns
        result = seen(field(max(self.speed, 0.01), self.boxes), self.level)
        told = replace(result.assessment, stamp_ns=stamp, flags=self.flags,
                       collision_probability=self.probability)
        if self.level < Level.WARNING:
            told = replace(told, time_to_contact=math.inf)
        cells = pack_cells(LoomingCells.of(result, OPTICS))
        for assessment, looming in self.cameras.values() if self.looking else ():
            assessment.publish(cloud(told))
            if self.measuring:
                looming.publish(message_conversion.cloud(make_header(stamp, ''), cells))

    def send(self, publisher: Any, vx: float, omega: float = 0.0, vy: float = 0.0) -> None:
        twist = Twist()
        twist.linear.x, twist.linear.y, twist.angular.z = vx, vy, omega
        publisher.publish(TwistStamped(twist=twist) if self.kind is TwistStamped else twist)

    @contextmanager
    def driving(self, vx: float = 1.0, omega: float = 0.0, vy: float = 0.0) -> Iterator[None]:
        """A controller that commands this at 20 Hz, a camera and a base of 20 Hz."""
        with ExitStack() as parts:
            for act in (lambda: self.send(self.controller, vx, omega, vy), self.look,
                        lambda: self.send(self.base, self.speed)):
                parts.enter_context(Every(0.05, act))
            yield

    @property
    def twist(self) -> Twist:
        return self.out[-1] if self.kind is Twist else self.out[-1].twist

    @property
    def message(self) -> str:
        return self.states[-1].status[0].message if self.states else 'no state yet'

    def until(self, test: Any, timeout: float = 30.0) -> None:
        """Wait until something is so after what comes from now on."""
        self.out.clear()
        assert self.ros.spin_until(lambda: self.out and test(), timeout), (
            f'{self.out[-1:]} {self.message}\n{self.process.output}')

    def until_state(self, text: str, omega: float = 0.0) -> DiagnosticStatus:
        """Wait for a state with this text, for a command with this turn."""
        before, asked = len(self.states), f'{omega:.3f}'
        found = self.ros.spin_until(lambda: next(
            (array for array in self.states[before:] if text in array.status[0].message
             and values_of(array.status[0])['asked.omega'] in (asked, 'none', 'nan')), None),
            30.0)
        assert found, f'{self.message}\n{self.process.output}'
        return found.status[0]


@contextmanager
def planning(ros: Session, stamped: bool = False, remaps: dict[str, str] | None = None,
             cameras: tuple[str, ...] = ('camera',), **params: Any) -> Iterator[Rig]:
    # Boxes here stay where they are in the view: what is remembered would come nearer.
    values = {'autostart': True, 'sources': list(cameras), 'memory': 0.2,
              'message': 'twist_stamped' if stamped else 'twist',
              **{key.replace('__', '.'): value for key, value in params.items()}}
    with ros.compose(PLANNER, values, remaps) as process:
        rig = Rig(ros, process, stamped, cameras)
        assert ros.spin_until(lambda: rig.states and 'active' in process.output and all(
            publisher.get_subscription_count() for publisher in (
                rig.controller, *(p for pair in rig.cameras.values() for p in pair)))), (
            process.output)
        yield rig


@pytest.fixture(scope='module')
def shared() -> Iterator[Rig]:
    with ros_session() as ros, planning(ros) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """The planner of the module, with a robot that drives over free ground."""
    shared.again()
    return shared


def test_over_free_ground_the_command_passes_and_candidates_are_told(rig):
    with rig.driving(0.8, 0.1):
        rig.until(lambda: rig.twist.linear.x == 0.8 and rig.twist.angular.z == 0.1)
        values = values_of(rig.until_state('free', 0.1))
        assert values['sent.vx'] == '0.800' and values['speed.vx'] == '1.000'
        rig.candidates.clear()
        (msg,) = rig.some(rig.candidates)
    rows = records(msg)
    assert rows.dtype.names[:4] == ('vx', 'vy', 'omega', 'cost')
    assert sorted(rows['rank']) == list(range(len(rows)))
    assert rows['vx'][rows['rank'] == 0] == pytest.approx(0.8)
    assert msg.header.frame_id == 'base_link'


def test_it_turns_to_the_free_side_of_an_obstacle(rig):
    rig.boxes = LEFT
    with rig.driving():
        rig.until(lambda: rig.twist.angular.z < 0 and rig.twist.linear.x > 0)
        status = rig.until_state('turned')
        assert 'contact in 1.' in status.message
        values = values_of(status)
        assert float(values['risk']) <= 0.3 < float(values['risk_of_command'])
        assert values['asked.omega'] == '0.000'


def test_a_wall_and_the_collision_probability_slow_it(rig):
    rig.boxes, rig.level = WALL, Level.DANGER
    with rig.driving():
        rig.until(lambda: rig.twist.linear.x < 0.6)
        rig.again()
        rig.probability = 0.9                   # where no point is
        rig.until(lambda: rig.twist.linear.x < 1.0 or rig.twist.angular.z)
        rig.until_state('probability')


@pytest.mark.parametrize(('change', 'words'), [
    ({'looking': False}, 'timeout'), ({'measuring': False}, 'no looming_field'),
    ({'level': Level.UNKNOWN}, 'unknown'), ({'flags': Quality.UNTRAINED}, 'untrained'),
    ({'flags': Quality.WARMING_UP}, 'warming_up'), ({'age_ns': 10 ** 9}, 'timeout'),
    ({'age_ns': -10 ** 9}, 'clock')], ids=lambda value: str(value))
def test_what_cannot_be_trusted_stops_and_is_told(rig, change, words):
    with rig.driving(1.0, 0.4):
        rig.until(lambda: rig.twist.linear.x > 0)
        vars(rig).update(change)
        rig.until(lambda: rig.twist.linear.x == 0 and rig.twist.angular.z == 0.4)
        status = rig.until_state('fault: camera', 0.4)
        assert words in status.message and status.level == DiagnosticStatus.ERROR
        rig.again()                             # and it goes on when that is over
        rig.until(lambda: rig.twist.linear.x > 0)


@pytest.mark.parametrize(('vx', 'omega'), [(-0.5, 0.2), (0.0, 0.7)])
def test_where_no_camera_looks_the_command_passes_also_in_a_fault(rig, vx, omega):
    rig.looking = False
    with rig.driving(vx, omega):
        rig.until(lambda: (rig.twist.linear.x, rig.twist.angular.z) == (vx, omega))
        if vx:
            rig.until_state('uncovered', omega)


def test_what_is_sent_in_a_fault_can_be_chosen(rig):
    rig.flags = Quality.UNTRAINED
    with rig.driving():
        rig.until(lambda: rig.twist.linear.x == 0)
        rig.set(on_fault='pass')
        rig.until(lambda: rig.twist.linear.x == 1.0)
        rig.until_state('fault: camera')
        rig.set(on_fault='silent')
        rig.ros.spin_for(0.3)
        rig.out.clear()
        rig.until_state('fault: camera')
        assert not rig.out
    rig.set(on_fault='stop')


def test_messages_that_are_something_else_are_refused_by_name(rig):
    def refused() -> int:
        return int(values_of(rig.until_state('', 0.0))['refused'])

    looming = rig.cameras['camera'][1]
    with rig.driving():
        rig.until(lambda: rig.twist.linear.x > 0)
        rig.measuring = False
        with Every(0.05, lambda: looming.publish(PointCloud2())):
            rig.until_state('malformed')
        rig.wait_for_log('vjepa_node/camera/looming_field')
        rig.again()
        rig.until(lambda: rig.twist.linear.x > 0)
        before = refused()
        with Every(0.05, lambda: rig.send(rig.base, math.nan)):
            assert rig.ros.spin_until(lambda: refused() > before)


def test_parameters_are_checked_and_act_at_once(rig):
    assert 'accepted' in rig.try_set('accepted', 2.0).reason
    assert 'turns is [0.5]' in rig.try_set('turns', [0.5]).reason
    assert 'speeds is [1.0, 0.5]' in rig.try_set('speeds', [1.0, 0.5]).reason
    assert 'active' in rig.try_set('sources', ['front']).reason
    rig.boxes = LEFT
    with rig.driving():
        rig.until(lambda: rig.twist.angular.z < 0)
        rig.set(turns=[0.0])                    # it may only slow down now
        rig.until(lambda: rig.twist.angular.z == 0 and rig.twist.linear.x < 1)
        rig.set(accepted=1.0)                   # and now anything
        rig.until(lambda: rig.twist.linear.x == 1)
    rig.set(turns=[-1.0, -0.7, -0.45, -0.2, 0.0, 0.2, 0.45, 0.7, 1.0], accepted=0.3)


def test_lifecycle(rig):
    with rig.driving():
        rig.until(lambda: rig.twist.linear.x == 1.0)
        rig.do('deactivate')
        assert rig.ros.spin_until(lambda: rig.twist == Twist(), 10.0)     # the last word
        rig.out.clear()
        rig.ros.spin_for(0.3)
        assert not rig.out
        rig.do('cleanup', 'configure')
        rig.ros.spin_for(0.3)
        assert not rig.out
        rig.do('activate')
        rig.until(lambda: rig.twist.linear.x == 1.0)


def test_two_cameras_and_stamped_commands():
    with ros_session() as ros, planning(ros, True, cameras=('front', 'rear'),
                                        rear__yaw=math.pi, rear__x=-0.3) as rig:
        rig.boxes = LEFT
        with rig.driving():
            rig.until(lambda: rig.twist.angular.z < 0)
            assert len(rig.states[-1].status) == 3
        rig.again()
        rig.speed, rig.boxes, rig.level = -1.0, WALL, Level.DANGER
        with rig.driving(-1.0):
            rig.until(lambda: rig.twist.linear.x > -1)
            assert 'uncovered' not in rig.until_state('').message


def test_without_somebody_who_tells_the_speed_it_stops():
    with ros_session() as ros, planning(ros) as rig:
        ros.node.destroy_publisher(rig.base)
        with (Every(0.05, lambda: rig.send(rig.controller, 1.0)), Every(0.05, rig.look)):
            rig.until_state('cmd_vel_sent')
            rig.until(lambda: rig.twist.linear.x == 0)


@pytest.mark.skipif(importlib.util.find_spec('nav_msgs') is None, reason='nav_msgs is missing')
def test_odometry_tells_the_speed():
    from nav_msgs.msg import Odometry

    with ros_session() as ros, planning(ros, speed_from='odometry') as rig:
        odometry = ros.node.create_publisher(Odometry, 'odom', 1)

        def tell() -> None:
            msg = Odometry()
            msg.header.stamp = ros.node.get_clock().now().to_msg()
            msg.twist.twist.linear.x = 1.0
            odometry.publish(msg)

        rig.boxes = LEFT
        with rig.driving():
            rig.until_state('odometry')
            with Every(0.05, tell):
                rig.until(lambda: rig.twist.angular.z < 0)
            rig.until_state('odometry')


@pytest.mark.parametrize(('speed_from', 'told'), [('own', True), ('sent', False)])
def test_what_stands_behind_a_planner_that_believes_itself_is_an_error(speed_from, told):
    with ros_session() as ros:
        ros.node.create_publisher(Twist, 'cmd_vel_in', 1)      # a controller that listens, too
        ros.node.create_subscription(Twist, 'cmd_vel_planned', lambda msg: None, 1)
        with ros.compose(PLANNER, {'autostart': True, 'speed_from': speed_from},
                         {'cmd_vel_out': 'cmd_vel_planned'}) as planner:
            states: list[DiagnosticArray] = []
            ros.node.create_subscription(DiagnosticArray, '/diagnostics', states.append, 10)

            def told_of() -> bool:
                return bool(states) and 'set speed_from' in states[-1].status[0].message

            assert ros.spin_until(lambda: bool(states))
            assert not ros.spin_until(told_of, 1.0)
            with ros.compose(GUARD, {'autostart': True}, {'cmd_vel_in': 'cmd_vel_planned',
                                                          'cmd_vel_out': 'cmd_vel'}):
                assert bool(ros.spin_until(told_of, 20.0 if told else 1.5)) == told
            if told:
                log = planner.wait_for_output('/collision_guard listens to /cmd_vel_planned')
                assert 'remap cmd_vel_sent to /cmd_vel' in log


def test_controller_planner_and_guard_in_a_row():
    with ros_session() as ros, ExitStack() as parts:
        rig = parts.enter_context(planning(ros, remaps={'cmd_vel_out': 'cmd_vel_planned',
                                                        'cmd_vel_sent': 'cmd_vel'}))
        guard = parts.enter_context(ros.compose(GUARD, QUICK, {
            'cmd_vel_in': 'cmd_vel_planned', 'cmd_vel_out': 'cmd_vel'}))
        guarded: list[Twist] = []
        ros.node.create_subscription(Twist, 'cmd_vel', guarded.append, 10)
        rig.out = guarded
        rig.level = Level.CLEAR
        with (Every(0.05, lambda: rig.send(rig.controller, 1.0)), Every(0.05, rig.look)):
            rig.until_state('free')
            rig.until(lambda: rig.twist.linear.x == 1.0)
            rig.boxes, rig.level = LEFT, Level.WARNING
            rig.until(lambda: rig.twist.angular.z < 0)         # the planner
            rig.level = Level.DANGER
            rig.until(lambda: rig.twist.linear.x == 0)         # the guard
            assert guard.alive()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The local_planner over real DDS, with fields, commands and speeds made by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip('rclpy')

from diagnostic_msgs.msg import DiagnosticStatus
from fields import OPTICS, field, seen
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from guard_rig import CommandRig, Every, GUARD, PLANNER, RELIABLE, cloud, twist_of
from nav_msgs.msg import Odometry, Path
from node_fixtures import NS, now_ns, stamped, values_of
from ros_harness import NodeThread, Session, ros_session
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Level
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.message_conversion import make_header, pack_cells
from vjepa_ros.ros.read import records

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

NAME = '/local_planner'
FREE, LEFT = [], [(-1.5, 0.25, 1.4)]


class Rig(CommandRig):
    """A planner with a camera and a base; commands have stamps."""

    def __init__(self, ros: Session, process: NodeThread) -> None:
        super().__init__(ros, process, NAME, stamped=True)
        make = ros.node.create_publisher
        self.assessment, self.looming = (make(PointCloud2, f'vjepa_node/camera/{topic}', 10)
                                         for topic in ('assessment', 'looming_field'))
        self.base = make(self.kind, 'cmd_vel_sent', RELIABLE)
        self.goal = make(PoseStamped, 'goal_pose', RELIABLE)
        self.path = make(Path, 'path', RELIABLE)
        self.odometry = make(Odometry, 'odom', RELIABLE)
        self.candidates: list[PointCloud2] = []
        ros.node.create_subscription(PointCloud2, f'{NAME}/candidates', self.candidates.append, 10)
        self.again()

    def again(self) -> None:
        """A robot that drives ahead over free ground."""
        self.boxes = FREE
        self.looking = self.measuring = True
        self.place: tuple[float, float] | None = (0.0, 0.0)

    def look(self) -> None:
        stamp = now_ns()
        result = seen(field(1.0, self.boxes), Level.WARNING)
        told = replace(result.assessment, stamp_ns=stamp, collision_probability=0.0)
        cells = LoomingCells.of(result, OPTICS)
        cells = pack_cells(replace(cells, moving=np.full(len(cells), np.nan, np.float32)))
        if self.looking:
            self.assessment.publish(cloud(told))
            if self.measuring:
                self.looming.publish(message_conversion.cloud(make_header(stamp, ''), cells))

    def tell_speed(self) -> None:
        self.send(self.base, 1.0)

    def driving(self, *motion: float) -> AbstractContextManager[None]:
        return super().driving(*motion, also=self.tell_speed)

    def locate(self) -> None:
        """Say where the robot is; it heads along y."""
        if self.place is not None:
            msg = Odometry(header=Header(frame_id='odom'))
            msg.pose.pose = pose(*self.place)
            self.odometry.publish(msg)

    def go_to(self, *points: tuple[float, float], frame: str = 'odom') -> None:
        """Send a goal, or a path of several points."""
        poses = [PoseStamped(header=Header(frame_id=frame), pose=pose(*at)) for at in points]
        if len(poses) == 1:
            self.goal.publish(poses[0])
        else:
            self.path.publish(Path(header=Header(frame_id=frame), poses=poses))

    @contextmanager
    def afoot(self) -> Iterator[None]:
        """A robot without a command that knows where it is."""
        with Every(0.05, self.look), Every(0.05, self.locate), Every(0.05, self.tell_speed):
            self.ros.spin_for(0.7)                  # what was commanded before has ended
            yield

    def wait_for_turn(self) -> None:
        self.wait_for_motion(lambda twist: twist.angular.z < 0 and twist.linear.x > 0)

    def wait_for_state(self, text: str, omega: float | None = 0.0) -> DiagnosticStatus:
        return super().wait_for_state(text, omega)


def pose(x: float, y: float) -> Pose:
    turn = Quaternion(z=math.sqrt(0.5), w=math.sqrt(0.5))
    return Pose(position=Point(x=x, y=y), orientation=turn)


@contextmanager
def planning(ros: Session, **params: Any) -> Iterator[Rig]:
    # Boxes here stay where they are in the view: what is remembered would come nearer.
    values = {'autostart': True, 'memory': 0.5, 'message': 'twist_stamped', **params}
    with ros.compose(PLANNER, values) as process:
        rig = Rig(ros, process)
        rig.wait(lambda: rig.states and 'active' in process.output and all(
            publisher.get_subscription_count()
            for publisher in (rig.controller, rig.assessment, rig.looming)))
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
        rig.wait_for_motion(lambda twist: (twist.linear.x, twist.angular.z) == (0.8, 0.1))
        values = values_of(rig.wait_for_state('free', 0.1))
        assert values['sent.vx'] == '0.800' and values['speed.vx'] == '1.000'
        # While a busy machine is late, candidates without a command or odometry are told.
        rig.wait(lambda: any(records(one)['vx'][0] == np.float32(0.8) for one in rig.candidates))
    assert records(rig.candidates[-1]).dtype.names[:4] == ('vx', 'vy', 'omega', 'cost')


@pytest.mark.parametrize(('change', 'words'), [
    ({'looking': False}, 'timeout'), ({'measuring': False}, 'no looming_field')], ids=str)
def test_what_cannot_be_trusted_stops_and_is_told(rig, change, words):
    with rig.driving(1.0, 0.4):
        rig.wait_for_motion(lambda twist: twist.linear.x > 0)
        vars(rig).update(change)
        rig.wait_for_motion(lambda twist: twist.linear.x == 0 and twist.angular.z == 0.4)
        status = rig.wait_for_state('fault: camera', 0.4)
        assert words in status.message and status.level == DiagnosticStatus.ERROR
        rig.again()                             # and it goes on when that is over
        rig.wait_for_motion(lambda twist: twist.linear.x > 0)


def test_it_drives_to_a_goal_around_an_obstacle_and_arrives(rig):
    with rig.afoot():
        rig.go_to((0.0, 4.0))
        rig.wait_for_motion(lambda twist: twist.linear.x > 0.2 and abs(twist.angular.z) < 0.6)
        assert '4.0 m left' in rig.wait_for_state('driving').message
        rig.boxes = LEFT
        rig.wait_for_turn()
        for away in np.arange(0.3, 4.0, 0.3):
            rig.place = (0.0, float(away))
            rig.ros.spin_for(0.1)
        rig.wait_for_state('arrived')
        rig.wait(lambda: rig.twist.linear.x == 0)


def test_it_follows_the_local_part_of_a_path(rig):
    with rig.afoot():
        rig.go_to((0.0, 0.0), (-3.0, 1.0), (20.0, 1.0))
        rig.wait_for_motion(lambda twist: twist.angular.z > 0)      # not yet for its end
        assert values_of(rig.wait_for_state('driving'))['course'] == 'active'


@pytest.mark.parametrize(('points', 'frame', 'words'), [
    ([(0.0, -3.0)], 'odom', 'behind'), ([(0.0, 3.0)], 'moon', "'moon'")], ids=str)
def test_goals_that_cannot_be_followed_are_refused_and_nothing_ends(rig, points, frame, words):
    with rig.afoot():
        rig.go_to((0.0, 4.0))
        rig.wait_for_motion(lambda twist: twist.linear.x > 0)
        rig.go_to(*points, frame=frame)
        status = rig.wait_for_state(words)      # a refusal of before may still be told
        assert 'refused' in status.message and status.level == DiagnosticStatus.WARN
        rig.wait(lambda: rig.twist.linear.x == 0)                   # nor the goal before


def test_a_goal_ends_with_a_command_and_waits_for_odometry(rig):
    with rig.afoot():
        rig.go_to((0.0, 4.0))
        rig.wait_for_motion(lambda twist: twist.linear.x > 0)
        rig.place = None
        assert 'no pose' in rig.wait_for_state('fault: pose').message
        rig.wait_for_speed(0.0)
        rig.place = (0.0, 0.5)
        rig.wait_for_motion(lambda twist: twist.linear.x > 0)
        rig.command(0.1)
        rig.wait(lambda: values_of(rig.status)['course'] == 'ended by a command')


@pytest.mark.parametrize('speed_from', ['sent', 'odometry'])
def test_it_stops_until_somebody_tells_the_speed(speed_from):
    words = 'cmd_vel_sent' if speed_from == 'sent' else 'no odometry'
    with ros_session() as ros, planning(ros, speed_from=speed_from) as rig, \
            Every(0.05, rig.command), Every(0.05, rig.look):
        odom = Odometry()
        odom.twist.twist = twist_of()
        ros.node.destroy_publisher(rig.base)
        rig.boxes = LEFT
        rig.wait_for_state(words)
        rig.wait_for_speed(0.0)
        with Every(0.05, lambda: rig.odometry.publish(stamped(odom, now_ns() - 5 * NS))):
            rig.wait_for_log('odom: .*s old')
        rig.base = ros.node.create_publisher(rig.kind, 'cmd_vel_sent', RELIABLE)
        with Every(0.05, lambda: rig.send(rig.base, 1.0) if speed_from == 'sent' else
                   rig.odometry.publish(stamped(odom, now_ns()))):
            rig.wait_for_turn()
        ros.node.destroy_publisher(rig.base)
        rig.wait_for_state(words)


def test_a_guard_behind_a_planner_that_takes_its_own_commands_for_the_speed_is_an_error():
    with ros_session() as ros, ros.compose(
            PLANNER, {'autostart': True}, {'cmd_vel_out': 'cmd_vel_planned',
                                           'cmd_vel_sent': 'cmd_vel_planned'}) as planner, \
            ros.compose(GUARD, {'autostart': True}, {'cmd_vel_in': 'cmd_vel_planned',
                                                     'cmd_vel_out': 'cmd_vel'}):
        log = planner.wait_for_output('/collision_guard listens to /cmd_vel_planned')
        assert 'remap cmd_vel_sent to /cmd_vel' in log

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A robot in a rendered episode as a ROS node: a camera, a base, and a blind controller.

It publishes ``camera/image_raw`` and ``camera/camera_info``, ``odom`` (nav_msgs/Odometry), and
``cmd_vel_in`` (geometry_msgs/Twist): the command of the controller, which follows its route and
sees nothing; or, with ``goal``, ``goal_pose`` (in ``odom``) once. It follows ``cmd_vel_out``; a
command older than half a second counts as zero. It waits for a subscriber of its pictures and a
publisher of commands, stands for ``settle`` seconds, then drives.

With ``publish_clock`` it simulates time (see `WorldClock`); without, each picture shows the world
at the time of rendering. Every picture becomes one line of JSON on standard output (with NaN), of
``kind`` 'moment' with the fields of `Moment`; the last line is of ``kind`` 'outcome'.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import cv2
import numpy as np
import torch
from builtin_interfaces.msg import Time as TimeMsg
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped, Twist
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.time import Time
from rosgraph_msgs.msg import Clock as ClockMsg
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from vjepa_ros.lab.drive.page import TopView
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, GOAL_M, SETS
from vjepa_ros.lab.world.episodes.robot import ARRIVED_M
from vjepa_ros.lab.world.episodes.world import EpisodeWorld, WorldClock
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.ros import read
from vjepa_ros.ros.common.declared_parameters import read_once
from vjepa_ros.ros.common.message_conversion import image
from vjepa_ros.ros.common.node import ResilientNode
from vjepa_ros.ros.common.process import run
from vjepa_ros.ros.read import records
from vjepa_ros.ros.sim.camera_source import camera_info
from vjepa_ros.ros.sim.parameters import ROBOT

COMMAND_AGE_S = 0.5      # an older command counts as zero
MAX_STEP_S = 0.3         # between two pictures; a slower computer slows the world down
CLOCK_S = 0.01           # real time between two steps, and between messages on /clock
NS = 1e9


class SimulatedRobot(ResilientNode, Node):
    """Drives one episode, and writes lines to `out`, by default standard output."""

    def __init__(self, out: TextIO | None = None) -> None:
        super().__init__('simulated_robot')
        self._out = out or sys.stdout
        own = read_once(self, ROBOT)
        config = replace(EpisodeConfig(), rate=own.rate, settle_s=own.settle)
        bank = TextureBank.procedural(BANK_SEED)
        materials = Materials(bank.groups, bank.walks)
        episode = SETS[own.set](own.seed, own.episode, materials, config)
        self._episode = episode
        self._world = EpisodeWorld([episode], config, bank, own.width)
        self._wait = own.wait_for_camera
        self.outcome: dict[str, Any] | None = None      # how the episode ended, once it has
        self._command, self._commanded_s = (0.0, 0.0), -math.inf
        self._progress = self._driven = 0.0
        self._reached = False
        self._last_s = math.nan
        self._seen = (math.nan, 255)
        self._state = ('free', '')
        eager = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        quick = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._image = self.create_publisher(Image, 'camera/image_raw', quick)
        self._info = self.create_publisher(CameraInfo, 'camera/camera_info', quick)
        self._odometry = self.create_publisher(Odometry, 'odom', eager)
        self._sends_goal = own.goal
        self._controller: Any = (self.create_publisher(PoseStamped, 'goal_pose', eager)
                                 if self._sends_goal
                                 else self.create_publisher(Twist, 'cmd_vel_in', eager))
        self._goal_sent = False
        self._film = _Film(self, own.film, self._world) if own.film else None
        self._plans_ms: list[float] = []
        self.create_subscription(DiagnosticArray, 'local_planner/state', self._on_plan, 10)
        self._commands = self.create_subscription(Twist, 'cmd_vel_out', self._on_command, eager)
        self.create_subscription(PointCloud2, 'vjepa_node/camera/assessment', self._on_seen, quick)
        self.create_subscription(DiagnosticArray, 'collision_guard/state', self._on_state, 10)
        # It starts now, later than any earlier episode: time never goes back.
        self._time = WorldClock(self.get_clock().now().nanoseconds / NS, 1 / config.rate,
                                patient=own.publish_clock)
        self._times = (self.create_publisher(ClockMsg, '/clock', quick)
                       if own.publish_clock else None)
        self.create_timer(CLOCK_S, self._go_on, clock=self.steady)

    @property
    def done(self) -> bool:
        return self.outcome is not None

    # -- inputs ------------------------------------------------------------------------------

    def _stamp(self) -> TimeMsg:
        return Time(nanoseconds=round(self._time.now_s * NS)).to_msg()

    def _on_command(self, msg: Twist) -> None:
        self._command = (msg.linear.x, msg.angular.z)
        self._commanded_s = self._time.now_s

    def _on_seen(self, msg: PointCloud2) -> None:
        seen = read.assessment(msg)
        self._time.assessed(read.stamp_ns(msg) / NS)
        self._seen = (seen.time_to_contact, int(seen.level))

    def _on_state(self, msg: DiagnosticArray) -> None:
        status = next(iter(msg.status))
        values = {pair.key: pair.value for pair in status.values}
        self._state = (values.get('action', status.message), values.get('reason', ''))

    def _on_plan(self, msg: DiagnosticArray) -> None:
        values = {pair.key: pair.value for pair in next(iter(msg.status)).values}
        if self._world.time_s >= 0 and 'choice_ms' in values:
            self._plans_ms.append(float(values['choice_ms']))

    # -- outputs -----------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Return whether there are subscribers and a publisher of commands."""
        return ((not self._wait or self._image.get_subscription_count() > 0)
                and (not self._sends_goal or self._controller.get_subscription_count() > 0)
                and self.count_publishers(self._commands.topic_name) > 0)

    def _go_on(self) -> None:
        """Advance the time, and render a picture that is due."""
        self._time.advance()
        if self._times is not None:
            self._times.publish(ClockMsg(clock=self._stamp()))
        if self._time.due:
            if self.outcome is None and self._ready():
                self._tick()
            self._time.drawn()

    def _tick(self) -> None:
        now = self._time.now_s
        if math.isnan(self._last_s):
            self._time.begin()
        else:
            self._move(now)
        self._last_s = now
        self._publish()
        world, goes = self._world, math.isfinite(self._episode.shortest)
        if world.collided[0] or world.time_s >= self._episode.ends_s or (goes and self._reached):
            self.outcome = {
                'kind': 'outcome', 'number': self._episode.number,
                'scenario': self._episode.scenario, 'place': self._episode.place,
                'cruise': self._episode.route.cruise, 'collided': bool(world.collided[0]),
                'struck': bool(world.struck[0]), 'touched': world.touched[0],
                'progress': self._progress, 'reached': self._reached, 'driven': self._driven,
                'shortest': self._episode.shortest,
                'plan_ms': float(np.mean(self._plans_ms or math.nan)),
                'real_time_factor': self._time.factor}
            self._tell(self.outcome)

    def _move(self, now: float) -> None:
        """Advance the world by the time since the last picture."""
        fresh = now - self._commanded_s <= COMMAND_AGE_S
        speed, turn = self._command if fresh else (0.0, 0.0)
        length = min(MAX_STEP_S, max(1e-3, now - self._last_s))
        world, route = self._world, self._episode.route
        before = world.robots.place[0]
        world.step(np.array([speed]), np.array([turn]), length_s=length)
        self._driven += float(np.linalg.norm(world.robots.place[0] - before))
        self._reached |= not world.collided[0] and bool(
            np.linalg.norm(world.robots.place[0] - route.points[-1]) <= GOAL_M)
        self._progress = max(self._progress, min(1.0, route.gone(world.robots.place[0]) / (
            route.length - ARRIVED_M)))

    def _publish(self) -> None:
        world, robots = self._world, self._world.robots
        stamp = self._stamp()
        picture = world.pictures(np.array([0]))[0]
        header = Header(stamp=stamp, frame_id='camera')
        self._info.publish(camera_info(header, picture, world.intrinsics[0].tolist()))
        self._image.publish(image(header, picture, 'rgb8'))
        if self._film is not None:
            self._film.write(picture)
        self._odometry.publish(self._odom(stamp))
        wanted = (0.0, 0.0)
        if world.time_s >= 0:
            speed, turn = self._episode.route.command(robots.place[0], float(robots.yaw[0]))
            most = world.config.drive
            wanted = min(speed, most.speed), min(max(turn, -most.turn), most.turn)
        if self._sends_goal:
            self._send_goal(stamp)
        else:
            command = Twist()
            command.linear.x, command.angular.z = float(wanted[0]), float(wanted[1])
            self._controller.publish(command)
        moment = {'kind': 'moment', 'time': world.time_s, 'speed': float(robots.speed[0]),
                  'wanted': float(wanted[0]), 'distance': world.clearance(0),
                  'time_to_contact': self._seen[0], 'level': self._seen[1],
                  'state': self._state[0], 'reason': self._state[1]}
        self._tell(moment)

    def _send_goal(self, stamp: TimeMsg) -> None:
        """Send the planner the end of the route, once the drive has begun."""
        if self._world.time_s >= 0 and not self._goal_sent:
            self._goal_sent = True
            goal = PoseStamped(header=Header(stamp=stamp, frame_id='odom'))
            x, z = self._episode.route.points[-1].tolist()
            goal.pose.position.x, goal.pose.position.y = z, -x
            goal.pose.orientation.w = 1.0
            self._controller.publish(goal)

    def _tell(self, record: dict[str, Any]) -> None:
        self._out.write(json.dumps(record) + '\n')
        self._out.flush()

    def _odom(self, stamp: TimeMsg) -> Odometry:
        """Return the pose in ROS axes: x ahead at the start, y left, yaw to the left."""
        robots = self._world.robots
        message = Odometry(child_frame_id='base_link')
        message.header.stamp, message.header.frame_id = stamp, 'odom'
        message.pose.pose.position.x = float(robots.place[0, 1])
        message.pose.pose.position.y = -float(robots.place[0, 0])
        half = -0.5 * float(robots.yaw[0])
        message.pose.pose.orientation.z = math.sin(half)
        message.pose.pose.orientation.w = math.cos(half)
        message.twist.twist.linear.x = float(robots.speed[0])
        message.twist.twist.angular.z = float(robots.turn[0])
        return message


class _Film:
    """Writes the pictures of a drive as files, and views from above beside them."""

    def __init__(self, node: Node, folder: str, world: EpisodeWorld) -> None:
        self._folder, self._world, self._above = folder, world, TopView(world)
        self._candidates: np.ndarray | None = None
        node.create_subscription(PointCloud2, 'local_planner/candidates', self._on_plan, 1)

    def _on_plan(self, msg: PointCloud2) -> None:
        self._candidates = records(msg)

    def write(self, picture: np.ndarray) -> None:
        for end, rgb in (('', picture), ('_map', self._above.draw(self._candidates))):
            folder = Path(self._folder + end)
            folder.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(folder / f'{self._world.frame:04d}.png'),
                        cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))


def main(args: list[str] | None = None) -> int:
    """Drive one episode; exits 0 at its end, and on SIGINT and SIGTERM."""
    # The perception node needs the other half of the processor.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    return run('simulated_robot', SimulatedRobot, args)


if __name__ == '__main__':
    sys.exit(main())

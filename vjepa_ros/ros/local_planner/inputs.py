# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscriptions of the local planner besides commands: cameras, the speed, goals and paths."""

from __future__ import annotations

import importlib.util
import math
from functools import partial
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
from nav_msgs.msg import Odometry, Path
from sensor_msgs.msg import PointCloud2

from vjepa_ros.guard.settings import SILENCE_S
from vjepa_ros.guard.types import Motion
from vjepa_ros.planning.decision import ODOMETRY, Pose, SENT, on_earth
from vjepa_ros.ros import read
from vjepa_ros.ros.command.inputs import CommandInputs
from vjepa_ros.ros.command.peers import twist_class
from vjepa_ros.ros.common.endpoints import SMALL, Transforms

DEPTH = 5         # queue of a camera
# Bytes: 40,000 poses or 80,000 cells; features of the largest encoder, or a picture.
LARGE = 1 << 22


class LocalInputs(CommandInputs):
    """Complete pictures and faults of cameras act at once, goals and paths too."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._sent = ''
        self._odom_frame = ''

    def open(self) -> None:
        config = self._config
        for name, prefix in config.topics.items():
            for topic, take, most in (('assessment', self._on_assessment, SMALL),
                                      ('looming_field', self._on_field, LARGE)):
                self.listen(PointCloud2, f'{prefix}/{topic}', partial(take, name), DEPTH, True,
                            most, partial(self._malformed, name, topic))
        self.listen(PoseStamped, 'goal_pose', self._on_goal, reliable=True)
        self.listen(Odometry, 'odom', self._on_odometry)
        self.listen(Path, 'path', self._on_path, reliable=True, most=LARGE)
        if importlib.util.find_spec('tf2_ros') is not None:
            self._transforms = Transforms(self._node, config.base_frame)
        if config.speed_from == SENT:
            self._sent = self._node.resolve_topic_name('cmd_vel_sent')
            self.listen(twist_class(config.message), 'cmd_vel_sent', self._on_sent)

    def watch(self) -> None:
        """Check whether something publishes what is sent to the base."""
        if self._sent:
            self._decider.wired = self._node.count_publishers(self._sent) > 0

    def _on_assessment(self, name: str, msg: PointCloud2) -> None:
        now = self._node.now_s()
        try:
            seen, age = read.assessment(msg, name), self.age_s(msg)
        except (ValueError, IndexError) as error:     # of another version, or empty
            self._malformed(name, 'assessment', error)
            return
        if self._decider.assessed(name, seen, now, age):
            self._node.act_unless_flooded()

    def _on_field(self, name: str, msg: PointCloud2) -> None:
        try:
            cells, age = read.looming_field(msg), self.age_s(msg)
        except ValueError as error:                   # of another version
            self._malformed(name, 'looming_field', error)
            return
        if self._decider.measured(name, cells, read.stamp_ns(msg), self._node.now_s(), age):
            self._node.act_unless_flooded()

    def _malformed(self, name: str, topic: str, error: Exception) -> None:
        self._decider.malformed(name, self.refuse(f'{self._config.topics[name]}/{topic}', error))
        self._node.act_unless_flooded()

    def _on_sent(self, msg: Twist | TwistStamped) -> None:
        self._moves('cmd_vel_sent', msg.twist if isinstance(msg, TwistStamped) else msg)

    def _on_odometry(self, msg: Odometry) -> None:
        age_s = self.odometry_age_s(msg)
        if age_s > SILENCE_S:
            self.refuse('odom', ValueError(
                f'its stamp is {age_s:.2f} s old, more than {SILENCE_S:g} s; stamp odometry by '
                'the clock of this node'))
            return
        try:
            self._decider.located(_pose(msg.pose.pose), self._node.now_s())
            self._odom_frame = msg.header.frame_id
        except ValueError as error:                   # not finite: ignored
            self.refuse('odom', error)
        if self._config.speed_from == ODOMETRY:
            self._moves('odom', msg.twist.twist)

    def _on_goal(self, msg: PoseStamped) -> None:
        self._follow('goal', msg.header.frame_id, [msg.pose.position])

    def _on_path(self, msg: Path) -> None:
        self._follow('path', msg.header.frame_id, [one.pose.position for one in msg.poses])

    def _follow(self, what: str, frame_id: str, positions: list[Any]) -> None:
        try:
            points = self._in_odom([complex(at.x, at.y) for at in positions], frame_id)
            self._decider.follow(points, what, self._node.now_s())
        except ValueError as error:
            self._decider.refuse_course(f'{what}: {error}')
            self.refuse(what, error)
        self._node.act_unless_flooded()

    def _in_odom(self, points: list[complex], frame_id: str) -> list[complex]:
        """Return points in the frame of the odometry; ValueError when tf cannot tell."""
        pose, base = self._decider.pose, self._config.base_frame
        if not frame_id:
            raise ValueError('it has no frame_id; give it one, such as odom')
        if pose is None or frame_id == self._odom_frame or not all(map(on_earth, points)):
            return points                  # without a pose, or not on Earth, it is refused later
        at = Pose(0j, 0.0)
        if frame_id != base:
            if self._transforms is None:
                raise ValueError(f"its frame '{frame_id:.99}' is neither that of the odometry "
                                 f"('{self._odom_frame:.99}') nor {base}, and tf2_ros is not "
                                 'installed to ask tf: install it, or transform it before')
            (x, y, _), (*_, z, w) = self._transforms.pose(frame_id)
            at = Pose(complex(x, y), 2 * math.atan2(z, w))
        return [complex(one) for one in pose.told(at.told(np.array(points, complex)))]

    def _moves(self, topic: str, twist: Twist) -> None:
        try:
            self._decider.moves(Motion(twist.linear.x, twist.linear.y, twist.angular.z),
                                self._node.now_s())
        except ValueError as error:                   # not finite: ignored
            self.refuse(topic, error)


def _pose(pose: Any) -> Pose:
    """Return a pose on the ground; ValueError for a rotation that is none."""
    turn = pose.orientation
    if not 0.7 < math.hypot(turn.x, turn.y, turn.z, turn.w) < math.inf:
        raise ValueError(f'its orientation is {turn.x, turn.y, turn.z, turn.w}, which is no '
                         'rotation')
    return Pose(complex(pose.position.x, pose.position.y), 2 * math.atan2(turn.z, turn.w))

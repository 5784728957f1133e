# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node before the guard: drives near a command, to a goal or along a path."""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
from nav_msgs.msg import Odometry, Path
from rclpy.node import NodeNameNonExistentError
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.guard.settings import SILENCE_S
from vjepa_ros.guard.types import Motion
from vjepa_ros.planning.decision import Choice, LocalDecider, ODOMETRY, Pose, SENT, on_earth
from vjepa_ros.ros import read
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.peers import CLOUD, full_name
from vjepa_ros.ros.command.state_publisher import Description, motion_values, report_values
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number
from vjepa_ros.ros.common.endpoints import SMALL
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.local_planner.parameters import LocalNodeConfig, SCHEMA

DEPTH = 5                # queue of a camera
# Bytes: 40,000 poses or 80,000 cells; features of the largest encoder, or a picture.
LARGE = 1 << 22
TOPIC_CHECK_S = 0.2      # period of the check for a publisher of the speed
TWISTS = {'geometry_msgs/msg/Twist', 'geometry_msgs/msg/TwistStamped'}
LEVELS = {'stopped': WARN, 'waiting': WARN, 'refused': WARN, 'fault': ERROR}


class LocalPlannerNode(CommandNode):
    """Subscribes ``cmd_vel_in``, ``goal_pose``, ``path``, cameras and the speed."""

    NAME = 'planner'
    FLOOD_S = 0.01           # a choice takes some milliseconds
    RATE_HZ = 20.0

    def __init__(self, node_name: str = 'local_planner', **kwargs: Any) -> None:
        super().__init__(node_name, SCHEMA, **kwargs)
        self._candidates: Any = None
        self._odom_frame = ''         # of an activation
        self._checked_s = -math.inf
        self._took_ms = math.nan      # for the last decision

    def prepare(self, config: LocalNodeConfig) -> str:
        self.decider = LocalDecider(config, self.now_s())
        self._candidates = self.create_output(PointCloud2, '~/candidates')
        listened = ', '.join(f'{name} ({config.topics[name]}, {math.degrees(mount.yaw):.0f} deg)'
                             for name, mount in config.mounts.items())
        return (f'uses {listened}; it plans, but does not guard: put a collision_guard behind '
                'it')

    def topics(self, config: LocalNodeConfig) -> dict[str, str]:
        sent = ('cmd_vel_sent',) if config.speed_from == SENT else ()
        return {**dict.fromkeys(sent, f'geometry_msgs/msg/{self._kind.__name__}'),
                **{f'{prefix}/{topic}': CLOUD for prefix in config.topics.values()
                   for topic in ('assessment', 'looming_field')}}

    def problems(self) -> list[str]:
        """Return also nodes that may change the commands which this one takes for its speed."""
        problems = super().problems()
        output, own = (self.resolve_topic_name(f'cmd_vel_{part}') for part in ('out', 'in'))
        if self.config.speed_from != SENT or self.resolve_topic_name('cmd_vel_sent') != output:
            return problems
        for info in self.get_subscriptions_info_by_topic(output):
            try:
                published = self.get_publisher_names_and_types_by_node(info.node_name,
                                                                       info.node_namespace)
            except NodeNameNonExistentError:          # it has just ended
                continue
            problems += [
                f'cmd_vel_sent is cmd_vel_out, but {full_name(info)} listens to {output} and '
                f'publishes {topic}: what it changes is not known; remap cmd_vel_sent to {topic}'
                for topic, kinds in published
                if topic not in (own, output) and TWISTS & set(kinds)]
        return problems

    def apply(self, config: LocalNodeConfig) -> LocalNodeConfig:
        """Apply what may change while the node runs; all else stays."""
        config = replace(self.config, twist=config.twist, watch=config.watch,
                         on_fault=config.on_fault)
        self.decider.configure(config)
        return config

    def act(self, news: bool) -> None:
        """Decide, and publish the motion, even an unchanged one, and the candidates."""
        start = time.perf_counter()
        super().act(True)
        self._took_ms = 1e3 * (time.perf_counter() - start)
        plan = self.decided.plan
        if plan is not None and self._candidates.get_subscription_count():
            header = Header(stamp=self.get_clock().now().to_msg(),
                            frame_id=self.config.base_frame)
            self._candidates.publish(cloud(header, plan.candidates))

    def _on_tick(self) -> None:
        if (self.config.speed_from == SENT
                and time.monotonic() - self._checked_s >= TOPIC_CHECK_S):
            self._checked_s = time.monotonic()
            sent = self.resolve_topic_name('cmd_vel_sent')
            self.decider.wired = self.count_publishers(sent) > 0
        super()._on_tick()

    # -- inputs ------------------------------------------------------------------------------

    def open_inputs(self, config: LocalNodeConfig) -> None:
        self._odom_frame = ''
        for name, prefix in config.topics.items():
            for topic, take, most in (('assessment', self._on_assessment, SMALL),
                                      ('looming_field', self._on_field, LARGE)):
                self.listen(PointCloud2, f'{prefix}/{topic}', partial(take, name), DEPTH, True,
                            most, partial(self._malformed, name, topic))
        self.listen(PoseStamped, 'goal_pose', lambda msg: self._follow(
            'goal', msg.header.frame_id, [msg.pose.position]), reliable=True)
        self.listen(Odometry, 'odom', self._on_odometry)
        self.listen(Path, 'path', lambda msg: self._follow(
            'path', msg.header.frame_id, [one.pose.position for one in msg.poses]),
            reliable=True, most=LARGE)
        if importlib.util.find_spec('tf2_ros') is not None:
            self.ask_tf(config.base_frame)
        if config.speed_from == SENT:
            self.listen(self._kind, 'cmd_vel_sent', self._on_sent)

    def _on_assessment(self, name: str, msg: PointCloud2) -> None:
        now = self.now_s()
        try:
            seen, age = read.assessment(msg, name), self.age_s(msg)
        except (ValueError, IndexError) as error:     # of another version, or empty
            self._malformed(name, 'assessment', error)
            return
        if self.decider.assessed(name, seen, now, age):
            self.act_unless_flooded()

    def _on_field(self, name: str, msg: PointCloud2) -> None:
        try:
            cells, age = read.looming_field(msg), self.age_s(msg)
        except ValueError as error:                   # of another version
            self._malformed(name, 'looming_field', error)
            return
        if self.decider.measured(name, cells, read.stamp_ns(msg), self.now_s(), age):
            self.act_unless_flooded()

    def _malformed(self, name: str, topic: str, error: Exception) -> None:
        reason = self.refuse(f'{self.config.topics[name]}/{topic}', error)
        self.decider.sources[name].watch.malformed(reason)
        self.act_unless_flooded()

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
            self.decider.located(_pose(msg.pose.pose), self.now_s())
            self._odom_frame = msg.header.frame_id
        except ValueError as error:                   # not finite: ignored
            self.refuse('odom', error)
        if self.config.speed_from == ODOMETRY:
            self._moves('odom', msg.twist.twist)

    def _follow(self, what: str, frame_id: str, positions: list[Any]) -> None:
        try:
            points = self._in_odom([complex(at.x, at.y) for at in positions], frame_id)
            self.decider.follow(points, what, self.now_s())
        except ValueError as error:
            self.decider.refuse_course(f'{what}: {error}')
            self.refuse(what, error)
        self.act_unless_flooded()

    def _in_odom(self, points: list[complex], frame_id: str) -> list[complex]:
        """Return points in the frame of the odometry; ValueError when tf cannot tell."""
        pose, base = self.decider.pose, self.config.base_frame
        if not frame_id:
            raise ValueError('it has no frame_id; give it one, such as odom')
        if pose is None or frame_id == self._odom_frame or not all(map(on_earth, points)):
            return points                  # without a pose, or not on Earth, it is refused later
        at = Pose(0j, 0.0)
        if frame_id != base:
            if self.transforms is None:
                raise ValueError(f"its frame '{frame_id:.99}' is neither that of the odometry "
                                 f"('{self._odom_frame:.99}') nor {base}, and tf2_ros is not "
                                 'installed to ask tf: install it, or transform it before')
            (x, y, _), (*_, z, w) = self.transforms.pose(frame_id)
            at = Pose(complex(x, y), 2 * math.atan2(z, w))
        return [complex(one) for one in pose.told(at.told(np.array(points, complex)))]

    def _moves(self, topic: str, twist: Twist) -> None:
        try:
            self.decider.moves(Motion(twist.linear.x, twist.linear.y, twist.angular.z),
                                self.now_s())
        except ValueError as error:                   # not finite: ignored
            self.refuse(topic, error)

    # -- reports -----------------------------------------------------------------------------

    def state_key(self, decided: Choice) -> tuple[str, ...]:
        """Return the state, and the name of a fault: the part of its reason before numbers."""
        if decided.state not in ('fault', 'refused'):
            return (decided.state,)
        return decided.state, *decided.reason.split(':')[:2]

    def describe(self, decided: Choice | None) -> Description:
        decider, now_s, level = self.decider, self.now_s(), OK
        values: dict[str, object] = {}
        sources = {}
        if decided is not None:
            level, plan = LEVELS.get(decided.state, OK), decided.plan
            values |= {
                'risk': number(math.nan if plan is None else plan.risk),
                'risk_of_command': number(math.nan if plan is None or decided.asked is None else
                                          float(plan.candidates['risk'][0])),
                'points': 0 if plan is None else plan.points,
                'choice_ms': number(self._took_ms)}
            for name, source in decider.sources.items():
                fault = decider.fault(name, now_s)
                sources[name] = (ERROR if fault else OK, ': '.join(fault or ('trusted',)),
                                 report_values(source.watch, now_s))
        if decider is not None:
            values |= {**motion_values('speed', decider.motion),
                       'speed_from': decider.config.speed_from, 'course': decider.course_state}
        return Description(level, [], values | {'refused': self.refused}, sources)


def _pose(pose: Any) -> Pose:
    """Return a pose on the ground; ValueError for a rotation that is none."""
    turn = pose.orientation
    if not 0.7 < math.hypot(turn.x, turn.y, turn.z, turn.w) < math.inf:
        raise ValueError(f'its orientation is {turn.x, turn.y, turn.z, turn.w}, which is no '
                         'rotation')
    return Pose(complex(pose.position.x, pose.position.y), 2 * math.atan2(turn.z, turn.w))

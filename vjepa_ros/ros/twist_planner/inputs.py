# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscriptions of the twist planner besides commands: cameras and the speed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from geometry_msgs.msg import Twist as TwistMessage
from geometry_msgs.msg import TwistStamped
from rclpy.lifecycle import LifecycleNode
from rclpy.node import NodeNameNonExistentError
from sensor_msgs.msg import PointCloud2

from vjepa_ros.planning.twist_config import Twist
from vjepa_ros.ros import read
from vjepa_ros.ros.command.inputs import CommandInputs, odometry_message
from vjepa_ros.ros.command.topic_checks import CLOUD, full_name, twist_type
from vjepa_ros.ros.twist_planner.decision import TwistDecider
from vjepa_ros.ros.twist_planner.parameters import (
    ODOMETRY,
    OWN,
    SENT,
    TwistNodeConfig,
    TwistSource,
)

DEPTH = 5         # queue of a camera


class TwistInputs(CommandInputs):
    """The subscriptions of an active twist planner.

    Parameters
    ----------
    node
        The node that owns them.
    config
        Names, topics, and the source of the speed.
    decider
        Takes the inputs.
    now_s
        Clock of the decider [s].
    decide
        Called after a complete picture or a fault of a camera.
    """

    def __init__(self, node: LifecycleNode, config: TwistNodeConfig, decider: TwistDecider,
                 now_s: Callable[[], float], decide: Callable[[], None]) -> None:
        super().__init__(node)
        self._config = config
        self._decider = decider
        self._now_s, self._decide = now_s, decide
        self._sent = ''

    def open(self) -> None:
        """Subscribe; after a failure `close` removes what was created."""
        config = self._config
        for source in config.sources:
            for topic, take in (('assessment', self._on_assessment),
                                ('looming_field', self._on_field)):
                self.listen(PointCloud2, f'{source.topic}/{topic}', partial(take, source),
                            DEPTH, reliable=True)
        if config.speed_from == ODOMETRY:
            self.listen(odometry(), 'odom', self._on_odometry)
        elif config.speed_from == SENT:
            self._sent = self._node.resolve_topic_name('cmd_vel_sent')
            self.listen(TwistStamped if config.stamped else TwistMessage, 'cmd_vel_sent',
                        self._on_sent)

    def watch(self) -> None:
        """Check whether something publishes what is sent to the base."""
        if self._sent:
            self._decider.wired = self._node.count_publishers(self._sent) > 0

    def _on_assessment(self, source: TwistSource, msg: PointCloud2) -> None:
        now = self._now_s()
        try:
            seen = read.assessment(msg, source.name)
        except (ValueError, IndexError) as error:     # of another version, or empty
            self._decider.malformed(source.name, self.refuse(f'{source.topic}/assessment', error))
            self._decide()
        else:
            if self._decider.assessed(source.name, seen, now, self.age_s(msg)):
                self._decide()

    def _on_field(self, source: TwistSource, msg: PointCloud2) -> None:
        try:
            cells = read.looming_field(msg)
        except ValueError as error:                   # of another version
            self._decider.malformed(source.name,
                                  self.refuse(f'{source.topic}/looming_field', error))
            self._decide()
        else:
            if self._decider.measured(source.name, cells, read.stamp_ns(msg), self._now_s(),
                                    self.age_s(msg)):
                self._decide()

    def _on_sent(self, msg: TwistMessage | TwistStamped) -> None:
        self._moves('cmd_vel_sent', msg.twist if isinstance(msg, TwistStamped) else msg)

    def _on_odometry(self, msg: Any) -> None:
        self._moves('odom', msg.twist.twist)

    def _moves(self, topic: str, twist: TwistMessage) -> None:
        try:
            self._decider.moves(Twist(twist.linear.x, twist.linear.y, twist.angular.z),
                              self._now_s())
        except ValueError as error:                   # not finite: ignored
            self.refuse(topic, error)


def odometry() -> type:
    """Return the type of odometry messages; RuntimeError with the remedy without nav_msgs."""
    return odometry_message("'speed_from', which is 'odometry',", 'speed_from: sent')


def topics(config: TwistNodeConfig) -> dict[str, str]:
    """Return topics that the planner reads and publishes, with their types."""
    twists = ('cmd_vel_in', 'cmd_vel_out',
              *(('cmd_vel_sent',) if config.speed_from == SENT else ()))
    return {**dict.fromkeys(twists, twist_type(config.stamped)),
            **{f'{source.topic}/{topic}': CLOUD for source in config.sources
               for topic in ('assessment', 'looming_field')}}


def changed_behind(node: LifecycleNode, config: TwistNodeConfig) -> list[str]:
    """Return nodes that may change the commands of a planner that takes them for its speed."""
    if config.speed_from != OWN:
        return []
    problems, own = [], node.resolve_topic_name('cmd_vel_in')
    output = node.resolve_topic_name('cmd_vel_out')
    for info in node.get_subscriptions_info_by_topic(output):
        try:
            published = node.get_publisher_names_and_types_by_node(info.node_name,
                                                                   info.node_namespace)
        except NodeNameNonExistentError:          # it has just ended
            continue
        problems += [f"speed_from is 'own', but {full_name(info)} listens to {output} and "
                     f"publishes {topic}: what it changes is not known; set speed_from to 'sent' "
                     f'and remap cmd_vel_sent to {topic}' for topic, kinds in published
                     if topic != own and {twist_type(False), twist_type(True)} & set(kinds)]
    return problems

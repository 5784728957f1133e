# SPDX-License-Identifier: Apache-2.0
"""Subscribe to what the twist planner listens to beside commands: cameras and the speed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from geometry_msgs.msg import Twist as TwistMessage
from geometry_msgs.msg import TwistStamped
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2

from vjepa_ros.perception.twist_config import Twist
from vjepa_ros.ros import read
from vjepa_ros.ros.guard_inputs import LOG_EVERY_S, NS, odometry_message, overridable
from vjepa_ros.ros.twist_pilot import TwistPilot
from vjepa_ros.ros.twist_table import ODOMETRY, SENT, TwistNodeConfig, TwistSource

PICTURES = 5      # messages of a camera that may wait to be taken


class TwistInputs:
    """The subscriptions of an active twist planner.

    Parameters
    ----------
    node
        The node that owns them.
    config
        Names, topics, and where the speed comes from.
    pilot
        What takes what comes.
    now_s
        The clock of the pilot [s].
    decide
        Called after news of a camera.

    Attributes
    ----------
    refused
        How many messages could not be read.
    """

    def __init__(self, node: LifecycleNode, config: TwistNodeConfig, pilot: TwistPilot,
                 now_s: Callable[[], float], decide: Callable[[], None]) -> None:
        self._node, self._pilot = node, pilot
        self._now_s, self._decide = now_s, decide
        self.refused = 0
        self._sent = ''
        self._subscriptions: list[object] = []
        reliable = QoSProfile(depth=PICTURES, reliability=ReliabilityPolicy.RELIABLE)
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        for source in config.sources:
            self._listen(PointCloud2, f'{source.topic}/assessment',
                         partial(self._on_assessment, source), reliable)
            self._listen(PointCloud2, f'{source.topic}/looming_field',
                         partial(self._on_field, source), reliable)
        if config.speed_from == ODOMETRY:
            self._listen(odometry_message(), 'odom', self._on_odometry, newest)
        elif config.speed_from == SENT:
            self._sent = node.resolve_topic_name('cmd_vel_sent')
            self._listen(TwistStamped if config.stamped else TwistMessage, 'cmd_vel_sent',
                         self._on_sent, newest)

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def watch(self) -> None:
        """See whether anybody tells what is sent to the base."""
        if self._sent:
            self._pilot.wired = self._node.count_publishers(self._sent) > 0

    def _listen(self, kind: type, topic: str, callback: Callable[..., None],
                qos: QoSProfile) -> None:
        self._subscriptions.append(self._node.create_subscription(
            kind, topic, callback, qos, qos_overriding_options=overridable()))

    def _age_s(self, msg: Any) -> float:
        return (self._node.get_clock().now().nanoseconds - read.stamp_ns(msg)) / NS

    def _refuse(self, what: str, error: Exception) -> str:
        self.refused += 1
        self._node.get_logger().error(f'{what}: message refused: {error}',
                                      throttle_duration_sec=LOG_EVERY_S)
        return str(error)

    def _on_assessment(self, source: TwistSource, msg: PointCloud2) -> None:
        now = self._now_s()
        try:
            seen = read.assessment(msg, source.name)
        except (ValueError, IndexError) as error:     # not one of this version, or empty
            self._pilot.malformed(source.name, self._refuse(f'{source.topic}/assessment', error))
            self._decide()
        else:
            if self._pilot.assessed(source.name, seen, now, self._age_s(msg)):
                self._decide()

    def _on_field(self, source: TwistSource, msg: PointCloud2) -> None:
        try:
            cells = read.looming_field(msg)
        except ValueError as error:                   # not one of this version
            self._pilot.malformed(source.name,
                                  self._refuse(f'{source.topic}/looming_field', error))
            self._decide()
        else:
            if self._pilot.measured(source.name, cells, read.stamp_ns(msg), self._now_s(),
                                    self._age_s(msg)):
                self._decide()

    def _on_sent(self, msg: TwistMessage | TwistStamped) -> None:
        self._moves('cmd_vel_sent', msg.twist if isinstance(msg, TwistStamped) else msg)

    def _on_odometry(self, msg: Any) -> None:
        self._moves('odom', msg.twist.twist)

    def _moves(self, topic: str, twist: TwistMessage) -> None:
        try:
            self._pilot.moves(Twist(twist.linear.x, twist.linear.y, twist.angular.z),
                              self._now_s())
        except ValueError as error:                   # not a number: as if it had not come
            self._refuse(topic, error)


def wiring_problems(node: LifecycleNode, config: TwistNodeConfig) -> list[str]:
    """What is wrong with the topics, one sentence each: types that differ, a second planner."""
    kind = 'geometry_msgs/msg/' + ('TwistStamped' if config.stamped else 'Twist')
    twists = ('cmd_vel_in', 'cmd_vel_out',
              *(('cmd_vel_sent',) if config.speed_from == SENT else ()))
    wanted = {**dict.fromkeys(twists, kind),
              **{f'{source.topic}/{topic}': 'sensor_msgs/msg/PointCloud2'
                 for source in config.sources for topic in ('assessment', 'looming_field')}}
    problems = []
    for topic, expected in wanted.items():
        name = node.resolve_topic_name(topic)
        others = {info.topic_type for info in (*node.get_publishers_info_by_topic(name),
                                               *node.get_subscriptions_info_by_topic(name))}
        problems += [f'{name} has an endpoint of type {other}, the planner uses {expected}: '
                     'nothing passes between them' for other in sorted(others - {expected})]
    output = node.resolve_topic_name('cmd_vel_out')
    count = node.count_publishers(output)
    if count > 1:
        problems.append(f'{count - 1} other node(s) publish on {output}: what they send is not '
                        'planned here; let one node alone publish there')
    return problems

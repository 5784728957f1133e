# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a node between controller and base tells its peers, and how it detects wrong ones."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from geometry_msgs.msg import Twist, TwistStamped
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.topic_endpoint_info import TopicEndpointInfo
from std_msgs.msg import Header

CLOUD = 'sensor_msgs/msg/PointCloud2'
WATCHDOG = 'command_watchdog'    # sends only zeros, and only while the guard is silent
# Nodes that listen to what is sent to a base without being one.
LISTENERS = (WATCHDOG, 'local_planner', 'rosbag2_recorder')
# How rclpy names the node of such an endpoint.
UNNAMED = '_NODE_NAME_UNKNOWN_'
UNNAMED_S = 2.0          # after which an endpoint without a name is no node of ROS

NS = 1_000_000_000
BEATS = 4                # in the longest silence
# Who finds a node late still hears the last beat: reliable, which is the default, and kept.
QOS = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
HEARD_S = 0.2            # longest wait for the readers of a first or last beat
FOUND_S, LOOK_S = 0.5, 0.01              # longest wait for a reader that DDS has yet to find
HEARD = '_heard'         # added to the topic of beats: where the watchdog confirms them
READY = 'ready'          # its word when its zeros reach the base, too
# Without a confirmation for so long the watchdog is gone: ten beats with guarded.launch.py.
# One late beat on a busy machine is no loss, and one confirmation ends it.
CONFIRMED_S = 1.0
KEPT_BEATS = 256         # that may still be confirmed


class Endpoints:
    """Endpoints of a topic; those without a name count once they have had none for long."""

    def __init__(self) -> None:
        self._unnamed: dict[bytes, float] = {}      # since when they are known

    def settled(self, found: Sequence[TopicEndpointInfo]) -> list[TopicEndpointInfo]:
        """Return those that count of all that there are now."""
        # DDS tells of an endpoint before it tells of its node.
        now = time.monotonic()
        self._unnamed = {_id(info): self._unnamed.get(_id(info), now) for info in found
                         if info.node_name == UNNAMED}
        return [info for info in found if now - self._unnamed.get(_id(info), -math.inf)
                >= UNNAMED_S]

    def reach_base(self, node: Node, publisher: Any) -> bool:
        """Return whether a base, or what drives it, receives what a publisher of a node sends."""
        found = node.get_subscriptions_info_by_topic(publisher.topic_name)
        known = (*LISTENERS, node.get_name())
        bases = [info for info in self.settled(found)
                 if info.node_name not in known and not info.node_name.startswith('_ros2cli')]
        # It is matched with more than known listeners, such as the node.
        return len(found) - len(bases) < min(len(found), publisher.get_subscription_count())


def twist_class(message: str) -> type:
    """Return the class of commands for a value of the parameter `message`."""
    return TwistStamped if message == 'twist_stamped' else Twist


def topic_problems(node: Node, wanted: Mapping[str, str], endpoints: Endpoints) -> list[str]:
    """Return other publishers of commands, and types that differ from those `wanted` by topic."""
    problems = []
    output = node.resolve_topic_name('cmd_vel_out')
    publishers = [info for info in endpoints.settled(node.get_publishers_info_by_topic(output))
                  if info.node_name != WATCHDOG]
    if len(publishers) > 1:
        names = sorted(full_name(info) for info in publishers)
        own = node.get_fully_qualified_name()
        if own in names:
            names.remove(own)
        problems.append(f'{", ".join(names)} also publishes on {output}, past this node: the '
                        'robot is driven by both; let one node alone publish there')
    for name, kind in wanted.items():
        topic = node.resolve_topic_name(name)
        others = {info.topic_type for info in (*node.get_publishers_info_by_topic(topic),
                                               *node.get_subscriptions_info_by_topic(topic))}
        remedy = "set parameter 'message'" if kind != CLOUD else 'remap one of them'
        for other in sorted(others - {kind}):
            problems.append(f'{topic} has an endpoint of type {other}, this node uses {kind}: '
                            f'nothing passes between them; {remedy}')
    return problems


def _id(endpoint: TopicEndpointInfo) -> bytes:
    return bytes(endpoint.endpoint_gid)


def full_name(endpoint: TopicEndpointInfo) -> str:
    return f'{endpoint.node_namespace.rstrip("/")}/{endpoint.node_name}'


class Heartbeat:
    """Publishes ``~/heartbeat`` (std_msgs/Header) with the state of a guard as ``frame_id``.

    The thread that also decides sends it, so that a node that hangs falls silent. `silence_s`:
    longest time between two beats that others have to expect [s]; each asserts the liveliness of
    the publisher of commands; `watched`: whether a watchdog has to confirm beats on
    ``~/heartbeat_heard``, see `problem`.
    """

    def __init__(self, node: Any, commands: Any, silence_s: float, watched: bool) -> None:
        self._node, self._commands = node, commands
        self._publisher = node.create_publisher(Header, '~/heartbeat', QOS)
        self._confirmed_within_s = max(CONFIRMED_S, silence_s)
        self._sent: deque[tuple[tuple[int, int], float]] = deque(maxlen=KEPT_BEATS)
        self._heard_s, self._answer = -math.inf, ''      # of this activation
        self._listeners, self._reaches_base = Endpoints(), False
        self._answers = node.create_subscription(
            Header, self._publisher.topic_name + HEARD, self._on_heard, 1) if watched else None
        self._timer = node.create_timer(silence_s / BEATS, self.beat, clock=node.steady)

    def beat(self, state: str = '') -> None:
        """Send a beat with a state, by default that of the node."""
        self._commands.assert_liveliness()
        if self._answers is not None:
            self._reaches_base = self._listeners.reach_base(self._node, self._commands)
        self._say(state or self._node.state)

    def _on_heard(self, answer: Header) -> None:
        """Take the confirmation of a beat; one of another guard or activation does not count."""
        for stamp, sent_s in self._sent:
            if stamp == (answer.stamp.sec, answer.stamp.nanosec):
                self._heard_s, self._answer = max(self._heard_s, sent_s), answer.frame_id

    def problem(self) -> str:
        """Return why nobody would stop the base if this node hung now; '' when somebody would."""
        if self._answers is None:
            return ''
        if not self._reaches_base:
            return ('nobody listens on cmd_vel_out but watchdog and planner: start the base, or '
                    'remap cmd_vel_out to its topic')
        if time.monotonic() - self._heard_s > self._confirmed_within_s:
            return (f'the watchdog has not confirmed that it hears this guard '
                    f'({self._answers.topic_name}): start command_watchdog, or set watchdog to '
                    'false')
        return '' if self._answer == READY else f'the watchdog is not ready: {self._answer:.99}'

    def activate(self) -> None:
        """Say 'active', and wait until those who listen know, before the first command passes."""
        # A node that hangs right after it would not be missed otherwise.
        self._sent.clear()
        self._heard_s = -math.inf
        end_s = time.monotonic() + FOUND_S
        while not self._publisher.get_subscription_count() and time.monotonic() < end_s:
            time.sleep(LOOK_S)
        self._say('active')
        self._publisher.wait_for_all_acked(Duration(seconds=HEARD_S))

    def close(self) -> None:
        """Say that silence is meant from now on."""
        self._node.destroy_timer(self._timer)
        if self._answers is not None:
            self._node.destroy_subscription(self._answers)
        self._say('unconfigured')
        self._publisher.wait_for_all_acked(Duration(seconds=HEARD_S))
        self._node.destroy_publisher(self._publisher)

    def _say(self, state: str) -> None:
        stamp = self._node.get_clock().now().to_msg()
        stamps = [sent for sent, _ in self._sent]
        while (stamp.sec, stamp.nanosec) in stamps:             # a simulated clock may stand
            stamp.nanosec = (stamp.nanosec + 1) % NS
        self._sent.append(((stamp.sec, stamp.nanosec), time.monotonic()))
        self._publisher.publish(Header(stamp=stamp, frame_id=state))

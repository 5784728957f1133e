# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell others that a node lives: a heartbeat, DDS liveliness, and the bond of a lifecycle manager.

All of it is sent by the thread that also decides, so that a node that hangs falls silent.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from rclpy.clock import Clock
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Header

from vjepa_ros.ros.command.topic_checks import BaseMatch

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
# As nav2_lifecycle_manager expects it of its nodes (nav2_util, LifecycleNode::createBond).
BOND_PERIOD_S, BOND_TIMEOUT_S = 0.1, 4.0


class Heartbeat:
    """Publishes ``~/heartbeat`` (std_msgs/Header) with the state of a node as ``frame_id``.

    Parameters
    ----------
    node : Node
        The node.
    silence_s : float
        Longest time between two beats that others have to expect [s].
    state : callable
        Returns the label of its lifecycle state.
    lively : callable
        Returns the publisher whose liveliness is asserted with each beat, or None.
    clock : Clock
        Steady.
    watched : bool
        Whether a watchdog has to confirm beats on ``~/heartbeat_heard``, see `problem`.
    """

    def __init__(self, node: Node, silence_s: float, state: Callable[[], str],
                 lively: Callable[[], Any], clock: Clock, watched: bool = False) -> None:
        self._node, self._state, self._lively = node, state, lively
        self._publisher = node.create_publisher(Header, '~/heartbeat', QOS)
        self._confirmed_within_s = max(CONFIRMED_S, silence_s)
        self._sent: deque[tuple[tuple[int, int], float]] = deque(maxlen=KEPT_BEATS)
        self._heard_s, self._answer = -math.inf, ''      # of this activation
        self._base: BaseMatch | None = None
        self._base_matched = False
        self._answers = node.create_subscription(
            Header, self._publisher.topic_name + HEARD, self._on_heard, 1) if watched else None
        self._timer = node.create_timer(silence_s / BEATS, self.beat, clock=clock)

    def beat(self, state: str = '') -> None:
        """Send a beat with a state, by default that of the node."""
        publisher = self._lively()
        if publisher is not None:
            publisher.assert_liveliness()
            if self._answers is not None:
                self._base = self._base or BaseMatch(self._node, publisher)
                self._base_matched = self._base.matched()
        self._say(state or self._state())

    def _on_heard(self, answer: Header) -> None:
        """Take the confirmation of a beat; one of another guard or activation does not count."""
        for stamp, sent_s in self._sent:
            if stamp == (answer.stamp.sec, answer.stamp.nanosec):
                self._heard_s, self._answer = max(self._heard_s, sent_s), answer.frame_id

    def problem(self) -> str:
        """Return why nobody would stop the base if this node hung now; '' when somebody would."""
        if self._answers is None:
            return ''
        if not self._base_matched:
            return ('nobody listens on cmd_vel_out but watchdog and planner: start the base, or '
                    'remap cmd_vel_out to its topic')
        if time.monotonic() - self._heard_s > self._confirmed_within_s:
            return (f'the watchdog has not confirmed that it hears this guard '
                    f'({self._answers.topic_name}): start command_watchdog, or set watchdog to '
                    'false')
        return '' if self._answer == READY else f'the watchdog is not ready: {self._answer:.99}'

    def activate(self) -> None:
        """Say 'active', and wait until those who listen know, before the first command passes.

        A node that hangs right after it would not be missed otherwise.
        """
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


def bond_message() -> type:
    """Return the type bond/msg/Status."""
    try:
        return import_module('bond.msg').Status
    except ModuleNotFoundError as error:
        raise ValueError('bond is true, but the package bond of ROS is not installed: install '
                         'ros-$ROS_DISTRO-bond, or set bond: false') from error


class Bond:
    """One side of a bond with a lifecycle manager, while the node is active.

    It publishes ``bond`` (bond/msg/Status), as bondcpp does; what the manager answers is not
    needed, because the node goes on without it.

    Parameters
    ----------
    node : Node
        Its name is that of the bond.
    clock : Clock
        Steady.
    """

    def __init__(self, node: Node, clock: Clock) -> None:
        self._node, self._kind, self._instance = node, bond_message(), str(uuid.uuid4())
        with ExitStack() as undo:
            self._publisher = node.create_publisher(self._kind, 'bond', 5)
            undo.callback(node.destroy_publisher, self._publisher)
            timer = node.create_timer(BOND_PERIOD_S, self._say, clock=clock)
            undo.callback(node.destroy_timer, timer)
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Break the bond as agreed."""
        self._say(active=False)
        self._publisher.wait_for_all_acked(Duration(seconds=HEARD_S))
        self._undo.close()

    def _say(self, active: bool = True) -> None:
        message = self._kind(id=self._node.get_name(), instance_id=self._instance, active=active,
                             heartbeat_timeout=BOND_TIMEOUT_S, heartbeat_period=BOND_PERIOD_S)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell others that a node lives: a heartbeat, DDS liveliness, and the bond of a lifecycle manager.

All of it is sent by the thread that also decides, so that a node that hangs falls silent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from rclpy.clock import Clock
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Header

BEATS = 4                # in the longest silence
# Who finds a node late still hears the last beat: reliable, which is the default, and kept.
QOS = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
HEARD_S = 0.2            # longest wait for the readers of a first or last beat
FOUND_S, LOOK_S = 0.5, 0.01              # longest wait for a reader that DDS has yet to find
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
    """

    def __init__(self, node: Node, silence_s: float, state: Callable[[], str],
                 lively: Callable[[], Any], clock: Clock) -> None:
        self._node, self._state, self._lively = node, state, lively
        self._publisher = node.create_publisher(Header, '~/heartbeat', QOS)
        self._timer = node.create_timer(silence_s / BEATS, self.beat, clock=clock)

    def beat(self, state: str = '') -> None:
        """Send a beat with a state, by default that of the node."""
        publisher = self._lively()
        if publisher is not None:
            publisher.assert_liveliness()
        self._say(state or self._state())

    def activate(self) -> None:
        """Say 'active', and wait until those who listen know, before the first command passes.

        A node that hangs right after it would not be missed otherwise.
        """
        end_s = time.monotonic() + FOUND_S
        while not self._publisher.get_subscription_count() and time.monotonic() < end_s:
            time.sleep(LOOK_S)
        self._say('active')
        self._publisher.wait_for_all_acked(Duration(seconds=HEARD_S))

    def close(self) -> None:
        """Say that silence is meant from now on."""
        self._node.destroy_timer(self._timer)
        self._say('unconfigured')
        self._publisher.wait_for_all_acked(Duration(seconds=HEARD_S))
        self._node.destroy_publisher(self._publisher)

    def _say(self, state: str) -> None:
        self._publisher.publish(Header(stamp=self._node.get_clock().now().to_msg(),
                                       frame_id=state))


def bond_message() -> type:
    """Return the type bond/msg/Status.

    Raises
    ------
    ValueError
        With the remedy where the package is not installed.
    """
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

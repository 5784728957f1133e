# SPDX-License-Identifier: Apache-2.0
"""Subscribe to what a node between controller and base listens to beside commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from vjepa_ros.ros import read

NS = 1e9
LOG_EVERY_S = 5.0


def overridable() -> QoSOverridingOptions:
    """Policies that parameters may change."""
    return QoSOverridingOptions(policy_kinds=(
        QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY,
        QoSPolicyKind.DURABILITY))


def odometry_message(wanted: str, instead: str) -> type:
    """The type of odometry messages.

    Parameters
    ----------
    wanted, instead
        The parameter that asks for it, as set and as it should be without, for words to people.

    Raises
    ------
    RuntimeError
        When nav_msgs is not installed, with the remedy.
    """
    try:
        from nav_msgs.msg import Odometry
    except ImportError as error:
        raise RuntimeError(f'parameter {wanted} needs the package nav_msgs: install '
                           f'ros-DISTRO-nav-msgs (apt or pip), or set {instead}') from error
    return Odometry


class CommandInputs(ABC):
    """The subscriptions of an active node.

    Parameters
    ----------
    node
        The node that owns them.

    Attributes
    ----------
    refused
        How many messages could not be read.
    """

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self.refused = 0
        self._subscriptions: list[object] = []

    @abstractmethod
    def open(self) -> None:
        """Subscribe; of what is refused half-way `close` takes back the rest."""

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def listen(self, kind: type, topic: str, callback: Callable[..., None], depth: int = 1,
               reliable: bool = False) -> None:
        """Subscribe; the user may change the policies."""
        reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        # A profile of its own: rclpy writes what the user has changed into it.
        self._subscriptions.append(self._node.create_subscription(
            kind, topic, callback, QoSProfile(depth=depth, reliability=reliability),
            qos_overriding_options=overridable()))

    def age_s(self, msg: Any) -> float:
        """Age of a message's stamp [s]."""
        return (self._node.get_clock().now().nanoseconds - read.stamp_ns(msg)) / NS

    def refuse(self, what: str, error: Exception) -> str:
        """Count and log a message that could not be read; why, in words."""
        self.refused += 1
        self._node.get_logger().error(f'{what}: message refused: {error}',
                                      throttle_duration_sec=LOG_EVERY_S)
        return str(error)

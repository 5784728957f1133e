# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscribe to what a node between controller and base listens to beside commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode

from vjepa_ros.ros import read
from vjepa_ros.ros.common.endpoints import subscribe

NS = 1e9
LOG_EVERY_S = 5.0


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
        """Subscribe until `close`."""
        self._subscriptions.append(
            subscribe(self._node, kind, topic, callback, depth, reliable))

    def age_s(self, msg: Any) -> float:
        """Age of a message's stamp [s]."""
        return (self._node.get_clock().now().nanoseconds - read.stamp_ns(msg)) / NS

    def refuse(self, what: str, error: Exception) -> str:
        """Count and log a message that could not be read; why, in words."""
        self.refused += 1
        self._node.get_logger().error(f'{what}: message refused: {error}',
                                      throttle_duration_sec=LOG_EVERY_S)
        return str(error)

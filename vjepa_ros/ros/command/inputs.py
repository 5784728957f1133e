# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscriptions of a node between controller and base, besides commands."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from vjepa_ros.ros import read
from vjepa_ros.ros.common.endpoints import SMALL, Transforms, bounded, subscribe

NS = 1e9
LOG_EVERY_S = 5.0


class CommandInputs(ABC):
    """The subscriptions of an active node, a `CommandNode`."""

    def __init__(self, node: Any) -> None:
        self._node, self._config, self._decider = node, node.config, node.decider
        self._told_unstamped = False             # that odometry has no stamps
        self._logged_s: dict[str, float] = {}    # when a refusal was logged last, by its source
        self._subscriptions: list[Any] = []
        self._transforms: Transforms | None = None

    @abstractmethod
    def open(self) -> None:
        """Subscribe; after a failure `close` removes what was created."""

    def close(self) -> None:
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
        if self._transforms is not None:
            self._transforms.close()
            self._transforms = None

    def listen(self, kind: type, topic: str, callback: Callable[[Any], None], depth: int = 1,
               reliable: bool = False, most: int = SMALL,
               refused: Callable[[ValueError], None] | None = None) -> None:
        """Subscribe until `close`; `refused` takes the reason for a message not passed on."""
        take = bounded(kind, lambda msg, info: callback(msg),
                       refused or partial(self.refuse, topic), most)
        self._subscriptions.append(subscribe(self._node, kind, topic, take, depth, reliable,
                                             raw=True))

    def age_s(self, msg: Any) -> float:
        """Return the age of the stamp of a message [s]."""
        if not read.stamp_ns(msg):
            raise ValueError('its stamp is 0, so its age is unknown; set header.stamp')
        return (self._node.get_clock().now().nanoseconds - read.stamp_ns(msg)) / NS

    def odometry_age_s(self, msg: Any) -> float:
        """Return the age of odometry [s]; 0 where nobody stamped it, which is told once."""
        if read.stamp_ns(msg):
            return max(0.0, self.age_s(msg))
        if not self._told_unstamped:
            self._told_unstamped = True
            self._node.get_logger().warning(
                'odom has the stamp 0: it counts as of its arrival; set header.stamp')
        return 0.0

    def refuse(self, what: str, error: Exception) -> str:
        """Count and log a message that could not be read; return the reason."""
        self._node.refused += 1
        # By source: `throttle_duration_sec` counts for the line of code, so one would hide others.
        now = time.monotonic()
        if now - self._logged_s.get(what, -math.inf) >= LOG_EVERY_S:
            self._logged_s[what] = now
            self._node.get_logger().error(f'{what}: message refused: {error}')
        return str(error)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Listen to topics by their names alone, for tools that show people what the nodes say."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import (
    DurabilityPolicy,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
)
from rclpy.signals import SignalHandlerOptions

WAKE_S = 0.1             # longest wait, for Ctrl-C
DEPTH = 50
UNNAMED = '_NODE_NAME_UNKNOWN_'     # of a node that the graph has not heard of yet
Take = Callable[[str, Any], None]


class ListenError(RuntimeError):
    """A topic cannot be listened to; the text says why, and the remedy."""


class Listener:
    """A node that finds types and quality of service by the publishers; a context manager."""

    def __init__(self, name: str) -> None:
        self._context = rclpy.Context()
        rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node(name, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.domain_id: int = self._context.get_domain_id()
        self._subscriptions: dict[str, Any] = {}

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *exc: object) -> None:
        self._executor.shutdown(timeout_sec=1.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def topics(self) -> dict[str, str]:
        """Return the type (``package/msg/Name``) of each topic that somebody publishes."""
        return {name: types[0] for name, types in self.node.get_topic_names_and_types()
                if types and self.node.count_publishers(name)}

    def subscribe(self, topic: str, kind: str, take: Take) -> None:
        """Call `take` with the topic and each message; a second time for a topic does nothing."""
        if topic in self._subscriptions:
            return
        package, _, name = kind.partition('/msg/')
        try:
            made = getattr(import_module(f'{package}.msg'), name)
        except (ImportError, AttributeError) as error:
            raise ListenError(f"'{topic}' has the type {kind}, which this Python cannot import "
                              f'({error}); install the package {package}') from error
        self._subscriptions[topic] = self.node.create_subscription(
            made, topic, lambda msg: take(topic, msg), self._profile(topic))

    def _profile(self, topic: str) -> QoSProfile:
        """Return one as reliable and as latched as all publishers of now are."""
        offered = [info.qos_profile for info in self.node.get_publishers_info_by_topic(topic)]
        reliable = all(one.reliability == ReliabilityPolicy.RELIABLE for one in offered)
        latched = offered and all(one.durability == DurabilityPolicy.TRANSIENT_LOCAL
                                  for one in offered)
        return QoSProfile(
            depth=DEPTH,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE)

    def silence(self, topic: str) -> str:
        """Return why nothing comes on a topic that was subscribed to, and what is waited for."""
        senders = self.node.get_publishers_info_by_topic(topic)
        if not senders:
            return f"nobody publishes '{topic}' any more; waiting for a publisher"
        wanted = self._subscriptions[topic].qos_profile
        checked = [qos_check_compatible(one.qos_profile, wanted) for one in senders]
        if all(verdict == QoSCompatibility.ERROR for verdict, _ in checked):
            return (f"the QoS of all publishers of '{topic}' has changed since this began "
                    f'({checked[0][1].strip(" ;")}); start it again')
        names = ', '.join(sorted({
            'a node whose name is not known yet' if UNNAMED in one.node_name else
            f'{one.node_namespace.rstrip("/")}/{one.node_name}' for one in senders}))
        return (f"'{topic}' is published by {names}, but no message has come; waiting. Is its "
                'node active, and does its camera send? `vjepa-ros top` tells')

    def spin(self, seconds: float, until: Callable[[], object] = lambda: False) -> None:
        """Take messages for a while [s], or until a condition is true."""
        end = time.monotonic() + seconds
        while not until() and (left := end - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=min(left, WAKE_S))

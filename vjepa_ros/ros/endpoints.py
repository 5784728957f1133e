# SPDX-License-Identifier: Apache-2.0
"""Create publishers and subscriptions of lifecycle nodes; parameters may change their policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions


def advertise(node: LifecycleNode, kind: type, topic: str, depth: int = 1) -> Any:
    """A reliable publisher that is silent while the node is inactive."""
    return node.create_lifecycle_publisher(
        kind, topic, _profile(depth, reliable=True),
        qos_overriding_options=QoSOverridingOptions.with_default_policies())


def subscribe(node: LifecycleNode, kind: type, topic: str, callback: Callable[..., None],
              depth: int = 1, reliable: bool = False, **more: Any) -> Any:
    """A subscription; best effort connects to every publisher.

    Parameters may change durability, too, for what is latched.
    """
    return node.create_subscription(
        kind, topic, callback, _profile(depth, reliable),
        qos_overriding_options=QoSOverridingOptions(policy_kinds=(
            QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY,
            QoSPolicyKind.DURABILITY)), **more)


def _profile(depth: int, reliable: bool) -> QoSProfile:
    """A new one each time: rclpy writes into it what parameters change."""
    return QoSProfile(depth=depth, reliability=(
        ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT))

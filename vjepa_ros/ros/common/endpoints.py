# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Create publishers and subscriptions of lifecycle nodes; parameters may change their policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import LivelinessPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

CONFIRMED_S = 0.5        # longest wait for the readers of a last zero
UNCONFIRMED_S = 0.2      # time for best-effort readers, which never confirm


def advertise(node: LifecycleNode, kind: type, topic: str, depth: int = 1,
              lease_s: float = 0.0) -> Any:
    """Create a reliable publisher that is silent while the node is inactive.

    With `lease_s` [s] it offers a deadline and a lease of liveliness of that length, which the
    node has to assert.
    """
    profile = _profile(depth, reliable=True)
    if lease_s:
        profile.deadline = profile.liveliness_lease_duration = Duration(seconds=lease_s)
        profile.liveliness = LivelinessPolicy.MANUAL_BY_TOPIC
    return node.create_lifecycle_publisher(
        kind, topic, profile,
        qos_overriding_options=QoSOverridingOptions.with_default_policies())


def subscribe(node: LifecycleNode, kind: type, topic: str, callback: Callable[..., None],
              depth: int = 1, reliable: bool = False, **more: Any) -> Any:
    """Create a subscription; best effort connects to every publisher.

    Parameters may also change durability, for latched topics.
    """
    return node.create_subscription(
        kind, topic, callback, _profile(depth, reliable),
        qos_overriding_options=QoSOverridingOptions(policy_kinds=(
            QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY,
            QoSPolicyKind.DURABILITY)), **more)


def deliver_last_zero(node: LifecycleNode, publisher: Any) -> None:
    """Wait until all readers have the last zero; warn when one has not confirmed it in time.

    When a publisher is destroyed, messages that its readers have not taken yet are lost.
    """
    readers = node.get_subscriptions_info_by_topic(publisher.topic_name)
    if any(info.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT for info in readers):
        time.sleep(UNCONFIRMED_S)
    if not publisher.wait_for_all_acked(Duration(seconds=CONFIRMED_S)):
        node.get_logger().warning(
            f'{publisher.topic_name}: not every subscriber has confirmed the last zero; a base '
            'that hangs or is out of reach may go on: give it a timeout of its own')


def _profile(depth: int, reliable: bool) -> QoSProfile:
    """Return a new profile: rclpy writes the values of parameters into it."""
    return QoSProfile(depth=depth, reliability=(
        ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Create publishers and subscriptions of lifecycle nodes.

Parameters (`qos_overrides`) may change the policies of images, assessments and obstacle points:
what drivers, bags and other planners send and read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rclpy.duration import Duration
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import LivelinessPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.serialization import deserialize_message

OVERRIDABLE = ('/assessment', '/obstacle_points')
SMALL = 1 << 16          # bytes; far more than any message of numbers without arrays has
CONFIRMED_S = 0.5        # longest wait for the readers of a last zero
UNCONFIRMED_S = 0.2      # time for best-effort readers, which never confirm


def advertise(node: LifecycleNode, kind: type, topic: str, depth: int = 1,
              lease_s: float = 0.0) -> Any:
    """Create a reliable publisher; `lease_s`: of its deadline and of the liveliness to assert."""
    profile = _profile(depth, reliable=True)
    if lease_s:
        profile.deadline = profile.liveliness_lease_duration = Duration(seconds=lease_s)
        profile.liveliness = LivelinessPolicy.MANUAL_BY_TOPIC
    options = QoSOverridingOptions.with_default_policies() if topic.endswith(OVERRIDABLE) else None
    return node.create_lifecycle_publisher(kind, topic, profile, qos_overriding_options=options)


def subscribe(node: LifecycleNode, kind: type, topic: str, callback: Callable[..., None],
              depth: int = 1, reliable: bool = False, overridable: bool = False, **more: Any
              ) -> Any:
    """Create a subscription; best effort connects to every publisher."""
    options = QoSOverridingOptions(policy_kinds=(
        QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY,
        QoSPolicyKind.DURABILITY)) if overridable or topic.endswith(OVERRIDABLE) else None
    return node.create_subscription(kind, topic, callback, _profile(depth, reliable),
                                    qos_overriding_options=options, **more)


def bounded(kind: type, callback: Callable[[Any, Mapping[str, int]], None],
            refused: Callable[[ValueError], object], most: int = SMALL) -> Callable[..., None]:
    """Return a callback for ``subscribe(raw=True)``: larger messages would keep all from work."""
    def take(data: bytes, info: Mapping[str, int]) -> None:
        try:
            if len(data) > most:
                raise ValueError(f'it has {len(data):,} bytes, more than {most:,}')
            msg = deserialize_message(data, kind)
        except ValueError as error:
            refused(error)
        except rclpy_implementation.RMWError as error:
            refused(ValueError(f'it is damaged: {error}'))
        else:
            callback(msg, info)

    return take


def deliver_last_zero(node: LifecycleNode, publisher: Any) -> None:
    """Wait until all readers have the last zero, which is lost with its publisher; else warn."""
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

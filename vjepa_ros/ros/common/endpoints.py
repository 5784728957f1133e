# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Connect lifecycle nodes to others: publishers, subscriptions, and tf where it is installed.

Parameters (`qos_overrides`) may change the policies of images, assessments and obstacle points:
what drivers, bags and other planners send and read.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import LivelinessPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.serialization import deserialize_message
from rclpy.time import Time

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
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


class Transforms:
    """Listens to tf."""

    def __init__(self, node: LifecycleNode, base_frame: str) -> None:
        self.base_frame = base_frame
        self._tf2 = importlib.import_module('tf2_ros')
        self._buffer = self._tf2.Buffer()
        self._listener = self._tf2.TransformListener(self._buffer, node, spin_thread=False)
        # Python's buffer does not notice by itself, and takes nothing older than it has: after
        # a bag began anew it would never speak again. What is static it keeps.
        self._jump = node.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1),
                          on_clock_change=True), post_callback=lambda _: self._buffer.clear())

    def close(self) -> None:
        """Stop listening."""
        self._jump.unregister()
        if hasattr(self._listener, 'unregister'):   # newer distributions
            self._listener.unregister()

    def pose(self, frame_id: str, stamp: Any | None = None, wait_s: float = 0.0
             ) -> tuple[Vector, Quaternion]:
        """Position [m] and rotation (x, y, z, w) of a frame in the base frame at a time."""
        if not frame_id:
            raise ValueError('there is no frame_id to ask tf for')
        if stamp is not None and not (stamp.sec or stamp.nanosec):
            raise ValueError(f"the stamp of what is in '{frame_id:.99}' is 0, which to tf means "
                             'the newest pose; let its driver set it')
        at_time = Time() if stamp is None else Time.from_msg(stamp)
        try:
            found = self._buffer.lookup_transform(self.base_frame, frame_id, at_time,
                                                  timeout=Duration(seconds=wait_s)).transform
        except self._tf2.TransformException as error:
            when = '' if stamp is None else f' at the time {stamp.sec}.{stamp.nanosec:09d}'
            raise ValueError(f"tf gives no pose of '{frame_id:.99}' in '{self.base_frame}'{when} "
                             f'({error!s:.399})') from error
        at, turn = found.translation, found.rotation
        return (at.x, at.y, at.z), (turn.x, turn.y, turn.z, turn.w)

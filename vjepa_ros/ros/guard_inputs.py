# SPDX-License-Identifier: Apache-2.0
"""Subscribe to what the guard listens to beside commands: assessments, ranges and odometry."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import LaserScan, PointCloud2, Range

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.reports import Motion, RangeReading, SourceReport
from vjepa_ros.ros import read
from vjepa_ros.ros.guard_frames import Frames
from vjepa_ros.ros.guard_ranges import range_distance, scan_distance
from vjepa_ros.ros.guard_table import GuardConfig, Ranger, Source

NS = 1e9
LOG_EVERY_S = 5.0
TURNED = 0.05            # rad by which a camera must have been turned on the robot to count


def overridable() -> QoSOverridingOptions:
    """Policies that parameters may change."""
    return QoSOverridingOptions(policy_kinds=(
        QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY,
        QoSPolicyKind.DURABILITY))


def odometry_message() -> type:
    """The type of odometry messages.

    Raises
    ------
    RuntimeError
        When nav_msgs is not installed, with the remedy.
    """
    try:
        from nav_msgs.msg import Odometry
    except ImportError as error:
        raise RuntimeError(
            "parameter 'odometry' is true, which needs the package nav_msgs: install "
            'ros-DISTRO-nav-msgs (apt or pip), or set odometry: false') from error
    return Odometry


class GuardInputs:
    """The subscriptions of an active guard.

    Parameters
    ----------
    node
        The node that owns them.
    config
        Names, topics and directions.
    guard
        What takes what comes.
    now_s
        The clock of the guard [s].
    decide
        Called after news of a camera or a range sensor, with the time at which the message had
        arrived [ns since the epoch; 0 unknown].
    frames
        Tells directions from tf; None when no source asks for that.
    """

    def __init__(self, node: LifecycleNode, config: GuardConfig, guard: VelocityGuard,
                 now_s: Callable[[], float], decide: Callable[[int], None],
                 frames: Frames | None) -> None:
        self._node = node
        self._guard = guard
        self._now_s = now_s
        self._decide = decide
        self.refused = 0
        self._yaw: dict[str, float] = {}      # as told by tf
        self._frames = frames
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        lossy = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._subscriptions: list[object] = []
        for source in config.sources:
            self._listen(PointCloud2, source.topic, partial(self._on_assessment, source), reliable)
        for ranger in config.ranges:
            kind = Range if ranger.kind == 'range' else LaserScan
            self._listen(kind, ranger.topic, partial(self._on_range, ranger), lossy)
        if config.odometry:
            self._listen(odometry_message(), 'odom', self._on_odometry, lossy)

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def _listen(self, kind: type, topic: str, callback: Callable[..., None],
                qos: QoSProfile) -> None:
        self._subscriptions.append(self._node.create_subscription(
            kind, topic, callback, qos, qos_overriding_options=overridable()))

    def _stamp_s(self, msg: Any, now_s: float) -> float:
        """Stamp of a message on the clock of the guard [s]."""
        age = self._node.get_clock().now().nanoseconds - read.stamp_ns(msg)
        return now_s - age / NS

    def _refuse(self, what: str, error: Exception) -> str:
        self.refused += 1
        text = f'{what}: message refused: {error}'
        self._node.get_logger().error(text, throttle_duration_sec=LOG_EVERY_S)
        return str(error)

    def _on_assessment(self, source: Source, msg: PointCloud2, info: Mapping[str, int]) -> None:
        now = self._now_s()
        try:
            seen = read.assessment(msg, source.name)
            if source.from_tf:
                self._face(source, msg.header, now)
        except (ValueError, IndexError) as error:
            reason = self._refuse(f"source '{source.name}' ({source.topic})", error)
            self._guard.observe_malformed(source.name, reason)
        else:
            age = now - self._stamp_s(msg, now)
            if not self._guard.observe(SourceReport.of(seen, now, age, source.name)):
                return
        self._decide(info.get('received_timestamp', 0))

    def _face(self, source: Source, header: Any, now_s: float) -> None:
        """Let a source look where tf says (ValueError when that is not known)."""
        yaw = self._frames.yaw(source.name, header, now_s, self._guard.settings.source_timeout)
        known = self._yaw.get(source.name)
        if known is None or abs(math.remainder(yaw - known, 2 * math.pi)) > TURNED:
            self._yaw[source.name] = yaw
            self._guard.turn_source(source.name, yaw)

    def _on_range(self, ranger: Ranger, msg: Range | LaserScan) -> None:
        now = self._now_s()
        try:
            if ranger.kind == 'range':
                distance, reach = range_distance(msg), msg.max_range
            else:
                reach = msg.range_max
                distance = scan_distance(msg, ranger.yaw, ranger.mounting, ranger.half_width,
                                         ranger.blank_free)
        except ValueError as error:
            self._refuse(f"range '{ranger.name}' ({ranger.topic})", error)
            distance = reach = math.nan         # as good as none, until it becomes too old
        self._guard.observe_range(RangeReading(ranger.name, self._stamp_s(msg, now), now,
                                               distance, reach))
        self._decide(0)

    def _on_odometry(self, msg: Any) -> None:
        twist = msg.twist.twist
        now = self._now_s()
        stamp = min(now, self._stamp_s(msg, now))
        self._guard.observe_speed(
            Motion(twist.linear.x, twist.linear.y, twist.angular.z), stamp)


def epoch_ns() -> int:
    """The clock of DDS time stamps [ns]."""
    return time.time_ns()

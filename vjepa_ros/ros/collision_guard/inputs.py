# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscriptions of the guard besides commands: assessments, range sensors and odometry."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import LaserScan, PointCloud2, Range

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.types import Motion, RangeReading, SourceReport
from vjepa_ros.ros import read
from vjepa_ros.ros.collision_guard.camera_directions import Frames
from vjepa_ros.ros.collision_guard.parameters import GuardConfig, Ranger, Source
from vjepa_ros.ros.collision_guard.range_sensors import range_distance, scan_distance
from vjepa_ros.ros.command.inputs import CommandInputs, odometry_message

LARGEST_SCAN = 1 << 20   # bytes, over 100,000 rays with intensities
MIN_TURN = 0.05          # rotation of a camera on the robot that counts [rad]


class GuardInputs(CommandInputs):
    """The subscriptions of an active guard.

    Parameters
    ----------
    node
        The node that owns them.
    config
        Names, topics and directions.
    guard
        Takes the inputs.
    now_s
        Clock of the guard [s].
    decide
        Called after each message of a camera or range sensor, with its time of arrival [ns since
        the epoch; 0 unknown].
    frames
        Directions from tf; None when no source uses tf.
    """

    def __init__(self, node: LifecycleNode, config: GuardConfig, guard: VelocityGuard,
                 now_s: Callable[[], float], decide: Callable[[int], None],
                 frames: Frames | None) -> None:
        super().__init__(node)
        self._config = config
        self._guard = guard
        self._now_s = now_s
        self._decide = decide
        self._yaw: dict[str, float] = {}      # by tf
        self._frames = frames

    def open(self) -> None:
        """Subscribe; after a failure `close` removes what was created."""
        for source in self._config.sources:
            self.listen(PointCloud2, source.topic, partial(self._on_assessment, source),
                        reliable=True, refused=partial(self._malformed, source))
        for ranger in self._config.ranges:
            kind = Range if ranger.kind == 'range' else LaserScan
            self.listen(kind, ranger.topic, partial(self._on_range, ranger), most=LARGEST_SCAN)
        if self._config.odometry:
            self.listen(odometry(), 'odom', self._on_odometry)

    def _on_assessment(self, source: Source, msg: PointCloud2) -> None:
        now = self._now_s()
        try:
            seen = read.assessment(msg, source.name)
            report = SourceReport.of(seen, now, self.age_s(msg), source.name)
            if source.from_tf:
                self._set_direction(source, msg.header, now)
        except (ValueError, IndexError) as error:
            self._malformed(source, error)
            return
        if self._guard.observe(report):
            self._decide(self.arrival_ns)

    def _malformed(self, source: Source, error: Exception) -> None:
        reason = self.refuse(f"source '{source.name}' ({source.topic})", error)
        self._guard.observe_malformed(source.name, reason)
        self._decide(0)

    def _set_direction(self, source: Source, header: Any, now_s: float) -> None:
        """Set the direction of a source from tf; ValueError when it is unknown."""
        assert self._frames is not None, 'the node creates it for sources with from_tf'
        yaw = self._frames.yaw(source.name, header, now_s, self._guard.settings.source_timeout)
        known = self._yaw.get(source.name)
        if known is None or abs(math.remainder(yaw - known, 2 * math.pi)) > MIN_TURN:
            self._yaw[source.name] = yaw
            self._guard.turn_source(source.name, yaw)

    def _on_range(self, ranger: Ranger, msg: Range | LaserScan) -> None:
        now, age = self._now_s(), 0.0
        try:
            age = self.age_s(msg)
            if isinstance(msg, Range):
                distance, reach = range_distance(msg), msg.max_range
            else:
                reach = msg.range_max
                distance = scan_distance(msg, ranger.yaw, ranger.mounting, ranger.half_width,
                                         ranger.blank_free)
        except ValueError as error:
            self.refuse(f"range '{ranger.name}' ({ranger.topic})", error)
            distance = reach = math.nan         # no reading, until the last one is too old
        self._guard.observe_range(RangeReading(ranger.name, now - age, now, distance, reach))
        self._decide(0)

    def _on_odometry(self, msg: Any) -> None:
        twist = msg.twist.twist
        self._guard.observe_speed(
            Motion(twist.linear.x, twist.linear.y, twist.angular.z),
            self._now_s() - self.odometry_age_s(msg))


def odometry() -> type:
    """Return the type of odometry messages; RuntimeError with the remedy without nav_msgs."""
    return odometry_message("'odometry', which is true,", 'odometry: false')

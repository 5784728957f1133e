# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Inputs of the guard besides commands: assessments, directions, range sensors and odometry."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from sensor_msgs.msg import LaserScan, PointCloud2, Range

from vjepa_ros.guard.types import Motion, RangeReading, SourceReport
from vjepa_ros.ros import read
from vjepa_ros.ros.collision_guard.parameters import BASE_FRAME, FROM_TF, Ranger, Source
from vjepa_ros.ros.command.inputs import CommandInputs
from vjepa_ros.ros.common.endpoints import Transforms

LARGEST_SCAN = 1 << 20   # bytes, over 100,000 rays with intensities
MIN_TURN = 0.05          # rotation of a camera on the robot that counts [rad]
MIN_HORIZONTAL = 0.2     # horizontal part of an optical axis that has a direction
MAX_ANGLE = math.radians(60.0)   # of rays of a scan from the direction of the corridor
MIN_WIDTH = 0.1          # of an object that must not hide between rays [m]
MIN_KNOWN = 0.5          # length of the corridor that rays must cover for a reading [m]


class GuardInputs(CommandInputs):
    """Assessments and readings act at once."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._yaw: dict[str, tuple[float, float]] = {}    # by tf: when, and the direction

    def open(self) -> None:
        if any(source.direction == FROM_TF for source in self._config.sources):
            try:
                self._transforms = Transforms(self._node, BASE_FRAME)
            except ImportError as error:
                raise RuntimeError(
                    'a source has direction: tf, which needs the package tf2_ros: install it, or '
                    'set direction: yaw and yaw') from error
        for source in self._config.sources:
            self.listen(PointCloud2, source.topic, partial(self._on_assessment, source),
                        reliable=True, refused=partial(self._malformed, source))
        for ranger in self._config.ranges:
            kind = Range if ranger.kind == 'range' else LaserScan
            self.listen(kind, ranger.name, partial(self._on_range, ranger), most=LARGEST_SCAN)
        if self._config.odometry:
            self.listen(Odometry, 'odom', self._on_odometry)

    def _on_assessment(self, source: Source, msg: PointCloud2) -> None:
        now = self._node.now_s()
        try:
            seen = read.assessment(msg, source.name)
            report = SourceReport.of(seen, now, self.age_s(msg), source.name)
            if source.direction == FROM_TF:
                self._set_direction(source, msg.header, now)
        except (ValueError, IndexError) as error:
            self._malformed(source, error)
            return
        if self._decider.observe(report):
            self._node.act(True)

    def _malformed(self, source: Source, error: Exception) -> None:
        reason = self.refuse(f"source '{source.name}' ({source.topic})", error)
        self._decider.sources[source.name].malformed(reason)
        self._node.act(True)

    def _set_direction(self, source: Source, header: Any, now_s: float) -> None:
        """Set the direction of a source from tf at the stamp of its image."""
        # tf may arrive a little after an assessment, on the executor that runs this: so this does
        # not wait, and the last direction stays valid for `source_timeout`.
        assert self._transforms is not None, 'opened for sources with from_tf'
        since, known = self._yaw.get(source.name, (-math.inf, math.nan))
        try:
            yaw = axis_yaw(*self._transforms.pose(header.frame_id, header.stamp)[1])
        except ValueError:
            if not 0 <= now_s - since <= self._decider.settings.source_timeout:
                raise
            return
        if not abs(math.remainder(yaw - known, 2 * math.pi)) <= MIN_TURN:     # or one is NaN
            self._decider.sources[source.name].turn_to(yaw)
            known = yaw
        self._yaw[source.name] = now_s, known

    def _on_range(self, ranger: Ranger, msg: Range | LaserScan) -> None:
        now, age = self._node.now_s(), 0.0
        try:
            age = self.age_s(msg)
            if isinstance(msg, Range):
                distance, reach = range_distance(msg), msg.max_range
            else:
                reach = msg.range_max
                distance = scan_distance(msg, ranger.yaw, ranger.mounting, ranger.half_width)
        except ValueError as error:
            self.refuse(f"range '{ranger.name}'", error)
            distance = reach = math.nan         # no reading, until the last one is too old
        self._decider.observe_range(RangeReading(ranger.name, now - age, now, distance, reach))
        self._node.act(True)

    def _on_odometry(self, msg: Odometry) -> None:
        twist = msg.twist.twist
        self._decider.observe_speed(Motion(twist.linear.x, twist.linear.y, twist.angular.z),
                                    self._node.now_s() - self.odometry_age_s(msg))


def axis_yaw(x: float, y: float, z: float, w: float) -> float:
    """Return the direction of the axis z of an optical frame (REP 103) [rad]."""
    ahead, left = 2 * (x * z + w * y), 2 * (y * z - w * x)
    if math.hypot(ahead, left) < MIN_HORIZONTAL:
        raise ValueError('its optical axis points up or down; set direction and yaw')
    return math.atan2(left, ahead)


# -- free path of range sensors, by REP 117 -------------------------------------------------------

def range_distance(msg: Any) -> float:
    """Return the free path of a sensor_msgs/Range [m]."""
    low, high, value = msg.min_range, msg.max_range, msg.range
    if not (0 <= low <= high and high > 0):
        raise ValueError(f'min_range {low:g} and max_range {high:g} are not a valid range')
    if math.isnan(value):
        return math.nan
    if value == -math.inf or value < low:
        return 0.0
    return math.inf if value >= high else float(value)


def scan_distance(msg: Any, yaw: float, mounting: float, half_width: float) -> float:
    """Return the free path of a sensor_msgs/LaserScan along a corridor from the sensor [m].

    `yaw, mounting`: of corridor and scanner on the robot [rad].
    """
    if not 0 <= msg.range_min < msg.range_max:
        raise ValueError(f'range_min {msg.range_min:g} and range_max {msg.range_max:g} are not a '
                         'valid range; correct the driver')
    ranges = np.frombuffer(msg.ranges, np.float32) if len(msg.ranges) else np.empty(0, np.float32)
    angles = msg.angle_min + msg.angle_increment * np.arange(len(ranges)) + mounting - yaw
    angles = (angles + math.pi) % (2 * math.pi) - math.pi
    order = np.argsort(angles)
    order = order[np.abs(angles[order]) < MAX_ANGLE]
    ranges, angles, step = ranges[order], angles[order], abs(msg.angle_increment)
    if not len(angles) or not angles[0] - step <= 0 <= angles[-1] + step:
        raise ValueError('none of its rays looks along the corridor; correct direction, yaw or '
                         'mounting')
    if (ranges == -np.inf).any():
        return 0.0
    with np.errstate(invalid='ignore'):
        blank = ~(ranges >= msg.range_min)                    # also NaN
        hit = ~blank & (ranges <= msg.range_max)
    along, across = (ranges[hit] * f(angles[hit]) for f in (np.cos, np.sin))
    inside = np.abs(across) <= half_width
    nearest = float(along[inside].min()) if inside.any() else math.inf
    known = _covered_length(angles, blank, step, half_width)
    if known < min(nearest, MIN_KNOWN):
        raise ValueError(
            f'{int(blank.sum())} of {len(blank)} rays within 60 degrees of its direction are NaN '
            f'or below range_min, so only {known:.2f} m of the path is known; if the driver sends '
            'them without an object, set its option to send inf (REP 117)')
    return min(nearest, known)


def _covered_length(angles: np.ndarray, blank: np.ndarray, step: float,
                    half_width: float) -> float:
    """Return the length of a corridor that rays (N,) of rising angles cover, by their gaps [m]."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], blank.astype(np.int8), [0]))))
    known = math.inf
    # Rays without a reading that span g radians hide an object from ``MIN_WIDTH / g`` on.
    for first, end in edges.reshape(-1, 2):
        low, high = angles[first] - 0.5 * step, angles[end - 1] + 0.5 * step
        hidden_from = MIN_WIDTH / (high - low)
        # The part of the gap nearest to the direction of the corridor.
        off = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        if hidden_from * math.sin(off) <= half_width:
            known = min(known, hidden_from * math.cos(off))
    return float(known)

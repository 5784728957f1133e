# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Directions of cameras, and the free path of range sensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MIN_HORIZONTAL = 0.2     # horizontal part of an optical axis that has a direction
MAX_ANGLE = math.radians(60.0)   # of rays of a scan from the direction of the corridor
MIN_WIDTH = 0.1          # of an object that must not hide between rays [m]
MIN_KNOWN = 0.5          # length of the corridor that rays must cover for a reading [m]


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

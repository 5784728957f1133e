# SPDX-License-Identifier: Apache-2.0
"""Free way in the messages of range sensors, by the conventions of REP 117 (needs no ROS)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

AHEAD = math.radians(60.0)   # rays that are farther from the direction do not look that way


def range_distance(msg: Any) -> float:
    """Free way of a sensor_msgs/Range [m].

    Returns
    -------
    float
        0 for -inf and below `min_range` (too near to measure), inf for +inf and from `max_range`
        on (nothing there), NaN for NaN.

    Raises
    ------
    ValueError
        When the limits are not in order.
    """
    low, high, value = msg.min_range, msg.max_range, msg.range
    if not 0 <= low <= high:
        raise ValueError(f'min_range {low:g} and max_range {high:g} are not in order')
    if math.isnan(value):
        return math.nan
    if value == -math.inf or value < low:
        return 0.0
    return math.inf if value >= high else float(value)


def scan_distance(msg: Any, yaw: float, mounting: float, half_width: float) -> float:
    """Free way of a sensor_msgs/LaserScan along a corridor that begins at the sensor [m].

    Parameters
    ----------
    msg
        The scan. Rays of +inf are free, -inf is something too near to measure, values outside
        `range_min` to `range_max` and NaN are left out (REP 117; many drivers send 0 for nothing).
    yaw
        Direction of the corridor in the frame of the robot [rad].
    mounting
        Yaw of the scanner's frame in the frame of the robot [rad].
    half_width
        Half the width of the corridor [m].

    Returns
    -------
    float
        inf when nothing is in it; NaN when no ray looks that way.
    """
    ranges = np.frombuffer(msg.ranges, np.float32) if len(msg.ranges) else np.empty(0, np.float32)
    angles = msg.angle_min + msg.angle_increment * np.arange(len(ranges)) + mounting - yaw
    angles = (angles + math.pi) % (2 * math.pi) - math.pi
    looks = np.abs(angles) < AHEAD
    near = looks & (ranges == -np.inf)
    if near.any():
        return 0.0
    with np.errstate(invalid='ignore'):
        valid = (ranges >= msg.range_min) & (ranges <= msg.range_max)
    if not (looks & (valid | (ranges == np.inf))).any():
        return math.nan
    ranges, angles = ranges[valid], angles[valid]
    along, across = ranges * np.cos(angles), ranges * np.sin(angles)
    inside = (along > 0) & (np.abs(across) <= half_width)
    return float(along[inside].min()) if inside.any() else math.inf

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn obstacles into points and rays for planners.

What Nav2 wants of them is written beside each constant (navigation2: nav2_collision_monitor
`pointcloud.cpp`, `scan.cpp`; nav2_costmap_2d `obstacle_layer.cpp`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vjepa_ros.obstacles.placement import Mount, ObstacleSettings, Obstacles, ROBOT_HALF_WIDTH

# Parts of the height band, well inside it: a point on its border can fall out by rounding.
LEVELS = (0.15, 0.5, 0.85)
# Points side by side: with the levels at least 6 for each column, and polygons of the collision
# monitor want 4 (`min_points`).
LEAST_ACROSS = 2
NEAREST_M = 0.1           # nothing is placed nearer: a scan leaves out what is below its range_min
WAY_PART = 0.3            # relative error of the free way that heads tell, measured: docs/nav2.md
# Part of the way to an obstacle that must be measured for a ray to it; cells at its foot show
# ground as well, and are the sooner unknown.
MEASURED = 0.7
SCAN_STEP = math.radians(1.0)


@dataclass(frozen=True)
class Scan:
    """Rays from the origin of the base frame in its x-y plane, as in sensor_msgs/LaserScan."""

    # (M,) float32 [m]: a number, inf for free up to max_range, NaN for not known (neither marks
    # nor clears). Also a number says that all before it is free.
    ranges: np.ndarray
    # angle_min, step: of the first ray and between rays [rad], left positive
    angle_min: float
    step: float
    # range_min, range_max: limits of numbers [m]
    range_min: float
    range_max: float


def base_points(found: Obstacles, mount: Mount, how: ObstacleSettings) -> np.ndarray:
    """Spread points over the width of obstacles and the band."""
    lines = [(_line(mount, reach, reach * slope, how.spacing), confidence)
             for reach, slope, confidence in _placed(found, how)]
    heights = how.min_height + np.array(LEVELS) * (how.max_height - how.min_height)
    parts = [np.column_stack((flat, np.full(len(flat), z), np.full(len(flat), confidence)))
             for z in heights for flat, confidence in lines]
    return np.concatenate([np.empty((0, 4)), *parts])


def scan(found: Obstacles, mount: Mount, how: ObstacleSettings) -> Scan:
    """Make a scan around the base frame, with what is free."""
    far = [mount.position[:2] + _ahead(mount, how.max_range, how.max_range * found.slope[:, side])
           for side in (0, 1)]
    # Around the heading of the camera, so that a view to the rear does not break at 180 degrees.
    middle = math.atan2(mount.heading[1], mount.heading[0])
    borders = np.stack([_turned(np.arctan2(p[:, 1], p[:, 0]) - middle) for p in far])
    first = math.floor(borders.min() / SCAN_STEP) * SCAN_STEP
    count = math.ceil((borders.max() - first) / SCAN_STEP) + 1
    ranges = np.full(count, np.nan)
    angles = first + SCAN_STEP * np.arange(count)
    for column in np.flatnonzero(found.free):
        low, high = np.sort(borders[:, column])
        ranges[(angles >= low) & (angles <= high)] = np.inf
    for reach, slope, _ in _placed(found, how, measured=True):
        spacing = min(how.spacing, 0.4 * SCAN_STEP * reach)
        points = _line(mount, reach, reach * slope, spacing)
        index = np.round((_turned(np.arctan2(points[:, 1], points[:, 0]) - middle) - first)
                         / SCAN_STEP).astype(int)
        inside = (index >= 0) & (index < count)
        np.fmin.at(ranges, index[inside],
                   np.maximum(np.linalg.norm(points[inside], axis=1), 1.01 * NEAREST_M))
    limit = 1.01 * (how.max_range + float(np.linalg.norm(mount.position[:2])))
    # The end of a free ray, and of none: what is obliquely ahead can be farther away, and is left
    # to the points.
    ranges[np.isfinite(ranges) & (ranges > limit)] = np.nan
    return Scan(ranges.astype(np.float32), middle + first, SCAN_STEP, NEAREST_M, limit)


def _placed(found: Obstacles, how: ObstacleSettings,
            measured: bool = False) -> list[tuple[float, np.ndarray, float]]:
    """List level distance, both borders to the left per distance, confidence."""
    parts = []
    for column in np.flatnonzero(found.region >= 0):
        reach = max(NEAREST_M, float(found.reach[column] - how.caution * found.sigma[column]))
        if not measured or found.sight[column] >= MEASURED * reach:
            parts.append((reach, found.slope[column], float(found.confidence[column])))
    if not math.isnan(found.way):
        reach = max(NEAREST_M, found.way * (1 - WAY_PART * how.caution))
        parts.append((reach, np.array((ROBOT_HALF_WIDTH, -ROBOT_HALF_WIDTH)) / reach,
                      found.way_confidence))
    return parts


def _line(mount: Mount, reach: float, across: np.ndarray, spacing: float) -> np.ndarray:
    """Spread level points (n, 2) from one border to the other."""
    count = max(LEAST_ACROSS, math.ceil(abs(across[1] - across[0]) / spacing) + 1)
    return mount.position[:2] + _ahead(mount, reach, np.linspace(across[0], across[1], count))


def _ahead(mount: Mount, reach: float, left: np.ndarray) -> np.ndarray:
    heading = mount.heading[:2]
    return reach * heading + left[:, None] * np.array((-heading[1], heading[0]))


def _turned(angles: np.ndarray) -> np.ndarray:
    """Angles within half a turn of zero."""
    return (angles + math.pi) % (2 * math.pi) - math.pi

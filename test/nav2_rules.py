# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What Nav2 does with clouds and scans, rule by rule, for tests on machines without Nav2.

Written after reading `nav2_collision_monitor` (source.cpp, pointcloud.cpp, scan.cpp, polygon.cpp),
`nav2_costmap_2d` (obstacle_layer.cpp) and `laser_geometry`; what they do otherwise is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

STOP = None       # what an invalid source means to the collision monitor
Transform = Callable[[np.ndarray], np.ndarray]


def same(points: np.ndarray) -> np.ndarray:
    """The transform of data that is in the base frame already."""
    return points


def cloud_xyz(msg: object) -> np.ndarray:
    """(N, 3) as three sensor_msgs::PointCloud2ConstIterator<float> read it.

    Raises
    ------
    RuntimeError
        'Field x does not exist', as the iterator throws, also for an empty cloud.
    """
    fields = {f.name: f for f in msg.fields}
    out = []
    for name in ('x', 'y', 'z'):
        if name not in fields:
            raise RuntimeError(f'Field {name} does not exist')
        field = fields[name]
        assert (field.datatype, field.count) == (7, 1), 'read as float whatever is declared'
        assert len(msg.data) == msg.row_step * msg.height == msg.point_step * msg.width
        out.append(np.ndarray(msg.width * msg.height, '<f4', bytes(msg.data), field.offset,
                              (msg.point_step,)) if msg.data else np.empty(0, np.float32))
    return np.stack(out, -1).astype(float)


@dataclass(frozen=True)
class CollisionMonitor:
    """One source and one polygon of the collision monitor.

    Attributes
    ----------
    source_timeout
        [s]; 0 switches the check off.
    min_height, max_height
        Of a point cloud [m].
    min_points
        Of the polygon.
    band
        What z is compared with the band: 'base' up to Jazzy, 'source' where the parameter
        `use_global_height` exists.
    """

    source_timeout: float = 2.0
    min_height: float = 0.05
    max_height: float = 0.5
    min_points: int = 4
    band: str = 'base'

    def valid(self, msg: object | None, now_ns: int) -> bool:
        """`Source::sourceValid`; a source that never spoke is invalid as well."""
        if msg is None:
            return False
        age = (now_ns - msg.header.stamp.sec * 10**9 - msg.header.stamp.nanosec) / 1e9
        return self.source_timeout == 0.0 or age <= self.source_timeout

    def cloud(self, msg: object | None, now_ns: int, to_base: Transform = same
              ) -> np.ndarray | None:
        """`PointCloud::getData`: (N, 2) in the base frame, or STOP."""
        if not self.valid(msg, now_ns):
            return STOP
        source = cloud_xyz(msg)
        base = to_base(source)
        z = (base if self.band == 'base' else source)[:, 2]
        return base[(z >= self.min_height) & (z <= self.max_height), :2]

    def scan(self, msg: object | None, now_ns: int) -> np.ndarray | None:
        """`Scan::getData`: (N, 2) in the frame of the scan, or STOP."""
        if not self.valid(msg, now_ns):
            return STOP
        ranges, angles = rays(msg)
        inside = (ranges >= msg.range_min) & (ranges <= msg.range_max)   # false for NaN
        return np.column_stack((ranges * np.cos(angles), ranges * np.sin(angles)))[inside]

    def triggers(self, data: np.ndarray | None, length: float, half_width: float) -> bool:
        """`CollisionMonitor::processStopSlowdownLimit` of a box ahead of the robot."""
        if data is STOP:
            return True
        inside = (data[:, 0] > 0) & (data[:, 0] < length) & (np.abs(data[:, 1]) < half_width)
        return int(inside.sum()) >= self.min_points

    def older(self) -> CollisionMonitor:
        """The same as of the other kind of version."""
        return replace(self, band='source' if self.band == 'base' else 'base')


def rays(msg: object) -> tuple[np.ndarray, np.ndarray]:
    """Ranges and angles of a scan."""
    ranges = np.array(msg.ranges, float)
    return ranges, msg.angle_min + msg.angle_increment * np.arange(len(ranges))


class ObstacleLayer:
    """Marks and clears cells of a grid around the robot.

    Parameters
    ----------
    inf_is_valid, obstacle_max_range
        As the parameters of a LaserScan source; [m].
    """

    RESOLUTION, REACH = 0.05, 4.0

    def __init__(self, inf_is_valid: bool = True, obstacle_max_range: float = 3.0) -> None:
        self.inf_is_valid, self.obstacle_max_range = inf_is_valid, obstacle_max_range
        side = round(2 * self.REACH / self.RESOLUTION)
        self.cells = np.zeros((side, side), bool)

    def scan(self, msg: object) -> None:
        """`laserScanValidInfCallback`, then `laser_geometry`, then clearing and marking."""
        ranges, angles = rays(msg)
        if self.inf_is_valid:
            positive = ~np.isfinite(ranges) & (ranges > 0)     # false for NaN
            ranges = np.where(positive, msg.range_max - 0.0001, ranges)
        kept = (ranges < msg.range_max) & (ranges >= msg.range_min)
        points = np.column_stack((ranges * np.cos(angles), ranges * np.sin(angles)))[kept]
        for x, y in points:
            for part in np.arange(0.0, 1.0, 0.5 * self.RESOLUTION / math.hypot(x, y)):
                self._set(part * x, part * y, False)
        for x, y in points:
            if math.hypot(x, y) < self.obstacle_max_range:
                self._set(x, y, True)

    def cloud(self, msg: object, to_base: Transform = same, min_height: float = 0.0,
              max_height: float = 2.0) -> None:
        """A PointCloud2 source that marks only; an empty cloud changes nothing."""
        for x, y, z in to_base(cloud_xyz(msg)):
            if min_height <= z <= max_height:
                self._set(x, y, True)

    def marked(self, x: float, y: float) -> bool:
        """Whether the cell at a place or one next to it is marked."""
        row, column = self._cell(x, y)
        return bool(self.cells[row - 1:row + 2, column - 1:column + 2].any())

    def _cell(self, x: float, y: float) -> tuple[int, int]:
        return (math.floor((x + self.REACH) / self.RESOLUTION),
                math.floor((y + self.REACH) / self.RESOLUTION))

    def _set(self, x: float, y: float, value: bool) -> None:
        row, column = self._cell(x, y)
        if 0 <= row < len(self.cells) and 0 <= column < len(self.cells):
            self.cells[row, column] = value

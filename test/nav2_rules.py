# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What Nav2 does with clouds and scans, rule by rule, for tests on machines without Nav2.

Written after reading `nav2_collision_monitor` (source.cpp, pointcloud.cpp, scan.cpp, polygon.cpp)
and `nav2_costmap_2d` (obstacle_layer.cpp, observation_buffer.cpp) of
ros-navigation/navigation2@a3a9704 (2026-08-21), and `laser_geometry`; what they do otherwise is
left out. None of them reads another field of a cloud than x, y, z (and height).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STOP = None       # what an invalid source means to the collision monitor


def cloud_xyz(msg: object) -> np.ndarray:
    """(N, 3) as three sensor_msgs::PointCloud2ConstIterator<float> read it, and its error."""
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
    """One source and one polygon.

    Its data is in the base frame already, where all versions compare the same z with the band.
    Those of Jazzy and later: Humble leaves a stale source out instead of stopping.
    """

    source_timeout: float = 2.0      # s
    min_height: float = 0.05         # m, of points of a cloud that count
    max_height: float = 0.5
    min_points: int = 4              # in the polygon

    def valid(self, msg: object | None, now_ns: int) -> bool:
        """`Source::sourceValid`; a source that never spoke is invalid as well."""
        if msg is None:
            return False
        age = (now_ns - msg.header.stamp.sec * 10**9 - msg.header.stamp.nanosec) / 1e9
        return age <= self.source_timeout

    def cloud(self, msg: object | None, now_ns: int) -> np.ndarray | None:
        """`PointCloud::getData`: (N, 2) in the base frame, or STOP."""
        if not self.valid(msg, now_ns):
            return STOP
        points = cloud_xyz(msg)
        z = points[:, 2]
        return points[(z >= self.min_height) & (z <= self.max_height), :2]

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


def rays(msg: object) -> tuple[np.ndarray, np.ndarray]:
    """Ranges and angles of a scan."""
    ranges = np.array(msg.ranges, float)
    return ranges, msg.angle_min + msg.angle_increment * np.arange(len(ranges))

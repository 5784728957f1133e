# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What Nav2 does with clouds and scans, rule by rule, for tests on machines without Nav2.

Written after reading `nav2_collision_monitor` (source.cpp, pointcloud.cpp, scan.cpp, polygon.cpp)
of ros-navigation/navigation2@a3a9704 (2026-08-21); what it does otherwise is left out. Data is in
the base frame already.
"""

from __future__ import annotations

import numpy as np

STOP = None                          # what an invalid source means to the collision monitor
SOURCE_TIMEOUT_S = 2.0
MIN_HEIGHT, MAX_HEIGHT = 0.05, 0.5   # of points of a cloud that count [m]
MIN_POINTS = 4                       # in the polygon


def _valid(msg: object, now_ns: int) -> bool:
    """`Source::sourceValid`."""
    age = (now_ns - msg.header.stamp.sec * 10**9 - msg.header.stamp.nanosec) / 1e9
    return age <= SOURCE_TIMEOUT_S


def cloud_points(msg: object, now_ns: int) -> np.ndarray | None:
    """`PointCloud::getData`: (N, 2), or STOP; read by three PointCloud2ConstIterator<float>."""
    if not _valid(msg, now_ns):
        return STOP
    fields = {field.name: field for field in msg.fields}
    assert len(msg.data) == msg.row_step * msg.height == msg.point_step * msg.width
    x, y, z = (np.ndarray(msg.width * msg.height, '<f4', bytes(msg.data), fields[name].offset,
                          (msg.point_step,)) if msg.data else np.empty(0) for name in 'xyz')
    return np.column_stack((x, y))[(z >= MIN_HEIGHT) & (z <= MAX_HEIGHT)].astype(float)


def scan_points(msg: object, now_ns: int) -> np.ndarray | None:
    """`Scan::getData`: (N, 2), or STOP."""
    if not _valid(msg, now_ns):
        return STOP
    ranges = np.array(msg.ranges, float)
    angles = msg.angle_min + msg.angle_increment * np.arange(len(ranges))
    inside = (ranges >= msg.range_min) & (ranges <= msg.range_max)   # false for NaN
    return np.column_stack((ranges * np.cos(angles), ranges * np.sin(angles)))[inside]


def triggers(data: np.ndarray | None, length: float, half_width: float) -> bool:
    """`CollisionMonitor::processStopSlowdownLimit` of a box ahead of the robot."""
    if data is STOP:
        return True
    inside = (data[:, 0] > 0) & (data[:, 0] < length) & (np.abs(data[:, 1]) < half_width)
    return int(inside.sum()) >= MIN_POINTS

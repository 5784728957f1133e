# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the node's messages back into dataclasses and arrays, one line each.

Works on received messages as they are; imports no message package, so planners need nothing
but NumPy besides their own rclpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment, Level, Quality, Region
from vjepa_ros.ros.common.cloud_layout import ASSESSMENT, CELL, REGION, SIDES


def stamp_ns(msg: Any) -> int:
    """Stamp of any message with a header [ns]."""
    return msg.header.stamp.sec * 1_000_000_000 + msg.header.stamp.nanosec


def assessment(msg: Any, camera: str = '') -> Assessment:
    """The `Assessment` in a message of ``~/NAME/assessment`` (its regions come separately).

    Raises
    ------
    ValueError
        When the cloud is not one of this package.
    """
    row = _records(msg, ASSESSMENT)[0]
    value = {name: float(row[name]) for name in ASSESSMENT.names
             if name not in ('level', 'flags', 'regions', 'clip_span', 'clip_rate')}
    return Assessment(camera=camera, stamp_ns=stamp_ns(msg), frame_id=msg.header.frame_id,
                      level=Level(int(row['level'])), flags=Quality(int(row['flags'])),
                      clip_span_s=float(row['clip_span']), clip_rate_hz=float(row['clip_rate']),
                      timings={'latency': value['latency_ms']}, **value)


def obstacles(msg: Any) -> list[Region]:
    """The regions in a message of ``~/NAME/obstacles``, most urgent first."""
    return [Region(*(float(row[n]) for n in ('x', 'y', 'width', 'height', 'bearing', 'elevation',
                                             'time_to_contact', 'looming_rate')),
                   side=SIDES[int(row['side'])], confidence=float(row['confidence']),
                   on_course=bool(row['on_course']))
            for row in _records(msg, REGION)]


def looming_field(msg: Any) -> LoomingCells:
    """The cells in a message of ``~/NAME/looming_field``; none where nothing is known.

    Raises
    ------
    ValueError
        When the cloud is not one of this package.
    """
    rows = _records(msg, CELL)
    return LoomingCells(**{name: rows[name].copy() for name in CELL.names})


def features(msg: Any) -> np.ndarray:
    """(H, W, C) float32 of ``~/NAME/features`` or ``~/NAME/embedding`` (a view, no copy)."""
    return np.frombuffer(msg.data, '<f4').reshape(msg.height, msg.width, -1)


def grid(msg: Any) -> np.ndarray:
    """(Hp, Wp) float32 of ``~/NAME/motion_map``, ``moving_map`` or ``looming_map``, as a view.

    NaN is unknown.
    """
    if msg.encoding != '32FC1':
        raise ValueError(f"image has encoding '{msg.encoding}', maps have '32FC1'")
    return np.frombuffer(msg.data, '<f4').reshape(msg.height, msg.step // 4)[:, :msg.width]


def _records(msg: Any, kind: np.dtype) -> np.ndarray:
    names = tuple(field.name for field in msg.fields)
    if names != kind.names or msg.point_step != kind.itemsize:
        raise ValueError(f'cloud has the fields {names}, expected {kind.names}; is it from a '
                         'vjepa_node of this version?')
    return np.frombuffer(msg.data, kind)

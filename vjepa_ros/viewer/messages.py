# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn messages into names and plain values, and keep the newest of what nodes say.

Works on messages as they were received or read from a bag, and imports no message package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from vjepa_ros.lab.report.measurement import json_safe
from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.ros import read

CLOUD, DIAGNOSTICS = 'sensor_msgs/msg/PointCloud2', 'diagnostic_msgs/msg/DiagnosticArray'
IMAGE, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
INFO = 'sensor_msgs/msg/CameraInfo'
STAGE = 'stage_ms.'      # begins the names of the times of stages in the diagnostics
FEW = 64                 # longer lists are described instead of printed
_COLUMNS = {             # what the numbers of clouds of this package mean
    'level': lambda value: Level(value).name.lower(),
    'flags': lambda value: list(Quality(value).names),
    'side': lambda value: read.SIDES[value],
    'on_course': bool,
}


def readable(msg: Any) -> dict[str, Any]:
    """Return the content of any message; what nobody would read is described in a few words."""
    out: dict[str, Any] = {}
    if hasattr(msg, 'header'):
        out = {'stamp_ns': read.stamp_ns(msg), 'frame_id': msg.header.frame_id}
    if hasattr(msg, 'point_step'):
        return {**out, **_cloud(msg)}
    if hasattr(msg, 'status') and hasattr(msg, 'header'):
        return {**out, 'status': [read.diagnostic(one) for one in msg.status]}
    if getattr(msg, 'encoding', '') == '32FC1':
        return {**out, 'rows': msg.height, 'columns': msg.width, **_range(read.grid(msg))}
    return {**out, **{name: _plain(getattr(msg, name)) for name in _names(msg)
                      if name != 'header'}}


def json_line(values: dict[str, Any]) -> str:
    """Return strict JSON on one line: NaN is null, infinite numbers are ``"inf"``, ``"-inf"``."""
    return json.dumps(json_safe(values), ensure_ascii=False, allow_nan=False)


def _cloud(msg: Any) -> dict[str, Any]:
    try:
        rows = read.records(msg)
    except ValueError:       # fields of other types, such as features
        return {'height': msg.height, 'width': msg.width,
                'fields': [field.name for field in msg.fields]}
    names = [name for name in rows.dtype.names or () if name != 'reserved']
    if 'collision_probability' in names:
        return _row(rows[0], names)
    if len(rows) <= FEW:
        return {'points': [_row(row, names) for row in rows]}
    return {'count': len(rows), **{name: _range(rows[name]) for name in names}}


def _row(row: np.void, names: list[str]) -> dict[str, Any]:
    return {name: _COLUMNS.get(name, _plain)(row[name].item()) for name in names}


def _range(values: np.ndarray) -> dict[str, float]:
    """Return the known part, 0..1, and least, mean and largest of what is known."""
    known = values[np.isfinite(values)].astype(float)
    if not known.size:
        return {'known': 0.0}
    return {'known': _plain(known.size / values.size), 'least': _plain(known.min()),
            'mean': _plain(known.mean()), 'most': _plain(known.max())}


def _plain(value: Any) -> Any:
    if isinstance(value, float):     # six digits are what a float32 holds
        return float(f'{float(value):.6g}') if math.isfinite(value) else float(value)
    if isinstance(value, (str, int)):
        return value
    if _names(value):
        return {name: _plain(getattr(value, name)) for name in _names(value)}
    if len(value) > FEW:
        return f'{len(value)} values'
    return [_plain(one) for one in (value.tolist() if hasattr(value, 'tolist') else value)]


def _names(msg: Any) -> list[str]:
    """Return the fields of a message of rclpy, or of one from a bag."""
    if hasattr(msg, 'get_fields_and_field_types'):
        return list(msg.get_fields_and_field_types())
    return [name for name in getattr(msg, '__dataclass_fields__', ()) if name[0] != '_']


# -- what nodes have said so far ------------------------------------------------------------------

@dataclass
class Told:
    """The newest status of a part of a node: as `read.diagnostic`, and when it came [s]."""

    level: str
    message: str
    values: Mapping[str, Any]
    at_s: float

    def number(self, name: str) -> float:
        """Return a value as a number; NaN where it is none."""
        value = self.values.get(name, math.nan)
        return float(value) if isinstance(value, (int, float)) else math.nan

    def text(self, name: str) -> str:
        """Return a value as text; '' where there is none."""
        value = self.values.get(name, '')
        return '' if value in ('none', '') or value != value else str(value)


class States:
    """The newest of what the nodes of this package have said."""

    def __init__(self) -> None:
        # By node and part, see `read.statuses`
        self.told: dict[tuple[str, str], Told] = {}
        # By node and camera, each with when it came [s]
        self.seen: dict[tuple[str, str], tuple[Assessment, float]] = {}

    @staticmethod
    def wants(topic: str, kind: str) -> bool:
        """Return whether `take` understands a topic of this type."""
        last = topic.rpartition('/')[2]
        return (kind == CLOUD and last == 'assessment') or (
            kind == DIAGNOSTICS and last in ('diagnostics', 'state'))

    def take(self, topic: str, msg: Any, now_s: float) -> None:
        """Take a message that came at this steady time [s]; foreign ones are passed over."""
        if hasattr(msg, 'status'):
            for node, part, got in read.statuses(msg):
                self.told[node, part] = Told(got['level'], got['message'], got['values'], now_s)
            return
        node, camera = camera_of(topic)
        with suppress(ValueError):       # of another package
            self.seen[node, camera] = read.assessment(msg, camera), now_s


def camera_of(topic: str) -> tuple[str, str]:
    """Return node (as in its statuses) and camera of a topic ``/NODE/CAMERA/OUTPUT``."""
    node, camera = topic.lstrip('/').rsplit('/', 2)[:2] if topic.count('/') > 2 else ('', '')
    return node, camera

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the node's messages back into dataclasses and arrays, and define their byte layouts.

Works on received messages as they are and imports no message package, so planners need nothing
but NumPy besides their own rclpy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment, LIMITS, Level, Quality, Region, problem_of

SIDES = ('LEFT', 'CENTER', 'RIGHT')
TYPES = {2: 'u1', 4: '<u2', 7: '<f4'}  # of sensor_msgs/PointField

ASSESSMENT = np.dtype([
    ('motion_score', '<f4'), ('obstacle_score', '<f4'), ('collision_probability', '<f4'),
    ('time_to_contact', '<f4'), ('looming_rate', '<f4'), ('bearing', '<f4'),
    ('elevation', '<f4'), ('known_fraction', '<f4'), ('clip_span', '<f4'), ('clip_rate', '<f4'),
    ('latency_ms', '<f4'), ('level', 'u1'), ('regions', 'u1'), ('flags', '<u2'),
    ('clearance', '<f4'), ('collision_if_ahead', '<f4'), ('approach_speed', '<f4'),
    ('collision_horizon', '<f4'), ('still', '<f4'),
])
# The attribute of `Assessment` of each number.
NUMBERS = {name: {'clip_span': 'clip_span_s', 'clip_rate': 'clip_rate_hz',
                  'still': 'still_s'}.get(name, name)
           for name in ASSESSMENT.names or () if name not in ('level', 'regions', 'flags')}

REGION = np.dtype([
    ('x', '<f4'), ('y', '<f4'), ('width', '<f4'), ('height', '<f4'), ('bearing', '<f4'),
    ('elevation', '<f4'), ('time_to_contact', '<f4'), ('looming_rate', '<f4'),
    ('confidence', '<f4'), ('side', 'u1'), ('on_course', 'u1'), ('reserved', '<u2'),
])

OWN = re.compile(r'(?P<node>[^:]+): (?P<part>model|guard|planner|(camera|source) .+)')
CONDITIONS = ('ok', 'warn', 'error', 'stale')    # levels of a DiagnosticStatus

# One point for each cell of the looming field, with the fields of `LoomingCells`.
ENCODER = 'encoder_'      # and the beginning of the hash of the encoder: a field of features
ENCODER_DIGITS = 16
CELL = np.dtype([(field.name, '<f4') for field in fields(LoomingCells)])


def stamp_ns(msg: Any) -> int:
    """Return the stamp of any message with a header [ns]."""
    return msg.header.stamp.sec * 1_000_000_000 + msg.header.stamp.nanosec


def assessment(msg: Any, camera: str = '') -> Assessment:
    """Return the `Assessment` in a message of ``~/NAME/assessment``, without its regions.

    Raises
    ------
    ValueError
        When the cloud is not one of this package, or says what cannot be.
    """
    row = _records(msg, ASSESSMENT)[0]
    values: dict[str, Any] = {name: float(row[name]) for name in NUMBERS}
    problem = problem_of(row['flags'], {name: values[name] for name in LIMITS})
    if problem:
        raise ValueError(problem)
    return Assessment(
        camera=camera, stamp_ns=stamp_ns(msg), frame_id=msg.header.frame_id,
        level=Level(int(row['level'])), flags=Quality(int(row['flags'])),
        timings={'latency': values['latency_ms']},
        **{NUMBERS[name]: value for name, value in values.items()})


def obstacles(msg: Any) -> list[Region]:
    """Return the regions in a message of ``~/NAME/obstacles``, most urgent first."""
    return [Region(*(float(row[n]) for n in ('x', 'y', 'width', 'height', 'bearing', 'elevation',
                                             'time_to_contact', 'looming_rate')),
                   side=SIDES[int(row['side'])], confidence=float(row['confidence']),
                   on_course=bool(row['on_course']))
            for row in _records(msg, REGION)]


def looming_field(msg: Any) -> LoomingCells:
    """Return the cells in a message of ``~/NAME/looming_field``; none where nothing is known.

    Raises
    ------
    ValueError
        When the cloud is not one of this package.
    """
    rows = _records(msg, CELL)
    return LoomingCells(**{field.name: rows[field.name].copy() for field in fields(LoomingCells)})


def features(msg: Any) -> np.ndarray:
    """Return (H, W, C) float32 of ``~/NAME/features`` or ``~/NAME/embedding`` (a view)."""
    return np.frombuffer(msg.data, '<f4').reshape(msg.height, msg.width, -1)


def tubelets(msg: Any) -> np.ndarray:
    """Return (T', Hp, Wp, D) float32 of ``~/NAME/features``, whose grid is square (a view).

    Raises
    ------
    ValueError
        When they are not whole tubelets.
    """
    found = features(msg)
    rows, columns, _ = found.shape
    if not columns or not rows or rows % columns:
        raise ValueError(f'features have {rows} x {columns} places, which are no square grids')
    return found.reshape(-1, columns, *found.shape[1:])


def encoder(msg: Any) -> str:
    """Return the beginning of the hash of the encoder of ``~/NAME/features``.

    '' where they are means, or of weights that are random or not of this package.
    """
    return next((one.name.removeprefix(ENCODER) for one in msg.fields
                 if one.name.startswith(ENCODER)), '')


def grid(msg: Any) -> np.ndarray:
    """Return (Hp, Wp) float32 of ``~/NAME/motion_map``, ``moving_map`` or ``looming_map``.

    It is a view; NaN is unknown.

    Raises
    ------
    ValueError
        When the image is no map.
    """
    if msg.encoding != '32FC1':
        raise ValueError(f"image has encoding '{msg.encoding:.99}', maps have '32FC1'")
    return np.frombuffer(msg.data, '<f4').reshape(msg.height, msg.step // 4)[:, :msg.width]


def records(msg: Any) -> np.ndarray:
    """Return one record for each point of ``~/candidates``, by field name.

    Raises
    ------
    ValueError
        When the cloud has fields of another type than those of this package.
    """
    wrong = [field.name for field in msg.fields if field.datatype not in TYPES or field.count != 1]
    if wrong:
        raise ValueError(f'the cloud is none of the local planner: it has {wrong}')
    kind = np.dtype({'names': [field.name for field in msg.fields],
                     'formats': [TYPES[field.datatype] for field in msg.fields],
                     'offsets': [field.offset for field in msg.fields],
                     'itemsize': msg.point_step})
    return np.frombuffer(msg.data, kind, msg.width * msg.height)


def statuses(msg: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield node, part and `diagnostic` of each status of this package in a DiagnosticArray.

    The part is 'model', 'guard', 'planner', 'camera NAME' or 'source NAME'.
    """
    for status in msg.status:
        if match := OWN.fullmatch(status.name):
            yield match['node'], match['part'], diagnostic(status)


def diagnostic(status: Any) -> dict[str, Any]:
    """Return a DiagnosticStatus as name, level, message and ``values`` by their names."""
    level = status.level[0] if isinstance(status.level, bytes) else int(status.level)
    return {'name': status.name, 'level': CONDITIONS[level] if level < 4 else str(level),
            'message': status.message,
            'values': {pair.key: _value(pair.value) for pair in status.values}}


def _value(text: str) -> Any:
    if text == 'unknown':
        return math.nan
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _records(msg: Any, kind: np.dtype) -> np.ndarray:
    names = tuple(field.name for field in msg.fields)
    if names != kind.names or msg.point_step != kind.itemsize:
        raise ValueError(f'cloud has the fields {names!s:.999} in {msg.point_step} bytes, '
                         f'expected {kind.names} in {kind.itemsize}; is it from a vjepa_node of '
                         'this version?')
    return np.frombuffer(msg.data, kind)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The byte layouts of the point clouds that carry assessments and regions (no ROS needed)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment, Region

SIDES = ('LEFT', 'CENTER', 'RIGHT')

ASSESSMENT = np.dtype([
    ('motion_score', '<f4'), ('obstacle_score', '<f4'), ('collision_probability', '<f4'),
    ('time_to_contact', '<f4'), ('looming_rate', '<f4'), ('bearing', '<f4'),
    ('elevation', '<f4'), ('known_fraction', '<f4'), ('clip_span', '<f4'), ('clip_rate', '<f4'),
    ('latency_ms', '<f4'), ('level', 'u1'), ('regions', 'u1'), ('flags', '<u2'),
    ('clearance', '<f4'),
])

REGION = np.dtype([
    ('x', '<f4'), ('y', '<f4'), ('width', '<f4'), ('height', '<f4'), ('bearing', '<f4'),
    ('elevation', '<f4'), ('time_to_contact', '<f4'), ('looming_rate', '<f4'),
    ('confidence', '<f4'), ('side', 'u1'), ('on_course', 'u1'), ('reserved', '<u2'),
])

# One point for each cell of the looming field, with the fields of `LoomingCells`.
CELL = np.dtype([(field.name, '<f4') for field in fields(LoomingCells)])


def pack_assessment(assessment: Assessment, latency_ms: float) -> np.ndarray:
    """One `ASSESSMENT` record, shape (1,)."""
    a = assessment
    return np.array([(
        a.motion_score, a.obstacle_score, a.collision_probability, a.time_to_contact,
        a.looming_rate, a.bearing, a.elevation, a.known_fraction, a.clip_span_s, a.clip_rate_hz,
        latency_ms, int(a.level), min(255, len(a.regions)), int(a.flags),
        a.clearance)], ASSESSMENT)


def pack_regions(regions: tuple[Region, ...]) -> np.ndarray:
    """`REGION` records, shape (N,)."""
    return np.array([(r.x, r.y, r.width, r.height, r.bearing, r.elevation, r.time_to_contact,
                      r.looming_rate, r.confidence, SIDES.index(r.side), r.on_course, 0)
                     for r in regions], REGION)


def pack_cells(cells: LoomingCells) -> np.ndarray:
    """`CELL` records, shape (N,)."""
    rows = np.empty(len(cells), CELL)
    for name in CELL.names:
        rows[name] = getattr(cells, name)
    return rows

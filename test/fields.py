# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Looming fields and heads written by hand, and what a robot sees of boxes before it."""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.collision import CourseField
from vjepa_ros.perception.learned import Distribution, LearnedField
from vjepa_ros.perception.types import Assessment, Level, Quality, Result

CELL, SIZE, FOCAL = 16, (384, 288), 300.0
ROWS, COLS = SIZE[1] // CELL, SIZE[0] // CELL
OPTICS = Optics(FOCAL, FOCAL, 191.5, 143.5, assumed=False)
EDGES = np.geomspace(0.1, 10.0, 21)
MIDDLE = slice(7, 11), slice(9, 15)
CAMERA_M = 0.4


def still(rate: float = 0.0, confidence: float = 1.0, sigma: float = 0.01) -> LoomingField:
    """A field of still cells over the whole image."""
    xs, ys = np.meshgrid(*((np.arange(n) + 0.5) * CELL - 0.5 for n in (COLS, ROWS)))
    maps = (np.full((ROWS, COLS), value, np.float32) for value in (rate, confidence, sigma))
    return LoomingField(*maps, np.zeros((ROWS, COLS, 2), np.float32),
                        np.stack((xs, ys), -1).astype(np.float32), np.zeros(3, np.float32), None,
                        0.1, float(CELL), SIZE)


def approach(field: LoomingField, rows: slice, cols: slice, rate: float,
             focus: tuple[float, float] | None = None) -> LoomingField:
    """Let cells come nearer at a rate [1/s] as if expanding from `focus` (default: themselves)."""
    centers = field.centers[rows, cols]
    field.rate[rows, cols] = rate
    focus = centers.reshape(-1, 2).mean(0) if focus is None else focus
    field.flow[rows, cols] = rate * (centers - np.asarray(focus, np.float32))
    return field


def geometric(rate: float = 0.0, confidence: float = 1.0, sigma: float = 0.02,
              place: tuple[slice, slice] = MIDDLE) -> LoomingField:
    """A field in which something comes nearer."""
    return approach(still(0.0, confidence, sigma), *place, rate)


def learned(rate: float = 0.0, confidence: float = 1.0, sigma: float = 0.02, *,
            course: float = 0.9, contact_s: float = math.inf, surely: float = 1.0,
            clearance_m: float = math.inf, mode: str = 'squash',
            sees: bool = True, saw: bool = True) -> LearnedField:
    """Heads that see the middle coming nearer, contact at a time, and a wall ahead."""
    maps = {name: np.full((12, 12), value, np.float32) for name, value in (
        ('rate', 0.0), ('confidence', confidence), ('sigma', sigma), ('course', 0.0),
        ('moving', 0.1))}
    maps['rate'][5:7, 5:7], maps['course'][5:7, 5:7] = rate, course
    return LearnedField(**maps, contact=Distribution(EDGES, surely * (contact_s <= EDGES)),
                        clearance=Distribution(EDGES, 1.0 * (clearance_m <= EDGES)),
                        view=View(mode, SIZE, 192), sees=sees, saw=saw)


def field(speed: float, boxes: list[tuple[float, float, float]]) -> CourseField:
    """The field of a robot that goes ahead over a plain ground towards boxes.

    Boxes are (x of the left side, x of the right side, distance from the camera), 1 m high.
    """
    flat = still(confidence=0.9)
    across, down = np.moveaxis((flat.centers - (OPTICS.cx, OPTICS.cy)) / FOCAL, -1, 0)
    depth = np.where(down > 0.02, CAMERA_M / np.maximum(down, 0.02), 50.0)
    course = np.zeros(depth.shape)
    for left, right, far in boxes:
        x, up = across * far, CAMERA_M - down * far
        hit = (x > left) & (x < right) & (up > 0) & (up < 1.0) & (far < depth)
        depth = np.where(hit, far, depth)
        course = np.where(hit & (np.abs(x) < 0.35), 1.0, course)
    rate = (speed / depth).astype(np.float32)
    flow = np.stack((across, down), -1) * rate[..., None] * FOCAL
    return CourseField(**vars(flat) | {'rate': rate, 'flow': flow}, course=course)


def seen(looming: CourseField, level: Level = Level.WARNING) -> Result:
    assessment = Assessment('camera', 1, '', 0.0, 0.0, 0.0, 2.0, 0.5, 0.0, 0.0, level, Quality(0))
    return Result(assessment, None, None, looming, None, View('squash', SIZE, 192), None)

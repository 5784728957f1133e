# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What heads say, written by hand, and what a robot sees of boxes before it."""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.perception.learned import Distribution, LearnedField
from vjepa_ros.perception.types import Assessment, Level, Quality, Result

SIZE, FOCAL = (384, 288), 300.0
OPTICS = Optics(FOCAL, FOCAL, 191.5, 143.5, assumed=False)
VIEW = View('squash', SIZE, 256)
ROWS, COLS = VIEW.grid
WIDE, TALL = SIZE[0] / COLS, SIZE[1] / ROWS      # of a patch in the source image [px]
EDGES = np.geomspace(0.1, 10.0, 21)
MIDDLE = slice(7, 9), slice(7, 9)
CAMERA_M = 0.4


def learned(rate: float = 0.0, confidence: float = 1.0, sigma: float = 0.02, *,
            course: float = 0.9, contact_s: float = math.inf, surely: float = 1.0,
            clearance_m: float = math.inf, mode: str = 'squash', sees: bool = True,
            saw: bool = True, place: tuple[slice, slice] = MIDDLE,
            beside: float = 0.0) -> LearnedField:
    """Heads that see a place coming nearer, contact at a time, and a wall ahead."""
    maps = {name: np.full((ROWS, COLS), value, np.float32) for name, value in (
        ('rate', beside), ('confidence', confidence), ('sigma', sigma), ('course', 0.0),
        ('moving', 0.1))}
    maps['rate'][place], maps['course'][place] = rate, course
    return LearnedField(**maps, contact=Distribution(EDGES, surely * (contact_s <= EDGES)),
                        clearance=Distribution(EDGES, 1.0 * (clearance_m <= EDGES)),
                        view=View(mode, SIZE, VIEW.image_size), sees=sees, saw=saw)


def field(speed: float, boxes: list[tuple[float, float, float]]) -> LearnedField:
    """What is seen from a robot that goes ahead over a plain ground towards boxes.

    Boxes are (x of the left side, x of the right side, distance from the camera), 1 m high.
    """
    across, down = np.moveaxis((VIEW.patch_centers - (OPTICS.cx, OPTICS.cy)) / FOCAL, -1, 0)
    depth = np.where(down > 0.02, CAMERA_M / np.maximum(down, 0.02), 50.0)
    course = np.zeros(depth.shape, np.float32)
    for left, right, far in boxes:
        x, up = across * far, CAMERA_M - down * far
        hit = (x > left) & (x < right) & (up > 0) & (up < 1.0) & (far < depth)
        depth = np.where(hit, far, depth)
        course = np.where(hit & (np.abs(x) < 0.35), np.float32(1), course)
    flat = learned(0.0, 0.9, 0.01)
    return LearnedField(**vars(flat) | {'rate': (speed / depth).astype(np.float32),
                                        'course': course, 'moving': np.zeros_like(course)})


def seen(looming: LearnedField, level: Level = Level.WARNING) -> Result:
    assessment = Assessment('camera', 1, '', 0.0, 0.0, 0.0, 2.0, 0.5, 0.0, 0.0, level, Quality(0))
    return Result(assessment, None, looming.rate, None, looming.view, None, looming)

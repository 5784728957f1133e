# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fields of looming as a robot would measure them before boxes, made from geometry."""

from __future__ import annotations

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.perception.collision import CourseField
from vjepa_ros.perception.types import Assessment, Level, Quality, Result

SIZE, FOCAL, CELL = (384, 288), 300.0, 16
OPTICS = Optics(FOCAL, FOCAL, 191.5, 143.5, False)
CAMERA_M = 0.4


def field(speed: float, boxes: list[tuple[float, float, float]]) -> CourseField:
    """The field of a robot that goes ahead over a plain ground towards boxes.

    Boxes are (x of the left side, x of the right side, distance from the camera), 1 m high.
    """
    xs = np.arange(CELL / 2 - 0.5, SIZE[0], CELL)
    ys = np.arange(CELL / 2 - 0.5, SIZE[1], CELL)
    centers = np.stack(np.meshgrid(xs, ys), -1)
    across = (centers[..., 0] - OPTICS.cx) / FOCAL
    down = (centers[..., 1] - OPTICS.cy) / FOCAL
    depth = np.where(down > 0.02, CAMERA_M / np.maximum(down, 0.02), 50.0)
    course = np.zeros(depth.shape)
    for left, right, far in boxes:
        x, up = across * far, CAMERA_M - down * far
        hit = (x > left) & (x < right) & (up > 0) & (up < 1.0) & (far < depth)
        depth = np.where(hit, far, depth)
        course = np.where(hit & (np.abs(x) < 0.35), 1.0, course)
    rate = (speed / depth).astype(np.float32)
    ones = np.ones_like(rate)
    flow = np.stack((across, down), -1) * rate[..., None] * FOCAL
    return CourseField(rate, 0.9 * ones, 0.01 * ones, flow, centers, np.zeros(3), None, 0.2,
                       CELL, SIZE, course)


def seen(looming: CourseField, level: Level = Level.WARNING) -> Result:
    assessment = Assessment('camera', 1, '', 0.0, 0.0, 0.0, 2.0, 0.5, 0.0, 0.0, level, Quality(0))
    return Result(assessment, None, None, looming, None, View('squash', SIZE, 192), None)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The looming field as directions and rates, without pixels, for planners to predict from."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.perception.straight_view import straight_view
from vjepa_ros.perception.types import Result

CELLS_OF_A_VIEW = 432     # 24 x 18: of the looming field of a 4:3 picture with the usual settings


@dataclass(frozen=True)
class LoomingCells:
    """What was measured at N cells of the newest picture; all (N,) float32."""

    # across, down: direction: tangents of the angles to the right of, and below, the optical
    # axis
    across: np.ndarray
    down: np.ndarray
    # rate, sigma: closing speed over distance along the optical axis, and its standard error
    # [1/s]; the rate is NaN where unknown
    rate: np.ndarray
    sigma: np.ndarray
    confidence: np.ndarray  # of it, 0..1
    course: np.ndarray  # how far the cell is on collision course, 0..1; NaN unknown
    moving: np.ndarray  # probability that it moves by itself, 0..1; NaN unknown
    # drift_across, drift_down: how its direction changes, without the rotation of the camera
    # [1/s]; NaN unknown
    drift_across: np.ndarray
    drift_down: np.ndarray

    def __len__(self) -> int:
        return len(self.rate)

    @classmethod
    def none(cls) -> LoomingCells:
        """Return no cells: nothing is known."""
        return cls(*(np.empty(0, np.float32) for _ in fields(cls)))

    @classmethod
    def of(cls, result: Result, optics: Optics) -> LoomingCells:
        """Return the cells of a result; none where it has no looming field."""
        field = result.looming
        if field is None:
            return cls.none()
        # Centres of pixels: the grey image is a smaller source image.
        size = result.view.source_size
        scale = np.array(size) / field.gray_size
        course = getattr(field, 'course', None)
        values = (field.rate, field.sigma, field.confidence,
                  np.full(field.rate.shape, np.nan) if course is None else course,
                  field.flow[..., 0] * scale[0] / optics.fx,
                  field.flow[..., 1] * scale[1] / optics.fy)
        view = straight_view(optics, size, field.gray_size, int(field.cell_px))
        if view is None:
            points = (field.centers + 0.5) * scale - 0.5
            across, down = np.moveaxis(optics.rays(points), -1, 0)
        else:       # on a grid that is regular before the lens
            points, (across, down) = view.points, np.moveaxis(view.tangents, -1, 0)
            values = tuple(np.where(view.seen, of[tuple(view.nearest)], none) for of, none in zip(
                values, (np.nan, np.inf, 0.0, np.nan, np.nan, np.nan), strict=True))
            # Beside the middle of a cell its direction changes as much more as it looms.
            grows = np.moveaxis(values[0][..., None] * view.beside, -1, 0)
            values = (*values[:4], values[4] + grows[0], values[5] + grows[1])
        rate, sigma, confidence, course, drift_across, drift_down = values
        return cls(*(np.ascontiguousarray(v, np.float32).ravel() for v in (
            across, down, rate, sigma, confidence, course, _moving(result, points), drift_across,
            drift_down)))


def _moving(result: Result, points: np.ndarray) -> np.ndarray:
    """Return the moving map at points of the source image; NaN outside and without one."""
    moving = result.moving_map
    if moving is None:
        return np.full(points.shape[:-1], np.nan)
    place = np.floor((result.view.from_source(points) + 0.5) / result.view.patch).astype(int)
    rows, columns = moving.shape
    inside = ((place >= 0) & (place < (columns, rows))).all(-1)
    x, y = np.clip(place[..., 0], 0, columns - 1), np.clip(place[..., 1], 0, rows - 1)
    return np.where(inside, moving[y, x], np.nan)

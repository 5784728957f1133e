# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Looming as directions and rates, without pixels, for planners to predict from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.perception.types import Result

CELLS_OF_A_VIEW = 432     # 24 x 18: the number of cells that planners were tuned with
_CLOSE = 0.02             # of a tangent that was bent and straightened again


@dataclass(frozen=True)
class LoomingCells:
    """What is known of N cells of the newest picture; all (N,) float32."""

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
    # [1/s]; NaN unknown: heads do not tell it
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
        """Return the patches of a result; none without valid heads."""
        learned = result.learned
        if learned is None:
            return cls.none()
        tangents, patch, seen = _grid(learned.view, optics)
        across, down = np.moveaxis(tangents, -1, 0)
        values = (np.where(seen, of.ravel()[patch], none) for of, none in (
            (learned.rate, np.nan), (learned.sigma, np.inf), (learned.confidence, 0.0),
            (learned.on_course, np.nan), (learned.moving, np.nan)))
        drift = np.full(patch.shape, np.nan)
        return cls(*(np.ascontiguousarray(v, np.float32).ravel()
                     for v in (across, down, *values, drift, drift)))


@lru_cache(8)       # views of all cameras
def _grid(view: View, optics: Optics) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a grid that is regular before the lens, as rays through the middle of patches are.

    Tangents (h, w, 2), the number of the patch there (h, w), and whether the view shows it.
    """
    x, y = view.patch_centers[0, :, 0], view.patch_centers[:, 0, 1]
    across = optics.rays(np.stack((x, np.full_like(x, optics.cy)), -1))[:, 0]
    down = optics.rays(np.stack((np.full_like(y, optics.cx), y), -1))[:, 1]
    tangents = np.stack(np.meshgrid(across[np.isfinite(across)], down[np.isfinite(down)]), -1)
    points = optics.pixels(tangents)
    place = np.floor((view.from_source(points) + 0.5) / view.patch).astype(int)
    rows, columns = view.grid
    seen = ((place >= 0) & (place < (columns, rows))).all(-1)
    if optics.distortion is not None:
        # Far aside a polynomial bends rays back into the picture.
        with np.errstate(invalid='ignore'):
            seen &= (np.abs(optics.rays(points) - tangents) < _CLOSE).all(-1)
    patch = place[..., 1].clip(0, rows - 1) * columns + place[..., 0].clip(0, columns - 1)
    return tangents, patch, np.asarray(seen & (view.patch_valid.ravel()[patch] > 0.5))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tint an image by what moves and what comes nearer, as far as that is known."""

from __future__ import annotations

import cv2
import numpy as np

from vjepa_ros.clip.view import ViewGeometry
from vjepa_ros.looming.estimator import LoomingField

STEP = 8                                     # the tint is computed on every eighth pixel
MOTION_BGR = (255, 150, 60)
COOL = np.array([40, 210, 255], np.float32)  # coming nearer slowly
HOT = np.array([40, 40, 255], np.float32)    # fast
SLOW_RATE, FAST_RATE = 0.1, 1.0              # looming rates [1/s] where the tint starts and ends


def tint(canvas: np.ndarray, zoom: float, motion: np.ndarray | None,
         looming: LoomingField | None, view: ViewGeometry | None,
         min_confidence: float) -> None:
    """Tint in place: motion blue, looming from yellow to red.

    Parameters
    ----------
    canvas
        (h, w, 3) uint8 BGR.
    zoom
        Pixels of the canvas per pixel of the source image.
    motion
        (Hp, Wp) 0..1 on the patches of ``view``, NaN unknown; or None.
    looming
        Looming of the whole image; or None.
    view
        Where the patches lie in the source image; or None.
    min_confidence
        Cells below this confidence are not shown.
    """
    height, width = canvas.shape[:2]
    size = (max(2, width // STEP), max(2, height // STEP))
    xs = (np.arange(size[0]) + 0.5) * width / size[0] / zoom - 0.5
    ys = (np.arange(size[1]) + 0.5) * height / size[1] / zoom - 0.5
    through = np.ones((size[1], size[0], 1), np.float32)
    paint = np.zeros((size[1], size[0], 3), np.float32)
    if motion is not None and view is not None:
        grid = [(view.from_source(np.stack([p, p], -1))[:, axis] + 0.5) / view.patch - 0.5
                for axis, p in enumerate((xs, ys))]
        alpha = 0.34 * np.clip((_sample(motion, *grid) - 0.15) / 0.65, 0, 1)
        rows, cols = motion.shape
        alpha[(grid[1] < -0.5) | (grid[1] > rows - 0.5)] = 0
        alpha[:, (grid[0] < -0.5) | (grid[0] > cols - 0.5)] = 0
        through, paint = _over(through, paint, alpha, np.array(MOTION_BGR, np.float32))
    if looming is not None:
        rate = np.where(looming.confidence >= min_confidence, looming.rate, np.nan)
        grid = _cell_coordinates(looming, (xs, ys), zoom, (width, height))
        urgency = np.clip((_sample(rate, *grid) - SLOW_RATE) / (FAST_RATE - SLOW_RATE), 0, 1)
        color = COOL + (HOT - COOL) * np.sqrt(urgency)[..., None]
        through, paint = _over(through, paint, 0.6 * np.sqrt(urgency), color)
    if through.min() == 1:
        return
    inverse = np.repeat(np.rint(through * 255), 3, axis=2).astype(np.uint8)
    inverse, paint = (cv2.resize(layer, (width, height), interpolation=cv2.INTER_LINEAR)
                      for layer in (inverse, np.rint(paint).astype(np.uint8)))
    cv2.multiply(canvas, inverse, dst=canvas, scale=1 / 255)
    cv2.add(canvas, paint, dst=canvas)


def dot_unknown(canvas: np.ndarray, zoom: float, looming: LoomingField, min_confidence: float,
                size: int) -> None:
    """Put a faint dot of `size` pixels on every cell whose looming is unknown."""
    unknown = ~(np.isfinite(looming.rate) & (looming.confidence >= min_confidence))
    points = (looming.centers[unknown] + 0.5) / np.array(looming.gray_size)
    points = np.rint(points * (canvas.shape[1], canvas.shape[0])).astype(int)
    step = np.arange(size) - size // 2
    for shift, part, light in ((size // 2 + 1, 0.5, 0), (0, 0.55, 255 * 0.45)):
        rows = np.clip(points[:, 1, None, None] + step[:, None] + shift, 0, canvas.shape[0] - 1)
        cols = np.clip(points[:, 0, None, None] + step[None, :] + shift, 0, canvas.shape[1] - 1)
        canvas[rows, cols] = (canvas[rows, cols] * part + light).astype(np.uint8)


def _cell_coordinates(looming: LoomingField, points: tuple[np.ndarray, np.ndarray], zoom: float,
                      canvas_size: tuple[int, int]) -> list[np.ndarray]:
    """Columns and rows of the cell grid at source points, as fractions."""
    axes = looming.centers[0, :, 0], looming.centers[:, 0, 1]
    found = []
    for axis, p in enumerate(points):
        gray = (p + 0.5) * looming.gray_size[axis] * zoom / canvas_size[axis] - 0.5
        pitch = float(axes[axis][1] - axes[axis][0]) if len(axes[axis]) > 1 else looming.cell_px
        found.append((gray - float(axes[axis][0])) / pitch)
    return found


def _sample(grid: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Bilinear values of a grid at columns x rows; unknown counts as nothing to show."""
    x, y = np.meshgrid(columns.astype(np.float32), rows.astype(np.float32))
    known = np.nan_to_num(np.asarray(grid, np.float32), nan=0.0)
    return cv2.remap(known, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def _over(through: np.ndarray, paint: np.ndarray, alpha: np.ndarray,
          color: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lay a colour over what is there: the part let through, and the paint."""
    alpha = alpha[..., None].astype(np.float32)
    return through * (1 - alpha), paint * (1 - alpha) + alpha * color

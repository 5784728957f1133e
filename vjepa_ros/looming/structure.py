# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find where a picture shows structure.

A covered lens shows none, however light falls through the cover: its picture is plain, or changes
as smoothly as a quadratic function of the position. So does the picture of a plain wall right
ahead. Heads may therefore warn of such a view, but never clear it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

GRAIN = 4                # px averaged before structure is looked for: noise is no structure
LEAST_STRUCTURE = 1.5    # standard deviation in grey levels of what shows something
MOSTLY_SHOWN = 0.5       # part of the patches with structure that makes the plain ones known, too
HARDLY_SHOWN = 0.05      # part of the patches with structure below which a frame shows nothing
BLACK = 12.0             # mean grey level below which a plain patch may be a covered one


@dataclass(frozen=True)
class Shown:
    """Visible structure in the pictures of a clip; needs no model.

    Attributes
    ----------
    inside, seen, sure
        (Hp, Wp) bool: patches that show image; of these those that can be told anything about;
        those that can make a view CLEAR.
    sees, saw
        Whether the newest frame of the clip shows structure at all; whether any frame does.
    """

    inside: np.ndarray
    seen: np.ndarray
    sure: np.ndarray
    sees: bool
    saw: bool

    @classmethod
    def by(cls, valid: np.ndarray, frames: Iterable[np.ndarray]) -> Shown:
        """Look at the frames of a clip.

        Parameters
        ----------
        valid
            (Hp, Wp) part of each patch that shows image, 0..1.
        frames
            Their `coarse` pictures, the newest first; older ones are asked for only where the
            newest shows nothing.
        """
        inside, whole = valid > 0.5, valid > 0.999
        older = iter(frames)
        gray = next(older).astype(np.float32)
        spread, mean = _spread(gray, whole)
        showing = spread >= LEAST_STRUCTURE
        part = np.count_nonzero(showing & inside) / max(1, np.count_nonzero(inside))
        saw = sees = bool(part >= HARDLY_SHOWN)
        for frame in () if sees else older:
            shows = _spread(frame.astype(np.float32), whole)[0] >= LEAST_STRUCTURE
            if shows[inside].mean() >= HARDLY_SHOWN:
                saw = True
                break
        seen = inside & (showing | (part >= MOSTLY_SHOWN))
        # CLEAR needs more than a danger does: structure that no smooth slope of the light makes.
        sure = showing & (_spread(_without_slope(gray, whole), whole)[0] >= LEAST_STRUCTURE)
        if sure[inside].mean() >= MOSTLY_SHOWN:
            sure |= mean >= BLACK
        return cls(inside, seen, sure, sees, saw)


def coarse(rgb: np.ndarray) -> np.ndarray:
    """Return the grey levels (S / GRAIN, S / GRAIN) uint8 of blocks of pixels (S, S, 3) uint8."""
    height, width = rgb.shape[:2]
    small = cv2.resize(rgb, (width // GRAIN, height // GRAIN), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)


def _without_slope(gray: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Subtract the best quadratic function of the place, fitted to the whole patches."""
    used, shapes, fit = _slopes(gray.shape, whole.shape, whole.tobytes())
    if fit is None:
        return gray
    flat = gray.reshape(-1)
    return (flat - shapes @ (fit @ flat[used])).reshape(gray.shape)


@lru_cache(8)       # views of all cameras
def _slopes(shape: tuple[int, ...], grid: tuple[int, ...], whole: bytes
            ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return which pixels (N,) are fitted, quadratic functions (N, 6), and what fits them (6, n).

    The last is None where too few pixels are used.
    """
    y, x = np.meshgrid(np.linspace(-1, 1, shape[0]), np.linspace(-1, 1, shape[1]), indexing='ij')
    shapes = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), -1).reshape(-1, 6)
    patches = np.frombuffer(whole, bool).reshape(grid)
    used = np.repeat(np.repeat(patches, shape[0] // grid[0], 0), shape[1] // grid[1], 1).ravel()
    fit = None if used.sum() < 2 * shapes.shape[1] else np.linalg.pinv(shapes[used])
    return used, shapes.astype(np.float32), None if fit is None else fit.astype(np.float32)


def _spread(gray: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the standard deviation [grey levels] of each patch with its eight neighbours.

    Only whole patches count: the edge of a letterbox is no structure. (Hp, Wp) float32; beside it
    the mean of each patch alone.
    """
    weight, grid = whole.astype(np.float32), whole.shape[::-1]
    own, square = (cv2.resize(values, grid, interpolation=cv2.INTER_AREA)
                   for values in (gray, gray * gray))
    sums = cv2.merge((weight, own * weight, square * weight))
    count, mean, square = cv2.split(cv2.boxFilter(
        sums, -1, (3, 3), normalize=False, borderType=cv2.BORDER_REPLICATE))
    count = np.maximum(count, 1.0)
    mean = mean / count
    return np.sqrt(np.maximum(square / count - mean * mean, 0.0)), own

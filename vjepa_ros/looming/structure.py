# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find where a picture shows structure.

A covered lens shows none, however light falls through the cover: its picture is plain, or changes
as smoothly as a quadratic function of the position. So does the picture of a plain wall right
ahead. Heads may therefore warn of such a view, but never clear it.

Structure is looked for in at most CELLS x CELLS cells, whatever the size of the picture: smaller
parts of the same picture vary less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from vjepa_ros.model.variants import PATCH

CELLS = 12               # along a picture, at most: the patches of one of 192 px
GRAIN = 4                # pixels along a cell that are left: noise is no structure
LEAST_STRUCTURE = 1.5    # standard deviation in grey levels of what shows something
MOSTLY_SHOWN = 0.5       # part of the patches with structure that makes the plain ones known, too
HARDLY_SHOWN = 0.05      # part of the patches with structure below which a frame shows nothing
BLACK = 12.0             # mean grey level below which a plain patch may be a covered one


class Structure(NamedTuple):
    """Structure of one picture in grey levels, (Hp, Wp) float32 each.

    Each patch has that of the cell in which its middle lies.

    Attributes
    ----------
    spread
        Standard deviation of each cell with its eight neighbours.
    mean
        Of each cell alone.
    steep
        The spread of what no smooth slope of the light makes.
    """

    spread: np.ndarray
    mean: np.ndarray
    steep: np.ndarray

    @classmethod
    def of(cls, gray: np.ndarray, valid: np.ndarray) -> Structure:
        """Measure a `coarse` picture, with `valid` of `Shown.by`."""
        whole, gray = Whole.of(gray.shape, valid), gray.astype(np.float32)
        (spread, mean), (steep, _) = whole.spread(gray, gray - whole.slope(gray))
        return cls(spread, mean, steep)


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
    def by(cls, valid: np.ndarray, frames: Iterable[Structure]) -> Shown:
        """Look at the frames of a clip.

        Parameters
        ----------
        valid
            (Hp, Wp) part of each patch that shows image, 0..1.
        frames
            Their structure, the newest first; older ones are asked for only where the newest
            shows nothing.
        """
        inside = valid > 0.5
        patches = max(1, np.count_nonzero(inside))

        def part(which: np.ndarray) -> float:
            return np.count_nonzero(which & inside) / patches

        older = iter(frames)
        spread, mean, steep = next(older)
        showing = spread >= LEAST_STRUCTURE
        shows = part(showing)
        saw = sees = shows >= HARDLY_SHOWN
        if not sees:
            saw = any(part(frame.spread >= LEAST_STRUCTURE) >= HARDLY_SHOWN for frame in older)
        seen = inside & (showing | (shows >= MOSTLY_SHOWN))
        # CLEAR needs more than a danger does: structure that no smooth slope of the light makes.
        sure = showing & (steep >= LEAST_STRUCTURE)
        if part(sure) >= MOSTLY_SHOWN:
            sure |= mean >= BLACK
        return cls(inside, seen, sure, sees, saw)


def coarse(rgb: np.ndarray) -> np.ndarray:
    """Return the grey levels (n, n) uint8, n = `coarse_side`, of pixels (S, S, 3) uint8."""
    side = coarse_side(len(rgb))
    small = cv2.resize(rgb, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)


def coarse_side(side: int) -> int:
    """Return the side of the `coarse` picture [px] of one of `side` px."""
    return GRAIN * min(CELLS, side // PATCH)


@dataclass(frozen=True)
class Whole:
    """The cells of a view that show image wholly: the edge of a letterbox is no structure.

    Attributes
    ----------
    weight
        (n, n, 1) float32, 1 for these cells, else 0.
    count
        (n, n, 1) float32, how many there are of a cell and its eight neighbours, at least 1.
    shapes, fit
        (N, 6) quadratic functions of the place at each pixel of a coarse picture, and what fits
        them to the pixels (6, N) of these cells; None where there are too few.
    cells
        (Hp, Wp) number of the cell of each patch.
    """

    weight: np.ndarray
    count: np.ndarray
    shapes: np.ndarray
    fit: np.ndarray | None
    cells: np.ndarray

    @classmethod
    def of(cls, shape: tuple[int, ...], valid: np.ndarray) -> Whole:
        """Prepare for coarse pictures of a shape, with `valid` of `Shown.by`."""
        return _whole(shape, valid.shape, np.asarray(valid, np.float32).tobytes())

    def slope(self, gray: np.ndarray) -> np.ndarray | float:
        """Compute the values of the quadratic function of the place that fits a picture best."""
        if self.fit is None:
            return 0.0
        return (self.shapes @ (self.fit @ gray.reshape(-1))).reshape(gray.shape)

    def spread(self, *pictures: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Compute the standard deviation [grey levels] of each cell with its eight neighbours.

        Of coarse pictures in float32, up to two: (Hp, Wp) each, for the patches, beside the mean
        of each cell alone.
        """
        # All at once: each call of OpenCV takes as long for one.
        values = np.empty((*pictures[0].shape, 2 * len(pictures)), np.float32)
        for number, picture in enumerate(pictures):
            values[..., 2 * number] = picture
            np.multiply(picture, picture, out=values[..., 2 * number + 1])
        own = cv2.resize(values, self.weight.shape[1::-1], interpolation=cv2.INTER_AREA)
        around = cv2.boxFilter(own * self.weight, -1, (3, 3), normalize=False,
                               borderType=cv2.BORDER_REPLICATE) / self.count
        mean = around[..., ::2]
        spread = np.sqrt(np.maximum(around[..., 1::2] - mean * mean, 0.0))
        return [(spread[..., number].take(self.cells), own[..., 2 * number].take(self.cells))
                for number in range(len(pictures))]


@lru_cache(8)       # views of all cameras
def _whole(shape: tuple[int, ...], grid: tuple[int, ...], valid: bytes) -> Whole:
    y, x = np.meshgrid(np.linspace(-1, 1, shape[0]), np.linspace(-1, 1, shape[1]), indexing='ij')
    shapes = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), -1).reshape(-1, 6)
    rows, cols = (side // GRAIN for side in shape)
    shown = cv2.resize(np.frombuffer(valid, np.float32).reshape(grid), (cols, rows),
                       interpolation=cv2.INTER_AREA)
    whole = shown > 0.999
    used = np.repeat(np.repeat(whole, GRAIN, 0), GRAIN, 1).ravel()
    fit = None
    if used.sum() >= 2 * shapes.shape[1]:
        fit = np.zeros(shapes.T.shape, np.float32)
        fit[:, used] = np.linalg.pinv(shapes[used])
    weight = whole.astype(np.float32)
    count = cv2.boxFilter(weight, -1, (3, 3), normalize=False, borderType=cv2.BORDER_REPLICATE)
    down, right = ((np.arange(patches) + 0.5) * cells // patches
                   for patches, cells in zip(grid, (rows, cols), strict=True))
    return Whole(weight[..., None], np.maximum(count, 1.0)[..., None],
                 shapes.astype(np.float32), fit,
                 (down[:, None] * cols + right).astype(np.int64))

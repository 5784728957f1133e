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
from typing import NamedTuple

import cv2
import numpy as np

GRAIN = 4                # px averaged before structure is looked for: noise is no structure
LEAST_STRUCTURE = 1.5    # standard deviation in grey levels of what shows something
MOSTLY_SHOWN = 0.5       # part of the patches with structure that makes the plain ones known, too
HARDLY_SHOWN = 0.05      # part of the patches with structure below which a frame shows nothing
BLACK = 12.0             # mean grey level below which a plain patch may be a covered one


class Structure(NamedTuple):
    """Structure of one picture in grey levels, (Hp, Wp) float32 each."""

    spread: np.ndarray  # standard deviation of each patch with its eight neighbours
    mean: np.ndarray  # of each patch alone
    steep: np.ndarray  # the spread of what no smooth slope of the light makes

    @classmethod
    def of(cls, gray: np.ndarray, valid: np.ndarray) -> Structure:
        """Measure a `coarse` picture, with `valid` of `Shown.by`."""
        whole, gray = Whole.of(gray.shape, valid), gray.astype(np.float32)
        (spread, mean), (steep, _) = whole.spread(gray, gray - whole.slope(gray))
        return cls(spread, mean, steep)


@dataclass(frozen=True)
class Shown:
    """Visible structure in the pictures of a clip; needs no model."""

    # inside, seen, sure: (Hp, Wp) bool: patches that show image; of these those that can be told
    # anything about; those that can make a view CLEAR
    inside: np.ndarray
    seen: np.ndarray
    sure: np.ndarray
    # sees, saw: whether the newest frame of the clip shows structure at all; whether any frame
    # does
    sees: bool
    saw: bool

    @classmethod
    def by(cls, valid: np.ndarray, frames: Iterable[Structure]) -> Shown:
        """Look at the frames of a clip.

        `valid`: (Hp, Wp) part of each patch that shows image, 0..1.
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
    """Return the grey levels (S / GRAIN, S / GRAIN) uint8 of blocks of pixels (S, S, 3) uint8."""
    height, width = rgb.shape[:2]
    small = cv2.resize(rgb, (width // GRAIN, height // GRAIN), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)


@dataclass(frozen=True)
class Whole:
    """The patches of a view that show image wholly: the edge of a letterbox is no structure."""

    weight: np.ndarray  # (Hp, Wp, 1) float32, 1 for these patches, else 0
    # (Hp, Wp, 1) float32, how many there are of a patch and its eight neighbours, at least 1
    count: np.ndarray
    # shapes, fit: (N, 6) quadratic functions of the place at each pixel of a coarse picture, and
    # what fits them to the pixels (6, N) of these patches; None where there are too few
    shapes: np.ndarray
    fit: np.ndarray | None

    @classmethod
    def of(cls, shape: tuple[int, ...], valid: np.ndarray) -> Whole:
        """Prepare for coarse pictures of a shape, with `valid` of `Shown.by`."""
        whole = valid > 0.999
        return _whole(shape, whole.shape, whole.tobytes())

    def slope(self, gray: np.ndarray) -> np.ndarray | float:
        """Compute the values of the quadratic function of the place that fits a picture best."""
        if self.fit is None:
            return 0.0
        return (self.shapes @ (self.fit @ gray.reshape(-1))).reshape(gray.shape)

    def spread(self, *pictures: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Compute the standard deviation [grey levels] of each patch with its eight neighbours.

        Of coarse pictures in float32, up to two: (Hp, Wp) each, beside the mean of each patch
        alone.
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
        return [(spread[..., number], own[..., 2 * number]) for number in range(len(pictures))]


@lru_cache(8)       # views of all cameras
def _whole(shape: tuple[int, ...], grid: tuple[int, ...], whole: bytes) -> Whole:
    y, x = np.meshgrid(np.linspace(-1, 1, shape[0]), np.linspace(-1, 1, shape[1]), indexing='ij')
    shapes = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), -1).reshape(-1, 6)
    patches = np.frombuffer(whole, bool).reshape(grid)
    used = np.repeat(np.repeat(patches, shape[0] // grid[0], 0), shape[1] // grid[1], 1).ravel()
    fit = None
    if used.sum() >= 2 * shapes.shape[1]:
        fit = np.zeros(shapes.T.shape, np.float32)
        fit[:, used] = np.linalg.pinv(shapes[used])
    weight = patches.astype(np.float32)
    count = cv2.boxFilter(weight, -1, (3, 3), normalize=False, borderType=cv2.BORDER_REPLICATE)
    return Whole(weight[..., None], np.maximum(count, 1.0)[..., None],
                  shapes.astype(np.float32), fit)

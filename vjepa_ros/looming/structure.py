# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find where a picture shows structure.

A covered lens shows none, however light falls through the cover: its picture is plain, or changes
as smoothly as a quadratic function of the position. So does the picture of a plain wall right
ahead. Heads may therefore warn of such a view, but never clear it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    def by(cls, valid: np.ndarray, clip: Sequence[np.ndarray]) -> Shown:
        """Look at a clip, (T, S, S, 3) uint8, oldest frame first."""
        inside = valid > 0.5
        showing = shows(clip[-1], valid)
        part = showing[inside].mean()
        sees = bool(part >= HARDLY_SHOWN)
        saw = sees or any(shows(frame, valid)[inside].mean() >= HARDLY_SHOWN
                          for frame in clip[-2::-1])
        seen = inside & (showing | (part >= MOSTLY_SHOWN))
        # What can make a view CLEAR needs more than what can tell a danger.
        sure = more_than_slope(clip[-1], valid)
        if sure[inside].mean() >= MOSTLY_SHOWN:
            sure |= ~black(clip[-1], valid)
        return cls(inside, seen, sure, sees, saw)


def shows(rgb: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Which patches of a picture show structure, (Hp, Wp) bool; see `structure`."""
    return structure(rgb, valid) >= LEAST_STRUCTURE


def black(rgb: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Which patches of a picture are almost black on average, (Hp, Wp) bool."""
    return _coarse(rgb, valid).mean(axis=(1, 3)) < BLACK


def structure(rgb: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Compute the standard deviation [grey levels] of every patch with its eight neighbours.

    Parameters
    ----------
    rgb
        (H, W, 3) uint8; H and W are multiples of `GRAIN` times the grid.
    valid
        (Hp, Wp) part of each patch that shows image, 0..1. Only whole ones count: the edge of a
        letterbox is no structure.

    Returns
    -------
    numpy.ndarray
        (Hp, Wp) float32.
    """
    return _spread(_coarse(rgb, valid), valid > 0.999)


def more_than_slope(rgb: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Which patches show structure, also in what is left of the picture without its slope.

    The slope is the best quadratic function of the place. (Hp, Wp) bool; arguments as for
    `structure`.
    """
    left = _spread(_without_slope(_coarse(rgb, valid), valid > 0.999), valid > 0.999)
    return shows(rgb, valid) & (left >= LEAST_STRUCTURE)


def _coarse(rgb: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Grey levels (Hp, h, Wp, w) float32 of blocks of `GRAIN` pixels in each patch."""
    rows, cols = valid.shape
    height, width = rgb.shape[:2]
    small = cv2.resize(rgb, (width // GRAIN, height // GRAIN), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return gray.reshape(rows, gray.shape[0] // rows, cols, gray.shape[1] // cols)


def _without_slope(gray: np.ndarray, whole: np.ndarray) -> np.ndarray:
    rows, high, cols, wide = gray.shape
    y, x = np.meshgrid(np.linspace(-1, 1, rows * high, dtype=np.float32),
                       np.linspace(-1, 1, cols * wide, dtype=np.float32), indexing='ij')
    shapes = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), -1).reshape(-1, 6)
    used = np.repeat(np.repeat(whole, high, 0), wide, 1).ravel()
    flat = gray.reshape(-1)
    if used.sum() < 2 * shapes.shape[1]:
        return gray
    chosen = shapes[used]
    fit = np.linalg.lstsq(chosen.T @ chosen, chosen.T @ flat[used], rcond=None)[0]
    return (flat - shapes @ fit).reshape(gray.shape)


def _spread(gray: np.ndarray, whole: np.ndarray) -> np.ndarray:
    weight = whole.astype(np.float32)
    count = cv2.boxFilter(weight, -1, (3, 3), normalize=False, borderType=cv2.BORDER_REPLICATE)
    mean, square = (
        cv2.boxFilter(part * weight, -1, (3, 3), normalize=False,
                      borderType=cv2.BORDER_REPLICATE) / np.maximum(count, 1.0)
        for part in (gray.mean(axis=(1, 3)), np.square(gray).mean(axis=(1, 3))))
    return np.sqrt(np.maximum(square - mean * mean, 0.0))

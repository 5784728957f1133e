# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Simple moving pictures with known truth, for tests that need frames rather than arrays."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from vjepa_ros.sources import PlayOptions, SourceFrame, open_source


def synthetic(size: tuple[int, int] = (320, 240), rate: float = 10.0, start_s: float = 0.0,
              count: int | None = None) -> Sequence[SourceFrame]:
    """Frames of the synthetic scene; from 4.2 s on the camera drives at an obstacle."""
    with open_source('synthetic', PlayOptions(rate=rate, size=size, start_s=start_s,
                                              max_frames=count)) as source:
        return list(source)


def texture(size: tuple[int, int], seed: int = 0) -> np.ndarray:
    """A picture with structure at many scales: RGB uint8 (height, width, 3)."""
    rng = np.random.default_rng(seed)
    width, height = size
    total = np.zeros((height, width, 3), np.float32)
    for cell in (4, 8, 16, 32, 64):
        noise = rng.random((height // cell + 3, width // cell + 3, 3), np.float32)
        big = cv2.resize(noise, None, fx=cell, fy=cell, interpolation=cv2.INTER_CUBIC)
        total += big[cell:cell + height, cell:cell + width] * cell ** 0.5
    low, high = total.min(), total.max()
    return np.ascontiguousarray((255 * (total - low) / (high - low)).astype(np.uint8))


class Approach:
    """A wall that the camera drives at with constant speed; contact is at `contact_s`."""

    def __init__(self, size: tuple[int, int] = (320, 240), contact_s: float = 6.0) -> None:
        self.size = size
        self.contact_s = contact_s
        self._picture = texture((2 * size[0], 2 * size[1]))

    def frame(self, t: float) -> np.ndarray:
        """The frame at time t [s], before contact: the middle of the wall, enlarged."""
        picture, (width, height), scale = self._picture, self.size, self.contact_s / self.truth(t)
        matrix = np.array(
            [[scale, 0, (width - 1 - scale * (picture.shape[1] - 1)) / 2],
             [0, scale, (height - 1 - scale * (picture.shape[0] - 1)) / 2]])
        return cv2.warpAffine(picture, matrix, self.size, flags=cv2.INTER_LINEAR,
                              borderMode=cv2.BORDER_REFLECT)

    def truth(self, t: float) -> float:
        """Time to contact at time t [s]."""
        return self.contact_s - t

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn 16-bit images into 8 bits by the range of values that a camera uses.

Few cameras use all 16 bits: some have 10 or 12, and thermal cameras a narrow band far from 0. The
gain stays the same from image to image, for its change would look like one of the light. Where the
range in use leaves it, a new gain begins, and with it a new clip.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

DEPTHS = (8, 10, 12, 14, 16)      # bits that cameras use
SAMPLES = 20_000         # pixels that are looked at, about
INVALID = 65_534         # 0 and 65535 tell nothing of the range: borders, text, saturation
LEAST_VALID = 0.05       # part of the pixels that must
ENDS = (3, 97)           # percentiles of the range in use, without dead pixels, telemetry, a lamp
MARGIN = 0.5             # of a narrow band, on each side: the contrast of usual pictures
NARROW = 0.25            # part of the bits below which the range in use is a narrow band
CLIPPED = 0.08           # part of the pixels outside of the range that begins a new one
# A new range also begins where it would be narrower than this part of the old one: then the scene
# has less than 52 grey levels.
SHRUNK = 0.4
LEAST_WIDTH = 256.0      # one grey level for each value: more would only enlarge rounding
NOISE_WIDTHS = 32.0      # noise is never enlarged above this part of 8 bits, 8 grey levels,
PLAIN_WIDTHS = 128.0     # and not above 2 where nothing else shows, lest it look like structure
STRUCTURE = 4.0          # of blocks, in noise of a pixel: covered lenses have 2, scenes 20 or more
BLOCK, BLOCKS = 8, 3000  # side of a block [px], and blocks of an image, up to four times as many
LEAST_BLOCKS = 24        # of an image whose structure can be judged
LEAST_NOISE = 0.5        # in values, of rounding
FLOOR = 2.0 ** -9 - 0.5  # makes rounding of any gain 2^8 / 2^bits a rounding down


class _Used(NamedTuple):
    """What an image uses of its 16 bits."""

    low: float           # ends of the range in use
    high: float
    noise: float         # standard deviation of a pixel
    shows: bool          # whether there is more than noise and a smooth slope of the light
    sample: np.ndarray   # some of its valid values


class GainControl:
    """The gain of one camera."""

    def __init__(self) -> None:
        self._low = self._width = 0.0
        self._number = 0
        self._shown = False      # whether the range is of an image that shows something

    def reduce(self, pixels: np.ndarray) -> tuple[np.ndarray, int]:
        """Return an image in 8 bits, and the number of the gain.

        Images whose gains have different numbers do not belong into one clip. A covered lens and
        the shutter of a thermal camera show nothing, and begin no new gain. `pixels` (H, W, 3) are
        uint16 RGB; of uint8 they come back as they are, with number 0.
        """
        if pixels.dtype == np.uint8:
            return pixels, 0
        used, old = _used(pixels), (self._low, self._width)
        if not self._number or (used.shows and not (self._shown and self._fits(used))):
            self._low, self._width = _range_of(used)
            self._number += (self._low, self._width) != old
            self._shown = used.shows
        if self._low:
            pixels = np.maximum(pixels, np.uint16(self._low)) - np.uint16(self._low)
        return cv2.convertScaleAbs(pixels, alpha=256 / self._width, beta=FLOOR), self._number

    def _fits(self, used: _Used) -> bool:
        outside = (used.sample < self._low) | (used.sample >= self._low + self._width)
        return outside.mean() <= CLIPPED and _range_of(used)[1] >= SHRUNK * self._width


def _used(pixels: np.ndarray) -> _Used:
    height, width = pixels.shape[:2]
    step = max(1, round((height * width / SAMPLES) ** 0.5))
    sample = pixels[::step, ::step]
    sample = sample[_valid(sample)]
    if sample.size < LEAST_VALID * 3 * (height // step) * (width // step):
        return _Used(0.0, 0.0, LEAST_NOISE, False, sample)
    low, high = np.percentile(sample, ENDS)
    # Every pixel of small images only.
    thin = max(1, round((height * width / BLOCKS) ** 0.5 / (2 * BLOCK)))
    green = np.ascontiguousarray(pixels[::thin, ::thin, 1])
    blocks = green.shape[1] // BLOCK, green.shape[0] // BLOCK
    if blocks[0] * blocks[1] < LEAST_BLOCKS:
        return _Used(low, high, LEAST_NOISE, False, sample)
    # Second differences along rows, without their neighbours: those share a colour of a mosaic.
    rows = pixels[::step, :, 1].astype(np.float32)
    rough = np.abs(rows[:, :-4:step] - 2 * rows[:, 2:-2:step] + rows[:, 4::step])
    noise = max(LEAST_NOISE, float(np.median(rough)) / (0.6745 * 6 ** 0.5))
    return _Used(low, high, noise, _spread(green, blocks) >= STRUCTURE * noise, sample)


def _valid(values: np.ndarray) -> np.ndarray:
    return values - np.uint16(1) < INVALID      # 0 becomes the largest one


def _spread(green: np.ndarray, blocks: tuple[int, int]) -> float:
    """Return the range of the means of blocks, apart from a quadratic function of the place."""
    green = green[:BLOCK * blocks[1], :BLOCK * blocks[0]]
    means = cv2.resize(green, blocks, interpolation=cv2.INTER_AREA).astype(np.float32)
    valid = 255 * _valid(green).view(np.uint8)
    whole = cv2.resize(valid, blocks, interpolation=cv2.INTER_AREA) == 255
    whole[[0, -1]] = False      # some cameras write numbers there
    x, y = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in blocks))
    shapes = np.stack((np.ones_like(x), x, y, x * x, x * y, y * y), -1)[whole]
    if len(shapes) < LEAST_BLOCKS:
        return 0.0
    left = means[whole] - shapes @ np.linalg.lstsq(shapes, means[whole], rcond=None)[0]
    return float(np.subtract(*np.percentile(left, (99, 1))))


def _range_of(used: _Used) -> tuple[float, float]:
    """Return begin and width of the range of values that 8 bits show."""
    least = max(LEAST_WIDTH, (NOISE_WIDTHS if used.shows else PLAIN_WIDTHS) * used.noise)
    width = next((2.0 ** n for n in DEPTHS if 2 ** n >= max(used.high + 1, least)), 2.0 ** 16)
    span = used.high - used.low
    if not used.shows or span >= NARROW * width:
        return 0.0, width
    band = max(least, (1 + 2 * MARGIN) * span)
    return float(max(0, round((used.low + used.high - band) / 2))), band

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Noise and patterns from which surfaces are painted; all repeat without a seam.

Fields are (size, size) float32; colours are 0..255.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np

Rng = np.random.Generator
Rgb = tuple[float, float, float]


@lru_cache(maxsize=4)
def _frequencies(size: int) -> tuple[np.ndarray, np.ndarray]:
    down = np.fft.fftfreq(size)[:, None] * size
    across = np.fft.rfftfreq(size)[None] * size
    return down.astype(np.float32), across.astype(np.float32)


def noise(rng: Rng, size: int, slope: float = 2.0, stretch: float = 1.0, low: float = 1.0,
          high: float = 1e9) -> np.ndarray:
    """Random field of zero mean and unit spread whose power falls as 1 / frequency^slope.

    Photographs have slopes of about 2. ``stretch`` > 1 draws it out along the columns' direction
    (downwards), < 1 across; only ``low`` to ``high`` waves per side take part.
    """
    down, across = _frequencies(size)
    wave = np.hypot(down * np.sqrt(stretch), across / np.sqrt(stretch))
    power = np.where((wave >= low) & (wave <= high), np.maximum(wave, 1e-3) ** (-slope / 2), 0)
    white = np.fft.rfft2(rng.standard_normal((size, size)).astype(np.float32))
    field = np.fft.irfft2(white * power, (size, size)).astype(np.float32)
    return (field - field.mean()) / (field.std() + 1e-9)


def grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns from 0 to 1."""
    at = (np.arange(size, dtype=np.float32) + 0.5) / size
    return np.broadcast_to(at[:, None], (size, size)), np.broadcast_to(at[None], (size, size))


def vector(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return colours or weights as float32."""
    return np.asarray(values, np.float32)


def flat(size: int, colour: Rgb) -> np.ndarray:
    """Return one colour everywhere."""
    return np.broadcast_to(vector(colour), (size, size, 3)).copy()


def shaded(colour: Rgb, light: np.ndarray) -> np.ndarray:
    """Return a colour times a field."""
    return vector(colour) * light[..., None]


def mix(below: np.ndarray, above: np.ndarray | Rgb, share: np.ndarray) -> np.ndarray:
    """Lay one picture over another, with a share 0..1 of each pixel."""
    share = np.clip(share, 0, 1)[..., None]
    return below + share * (vector(above) - below)


def ramp(field: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 below ``low``, 1 above ``high``, smooth between."""
    x = np.clip((field - low) / (high - low), 0, 1)
    return x * x * (3 - 2 * x)


def tiles(rng: Rng, size: int, rows: int, columns: int, shift: float = 0.0,
          joint: float = 0.02) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rectangular tiles: number, share of joint (0..1), and light of a bevelled edge.

    ``shift`` moves every other row by that part of a tile; ``joint`` is its half width in
    parts of a tile's height.
    """
    y, x = grid(size)
    line = np.floor(y * rows).astype(int)
    moved = x * columns + shift * (line % 2)
    place = np.floor(moved).astype(int) % columns
    fy, fx = y * rows % 1, moved % 1
    wobble = 0.25 * joint * noise(rng, size, 2.0, low=4)
    edge_y = np.minimum(fy, 1 - fy)
    edge_x = np.minimum(fx, 1 - fx) * rows / columns
    edge = np.minimum(edge_x, edge_y) + wobble
    soft = max(0.4 * joint, 0.7 * rows / size)
    gap = 1 - ramp(edge, joint - soft, joint + soft)
    bevel = (np.clip(1 - fy / (3 * joint), 0, 1) - np.clip(1 - (1 - fy) / (3 * joint), 0, 1))
    return line * columns + place, gap, bevel * (1 - gap)


def stones(rng: Rng, size: int, count: int, jitter: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Irregular cells, about ``count`` along a side: number, distance to the edge in cells."""
    cell = 1 / count
    rows, columns = np.mgrid[0:count, 0:count]
    y = (rows + 0.5 + jitter * (rng.random((count, count)) - 0.5)) * cell
    x = (columns + 0.5 + jitter * (rng.random((count, count)) - 0.5)
         + 0.5 * (rows % 2) * (count % 2 == 0)) * cell
    seeds = np.ones((size * 3 // 2, size * 3 // 2), np.uint8)
    number = np.zeros_like(seeds, np.int32)
    quarter = size // 4
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            at_y = np.round((y + dy) * size + quarter).astype(int)
            at_x = np.round((x + dx) * size + quarter).astype(int)
            inside = ((at_y >= 0) & (at_x >= 0) & (at_y < len(seeds)) & (at_x < len(seeds)))
            seeds[at_y[inside], at_x[inside]] = 0
            number[at_y[inside], at_x[inside]] = (rows * count + columns)[inside]
    _, label = cv2.distanceTransformWithLabels(seeds, cv2.DIST_L2, 5,
                                               labelType=cv2.DIST_LABEL_PIXEL)
    names = np.zeros(label.max() + 1, np.int32)
    seeded = seeds == 0
    label = np.asarray(label).astype(np.intp)
    names[label[seeded]] = number[seeded]
    owner = names[label]
    border = np.ones_like(seeds)
    border[1:][owner[1:] != owner[:-1]] = 0
    border[:, 1:][owner[:, 1:] != owner[:, :-1]] = 0
    edge = cv2.distanceTransform(border, cv2.DIST_L2, 5) * count / size
    middle = slice(quarter, quarter + size)
    return owner[middle, middle], edge[middle, middle].astype(np.float32)


def per_piece(rng: Rng, number: np.ndarray, spread: float) -> np.ndarray:
    """One random value of zero mean for each numbered piece."""
    return (spread * rng.standard_normal(number.max() + 1)).astype(np.float32)[number]


def relief(height: np.ndarray, strength: float) -> np.ndarray:
    """Light on bumps, 1 on average, from the upper left."""
    slope = (np.roll(height, 1, 0) - height) + 0.6 * (np.roll(height, 1, 1) - height)
    return 1 - strength * slope


def stains(rng: Rng, size: int, strength: float) -> np.ndarray:
    """Uneven dirt, about 1."""
    return 1 + strength * (0.7 * noise(rng, size, 3.0) + 0.3 * noise(rng, size, 1.6))


def pick(rng: Rng, *choices: Rgb) -> Rgb:
    """Draw one of some colours."""
    return choices[int(rng.integers(len(choices)))]


def warm_grey(rng: Rng, low: float, high: float, spread: float = 0.04) -> Rgb:
    """Draw a grey with a slight warm or cold cast."""
    value, cast = rng.uniform(low, high), rng.normal(0, spread)
    return (value * (1 + cast), value, value * (1 - cast))


def to_bytes(image: np.ndarray) -> np.ndarray:
    """RGB or RGBA float to RGBA uint8; without opacity it is solid."""
    if image.shape[-1] == 3:
        image = np.concatenate((image, np.full_like(image[..., :1], 255)), -1)
    return np.clip(image + 0.5, 0, 255).astype(np.uint8)

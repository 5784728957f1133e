# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint scenery for cards and skies: trees, bushes, fences, what stands at the horizon, clouds.

Each painter gives (size, size, 4) float 0..255; opacity 0 is a hole.
"""

from __future__ import annotations

import numpy as np

from vjepa_ros.lab.world.textures.noise import Rng, grid, mix, noise, pick, ramp, shaded, warm_grey
from vjepa_ros.lab.world.textures.substances import leaves


def _crown(rng: Rng, size: int, blobs: list[tuple[float, float, float]]) -> np.ndarray:
    """Opacity of foliage made of round parts (x, y, radius)."""
    y, x = grid(size)
    field = np.full((size, size), -9.0, np.float32)
    for bx, by, r in blobs:
        field = np.maximum(field, 1 - np.hypot(x - bx, y - by) / r)
    return field + 0.14 * noise(rng, size, 1.6, low=3) + 0.06 * noise(rng, size, 0.4, low=16)


def tree(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    bend = 0.03 * np.sin(3 * y + rng.uniform(0, 6))
    trunk = np.abs(x - 0.5 - bend) < 0.02 + 0.028 * y
    bark = shaded(pick(rng, (98, 80, 62), (128, 116, 100), (70, 58, 48)),
                  1 + 0.25 * noise(rng, size, 1.4, stretch=1 / 6) + 0.3 * (0.5 - x) * 6)
    if rng.random() < 0.3:  # conifer
        level = np.clip((y - 0.03) / 0.8, 0, 1)
        saw = 0.06 * (y * 9 % 1)
        field = np.where(y < 0.85, (0.34 * level + saw - np.abs(x - 0.5)) * 4, -1) + (
            0.12 * noise(rng, size, 1.2, low=6))
    else:
        field = _crown(rng, size, [
            (rng.uniform(0.3, 0.7), rng.uniform(0.22, 0.45), rng.uniform(0.13, 0.2))
            for _ in range(9)])
    share = ramp(field, 0.02, 0.1)
    light = 1.15 - 0.55 * y + 0.25 * np.clip(field, -0.2, 1)
    image = mix(bark, leaves(rng, size) * light[..., None], share)
    cover = np.maximum(share, trunk & (y > 0.35) & (y < 0.995))
    rim = np.minimum(np.minimum(x, 1 - x), y) > 0.01
    return np.dstack((image, 255 * cover * rim))


def bush(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    field = _crown(rng, size, [
        (rng.uniform(0.25, 0.75), rng.uniform(0.4, 1.0), rng.uniform(0.18, 0.26))
        for _ in range(10)])
    rim = np.minimum(np.minimum(x, 1 - x), y) > 0.01
    light = 1.15 - 0.5 * y + 0.2 * np.clip(field, -0.2, 1)
    return np.dstack((leaves(rng, size) * light[..., None], 255 * ramp(field, 0.02, 0.1) * rim))


def fence(rng: Rng, size: int) -> np.ndarray:
    """Slats, bars or mesh between posts; repeats across."""
    y, x = grid(size)
    style = int(rng.integers(3))
    rails = np.minimum(np.abs(y - 0.2), np.abs(y - 0.8)) < 0.03
    if style == 0:
        count = int(rng.integers(6, 11))
        solid = (np.abs(x * count % 1 - 0.5) < 0.36) & (y > 0.06 + 0.02 * (x * count % 1))
    elif style == 1:
        solid = np.abs(x * int(rng.integers(10, 16)) % 1 - 0.5) < 0.16
    else:
        solid = (np.abs((x + y) * 14 % 1 - 0.5) < 0.1) | (np.abs((x - y) * 14 % 1 - 0.5) < 0.1)
    posts = np.minimum(x, 1 - x) < 0.03
    base = pick(rng, (176, 140, 100), (210, 208, 200), (96, 100, 96), (150, 154, 156))
    light = 1 + 0.1 * noise(rng, size, 1.6, stretch=1 / 8) - 0.18 * (rails & ~posts)
    return np.dstack((shaded(base, light), 255.0 * (solid | rails | posts)))


def hills(rng: Rng, size: int) -> np.ndarray:
    """What stands at the horizon: hills, a line of trees, or houses; repeats across."""
    y, x = grid(size)
    style = int(rng.integers(3))
    if style == 2:
        count = int(rng.integers(6, 14))
        place = np.floor(x * count).astype(int)
        roof = 0.15 + 0.55 * rng.random(count)
        shade = 0.75 + 0.4 * rng.random(count)
        solid = (y > roof[place]).astype(np.float32)
        panes = ((x * count * 6 % 1 > 0.4) & (y * 28 % 1 > 0.45) & (y > roof[place] + 0.03))
        image = shaded(warm_grey(rng, 130, 190), shade[place] * (1 - 0.35 * panes))
    else:
        line = noise(rng, size, 2.6 if style else 1.7, low=1)[size // 2]
        top = 0.45 + 0.13 * line
        rough = 0.015 * noise(rng, size, 1.0, low=10)
        solid = ramp(y - top[None] + rough, -0.01, 0.01)
        tone = leaves(rng, size) if style == 0 else shaded(
            pick(rng, (120, 130, 110), (128, 134, 146), (150, 140, 116)),
            1 + 0.12 * noise(rng, size, 2))
        image = 0.75 * tone + 0.25 * np.float32([170, 182, 196])
    return np.dstack((image, 255 * solid))


def clouds(rng: Rng, size: int) -> np.ndarray:
    """Opacity and light of clouds; repeats."""
    field = noise(rng, size, rng.uniform(2.4, 3.2))
    low = rng.uniform(-1.0, 0.8)
    cover = ramp(field, low, low + rng.uniform(0.8, 2.0))
    light = 1 - 0.12 * ramp(field, 0.5, 2.5) + 0.02 * noise(rng, size, 1.5)
    return np.dstack((shaded((240, 240, 243), light), 255 * cover * rng.uniform(0.6, 1.0)))


def overcast(rng: Rng, size: int) -> np.ndarray:
    light = 1 + 0.07 * noise(rng, size, 2.8)
    return np.dstack((shaded(warm_grey(rng, 190, 225, 0.02), light),
                      np.full((size, size), 235.0)))


SCENERY = {'tree': (tree,), 'bush': (bush,), 'fence': (fence,), 'hills': (hills,),
           'clouds': (clouds, overcast)}

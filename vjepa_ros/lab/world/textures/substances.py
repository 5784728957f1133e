# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint what things are made of, so that it repeats without a seam: cloth, metal, wood, leaves.

The painters are as those of `vjepa_ros.lab.world.textures.surfaces`.
"""

from __future__ import annotations

import numpy as np

from vjepa_ros.lab.world.textures.noise import (
    Rng,
    flat,
    grid,
    mix,
    noise,
    per_piece,
    pick,
    ramp,
    shaded,
    stains,
    stones,
    warm_grey,
)


def wood(rng: Rng, size: int) -> np.ndarray:
    """Grain of one board, with rings."""
    y, _ = grid(size)
    bend = 0.35 * noise(rng, size, 3.2, stretch=4)
    rings = np.sin(2 * np.pi * (int(rng.integers(4, 12)) * y + bend))
    light = 1 + 0.07 * rings + 0.05 * noise(rng, size, 1.2, stretch=50, low=3)
    colour = pick(rng, (200, 156, 106), (176, 128, 84), (220, 190, 150), (150, 104, 70))
    return shaded(colour, light * stains(rng, size, 0.04))


def leaves(rng: Rng, size: int) -> np.ndarray:
    """Foliage: layers of leaves, dark between them."""
    image = flat(size, (34, 44, 24))
    base = np.float32(pick(rng, (96, 126, 58), (78, 108, 52), (126, 138, 68), (110, 120, 80)))
    for layer, count in enumerate((9, 14, 20)):
        number, edge = stones(rng, size, count, 1.0)
        shown = per_piece(rng, number, 1.0) > -0.25
        roll = rng.integers(size, size=2)
        share = np.roll(ramp(edge, 0.04, 0.12) * shown, roll, (0, 1))
        light = 0.5 + 0.22 * layer + np.roll(per_piece(rng, number, 0.16), roll, (0, 1))
        leaf = base * (light + 0.12 * noise(rng, size, 1.5))[..., None]
        image = mix(image, leaf, share)
    return image * (1 + 0.16 * noise(rng, size, 2.6))[..., None]


def fabric(rng: Rng, size: int) -> np.ndarray:
    """Weave, knit, denim, checks."""
    y, x = grid(size)
    threads = 32
    weave = (np.sin(2 * np.pi * threads * x) + np.sin(2 * np.pi * threads * y)
             ) * rng.uniform(0.01, 0.05)
    folds = noise(rng, size, 3.4, stretch=rng.choice([0.2, 1.0]))
    light = 1 + weave + 0.06 * noise(rng, size, 0.5, low=16) + 0.09 * folds
    image = shaded(warm_grey(rng, 175, 225), light)
    style = rng.random()
    if style < 0.45:
        count = int(rng.integers(2, 9))
        stripe = ramp(np.sin(2 * np.pi * count * (x if style < 0.2 else y)), -0.1, 0.1)
        if style < 0.1:
            stripe = 0.5 * (stripe + ramp(np.sin(2 * np.pi * count * y), -0.1, 0.1))
        image = mix(image, image * np.float32(rng.uniform(0.25, 1.0, 3)), stripe)
    return image


def skin(rng: Rng, size: int) -> np.ndarray:
    colour = pick(rng, (226, 180, 152), (206, 156, 124), (168, 118, 88), (120, 82, 62),
                  (236, 196, 174))
    return shaded(colour, 1 + 0.02 * noise(rng, size, 1.2) + 0.03 * noise(rng, size, 3))


def hair(rng: Rng, size: int) -> np.ndarray:
    strands = noise(rng, size, 1.4, stretch=1 / 60, low=2)
    colour = pick(rng, (70, 54, 40), (44, 36, 32), (150, 118, 74), (120, 112, 106), (96, 62, 40))
    return shaded(colour, np.clip(1 + 0.25 * strands, 0.3, 2))


def metal(rng: Rng, size: int) -> np.ndarray:
    """Brushed or painted metal, some with rust."""
    light = 1 + 0.05 * noise(rng, size, 1.3, stretch=rng.choice([80, 1 / 80]), low=2) + (
        0.04 * noise(rng, size, 3))
    image = shaded(warm_grey(rng, 175, 225, 0.02), light)
    if rng.random() < 0.35:
        spots = ramp(noise(rng, size, 2.2) + 0.3 * noise(rng, size, 0.8), 1.1, 1.8)
        image = mix(image, shaded((140, 84, 52), 1 + 0.2 * noise(rng, size, 1)), spots)
    scratches = 1 - ramp(np.abs(noise(rng, size, 2.6, stretch=rng.choice([20, 0.1]))), 0, 0.015)
    return image * (1 + 0.12 * scratches)[..., None]


def lacquer(rng: Rng, size: int) -> np.ndarray:
    """Smooth paint with the blurred mirror of its surroundings."""
    y, _ = grid(size)
    mirror = 0.08 * np.sin(2 * np.pi * y + rng.uniform(0, 6)) + 0.05 * noise(rng, size, 4)
    return shaded(warm_grey(rng, 200, 235, 0.02), 0.95 + mirror)


def rubber(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    count = int(rng.integers(8, 20))
    tread = ramp(np.sin(2 * np.pi * (count * x + 2 * np.abs(((4 * y) % 1) - 0.5))), -0.3, 0.1)
    light = 0.6 + 0.35 * tread + 0.05 * noise(rng, size, 0.6)
    return shaded(warm_grey(rng, 120, 170, 0.02), light)


def mirror_glass(rng: Rng, size: int) -> np.ndarray:
    """Window pane from outside: dark, with a soft mirror of sky and surroundings."""
    y, x = grid(size)
    sky = 0.5 + 0.3 * np.cos(2 * np.pi * y) + 0.16 * noise(rng, size, 4)
    image = mix(flat(size, (52, 60, 66)), warm_grey(rng, 170, 215), 0.8 * ramp(sky, 0, 1))
    slant = ramp(np.sin(2 * np.pi * (x + y) + 0.3 * noise(rng, size, 4)), 0.4, 0.9)
    return image + rng.uniform(4, 14) * slant[..., None]


def perforated(rng: Rng, size: int) -> np.ndarray:
    """Grating or perforated sheet."""
    y, x = grid(size)
    count = int(rng.choice([8, 12, 16]))
    hole = ramp(np.sin(2 * np.pi * count * x) * np.sin(2 * np.pi * count * y), 0.1, 0.35)
    image = shaded(warm_grey(rng, 160, 210), 1 + 0.05 * noise(rng, size, 2))
    return mix(image, (34, 34, 36), hole)


def noise_photo(rng: Rng, size: int) -> np.ndarray:
    """Nothing in particular, with the statistics of photographs."""
    tone, hue = noise(rng, size, rng.uniform(1.6, 2.4)), noise(rng, size, 2.4)
    image = 128 + 44 * tone[..., None] + 14 * hue[..., None] * np.float32(rng.normal(0, 1, 3))
    return np.clip(image, 8, 250)

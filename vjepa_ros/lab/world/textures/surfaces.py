# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint surfaces that repeat without a seam, and name the materials they are made of.

Fields are (size, size) float32. Each painter takes a generator and a size and returns (size, size,
3) float 0..255. Colours are mostly light and near grey: scenes tint them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import cv2
import numpy as np

Rng = np.random.Generator
Rgb = tuple[float, float, float]
Painter = Callable[[Rng, int], np.ndarray]


@lru_cache(maxsize=4)
def _frequencies(size: int) -> tuple[np.ndarray, np.ndarray]:
    down = np.fft.fftfreq(size)[:, None] * size
    across = np.fft.rfftfreq(size)[None] * size
    return down.astype(np.float32), across.astype(np.float32)


def noise(rng: Rng, size: int, slope: float = 2.0, stretch: float = 1.0, low: float = 1.0,
          high: float = 1e9) -> np.ndarray:
    """Random field whose power falls as 1 / frequency^slope; ``stretch`` draws it out down."""
    down, across = _frequencies(size)
    wave = np.hypot(down * np.sqrt(stretch), across / np.sqrt(stretch))
    power = np.where((wave >= low) & (wave <= high), np.maximum(wave, 1e-3) ** (-slope / 2), 0)
    white = np.fft.rfft2(rng.standard_normal((size, size)).astype(np.float32))
    field = np.fft.irfft2(white * power, (size, size)).astype(np.float32)
    return (field - field.mean()) / (field.std() + 1e-9)


def grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    at = (np.arange(size, dtype=np.float32) + 0.5) / size
    return np.broadcast_to(at[:, None], (size, size)), np.broadcast_to(at[None], (size, size))


def vector(values: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)


def flat(size: int, colour: Rgb) -> np.ndarray:
    return np.broadcast_to(vector(colour), (size, size, 3)).copy()


def shaded(colour: Rgb, light: np.ndarray) -> np.ndarray:
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
    """Rectangular tiles: number, share of joint (0..1), and light of a bevelled edge."""
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


def wood(rng: Rng, size: int) -> np.ndarray:
    y, _ = grid(size)
    bend = 0.35 * noise(rng, size, 3.2, stretch=4)
    rings = np.sin(2 * np.pi * (int(rng.integers(4, 12)) * y + bend))
    light = 1 + 0.07 * rings + 0.05 * noise(rng, size, 1.2, stretch=50, low=3)
    colour = pick(rng, (200, 156, 106), (176, 128, 84), (220, 190, 150), (150, 104, 70))
    return shaded(colour, light * stains(rng, size, 0.04))


def leaves(rng: Rng, size: int) -> np.ndarray:
    image = flat(size, (34, 44, 24))
    base = vector(pick(rng, (96, 126, 58), (78, 108, 52), (126, 138, 68), (110, 120, 80)))
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
        image = mix(image, image * vector(rng.uniform(0.25, 1.0, 3)), stripe)
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
    y, x = grid(size)
    count = int(rng.choice([8, 12, 16]))
    hole = ramp(np.sin(2 * np.pi * count * x) * np.sin(2 * np.pi * count * y), 0.1, 0.35)
    image = shaded(warm_grey(rng, 160, 210), 1 + 0.05 * noise(rng, size, 2))
    return mix(image, (34, 34, 36), hole)


def noise_photo(rng: Rng, size: int) -> np.ndarray:
    """Nothing in particular, with the statistics of photographs."""
    tone, hue = noise(rng, size, rng.uniform(1.6, 2.4)), noise(rng, size, 2.4)
    image = 128 + 44 * tone[..., None] + 14 * hue[..., None] * vector(rng.normal(0, 1, 3))
    return np.clip(image, 8, 250)


def paint_coat(rng: Rng, size: int) -> np.ndarray:
    """Painted wall, nearly blank."""
    light = 1 + rng.uniform(0.003, 0.015) * noise(rng, size, 0.6) + rng.uniform(
        0, 0.03) * noise(rng, size, 3)
    return shaded(warm_grey(rng, 205, 240, 0.02), light)


def plaster(rng: Rng, size: int) -> np.ndarray:
    bumps = noise(rng, size, rng.uniform(1.0, 1.8), low=5)
    light = relief(bumps, rng.uniform(0.02, 0.08)) * stains(rng, size, rng.uniform(0.01, 0.06))
    return shaded(warm_grey(rng, 190, 235), light)


def wallpaper(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    count = int(rng.integers(3, 12))
    if rng.random() < 0.5:
        share = ramp(np.sin(2 * np.pi * count * x), -0.2, 0.2)
    else:
        share = ramp(np.sin(2 * np.pi * count * x) * np.sin(2 * np.pi * count * y), 0.3, 0.5)
    base = flat(size, warm_grey(rng, 195, 230))
    other = np.clip(np.asarray(warm_grey(rng, 150, 215)) * rng.uniform(0.85, 1.1, 3), 60, 245)
    return mix(base, other, share) * stains(rng, size, 0.02)[..., None]


def bricks(rng: Rng, size: int) -> np.ndarray:
    rows = int(rng.choice([8, 10, 12, 14]))
    number, gap, bevel = tiles(rng, size, rows, rows // 2, 0.5, rng.uniform(0.05, 0.09))
    colour = pick(rng, (168, 92, 70), (150, 78, 58), (190, 160, 130), (176, 120, 92),
                  (205, 198, 188), (120, 70, 58))
    light = (1 + per_piece(rng, number, 0.11) + 0.09 * noise(rng, size, 1.2) + 0.15 * bevel)
    face = shaded(colour, light)
    face += per_piece(rng, number, 7)[..., None] * vector([1, -0.2, -0.6])
    mortar = flat(size, warm_grey(rng, 130, 205)) * (1 + 0.08 * noise(rng, size, 1))[..., None]
    return mix(face, mortar, gap) * stains(rng, size, 0.06)[..., None]


def blocks(rng: Rng, size: int) -> np.ndarray:
    rows = int(rng.choice([2, 4, 6]))
    number, gap, bevel = tiles(rng, size, rows, max(1, rows // 2), 0.5 * float(rng.random() < 0.5),
                               rng.uniform(0.012, 0.03))
    light = 1 + per_piece(rng, number, 0.05) + 0.06 * noise(rng, size, 1.4) + 0.1 * bevel
    pores = ramp(noise(rng, size, 0.6, low=20), 2.1, 2.8)
    image = shaded(warm_grey(rng, 150, 205), light * (1 - 0.4 * pores) * (1 - 0.5 * gap))
    return image * stains(rng, size, 0.07)[..., None]


def concrete(rng: Rng, size: int) -> np.ndarray:
    light = stains(rng, size, rng.uniform(0.05, 0.12)) + 0.05 * noise(rng, size, 0.9)
    cracks = 1 - ramp(np.abs(noise(rng, size, 3.2)), 0.0, 0.02)
    holes = ramp(noise(rng, size, 0.4, low=16), 2.3, 2.9)
    light = light * (1 - 0.3 * cracks * (rng.random() < 0.6)) * (1 - 0.3 * holes)
    return shaded(warm_grey(rng, 140, 200), light)


def stone_wall(rng: Rng, size: int) -> np.ndarray:
    number, edge = stones(rng, size, int(rng.integers(5, 10)), 0.75)
    face = ramp(edge + 0.02 * noise(rng, size, 1.5, low=6), 0.03, 0.14)
    light = (1 + per_piece(rng, number, 0.15) + 0.12 * noise(rng, size, 1.5)) * (
        0.55 + 0.45 * face)
    image = shaded(warm_grey(rng, 125, 180, 0.07), light * relief(face, 0.5))
    image += per_piece(rng, number, 8)[..., None] * vector([1, 0.1, -0.9])
    return image


def corrugated(rng: Rng, size: int) -> np.ndarray:
    _, x = grid(size)
    count = int(rng.integers(8, 24))
    wave = np.sin(2 * np.pi * count * x)
    fold = np.tanh(rng.uniform(0.8, 3) * wave)
    streaks = noise(rng, size, 2, stretch=1 / 40)
    light = 0.86 + 0.14 * fold + 0.04 * streaks + 0.02 * noise(rng, size, 1)
    return shaded(warm_grey(rng, 165, 220), light * stains(rng, size, 0.04))


def floor_tiles(rng: Rng, size: int) -> np.ndarray:
    count = int(rng.choice([2, 4, 6, 8]))
    number, gap, bevel = tiles(rng, size, count, count, 0.0, rng.uniform(0.008, 0.025))
    light = (1 + per_piece(rng, number, rng.uniform(0.01, 0.05)) + 0.04 * noise(rng, size, 2)
             + 0.05 * bevel)
    image = shaded(warm_grey(rng, 150, 225), light)
    if rng.random() < 0.35:
        dark = ((number // count + number % count) % 2).astype(np.float32)
        image = mix(image, image * rng.uniform(0.3, 0.8), dark)
    grout = warm_grey(rng, 80, 190)
    return mix(image, grout, gap) * stains(rng, size, 0.03)[..., None]


def terrazzo(rng: Rng, size: int) -> np.ndarray:
    number, edge = stones(rng, size, int(rng.integers(24, 48)), 0.95)
    chips = per_piece(rng, number, 1.0)
    share = ramp(edge, 0.1, 0.2) * (np.abs(chips) > rng.uniform(0.6, 1.3))
    image = flat(size, warm_grey(rng, 165, 215))
    image = mix(image, image * (1 + 0.22 * np.sign(chips))[..., None], share)
    return image * stains(rng, size, 0.03)[..., None]


def planks(rng: Rng, size: int) -> np.ndarray:
    rows = int(rng.choice([4, 6, 8]))
    y, _ = grid(size)
    joint = rng.uniform(0.008, 0.02)
    number, gap, _ = tiles(rng, size, rows, 2, 0.5, joint)
    line = np.floor(y * rows).astype(int)
    grain = np.zeros((size, size), np.float32)
    coarse = noise(rng, size, 2.2, stretch=1 / 30)
    fine = noise(rng, size, 1.2, stretch=1 / 60, low=4)
    for row in range(rows):
        part = line == row
        roll = int(rng.integers(size))
        grain[part] = (0.6 * np.roll(coarse, roll, 1) + 0.5 * np.roll(fine, roll, 1))[part]
    light = (1 + per_piece(rng, number, 0.09) + 0.08 * grain) * (1 - 0.6 * gap)
    colour = pick(rng, (196, 150, 100), (168, 120, 76), (214, 180, 136), (140, 100, 70),
                  (190, 176, 158))
    return shaded(colour, light)


def carpet(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    tuft = noise(rng, size, -0.3, low=20, high=100)
    light = 1 + rng.uniform(0.05, 0.13) * tuft + 0.03 * noise(rng, size, 2.2)
    image = shaded(warm_grey(rng, 125, 190, 0.08), light)
    if rng.random() < 0.4:
        count = int(rng.integers(2, 7))
        share = ramp(np.sin(2 * np.pi * count * x) * np.sin(2 * np.pi * count * y), 0.1, 0.4)
        image = mix(image, image * rng.uniform(0.55, 0.85), share)
    return image


def asphalt(rng: Rng, size: int) -> np.ndarray:
    grit = noise(rng, size, 0.2, low=12)
    light = 1 + 0.1 * grit + 0.1 * ramp(grit, 1.6, 2.6) + 0.06 * noise(rng, size, 2.4)
    patch = ramp(noise(rng, size, 3.5), 0.9, 1.0) * (rng.random() < 0.4)
    cracks = 1 - ramp(np.abs(noise(rng, size, 3.0)), 0.0, 0.025)
    light = light * (1 - 0.2 * patch) * (1 - 0.4 * cracks * (rng.random() < 0.5))
    return shaded(warm_grey(rng, 100, 150, 0.03), light)


def paving(rng: Rng, size: int) -> np.ndarray:
    rows = int(rng.choice([3, 4, 6, 10]))
    number, gap, bevel = tiles(rng, size, rows, rows // 2 if rows >= 6 else rows,
                               float(rng.choice([0, 0.5])) * (rows % 2 == 0),
                               rng.uniform(0.02, 0.04))
    light = (1 + per_piece(rng, number, 0.07) + 0.08 * noise(rng, size, 1.1) + 0.08 * bevel) * (
        1 - 0.55 * gap)
    colour = warm_grey(rng, 135, 195) if rng.random() < 0.7 else (168, 110, 92)
    return shaded(colour, light * stains(rng, size, 0.07))


def cobbles(rng: Rng, size: int) -> np.ndarray:
    number, edge = stones(rng, size, int(rng.integers(6, 14)), 0.4)
    dome = ramp(edge, 0.0, 0.35)
    light = (0.4 + 0.6 * ramp(edge, 0.02, 0.16)) * relief(dome, 0.9) * (
        1 + per_piece(rng, number, 0.12) + 0.09 * noise(rng, size, 1.2))
    return shaded(warm_grey(rng, 120, 175, 0.05), light)


def gravel(rng: Rng, size: int) -> np.ndarray:
    number, edge = stones(rng, size, int(rng.integers(22, 40)), 0.95)
    light = (0.45 + 0.55 * ramp(edge, 0.0, 0.3)) * (1 + per_piece(rng, number, 0.2))
    image = shaded(warm_grey(rng, 140, 185, 0.05), light * stains(rng, size, 0.06))
    return image + per_piece(rng, number, 8)[..., None] * vector([1, 0.2, -0.9])


def earth(rng: Rng, size: int) -> np.ndarray:
    bumps = noise(rng, size, 1.9)
    light = (1 + 0.13 * bumps + 0.07 * noise(rng, size, 0.4)) * relief(bumps, 0.25)
    colour = pick(rng, (150, 120, 88), (176, 150, 112), (120, 100, 78), (196, 178, 146))
    image = shaded(colour, light)
    weeds = ramp(noise(rng, size, 2.4), 0.9, 1.6) * (0.5 + 0.5 * ramp(noise(rng, size, 0.2), 0, 1))
    return mix(image, (96, 112, 58), weeds * (rng.random() < 0.5))


def grass(rng: Rng, size: int) -> np.ndarray:
    blades = 0.6 * noise(rng, size, 0.7, stretch=1 / 3, low=10) + 0.6 * noise(
        rng, size, 0.8, stretch=3, low=10)
    tone = noise(rng, size, 2.6)
    light = np.clip(1 + 0.26 * blades + 0.08 * tone, 0.25, 2)
    image = shaded(pick(rng, (92, 118, 56), (108, 128, 70), (128, 130, 76)), light)
    return mix(image, (160, 146, 92), 0.5 * ramp(tone + 0.4 * blades, 0.8, 2.2))


MATERIALS: dict[str, tuple[Painter, ...]] = {
    'plain': (paint_coat, lacquer, plaster, metal, concrete, noise_photo),
    'floor': (floor_tiles, planks, carpet, concrete, terrazzo, floor_tiles),
    'ground': (asphalt, paving, cobbles, grass, gravel, earth, concrete, asphalt),
    'wall': (bricks, plaster, paint_coat, blocks, stone_wall, wallpaper, corrugated, paint_coat),
    'glass': (mirror_glass,),
    'cloth': (fabric, fabric, carpet, paint_coat),
    'skin': (skin,),
    'hair': (hair,),
    'metal': (metal, lacquer, corrugated, perforated),
    'rubber': (rubber,),
    'wood': (wood, planks),
    'foliage': (leaves, grass),
}

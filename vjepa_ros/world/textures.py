# SPDX-License-Identifier: Apache-2.0
"""Paint the surfaces of a synthetic alley: paving, brick walls with openings, and the sky.

Every function returns an RGB uint8 array and depends only on its generator. Surfaces along the
alley repeat without a seam after their full length.
"""

from __future__ import annotations

import cv2
import numpy as np

Rgb = tuple[float, float, float]
DOOR_AT_M = 2.95  # middle of the first door along a house front; the next ones every 6 m


def fractal(rng: np.random.Generator, shape: tuple[int, int], cells: int, octaves: int = 5,
            gain: float = 0.6) -> np.ndarray:
    """Smooth random field of zero mean and unit spread that repeats along its columns.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    cells : int
        Grid cells of the coarsest octave along the columns; every octave doubles them.
    octaves, gain : int, float
        Number of octaves and the weight of each relative to the one before.

    Returns
    -------
    ndarray (H, W) float32
    """
    rows, cols = shape
    total = np.zeros(shape, np.float32)
    weight = 1.0
    for octave in range(octaves):
        across = min(cells << octave, cols)
        down = max(2, min(rows, round(across * rows / cols)))
        grid = rng.standard_normal((down, across)).astype(np.float32)
        wrapped = np.concatenate((grid[:, -2:], grid, grid[:, :2]), axis=1)
        wide = cv2.resize(wrapped, (round(cols * (across + 4) / across), rows),
                          interpolation=cv2.INTER_CUBIC)
        start = round(2 * cols / across)
        total += weight * wide[:, start:start + cols]
        weight *= gain
    return (total - total.mean()) / (total.std() + 1e-6)


def to_rgb(colour: np.ndarray) -> np.ndarray:
    return np.clip(colour, 0, 255).astype(np.uint8)


def tint(shape: tuple[int, int], colour: Rgb) -> np.ndarray:
    return np.broadcast_to(np.float32(colour), (*shape, 3)).copy()


def paving(rng: np.random.Generator, length_m: float, width_m: float, res: float) -> np.ndarray:
    """Concrete slabs seen from above; rows lead along the alley, columns from left to right."""
    rows, cols = round(length_m * res), round(width_m * res)
    along, across = np.mgrid[0:rows, 0:cols].astype(np.float32) / res
    lane = (across // 0.6).astype(int)
    shifted = along + 0.3 * (lane % 2)
    count = round(length_m / 0.6)
    slab = (shifted // 0.6).astype(int) % count
    shade = rng.normal(0, 9, (lane.max() + 1, count)).astype(np.float32)
    warmth = rng.normal(0, 3, shade.shape).astype(np.float32)
    edge = np.minimum(np.minimum(across % 0.6, 0.6 - across % 0.6),
                      np.minimum(shifted % 0.6, 0.6 - shifted % 0.6))
    joint = np.clip(1.6 - edge / 0.008, 0, 1)
    bevel = np.clip(1.3 - edge / 0.03, 0, 1) - joint

    small = (cols // 4, rows // 4)
    coarse, damp = (cv2.resize(fractal(rng, small, cells, 6).T, (cols, rows),
                               interpolation=cv2.INTER_LINEAR) for cells in (12, 9))
    grain = fractal(rng, (cols, rows), rows // 8, 3, 0.8).T
    light = 138 + shade[lane, slab] + 8 * coarse + 9 * grain - 62 * joint + 10 * bevel
    pebbles = rng.random((rows, cols)) > 0.9985
    light += 45 * cv2.dilate(pebbles.astype(np.uint8), np.ones((3, 3), np.uint8))
    light -= 42 * np.clip(damp - 1.1, 0, 1)  # oil and damp
    image = light[..., None] * np.float32([1.0, 0.975, 0.93])
    image += warmth[lane, slab][..., None] * np.float32([1.0, 0.2, -1.0])

    for x in (0.42, width_m - 0.42):  # gutters with a worn yellow line beside them
        image[np.abs(across - x) < 0.06] *= 0.55
        side = x + (0.3 if x < width_m / 2 else -0.3)
        line = (np.abs(across - side) < 0.05) & (coarse + 0.8 * grain > -1.1)
        image[line] = 0.35 * image[line] + 0.65 * np.float32([222, 176, 52])
    for s in np.arange(1.2, length_m, length_m / 2):  # manhole covers
        centre = (round((width_m * rng.uniform(0.3, 0.7)) * res), round(s * res))
        cv2.circle(image, centre, round(0.32 * res), (78, 76, 74), -1, cv2.LINE_AA)
        for radius in np.arange(0.06, 0.33, 0.06):
            cv2.circle(image, centre, round(radius * res), (112, 110, 106), 3, cv2.LINE_AA)
    # Sun from the right over the roofs: the right part lies in shade, both sides near the walls
    # are darker.
    border = 0.63 * width_m + 0.05 * coarse
    image *= (1 - 0.42 / (1 + np.exp(-(across - border) / 0.05)))[..., None]
    near_wall = np.minimum(across, width_m - across)
    image *= (1 - 0.45 * np.exp(-near_wall / 0.22))[..., None]
    return to_rgb(image)


def brick_wall(rng: np.random.Generator, length_m: float, height_m: float, res: float,
               brick: Rgb, mortar: Rgb, sunlit: bool) -> np.ndarray:
    """House front; rows lead from the roof down to the ground, columns along the alley."""
    rows, cols = round(height_m * res), round(length_m * res)
    up, along = np.mgrid[0:rows, 0:cols].astype(np.float32) / res
    up = height_m - up
    course = (up // 0.085).astype(int)
    shifted = along + 0.125 * (course % 2)
    count = round(length_m / 0.25)
    column = (shifted // 0.25).astype(int) % count
    shade = rng.normal(0, 1, (course.max() + 1, count)).astype(np.float32)
    burnt = (rng.random(shade.shape) < 0.08) * np.float32(-2.2)
    tone = (shade + burnt)[course, column]
    edge = np.minimum(np.minimum(up % 0.085, 0.085 - up % 0.085),
                      np.minimum(shifted % 0.25, 0.25 - shifted % 0.25))
    joint = np.clip(1.5 - edge / 0.0075, 0, 1)[..., None]
    coarse = fractal(rng, (rows, cols), 10, 6)
    grain = fractal(rng, (rows, cols), cols // 7, 3, 0.8)
    face = tint((rows, cols), brick) * (1 + 0.13 * tone + 0.05 * grain)[..., None]
    image = face * (1 - joint) + tint((rows, cols), mortar) * joint
    image *= (1 + 0.09 * coarse)[..., None]

    plinth = up < 0.28
    image[plinth] = np.float32([118, 114, 108]) * (
        1 + 0.09 * grain[plinth] + 0.08 * coarse[plinth])[:, None]
    image[np.abs(up - 0.28) < 0.015] *= 0.6
    _openings(rng, image, length_m, height_m, res)
    image[(up > height_m - 0.22)] *= 0.62  # gutter under the roof
    image[(up > height_m - 0.07)] *= 1.7
    image *= (1 - 0.35 * np.exp(-up / 0.35))[..., None]
    image *= np.float32([1.12, 1.05, 0.94]) if sunlit else np.float32([0.66, 0.69, 0.76])
    return to_rgb(image)


def _openings(rng: np.random.Generator, image: np.ndarray, length_m: float, height_m: float,
              res: float) -> None:
    """Draw windows, doors, posters and pipes, one bay every 3 m."""
    rows = image.shape[0]

    def box(s: float, low: float, width: float, high: float, colour: Rgb) -> np.ndarray:
        x0, x1 = round((s - width / 2) * res), round((s + width / 2) * res)
        y0, y1 = rows - round(high * res), rows - round(low * res)
        view = image[max(y0, 0):y1, x0:x1]
        view[...] = np.float32(colour) * (1 + 0.03 * rng.standard_normal(view.shape[:2]))[
            ..., None]
        return view

    doors = [(34, 66, 58), (40, 44, 74), (82, 30, 28), (58, 48, 30), (36, 52, 70), (66, 60, 40)]
    for bay, s in enumerate(np.arange(1.5, length_m, 3.0)):
        for low in np.arange(1.35, height_m - 1.4, 2.0):
            box(s + 0.1, low - 0.2, 1.44, low, (70, 60, 54))           # shadow of the sill
            box(s + 0.1, low - 0.09, 1.5, low, (182, 176, 164))        # sill
            box(s + 0.1, low + 1.35, 1.42, low + 1.5, (176, 168, 154))  # lintel
            box(s + 0.1, low, 1.3, low + 1.35, (206, 202, 192))        # frame
            for side in (-1, 1):
                glass = box(s + 0.1 + side * 0.31, low + 0.06, 0.54, low + 1.29, (42, 54, 66))
                ramp = np.linspace(75, 0, glass.shape[0], dtype=np.float32)
                glass += ramp[:, None, None] * np.float32([0.75, 0.9, 1.0])
                slant = np.add.outer(np.arange(glass.shape[0]), np.arange(glass.shape[1]))
                glass[(slant // 22) % 5 == 2] += 26
            box(s + 0.1, low + 0.8, 1.18, low + 0.85, (206, 202, 192))
        at = s + 1.45
        if bay % 2 == 0 and at + 0.7 < length_m:
            box(at, 0.0, 1.16, 2.2, (70, 66, 62))
            leaf = box(at, 0.0, 1.0, 2.1, doors[bay % len(doors)])
            leaf[:: max(2, round(0.12 * res))] *= 0.6
            box(at - 0.36, 0.95, 0.06, 1.15, (196, 186, 150))
        elif at + 0.7 < length_m:
            poster = box(at, 0.7, 0.8, 1.8, tuple(rng.uniform(120, 230, 3)))
            for _ in range(7):
                centre = rng.uniform(0.1, 0.9, 2) * poster.shape[1::-1]
                cv2.circle(poster, tuple(int(v) for v in centre), int(rng.uniform(5, 26)),
                           tuple(rng.uniform(20, 240, 3)), -1, cv2.LINE_AA)
            box(at, 1.0, 0.6, 1.06, (30, 30, 34))
            box(at, 0.86, 0.5, 0.92, (30, 30, 34))
        box(s - 0.85, 0.0, 0.12, height_m, (74, 64, 58))               # down-pipe
        box(s - 0.87, 0.0, 0.08, height_m, (104, 100, 96))
        box(s - 0.88, 0.0, 0.03, height_m, (150, 146, 140))


def sky(rng: np.random.Generator, elevation: np.ndarray, azimuth: np.ndarray) -> np.ndarray:
    """Sky with soft clouds over a haze at the horizon, for directions given in radians."""
    height = np.clip(elevation / 0.55, 0, 1)[..., None]
    image = np.float32([222, 226, 226]) * (1 - height) + np.float32([112, 158, 206]) * height
    cloud = fractal(rng, elevation.shape, 6, 6, 0.55)
    veil = np.clip(0.55 * cloud - 0.15, 0, 1)[..., None] * np.clip(4 * height, 0, 1)
    image += veil * (np.float32([246, 245, 242]) - image)
    glow = np.exp(-((azimuth - 0.35) / 0.5) ** 2 - ((elevation - 0.1) / 0.35) ** 2)
    image += 16 * glow[..., None] * np.float32([1.0, 0.9, 0.65])
    return to_rgb(image)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint the surfaces of the alley and of what stands in it.

Each painter takes a generator and a size and gives (size, size, 3) float 0..255. They are
painted at twice the size and averaged, so that lines are clean.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.noise import (
    Rgb,
    Rng,
    flat,
    grid,
    mix,
    noise,
    per_piece,
    ramp,
    shaded,
    stains,
    tiles,
)
from vjepa_ros.lab.world.textures.prints import rect, write

FRONT_M = 4.5      # side of one repeat of a house front
PAVING_M = 2.25    # of the paving
_FINE = 2
_DOOR_M = 0.8      # middle of the door before the front is moved along
_DOORS: tuple[Rgb, ...] = ((34, 74, 62), (46, 56, 104), (112, 34, 30), (44, 66, 92))


def fine(paint: Callable[[Rng, int], np.ndarray]) -> Callable[[Rng, int], np.ndarray]:
    """A painter that paints larger and averages."""
    def painter(rng: Rng, size: int) -> np.ndarray:
        large = paint(rng, _FINE * size).astype(np.float32)
        return cv2.resize(np.clip(large, 0, 255), (size, size), interpolation=cv2.INTER_AREA)
    return painter


def house_front(brick: Rgb, mortar: Rgb, door_m: float) -> Callable[[Rng, int], np.ndarray]:
    """Painter of a house front of two storeys with its door ``door_m`` from the left."""
    def paint(rng: Rng, size: int) -> np.ndarray:
        number, gap, bevel = tiles(rng, size, 52, 18, 0.5, 0.085)
        grain = noise(rng, size, 1.0, low=30)
        light = (1 + per_piece(rng, number, 0.1) + 0.07 * grain + 0.12 * bevel
                 - 0.3 * (per_piece(rng, number, 1.0) > 1.6))
        image = shaded(brick, light)
        image += per_piece(rng, number, 7)[..., None] * np.float32([1, -0.2, -0.7])
        image = mix(image, flat(size, mortar) * (1 + 0.08 * grain)[..., None], gap)
        image *= stains(rng, size, 0.05)[..., None]
        y, _ = grid(size)
        plinth = y > 1 - 0.33 / FRONT_M
        image[plinth] = (np.float32((128, 123, 116)) * (1 + 0.07 * grain + 0.06 * noise(
            rng, size, 2.5))[..., None])[plinth]
        image[np.abs(y - (1 - 0.33 / FRONT_M)) < 0.004] *= 0.6
        for x in (0.8, 2.3, 3.55):
            _window(rng, image, x, 2.95, 0.86, 1.02)      # upper storey
        for x in (2.3, 3.55):
            _window(rng, image, x, 0.95, 0.96, 1.32)
        _door(rng, image, _DOOR_M)
        for x0, x1, tone in ((4.23, 4.36, 70), (4.25, 4.33, 112), (4.268, 4.295, 158)):
            _part(image, x0, 0.0, x1, FRONT_M, (tone, tone - 3, tone - 6))
        for low, high, share in ((4.16, 4.5, 0.55), (4.2, 4.34, 2.1), (4.12, 4.16, 0.45)):
            _part(image, 0, low, FRONT_M, high)[...] *= share
        low = np.exp(-(1 - y) * FRONT_M / 0.35)    # splashed by the rain
        image *= (1 - 0.25 * low)[..., None]
        kerb = _part(image, 0, 0, FRONT_M, 0.16, (186, 182, 172))
        kerb *= (1 + 0.06 * grain[:len(kerb)])[..., None]
        for x in np.arange(0.2, FRONT_M, 0.9):
            _part(image, x, 0, x + 0.02, 0.16)[...] *= 0.5
        _part(image, 0, 0.15, FRONT_M, 0.175)[...] *= 0.6
        return np.roll(image, round((door_m - _DOOR_M) / FRONT_M * size), 1)
    return fine(paint)


def _part(image: np.ndarray, x0: float, low: float, x1: float, high: float,
          paint: Rgb | None = None) -> np.ndarray:
    """View of a part of a house front, from the left and from the ground [m]."""
    return rect(image, x0 / FRONT_M, 1 - high / FRONT_M, x1 / FRONT_M, 1 - low / FRONT_M, paint)


def _window(rng: Rng, image: np.ndarray, middle: float, low: float, width: float,
            height: float) -> None:
    x0, x1, high = middle - width / 2, middle + width / 2, low + height
    _part(image, x0 - 0.1, low - 0.24, x1 + 0.1, low - 0.1)[...] *= 0.62       # sill's shadow
    _part(image, x0 - 0.12, low - 0.11, x1 + 0.12, low, (196, 190, 178))
    _part(image, x0 - 0.1, high, x1 + 0.1, high + 0.17, (188, 180, 166))       # lintel
    _part(image, x0 - 0.1, high, x1 + 0.1, high + 0.02)[...] *= 0.7
    _part(image, x0, low, x1, high, (226, 224, 216))
    for pane in (0, 1):
        a = x0 + 0.07 + pane * (width - 0.07) / 2
        b = a + (width - 0.07) / 2 - 0.07
        glass = _part(image, a, low + 0.07, b, high - 0.07, (38, 46, 54))
        rows, columns = glass.shape[:2]
        fall = np.linspace(1, 0, rows, dtype=np.float32)[:, None, None]
        glass += fall ** 1.5 * np.float32((96, 116, 136))
        slant = np.add.outer(np.arange(rows), np.arange(columns)) / rows
        glass[((slant - rng.uniform(0, 0.4)) % 0.9) < 0.12] += 22
        drawn = rect(glass, 0, 0, 1, 1) if rng.random() < 0.15 else (
            rect(glass, 0, 0, 0.32, 1) if pane == 0 else rect(glass, 0.68, 0, 1, 1))
        folds = 1 + 0.12 * np.sin(np.linspace(0, 30, drawn.shape[1]))[None, :, None]
        drawn[...] = 0.45 * drawn + 0.5 * np.float32((206, 198, 184)) * folds
        _part(image, a, high - 0.13, b, high - 0.07)[...] *= 0.55
    _part(image, x0, low + 0.62 * height, x1, low + 0.62 * height + 0.05, (220, 218, 210))


def _door(rng: Rng, image: np.ndarray, middle: float) -> None:
    colour = _DOORS[int(rng.integers(len(_DOORS)))]
    _part(image, middle - 0.66, 0.12, middle + 0.66, 2.3, (176, 168, 154))
    _part(image, middle - 0.66, 2.3, middle + 0.66, 2.46, (196, 188, 172))
    _part(image, middle - 0.54, 0.12, middle + 0.54, 2.2, (44, 42, 40))
    leaf = _part(image, middle - 0.5, 0.14, middle + 0.5, 2.14, colour)
    leaf *= (1 + 0.05 * noise(rng, 64, 1.5, stretch=1 / 20))[:1, :, None].mean()
    for x0, x1 in ((0.1, 0.46), (0.54, 0.9)):
        for y0, y1 in ((0.36, 0.6), (0.66, 0.94)):
            rect(leaf, x0, y0, x1, y1)[...] *= 0.62
            rect(leaf, x0 + 0.025, y0 + 0.015, x1, y1)[...] *= 1.75
            rect(leaf, x0 + 0.05, y0 + 0.025, x1 - 0.04, y1 - 0.02)[...] *= 0.86
    glass = rect(leaf, 0.12, 0.06, 0.88, 0.3, (50, 58, 64))
    glass += np.linspace(80, 0, glass.shape[0])[:, None, None]
    rect(leaf, 0.49, 0.06, 0.51, 0.3, colour)
    rect(leaf, 0.84, 0.55, 0.89, 0.62, (206, 190, 130))
    rect(leaf, 0.38, 0.62, 0.62, 0.64, (206, 190, 130))
    _part(image, middle - 0.7, 0.0, middle + 0.7, 0.14, (168, 164, 156))
    _part(image, middle - 0.7, 0.0, middle + 0.7, 0.015)[...] *= 0.5
    lamp = middle + 0.86
    _part(image, lamp - 0.09, 1.86, lamp + 0.09, 2.2, (36, 36, 38))
    _part(image, lamp - 0.06, 1.92, lamp + 0.06, 2.12, (252, 238, 196))


@fine
def paving(rng: Rng, size: int) -> np.ndarray:
    """Stone slabs, worn and stained."""
    number, gap, bevel = tiles(rng, size, 4, 3, 0.5, 0.014)
    light = (1 + per_piece(rng, number, 0.075) + 0.1 * noise(rng, size, 0.9, low=12)
             + 0.06 * noise(rng, size, 2.2) + 0.35 * bevel)
    damp = ramp(noise(rng, size, 2.6), 0.9, 2.0)
    image = shaded((150, 146, 138), light * (1 - 0.55 * gap) * (1 - 0.16 * damp))
    image += per_piece(rng, number, 4)[..., None] * np.float32([1, 0.2, -1])
    pebbles = ramp(noise(rng, size, 0.0, low=40, high=160), 3.0, 3.4)
    return mix(image, (196, 192, 184), 0.6 * pebbles)


@fine
def drain(rng: Rng, size: int) -> np.ndarray:
    """Cast iron cover of a drain."""
    y, x = grid(size)
    image = shaded((92, 88, 84), 1 + 0.08 * noise(rng, size, 1.0))
    slot = (np.abs(y * 6 % 1 - 0.5) < 0.2) & (np.abs(x % 0.5 - 0.25) < 0.19)
    image[slot] = (18, 18, 18)
    rim = np.maximum(np.abs(x - 0.5), np.abs(y - 0.5)) > 0.46
    image[rim] = image[rim] * 1.25
    return image


@fine
def crate(rng: Rng, size: int) -> np.ndarray:
    """Wooden crate: boards, battens, nails, a stencilled label."""
    wood: Rgb = (196, 152, 98)
    y, x = grid(size)
    board = np.floor(y * 6).astype(int)
    fibre = noise(rng, size, 1.6, stretch=25)
    light = (1 + 0.1 * rng.standard_normal(6)[board] + 0.09 * fibre) * (
        1 - 0.6 * (y * 6 % 1 < 0.035))
    image = shaded(wood, light)
    edge = np.minimum(np.minimum(x, 1 - x), np.minimum(y, 1 - y))
    for part, wide, tone in ((np.abs(x - y) * 0.7, 0.062, 1.0), (edge, 0.105, 1.14)):
        image *= (1 - 0.55 * ramp(-part, -wide - 0.035, -wide))[..., None]
        grain = noise(rng, size, 1.7, stretch=20)
        image = mix(image, shaded(wood, tone + 0.08 * grain), ramp(-part, -wide - 0.003,
                                                                  -wide + 0.003))
        image *= (1 - 0.35 * (np.abs(part - wide) < 0.004))[..., None]
    image = np.ascontiguousarray(image)
    for nx in (0.052, 0.5, 0.948):
        for ny in (0.052, 0.5, 0.948):
            at = (round(nx * size), round(ny * size))
            cv2.circle(image, at, size // 90, (70, 62, 54), -1, cv2.LINE_AA)
            cv2.circle(image, (at[0] - size // 400, at[1] - size // 400), size // 220,
                       (150, 144, 136), -1, cv2.LINE_AA)
    rect(image, 0.585, 0.205, 0.885, 0.435)[...] *= 0.8
    label = rect(image, 0.58, 0.2, 0.88, 0.43, (236, 231, 218))
    write(label, 'FRAGILE', 0.07, 0.45, 0.19, (178, 32, 28))
    for bar in range(22):
        if rng.random() < 0.6:
            rect(label, 0.08 + bar * 0.038, 0.6, 0.1 + bar * 0.038, 0.86, (30, 30, 30))
    write(image, 'UP', 0.17, 0.85, 0.09, tuple(0.45 * v for v in wood))
    return image * stains(rng, size, 0.05)[..., None]


@fine
def trolley(rng: Rng, size: int) -> np.ndarray:
    """Deck of a driverless trolley: hazard stripes, lamps, a bumper."""
    y, x = grid(size)
    image = flat(size, (66, 70, 78)) * (1.15 - 0.4 * y)[..., None]
    stripe = ramp(np.sin(2 * np.pi * (5 * x + 0.9 * y)), -0.06, 0.06)
    band = mix(flat(size, (28, 28, 30)), (240, 192, 36), stripe)
    inside = (y > 0.12) & (y < 0.62)
    image[inside] = band[inside]
    image[y > 0.72] = (34, 35, 38)
    image[np.abs(y - 0.12) < 0.02] *= 0.5
    for at in (0.06, 0.94):
        rect(image, at - 0.035, 0.7, at + 0.035, 0.92, (252, 244, 214))
        rect(image, at - 0.035, 0.7, at + 0.035, 0.74, (150, 146, 130))
    return image * (1 + 0.05 * noise(rng, size, 2.0))[..., None]


@fine
def van_rear(rng: Rng, size: int) -> np.ndarray:
    """Delivery van from behind, above its wheels: doors, windows, lamps, lettering."""
    y, x = grid(size)
    curve = 1.04 - 0.1 * y - 0.22 * ramp(np.abs(x - 0.5), 0.4, 0.5) - 0.3 * ramp(-y, -0.035, 0)
    image = shaded((226, 228, 226), curve)
    for y0, y1, paint in ((0.6, 0.7, (214, 92, 38)), (0.705, 0.725, (38, 70, 118))):
        band = rect(image, 0, y0, 1, y1)
        band[...] = band / 226 * np.float32(paint)
    for x0, x1 in ((0.1, 0.475), (0.525, 0.9)):
        rect(image, x0 - 0.013, 0.1, x1 + 0.013, 0.5, (22, 24, 26))
        glass = rect(image, x0, 0.115, x1, 0.485, (40, 48, 56))
        rows, columns = glass.shape[:2]
        glass += np.linspace(1, 0, rows)[:, None, None] ** 1.4 * np.float32((96, 116, 134))
        slant = np.add.outer(np.arange(rows), np.arange(columns)) / rows
        glass[(slant % 0.8) < 0.13] += 20
        for _ in range(5):    # parcels behind the glass
            left, top = rng.uniform(0.05, 0.75), rng.uniform(0.5, 0.85)
            rect(glass, left, top, left + 0.24, 1)[...] *= rng.uniform(1.15, 1.6)
        rect(glass, 0.2, 0.93, 0.7, 0.96, (20, 20, 22))
    rect(image, 0.497, 0.05, 0.503, 0.88, (58, 60, 62))
    for x0 in (0.43, 0.515):
        rect(image, x0, 0.53, x0 + 0.055, 0.562, (30, 30, 32))
    for x0 in (0.02, 0.955):
        for y0 in (0.2, 0.8):
            rect(image, x0, y0, x0 + 0.025, y0 + 0.035, (96, 98, 100))
    for x0 in (0.015, 0.915):
        rect(image, x0, 0.5, x0 + 0.07, 0.75, (70, 12, 14))
        for y0, y1, paint in ((0.51, 0.58, (222, 38, 32)), (0.585, 0.645, (236, 146, 34)),
                              (0.65, 0.695, (240, 236, 230)), (0.7, 0.74, (200, 30, 28))):
            lamp = rect(image, x0 + 0.008, y0, x0 + 0.062, y1, paint)
            lamp *= (1.15 - 0.4 * np.abs(np.linspace(-1, 1, lamp.shape[1])))[None, :, None]
    write(image, 'PARCEL', 0.14, 0.68, 0.056, (252, 248, 242))
    write(image, 'EXPRESS', 0.545, 0.68, 0.056, (252, 248, 242))
    rect(image, 0.352, 0.752, 0.648, 0.848, (40, 40, 42))
    plate = rect(image, 0.36, 0.76, 0.64, 0.84, (240, 222, 140))
    write(plate, 'VJ 42 RS', 0.06, 0.78, 0.5, (24, 24, 24))
    rect(image, 0, 0.885, 1, 1, (54, 56, 59))
    rect(image, 0, 0.885, 1, 0.9, (116, 118, 120))
    for left in np.arange(0.02, 0.98, 0.08):
        rect(image, left, 0.935, left + 0.04, 0.955, (196, 42, 36))
    dirt = 0.1 * ramp(y, 0.3, 1.0) * (1 + noise(rng, size, 2.2)) + 0.012 * noise(rng, size, 0.5)
    return image * (1 - dirt)[..., None]


@fine
def tyre(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    light = 1 - 0.35 * (np.abs(x * 6 % 1 - 0.5) < 0.14) + 0.06 * noise(rng, size, 0.8)
    return shaded((46, 46, 48), light * (1.1 - 0.5 * y))

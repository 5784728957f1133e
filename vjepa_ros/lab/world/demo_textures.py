# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint the alley of the demo clip: house fronts, paving, trolley, van, and a person who walks.

Painters of surfaces take a generator and a size and return (size, size, 3) float 0..255. They
paint at twice the size and average, so that lines are clean.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.atlas import pack
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.lab.world.textures.cards import SCENERY
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
    to_bytes,
    vector,
)
from vjepa_ros.lab.world.textures.prints import rect, write

FRONT_M = 4.5      # side of one repeat of a house front
PAVING_M = 2.25    # of the paving
_FINE = 2          # painted larger by this factor, then averaged
_DOOR_M = 0.8      # middle of the door before the front is moved along
_DOORS: tuple[Rgb, ...] = ((34, 74, 62), (46, 56, 104), (112, 34, 30), (44, 66, 92))


def fine(paint: Callable[[Rng, int], np.ndarray]) -> Callable[[Rng, int], np.ndarray]:
    """Return a painter that paints larger and averages."""
    def painter(rng: Rng, size: int) -> np.ndarray:
        large = paint(rng, _FINE * size).astype(np.float32)
        return cv2.resize(np.clip(large, 0, 255), (size, size), interpolation=cv2.INTER_AREA)
    return painter


def house_front(brick: Rgb, mortar: Rgb, door_m: float) -> Callable[[Rng, int], np.ndarray]:
    """Return a painter of a house front whose door is ``door_m`` from the left."""
    def paint(rng: Rng, size: int) -> np.ndarray:
        number, gap, bevel = tiles(rng, size, 52, 18, 0.5, 0.085)
        grain = noise(rng, size, 1.0, low=30)
        light = (1 + per_piece(rng, number, 0.1) + 0.07 * grain + 0.12 * bevel
                 - 0.3 * (per_piece(rng, number, 1.0) > 1.6))
        image = shaded(brick, light)
        image += per_piece(rng, number, 7)[..., None] * vector([1, -0.2, -0.7])
        image = mix(image, flat(size, mortar) * (1 + 0.08 * grain)[..., None], gap)
        image *= stains(rng, size, 0.05)[..., None]
        y, _ = grid(size)
        plinth = y > 1 - 0.33 / FRONT_M
        image[plinth] = (vector((128, 123, 116)) * (1 + 0.07 * grain + 0.06 * noise(
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
        glass += fall ** 1.5 * vector((96, 116, 136))
        slant = np.add.outer(np.arange(rows), np.arange(columns)) / rows
        glass[((slant - rng.uniform(0, 0.4)) % 0.9) < 0.12] += 22
        drawn = rect(glass, 0, 0, 1, 1) if rng.random() < 0.15 else (
            rect(glass, 0, 0, 0.32, 1) if pane == 0 else rect(glass, 0.68, 0, 1, 1))
        folds = 1 + 0.12 * np.sin(np.linspace(0, 30, drawn.shape[1]))[None, :, None]
        drawn[...] = 0.45 * drawn + 0.5 * vector((206, 198, 184)) * folds
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
    """Paint stone slabs, worn and stained."""
    number, gap, bevel = tiles(rng, size, 4, 3, 0.5, 0.014)
    light = (1 + per_piece(rng, number, 0.075) + 0.1 * noise(rng, size, 0.9, low=12)
             + 0.06 * noise(rng, size, 2.2) + 0.35 * bevel)
    damp = ramp(noise(rng, size, 2.6), 0.9, 2.0)
    image = shaded((150, 146, 138), light * (1 - 0.55 * gap) * (1 - 0.16 * damp))
    image += per_piece(rng, number, 4)[..., None] * vector([1, 0.2, -1])
    pebbles = ramp(noise(rng, size, 0.0, low=40, high=160), 3.0, 3.4)
    return mix(image, (196, 192, 184), 0.6 * pebbles)


@fine
def drain(rng: Rng, size: int) -> np.ndarray:
    """Paint the cast iron cover of a drain."""
    y, x = grid(size)
    image = shaded((92, 88, 84), 1 + 0.08 * noise(rng, size, 1.0))
    slot = (np.abs(y * 6 % 1 - 0.5) < 0.2) & (np.abs(x % 0.5 - 0.25) < 0.19)
    image[slot] = (18, 18, 18)
    rim = np.maximum(np.abs(x - 0.5), np.abs(y - 0.5)) > 0.46
    image[rim] = image[rim] * 1.25
    return image


@fine
def crate(rng: Rng, size: int) -> np.ndarray:
    """Paint a wooden crate: boards, battens, nails, a stencilled label."""
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
        image = mix(image, shaded(wood, tone + 0.08 * grain),
                    ramp(-part, -wide - 0.003, -wide + 0.003))
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
    write(image, 'UP', 0.17, 0.85, 0.09, (0.45 * wood[0], 0.45 * wood[1], 0.45 * wood[2]))
    return image * stains(rng, size, 0.05)[..., None]


@fine
def trolley(rng: Rng, size: int) -> np.ndarray:
    """Paint the deck of a driverless trolley: hazard stripes, lamps, a bumper."""
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
    """Paint a delivery van from behind: doors, windows, lamps, lettering."""
    y, x = grid(size)
    curve = 1.04 - 0.1 * y - 0.22 * ramp(np.abs(x - 0.5), 0.4, 0.5) - 0.3 * ramp(-y, -0.035, 0)
    image = shaded((226, 228, 226), curve)
    for y0, y1, paint in ((0.6, 0.7, (214, 92, 38)), (0.705, 0.725, (38, 70, 118))):
        band = rect(image, 0, y0, 1, y1)
        band[...] = band / 226 * vector(paint)
    for x0, x1 in ((0.1, 0.475), (0.525, 0.9)):
        rect(image, x0 - 0.013, 0.1, x1 + 0.013, 0.5, (22, 24, 26))
        glass = rect(image, x0, 0.115, x1, 0.485, (40, 48, 56))
        rows, columns = glass.shape[:2]
        glass += np.linspace(1, 0, rows)[:, None, None] ** 1.4 * vector((96, 116, 134))
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
    """Paint a tyre from behind."""
    y, x = grid(size)
    light = 1 - 0.35 * (np.abs(x * 6 % 1 - 0.5) < 0.14) + 0.06 * noise(rng, size, 0.8)
    return shaded((46, 46, 48), light * (1.1 - 0.5 * y))


# -- the person ---------------------------------------------------------------------------------

WALK_STEPS = 12             # pictures of the cycle
CARD_M = (1.1, 1.84)        # width and height of the picture
STRIDE_M = 1.5              # walked in one cycle

_COAT: Rgb = (206, 134, 40)
_JEANS: Rgb = (56, 76, 118)
_SKIN: Rgb = (214, 164, 134)
_HAIR: Rgb = (62, 44, 32)
_SHOE: Rgb = (70, 48, 36)
_BAG: Rgb = (46, 88, 80)
Points = list[tuple[float, float]]


class _Canvas:
    """Rounded limbs in metres: feet at height 0, the body at x = 0."""

    def __init__(self, size: int):
        self.side = size * _FINE
        self.image = np.zeros((self.side, self.side, 3), np.float32)
        self.cover = np.zeros((self.side, self.side), np.uint8)

    def limb(self, points: Points, thick: tuple[float, float], paint: Rgb,
             dark: float = 1.0) -> None:
        """Tapering chain of points (x, height); light falls on it from the upper right."""
        across, up = self.side / CARD_M[0], self.side / CARD_M[1]
        chain = np.array(points)
        lengths = np.hypot(*np.diff(chain, axis=0).T)
        along = np.concatenate(([0], np.cumsum(lengths)))
        steps = np.linspace(0, along[-1], max(8, int(along[-1] / 0.012)))
        x, y = (np.interp(steps, along, chain[:, k]) for k in (0, 1))
        radius = np.interp(steps, (0, along[-1]), thick)
        for part, tone in ((1.0, 0.58), (0.86, 0.74), (0.7, 0.9), (0.5, 1.02), (0.28, 1.1)):
            colour = tuple(min(255.0, tone * dark * v) for v in paint)
            shift = (1 - part) * radius
            for px, py, r in zip(x + 0.5 * shift, y + 0.3 * shift, part * radius, strict=True):
                centre = (round((px + CARD_M[0] / 2) * across),
                          round(self.side - py * up))
                axes = (max(1, round(r * across)), max(1, round(r * up)))
                cv2.ellipse(self.image, centre, axes, 0, 0, 360, colour, -1)
                if part == 1.0:
                    cv2.ellipse(self.cover, centre, axes, 0, 0, 360, 255, -1)

    def finish(self, cloth: np.ndarray) -> np.ndarray:
        """RGBA float 0..255 at the wanted size."""
        size = self.side // _FINE
        solid = (self.cover > 0).astype(np.float32)
        soft = cv2.GaussianBlur(solid, (0, 0), 1.3)
        image = cv2.GaussianBlur(self.image, (0, 0), 1.3) / np.maximum(soft, 0.2)[..., None]
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
        cover = cv2.resize(self.cover, (size, size), interpolation=cv2.INTER_AREA)
        return np.dstack((np.clip(image * cloth[..., None], 0, 255), cover.astype(np.float32)))


def _leg(canvas: _Canvas, hip: float, phase: float, side: int, dark: float) -> None:
    swing = 0.4 * math.sin(phase) * side
    # The knee bends while the leg comes forward.
    bend = 0.08 + 0.75 * max(0.0, side * math.cos(phase + 0.25)) ** 2 * (
        1.0 if side * math.cos(phase) > 0 else 0.0)
    knee = (0.45 * math.sin(swing), hip - 0.45 * math.cos(swing))
    ankle = (knee[0] + 0.42 * math.sin(swing - bend), knee[1] - 0.42 * math.cos(swing - bend))
    tilt = 0.6 * (swing - bend)
    toe = (ankle[0] + 0.16 * math.cos(tilt), max(ankle[1] - 0.05 + 0.16 * math.sin(tilt), 0.045))
    canvas.limb([(0.0, hip), knee], (0.098, 0.07), _JEANS, dark)
    canvas.limb([knee, ankle], (0.07, 0.052), _JEANS, dark)
    canvas.limb([(ankle[0] - 0.02, max(ankle[1] - 0.03, 0.05)), toe], (0.055, 0.042), _SHOE, dark)


def _arm(canvas: _Canvas, shoulder: float, phase: float, side: int, dark: float) -> None:
    swing = -0.5 * math.sin(phase) * side
    elbow = (0.28 * math.sin(swing), shoulder - 0.06 - 0.28 * math.cos(swing))
    fold = swing + 0.35 + 0.2 * max(0.0, swing)
    hand = (elbow[0] + 0.24 * math.sin(fold), elbow[1] - 0.24 * math.cos(fold))
    canvas.limb([(0.0, shoulder - 0.05), elbow], (0.068, 0.055), _COAT, dark)
    canvas.limb([elbow, hand], (0.055, 0.044), _COAT, dark)
    canvas.limb([hand, (hand[0] + 0.025, hand[1] - 0.045)], (0.042, 0.034), _SKIN, dark)


def _head(canvas: _Canvas, shoulder: float) -> None:
    canvas.limb([(0.0, shoulder - 0.02), (0.02, shoulder + 0.1)], (0.06, 0.055), _SKIN, 0.85)
    canvas.limb([(-0.02, shoulder + 0.2), (-0.025, shoulder + 0.255)], (0.098, 0.1), _HAIR)
    canvas.limb([(0.035, shoulder + 0.15), (0.045, shoulder + 0.23)], (0.072, 0.078), _SKIN)
    canvas.limb([(0.112, shoulder + 0.185), (0.124, shoulder + 0.178)], (0.016, 0.014), _SKIN)
    canvas.limb([(-0.05, shoulder + 0.275), (0.06, shoulder + 0.305)], (0.072, 0.052), _HAIR)
    canvas.limb([(0.0, shoulder + 0.2), (0.0, shoulder + 0.215)], (0.02, 0.02), _SKIN, 0.8)
    canvas.limb([(0.085, shoulder + 0.222), (0.09, shoulder + 0.222)], (0.009, 0.009),
                (30, 26, 24))


def walk(rng: Rng, size: int) -> list[np.ndarray]:
    """Paint the walking cycle, (size, size, 4) float 0..255; opacity 0 is a hole."""
    cloth = 1 + 0.07 * noise(rng, size, 1.6, stretch=2)
    pictures = []
    for step in range(WALK_STEPS):
        canvas = _Canvas(size)
        phase = 2 * math.pi * step / WALK_STEPS
        bob = 0.016 * math.cos(2 * phase)
        hip, shoulder = 0.9 + bob, 1.44 + bob
        _arm(canvas, shoulder, phase, -1, 0.68)
        _leg(canvas, hip, phase, -1, 0.72)
        _leg(canvas, hip, phase, 1, 1.0)
        canvas.limb([(-0.17, hip + 0.2), (-0.19, shoulder - 0.1)], (0.115, 0.1), _BAG)
        canvas.limb([(-0.26, hip + 0.22), (-0.265, hip + 0.32)], (0.04, 0.04), _BAG, 0.8)
        canvas.limb([(0.0, hip + 0.02), (0.005, hip + 0.28), (0.0, shoulder - 0.07)],
                    (0.125, 0.148), _COAT)
        canvas.limb([(-0.03, shoulder - 0.06), (0.03, shoulder - 0.22), (-0.08, hip + 0.2)],
                    (0.02, 0.018), _BAG, 0.8)
        _head(canvas, shoulder)
        _arm(canvas, shoulder, phase, 1, 1.0)
        pictures.append(canvas.finish(cloth))
    return pictures


# -- all of them ---------------------------------------------------------------------------------

NAMES = ('left', 'right', 'paving', 'drain', 'crate', 'trolley', 'van', 'tyre', 'clouds')


def bank(door_z_m: float = 13.0, seed: int = 0, size: int = 512) -> TextureBank:
    """Paint all textures, ``size`` texels a side: `NAMES`, then the walking cycle.

    The doors of the house fronts are at ``door_z_m`` along the alley, where the person crosses.
    """
    door = (door_z_m + FRONT_M / 2) % FRONT_M
    painters = (house_front((168, 96, 72), (176, 166, 152), door),
                house_front((196, 174, 140), (176, 168, 154), FRONT_M - door),
                paving, drain, crate, trolley, van_rear, tyre, SCENERY['clouds'][0])
    pictures = [paint(np.random.default_rng((seed, number)), size)
                for number, paint in enumerate(painters)]
    people = walk(np.random.default_rng((seed, len(painters))), size)
    walking = tuple(range(len(pictures), len(pictures) + len(people)))
    groups = {name: (number,) for number, name in enumerate(NAMES)}
    return TextureBank(pack([to_bytes(p) for p in pictures + people]),
                       {**groups, 'walker': walking}, (walking,))

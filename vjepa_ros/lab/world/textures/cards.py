# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint what cards show: people, vehicles, plants, fences, clouds.

Each painter takes a generator and a size and returns (size, size, 4) float 0..255; where the
opacity is 0 the card has a hole.
"""

from __future__ import annotations

import math
from functools import partial

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.prints import colour, rect, write
from vjepa_ros.lab.world.textures.surfaces import (
    Painter,
    Rgb,
    Rng,
    flat,
    grid,
    leaves,
    mix,
    noise,
    pick,
    ramp,
    shaded,
    vector,
    warm_grey,
)

PERSON_ASPECT = 0.6   # width of a person's card over its height
WALK_STEPS = 8        # pictures of one walking cycle
_FINE = 3             # painted larger, then averaged

Points = list[tuple[float, float]]


class _Figure:
    """Canvas in metres: a person of 1.8 m, feet at 0, middle at x = 0."""

    def __init__(self, size: int):
        self.size = size * _FINE
        self.image = np.zeros((self.size, self.size, 3), np.float32)
        self.cover = np.zeros((self.size, self.size), np.uint8)
        self.high = 1.86
        self.wide = self.high * PERSON_ASPECT

    def _at(self, x: float, y: float) -> tuple[int, int]:
        return (round((x / self.wide + 0.5) * self.size), round((1 - y / self.high) * self.size))

    def limb(self, points: Points, thick: tuple[float, float], paint: Rgb) -> None:
        """Paint a rounded, tapering chain, darker towards its left edge."""
        ax, ay = self.size / self.wide, self.size / self.high
        for part, share in ((1.0, 0.72), (0.8, 0.9), (0.55, 1.04)):
            tone = tuple(share * c for c in paint)
            for i in range(len(points) - 1):
                for s in np.linspace(0, 1, 24):
                    x = points[i][0] + (points[i + 1][0] - points[i][0]) * s
                    y = points[i][1] + (points[i + 1][1] - points[i][1]) * s
                    along = (i + s) / (len(points) - 1)
                    r = thick[0] + (thick[1] - thick[0]) * along
                    centre = self._at(x + 0.35 * r * (1 - part), y)
                    axes = (max(1, round(part * r * ax)), max(1, round(part * r * ay)))
                    cv2.ellipse(self.image, centre, axes, 0, 0, 360, tone, -1)
                    if part == 1.0:
                        cv2.ellipse(self.cover, centre, axes, 0, 0, 360, 255, -1)

    def finish(self, rng: Rng, light: np.ndarray) -> np.ndarray:
        size = self.size // _FINE
        image = cv2.GaussianBlur(self.image, (0, 0), 1.2 * _FINE)
        share = cv2.GaussianBlur((self.cover > 0).astype(np.float32), (0, 0), 1.2 * _FINE)
        image /= np.maximum(share, 0.05)[..., None]
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
        cover = cv2.resize(self.cover, (size, size), interpolation=cv2.INTER_AREA)
        return np.dstack((np.clip(image * light[..., None], 0, 255), cover.astype(np.float32)))


class _Looks:
    def __init__(self, rng: Rng, size: int):
        self.top, self.legs = colour(rng, 25, 220), colour(rng, 20, 150)
        self.skin = pick(rng, (214, 166, 138), (190, 140, 110), (140, 98, 74), (104, 72, 56))
        self.hair = pick(rng, (52, 40, 32), (36, 32, 30), (140, 108, 70), (150, 146, 142))
        self.shoes = pick(rng, (40, 36, 34), (90, 70, 54), (200, 198, 192))
        self.stout = rng.uniform(0.88, 1.2)
        self.long_coat, self.bag = rng.random() < 0.3, rng.random() < 0.35
        self.long_hair = rng.random() < 0.35
        self.bag_colour = colour(rng, 30, 150)
        folds = noise(rng, size, 2.2, stretch=2)
        self.light = 1 + 0.1 * folds + 0.05 * noise(rng, size, 0.8)


def _head(f: _Figure, look: _Looks, x: float, top: float, behind: bool) -> None:
    """Neck, head and hair; ``top`` is the height of the crown."""
    f.limb([(x, top - 0.34), (x, top - 0.22)], (0.06, 0.055), look.skin)
    f.limb([(x, top - 0.17), (x, top - 0.115)], (0.07, 0.088), look.skin)
    if behind:
        f.limb([(x, top - 0.16), (x, top - 0.1)], (0.078, 0.096), look.hair)
    else:
        # A cap of hair that leaves the face free.
        f.limb([(x - 0.055, top - 0.11), (x - 0.03, top - 0.05), (x + 0.03, top - 0.045),
                (x + 0.055, top - 0.1)], (0.036, 0.036), look.hair)
    if look.long_hair:
        for side in (-1, 1) if not behind else (-1, 0, 1):
            f.limb([(x + 0.07 * side, top - 0.1), (x + 0.08 * side, top - 0.3)], (0.035, 0.03),
                   look.hair)


def person(rng: Rng, size: int) -> np.ndarray:
    """Standing or walking towards or away from the camera."""
    f, look = _Figure(size), _Looks(rng, size)
    behind = rng.random() < 0.5
    stride, apart = rng.uniform(0, 0.12), rng.uniform(0.06, 0.13)
    w = look.stout
    for side in (-1, 1):
        lift = stride * (side > 0)
        f.limb([(0.08 * side, 0.92), (apart * side, 0.5 + 0.4 * lift), (apart * side, 0.1 + lift)],
               (0.1 * w, 0.06), look.legs)
        f.limb([(apart * side, 0.07 + lift), (1.25 * apart * side, 0.05 + lift)], (0.055, 0.05),
               look.shoes)
    for side in (-1, 1):
        bend = rng.uniform(0, 0.16)
        f.limb([(0.2 * w * side, 1.42), (0.27 * w * side, 1.14), (0.25 * w * side, 0.9 + bend)],
               (0.062 * w, 0.048), look.top)
        f.limb([(0.25 * w * side, 0.86 + bend), (0.25 * w * side, 0.82 + bend)], (0.045, 0.04),
               look.skin)
    low = 0.62 if look.long_coat else 0.95
    f.limb([(0, low), (0, 1.15), (0, 1.36)], (0.15 * w, 0.19 * w), look.top)
    f.limb([(-0.13 * w, 1.43), (0.13 * w, 1.43)], (0.075, 0.075), look.top)
    if look.bag and behind:
        f.limb([(0, 1.08), (0, 1.34)], (0.15, 0.14), look.bag_colour)
    _head(f, look, 0, 1.81, behind)
    return f.finish(rng, look.light)


def walk(rng: Rng, size: int) -> list[np.ndarray]:
    look = _Looks(rng, size)
    pace = rng.uniform(0.8, 1.1)
    pictures = []
    for step in range(WALK_STEPS):
        f = _Figure(size)
        phase = 2 * math.pi * step / WALK_STEPS
        bob = 0.015 * math.cos(2 * phase)
        hip, shoulder = 0.93 + bob, 1.42 + bob

        def side_limbs(side: int, shade: float, f: _Figure = f, phase: float = phase,
                       hip: float = hip, shoulder: float = shoulder) -> None:
            def dark(paint: Rgb) -> Rgb:
                return (paint[0] * shade, paint[1] * shade, paint[2] * shade)

            swing = 0.4 * pace * math.sin(phase) * side
            bend = 0.55 * max(0.0, -side * math.sin(phase + 0.1 * math.pi))
            knee = (0.44 * math.sin(swing), hip - 0.44 * math.cos(swing))
            foot = (knee[0] + 0.42 * math.sin(swing - bend),
                    knee[1] - 0.42 * math.cos(swing - bend))
            f.limb([(0, hip), knee, foot], (0.095 * look.stout, 0.055), dark(look.legs))
            f.limb([foot, (foot[0] + 0.13, max(foot[1] - 0.03, 0.05))], (0.05, 0.042),
                   dark(look.shoes))
            arm = -0.55 * pace * math.sin(phase) * side
            elbow = (0.28 * math.sin(arm), shoulder - 0.03 - 0.28 * math.cos(arm))
            hand = (elbow[0] + 0.25 * math.sin(arm + 0.45), elbow[1] - 0.25 * math.cos(arm + 0.45))
            f.limb([(0, shoulder - 0.04), elbow, hand], (0.062, 0.046), dark(look.top))
            f.limb([hand, (hand[0] + 0.02, hand[1] - 0.03)], (0.043, 0.036), dark(look.skin))

        side_limbs(-1, 0.7)
        low = hip - 0.28 if look.long_coat else hip + 0.02
        f.limb([(0, low), (0, 1.15), (0.01, shoulder - 0.06)],
               (0.125 * look.stout, 0.145 * look.stout), look.top)
        if look.bag:
            f.limb([(-0.17, 1.1 + bob), (-0.18, 1.34 + bob)], (0.1, 0.09), look.bag_colour)
        _head(f, look, 0.02, 1.81 + bob, False)
        side_limbs(1, 1.0)
        pictures.append(f.finish(rng, look.light))
    return pictures


_DARK: Rgb = (26, 27, 29)


def _cover(size: int, parts: list[Points]) -> np.ndarray:
    """Opacity 0..1 of polygons (x, y in 0..1)."""
    fine = np.zeros((4 * size, 4 * size), np.uint8)
    for points in parts:
        cv2.fillPoly(fine, [np.round(np.array(points) * 4 * size).astype(np.int32)], 255)
    return cv2.resize(fine, (size, size), interpolation=cv2.INTER_AREA) / np.float32(255)


def _lay(image: np.ndarray, share: np.ndarray, paint: np.ndarray | Rgb) -> None:
    image += share[..., None] * (vector(paint) - image)


def _body_paint(rng: Rng, size: int) -> np.ndarray:
    """Lacquer: light from above, a dark mirror of the ground below the shoulder line."""
    y, x = grid(size)
    image = flat(size, warm_grey(rng, 185, 235, 0.02))
    light = 1.08 - 0.28 * y + 0.1 * ramp(-np.abs(y - 0.47), -0.05, 0)
    light -= 0.18 * ramp(y, 0.62, 0.8) + 0.5 * (np.abs(x - 0.5) - 0.3).clip(0) * 0.8
    return image * (light + 0.02 * noise(rng, size, 3))[..., None]


def _glass(rng: Rng, size: int) -> np.ndarray:
    y, _ = grid(size)
    mirror = ramp(noise(rng, size, 3.2) + 2 - 4 * y, -0.5, 1.5)
    return flat(size, (34, 40, 44)) + mirror[..., None] * vector([88, 98, 108])


def _end(rng: Rng, size: int, front: bool) -> np.ndarray:
    tall = rng.random() < 0.3    # van or lorry
    low = 0.86
    top = 0.02
    shoulder = rng.uniform(0.3, 0.36) if tall else rng.uniform(0.38, 0.46)
    narrow = 0.42 if tall else rng.uniform(0.27, 0.34)
    widest = 0.16 if tall else shoulder
    right = [(0.5 + narrow, top), (0.5 + narrow + 0.035, top + 0.04), (0.925, widest - 0.04),
             (0.975, widest + 0.03), (0.985, low - 0.12), (0.965, low)]
    hull = [*right, *[(1 - x, y) for x, y in reversed(right)]]
    image = _body_paint(rng, size)
    wheels = [[(x0, 0.75), (x0 + 0.15, 0.75), (x0 + 0.15, 0.995), (x0, 0.995)]
              for x0 in (0.06, 0.79)]
    cover = _cover(size, [hull])
    # Under the body: wheels and the dark between them.
    tyres = _cover(size, wheels)
    gap = _cover(size, [[(0.1, 0.8), (0.9, 0.8), (0.9, 0.93), (0.1, 0.93)]])
    _lay(image, (1 - cover) * np.maximum(tyres, gap), _DARK)
    inset = 0.045
    pane = [(0.5 - narrow + inset, top + 0.06), (0.5 + narrow - inset, top + 0.06),
            (0.5 + narrow + (0.0 if tall else 0.05) - inset / 2, shoulder),
            (0.5 - narrow - (0.0 if tall else 0.05) + inset / 2, shoulder)]
    _lay(image, _cover(size, [pane]), _glass(rng, size))
    if front:
        _lay(image, _cover(size, [[(0.3, 0.6), (0.7, 0.6), (0.66, 0.7), (0.34, 0.7)]]), _DARK)
        lamp: Rgb = (240, 240, 232)
    else:
        lamp = pick(rng, (190, 26, 26), (150, 20, 22), (226, 54, 44))
        for x in (0.5 - 0.004, 0.5 + 0.004) if tall else ():
            rect(image, x - 0.004, top + 0.04, x + 0.004, 0.8, (60, 62, 64))
    high = rng.uniform(0.48, 0.54)
    if not front and rng.random() < 0.4:
        lamps = [[(0.035, 0.42), (0.1, 0.42), (0.11, 0.64), (0.03, 0.64)]]
    else:
        lamps = [[(0.035, high), (0.25, high + 0.02), (0.24, high + 0.1), (0.03, high + 0.1)]]
    lamps += [[(1 - x, y) for x, y in part] for part in lamps]
    _lay(image, _cover(size, lamps), lamp)
    _lay(image, 0.6 * _cover(size, [[(x + 0.02 * (0.5 - x), y * 0.35 + 0.65 * (high + 0.03))
                                     for x, y in part] for part in lamps]),
         np.minimum(255.0, 1.25 * vector(lamp) + 20))
    bumper = pick(rng, (48, 49, 52), (48, 49, 52), (150, 150, 150))
    _lay(image, 0.85 * cover * ramp(grid(size)[0], 0.745, 0.755), bumper)
    plate_y = 0.66 if not front else 0.755
    plate = rect(image, 0.39, plate_y, 0.61, plate_y + 0.065,
                 pick(rng, (236, 234, 226), (232, 212, 120)))
    write(plate, f'{chr(65 + int(rng.integers(26)))}{int(rng.integers(100, 999))}', 0.15, 0.85,
          0.75, (30, 30, 34))
    edge = cv2.GaussianBlur(cover, (0, 0), size / 60)
    image *= (0.55 + 0.45 * ramp(edge, 0.5, 1.0))[..., None] ** (cover[..., None] > 0.5)
    dirt = 0.08 * noise(rng, size, 1.8) * grid(size)[0]
    image *= (1 + dirt)[..., None]
    return np.dstack((image, 255 * np.maximum(cover, np.maximum(tyres, gap))))


def car_side(rng: Rng, size: int) -> np.ndarray:
    """Car or van from the side, about three times as long as it is high."""
    style = int(rng.integers(3))
    sill, belt = 0.84, 0.42
    if style == 0:    # saloon
        hull = [(0.01, 0.6), (0.03, 0.5), (0.24, belt), (0.36, 0.06), (0.45, 0.02), (0.68, 0.03),
                (0.85, belt - 0.02), (0.98, 0.46), (0.995, 0.6), (0.99, sill), (0.01, sill)]
        panes = [[(0.28, belt), (0.375, 0.11), (0.5, 0.08), (0.5, belt)],
                 [(0.515, belt), (0.515, 0.08), (0.66, 0.09), (0.77, belt)]]
    elif style == 1:  # hatchback
        hull = [(0.01, 0.62), (0.02, 0.5), (0.2, 0.4), (0.34, 0.05), (0.42, 0.02), (0.86, 0.04),
                (0.96, 0.34), (0.99, 0.5), (0.99, sill), (0.01, sill)]
        panes = [[(0.25, 0.4), (0.355, 0.1), (0.53, 0.08), (0.53, 0.4)],
                 [(0.55, 0.4), (0.55, 0.08), (0.74, 0.09), (0.78, 0.4)],
                 [(0.8, 0.4), (0.77, 0.1), (0.86, 0.1), (0.93, 0.36)]]
    else:             # van
        hull = [(0.01, 0.6), (0.03, 0.45), (0.14, 0.36), (0.24, 0.04), (0.3, 0.015), (0.97, 0.015),
                (0.99, 0.05), (0.995, sill), (0.01, sill)]
        panes = [[(0.18, 0.36), (0.265, 0.1), (0.38, 0.1), (0.38, 0.38)]]
    image = _body_paint(rng, size)
    cover = _cover(size, [hull])
    _lay(image, _cover(size, panes), _glass(rng, size))
    for x in (0.4, 0.62) if style < 2 else (0.4, 0.6):
        rect(image, x, 0.42, x + 0.006, sill - 0.06)[...] *= 0.6
        rect(image, x + 0.03, 0.5, x + 0.075, 0.525)[...] *= 0.6
    if style == 2 and rng.random() < 0.6:
        write(image, str(rng.choice(('VANS', 'POST', 'FRUIT'))), 0.48, 0.36, 0.13,
              pick(rng, (190, 40, 36), (36, 70, 130), (40, 40, 44)))
    _lay(image, cover * ramp(grid(size)[0], 0.765, 0.785), (54, 55, 58))
    _lay(image, _cover(size, [[(0.01, 0.5), (0.06, 0.49), (0.05, 0.58), (0.01, 0.58)]]),
         (236, 234, 220))
    _lay(image, _cover(size, [[(0.955, 0.45), (0.995, 0.46), (0.995, 0.57), (0.97, 0.57)]]),
         (180, 28, 28))
    y, x = grid(size)
    shown = cover.copy()
    for middle in (rng.uniform(0.18, 0.2), rng.uniform(0.79, 0.82)):
        # The card is about three times as wide as high, so wheels are narrow ellipses here.
        r = np.hypot((x - middle) / 0.078, (y - 0.79) / 0.205)
        _lay(image, ramp(-r, -1.16, -1.1) * cover, (20, 20, 22))
        _lay(image, ramp(-r, -1.02, -0.97), (34, 34, 36))
        _lay(image, ramp(-r, -0.66, -0.61), warm_grey(rng, 130, 180))
        spokes = 0.5 + 0.5 * np.cos(5 * np.arctan2((y - 0.79) / 0.205, (x - middle) / 0.078))
        _lay(image, ramp(-r, -0.6, -0.55) * (spokes > 0.55), (60, 60, 62))
        shown = np.maximum(shown, ramp(-r, -1.02, -0.97))
    image *= (1 + 0.06 * noise(rng, size, 2) * y)[..., None]
    return np.dstack((image, 255 * shown))


def _crown(rng: Rng, size: int, blobs: list[tuple[float, float, float]]) -> np.ndarray:
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
        image = 0.75 * tone + 0.25 * vector([170, 182, 196])
    return np.dstack((image, 255 * solid))


def clouds(rng: Rng, size: int) -> np.ndarray:
    field = noise(rng, size, rng.uniform(2.4, 3.2))
    low = rng.uniform(-1.0, 0.8)
    cover = ramp(field, low, low + rng.uniform(0.8, 2.0))
    light = 1 - 0.12 * ramp(field, 0.5, 2.5) + 0.02 * noise(rng, size, 1.5)
    return np.dstack((shaded((240, 240, 243), light), 255 * cover * rng.uniform(0.6, 1.0)))


def overcast(rng: Rng, size: int) -> np.ndarray:
    light = 1 + 0.07 * noise(rng, size, 2.8)
    return np.dstack((shaded(warm_grey(rng, 190, 225, 0.02), light), np.full((size, size), 235.0)))


CARDS: dict[str, tuple[Painter, ...]] = {
    'person': (person,), 'car_rear': (partial(_end, front=False),),
    'car_front': (partial(_end, front=True),), 'car_side': (car_side,), 'tree': (tree,),
    'bush': (bush,), 'fence': (fence,), 'hills': (hills,), 'clouds': (clouds, overcast)}

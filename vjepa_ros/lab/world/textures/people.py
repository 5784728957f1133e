# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint people for cards: standing, and the pictures of a walking cycle.

Each painter gives (size, size, 4) float 0..255; opacity 0 is a hole. The picture fills its
square; scenes choose the size of the card in metres.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.noise import Rgb, Rng, noise, pick
from vjepa_ros.lab.world.textures.prints import colour

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
        """Rounded, tapering chain; darker towards its left edge."""
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
    """Colours and build of one person."""

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
    """Pictures of one walking cycle, seen from the side, to the right."""
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
            hand = (elbow[0] + 0.25 * math.sin(arm + 0.45),
                    elbow[1] - 0.25 * math.cos(arm + 0.45))
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

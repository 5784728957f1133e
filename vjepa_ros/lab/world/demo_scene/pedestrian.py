# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint a person who walks to the right, picture by picture of one walking cycle."""

from __future__ import annotations

import math

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.noise import Rgb, Rng, noise

WALK_STEPS = 12             # pictures of the cycle
CARD_M = (1.1, 1.84)        # width and height of the picture
STRIDE_M = 1.5              # walked in one cycle

_FINE = 2                   # painted larger, then averaged
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
    """(size, size, 4) float 0..255 pictures of the walking cycle; opacity 0 is a hole."""
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

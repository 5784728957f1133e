# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint vehicles for cards: cars and vans from behind, from the front and from the side.

Each painter gives (size, size, 4) float 0..255; opacity 0 is a hole. The wheels stand on the
lower edge.
"""

from __future__ import annotations

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.noise import Rgb, Rng, flat, grid, noise, pick, ramp, warm_grey
from vjepa_ros.lab.world.textures.prints import rect, write

Points = list[tuple[float, float]]
_DARK: Rgb = (26, 27, 29)


def _cover(size: int, parts: list[Points]) -> np.ndarray:
    """Opacity 0..1 of polygons (x, y in 0..1)."""
    fine = np.zeros((4 * size, 4 * size), np.uint8)
    for points in parts:
        cv2.fillPoly(fine, [np.round(np.array(points) * 4 * size).astype(np.int32)], 255)
    return cv2.resize(fine, (size, size), interpolation=cv2.INTER_AREA) / np.float32(255)


def _lay(image: np.ndarray, share: np.ndarray, paint: np.ndarray | Rgb) -> None:
    image += share[..., None] * (np.float32(paint) - image)


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
    return flat(size, (34, 40, 44)) + mirror[..., None] * np.float32([88, 98, 108])


def _hull(top: float, shoulder: float, narrow: float, low: float) -> Points:
    """Outline of a car seen along its axis, symmetric."""
    right = [(0.5 + narrow, top), (0.5 + narrow + 0.035, top + 0.04), (0.925, shoulder - 0.04),
             (0.975, shoulder + 0.03), (0.985, low - 0.12), (0.965, low)]
    return [*right, *[(1 - x, y) for x, y in reversed(right)]]


def _end(rng: Rng, size: int, front: bool) -> np.ndarray:
    """A vehicle along its axis."""
    tall = rng.random() < 0.3    # van or lorry
    low = 0.86
    top = 0.02
    shoulder = rng.uniform(0.3, 0.36) if tall else rng.uniform(0.38, 0.46)
    narrow = 0.42 if tall else rng.uniform(0.27, 0.34)
    hull = _hull(top, 0.16 if tall else shoulder, narrow, low)
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
         tuple(min(255.0, 1.25 * c + 20) for c in lamp))
    bumper = pick(rng, (48, 49, 52), (48, 49, 52), (150, 150, 150))
    _lay(image, 0.85 * cover * ramp(grid(size)[0], 0.745, 0.755), bumper)
    plate_y = 0.66 if not front else 0.755
    plate = rect(image, 0.39, plate_y, 0.61, plate_y + 0.065, pick(rng, (236, 234, 226),
                                                                     (232, 212, 120)))
    write(plate, f'{chr(65 + int(rng.integers(26)))}{int(rng.integers(100, 999))}', 0.15, 0.85,
          0.75, (30, 30, 34))
    edge = cv2.GaussianBlur(cover, (0, 0), size / 60)
    image *= (0.55 + 0.45 * ramp(edge, 0.5, 1.0))[..., None] ** (cover[..., None] > 0.5)
    dirt = 0.08 * noise(rng, size, 1.8) * grid(size)[0]
    image *= (1 + dirt)[..., None]
    return np.dstack((image, 255 * np.maximum(cover, np.maximum(tyres, gap))))


def car_rear(rng: Rng, size: int) -> np.ndarray:
    return _end(rng, size, False)


def car_front(rng: Rng, size: int) -> np.ndarray:
    return _end(rng, size, True)


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


VEHICLES = {'car_rear': (car_rear,), 'car_front': (car_front,), 'car_side': (car_side,)}

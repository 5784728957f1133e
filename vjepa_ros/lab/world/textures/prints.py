# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Paint flat things that fill a whole face: posters, doors, windows, shelves, house fronts.

Each painter gives (size, size, 3) float 0..255, rows from top to bottom.
"""

from __future__ import annotations

import colorsys

import cv2
import numpy as np

from vjepa_ros.lab.world.textures.surfaces import (
    Painter,
    Rgb,
    Rng,
    asphalt,
    bricks,
    concrete,
    flat,
    grid,
    mix,
    noise,
    paint_coat,
    pick,
    plaster,
    ramp,
    shaded,
    stains,
    vector,
    warm_grey,
    wood,
)

_WORDS = ('SALE', 'EXIT', 'CARGO', 'ROBOT', 'OPEN', 'STOP', 'FRAGILE', 'COFFEE', 'PARCEL',
          'CAUTION', 'MARKET', 'UP', 'BOOKS', 'GREEN', 'No 7', '24', 'HALL B', 'FRESH')


# Hues (parts of a turn) that things often have: red, orange, yellow, green, blue.
_HUES = (0.0, 0.03, 0.07, 0.1, 0.14, 0.3, 0.38, 0.52, 0.58, 0.62)


def colour(rng: Rng, low: float = 30, high: float = 235) -> Rgb:
    """Draw a colour as things have it: many greys, few glaring; brightest part low..high."""
    hue = float(rng.choice(_HUES)) + rng.normal(0, 0.03)
    strength = rng.beta(1.0, 2.2) if rng.random() < 0.8 else rng.uniform(0.6, 0.95)
    value = rng.uniform(low, high)
    r, g, b = colorsys.hsv_to_rgb(hue % 1, strength, value)
    return (r, g, b)


def rect(image: np.ndarray, x0: float, y0: float, x1: float, y1: float,
         paint: Rgb | None = None) -> np.ndarray:
    """View of a part given in parts of the image, filled with a colour."""
    rows, columns = image.shape[:2]
    view = image[max(0, round(y0 * rows)):round(y1 * rows),
                 max(0, round(x0 * columns)):round(x1 * columns)]
    if paint is not None:
        view[..., :3] = paint
    return view


def write(image: np.ndarray, text: str, x: float, y: float, height: float, paint: Rgb) -> None:
    """Letters with their lower left corner at x, y; all in parts of the image."""
    rows, columns = image.shape[:2]
    ink = np.zeros((rows, columns), np.uint8)
    scale = height * rows / 22
    cv2.putText(ink, text, (round(x * columns), round(y * rows)), cv2.FONT_HERSHEY_DUPLEX, scale,
                255, max(1, round(2.2 * scale)), cv2.LINE_AA)
    image[..., :3] = mix(image[..., :3], paint, ink / np.float32(255))


def poster(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    image = mix(flat(size, colour(rng)), colour(rng), y if rng.random() < 0.5 else x * y)
    if rng.random() < 0.5:  # something like a photograph
        part = rect(image, 0.08, 0.08, 0.92, rng.uniform(0.5, 0.75))
        tone = noise(rng, size, 2.2)[:part.shape[0], :part.shape[1]]
        part[...] = mix(np.broadcast_to(vector(colour(rng)), part.shape), colour(rng),
                        0.5 + 0.35 * tone)
    canvas = np.ascontiguousarray(image)
    for _ in range(int(rng.integers(1, 7))):
        centre = tuple(int(v) for v in rng.uniform(0.1, 0.9, 2) * size)
        radius = int(rng.uniform(0.03, 0.22) * size)
        if rng.random() < 0.5:
            cv2.circle(canvas, centre, radius, colour(rng), -1, cv2.LINE_AA)
        else:
            corner = (centre[0] + radius, centre[1] + int(radius * rng.uniform(0.3, 2)))
            cv2.rectangle(canvas, centre, corner, colour(rng), -1)
    for _ in range(int(rng.integers(1, 4))):
        write(canvas, str(rng.choice(_WORDS)), rng.uniform(0.04, 0.4), rng.uniform(0.2, 0.95),
              rng.uniform(0.08, 0.2), colour(rng))
    for line in range(int(rng.integers(0, 6))):
        rect(canvas, 0.1, 0.8 + 0.03 * line, rng.uniform(0.5, 0.9), 0.81 + 0.03 * line,
             (40, 40, 44))
    return canvas


def carton(rng: Rng, size: int) -> np.ndarray:
    y, _ = grid(size)
    ribs = 0.02 * np.sin(2 * np.pi * 60 * y)
    image = shaded(pick(rng, (188, 148, 104), (172, 132, 90), (204, 168, 124), (214, 206, 196)),
                   1 + ribs + 0.03 * noise(rng, size, 1) + 0.05 * noise(rng, size, 3))
    tape = rng.uniform(0.42, 0.5)
    rect(image, tape, 0, tape + 0.12, 1)[...] *= vector([1.1, 1.06, 0.98])
    x, top = rng.uniform(0.06, 0.55), rng.uniform(0.1, 0.6)
    rect(image, x, top, x + 0.34, top + 0.26, (236, 234, 228))
    for bar in range(16):
        if rng.random() < 0.6:
            rect(image, x + 0.03 + 0.017 * bar, top + 0.13, x + 0.04 + 0.017 * bar, top + 0.22,
                 (32, 32, 34))
    write(image, str(rng.choice(_WORDS)), x + 0.03, top + 0.1, 0.06, (48, 44, 44))
    write(image, str(rng.choice(_WORDS)), 0.08, 0.92, 0.1, colour(rng, 20, 120))
    rect(image, 0, 0, 1, 0.015)[...] *= 0.6
    rect(image, 0, 0.985, 1, 1)[...] *= 0.55
    return image


def crate(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    count = int(rng.integers(4, 8))
    board = np.floor(y * count)
    shade = (1 + 0.1 * rng.standard_normal(count + 1))[board.astype(int)]
    light = shade * (1 + 0.08 * noise(rng, size, 1.8, stretch=30)) * (
        1 - 0.55 * (y * count % 1 < 0.05))
    wood_colour = pick(rng, (186, 142, 92), (170, 126, 84), (202, 168, 122))
    image = shaded(wood_colour, light)
    edge = np.minimum(np.minimum(x, 1 - x), np.minimum(y, 1 - y))
    brace = np.abs(x - y) / 1.41 if rng.random() < 0.7 else np.ones_like(x)
    part = np.minimum(edge, brace)
    image *= (1 - 0.45 * ramp(-part, -0.15, -0.1))[..., None]
    frame = shaded(wood_colour, 1.08 + 0.08 * noise(rng, size, 1.6))
    image = mix(image, frame, ramp(-part, -0.105, -0.095))
    for ny in (0.05, 0.5, 0.95):
        for nx in (0.05, 0.95):
            cv2.circle(image, (round(nx * size), round(ny * size)), max(1, size // 100),
                       (60, 54, 50), -1, cv2.LINE_AA)
    return image


def hazard(rng: Rng, size: int) -> np.ndarray:
    y, x = grid(size)
    image = flat(size, colour(rng, 60, 220))
    image *= (1.05 - 0.2 * y)[..., None]
    low = rng.uniform(0.1, 0.7)
    band = (y > low) & (y < low + rng.uniform(0.1, 0.25))
    stripe = ramp(np.sin(2 * np.pi * 4 * (x + y)), -0.05, 0.05)
    stripes = mix(flat(size, (28, 28, 30)), (232, 186, 40), stripe)
    image[band] = stripes[band]
    for _ in range(int(rng.integers(1, 5))):
        nx, ny, w, h = rng.uniform(0.05, 0.7), rng.uniform(0.05, 0.8), *rng.uniform(0.08, 0.3, 2)
        part = rect(image, nx, ny, nx + w, ny + h, colour(rng, 30, 150))
        part[:2], part[-2:] = 0.6 * part[:2], 1.2 * part[-2:]
    for nx in (0.1, 0.9):
        cv2.circle(image, (round(nx * size), round(0.9 * size)), size // 18, (244, 236, 208), -1,
                   cv2.LINE_AA)
    write(image, str(rng.choice(_WORDS)), 0.12, 0.32, 0.12, (238, 236, 230))
    return image * stains(rng, size, 0.03)[..., None]


def shelf(rng: Rng, size: int) -> np.ndarray:
    image = flat(size, (30, 27, 25))
    floors = int(rng.integers(3, 6))
    frame = warm_grey(rng, 90, 220)
    bookish = rng.random() < 0.5
    for floor in range(floors):
        base = (floor + 1) / floors - 0.02
        top = floor / floors + 0.02
        x = 0.03
        while x < 0.95:
            width = rng.uniform(0.012, 0.04) if bookish else rng.uniform(0.05, 0.16)
            height = (base - top) * rng.uniform(0.55, 0.95)
            if rng.random() < 0.94:
                item = rect(image, x, base - height, min(x + width, 0.97), base,
                            colour(rng, 40, 225))
                if item.size:
                    item *= np.linspace(1.05, 0.75, item.shape[1])[None, :, None]
                    rect(item, 0.15, 0.25, 0.85, rng.uniform(0.35, 0.5), colour(rng, 80, 240))
            x += width + 0.004
        rect(image, 0, base, 1, base + 0.025, frame)
        rect(image, 0, base + 0.025, 1, base + 0.045)[...] *= 0.6
    rect(image, 0, 0, 0.025, 1, frame)
    rect(image, 0.975, 0, 1, 1, frame)
    return image * (1 + 0.04 * noise(rng, size, 1.4))[..., None]


def door(rng: Rng, size: int) -> np.ndarray:
    leaf = (wood if rng.random() < 0.5 else paint_coat)(rng, size)
    leaf *= vector(colour(rng, 150, 255)) / 255
    for x0, x1 in ((0.14, 0.46), (0.54, 0.86)) if rng.random() < 0.6 else ((0.16, 0.84),):
        for y0, y1 in ((0.08, 0.42), (0.52, 0.92)):
            rect(leaf, x0, y0, x1, y1)[...] *= 0.8
            rect(leaf, x0 + 0.02, y0 + 0.015, x1, y1)[...] *= 1.2
    if rng.random() < 0.4:
        glass = rect(leaf, 0.25, 0.1, 0.75, 0.4, (92, 106, 112))
        glass += np.linspace(60, 0, glass.shape[0])[:, None, None]
    rect(leaf, 0.86, 0.5, 0.93, 0.57, (70, 70, 72))
    rect(leaf, 0.78, 0.52, 0.92, 0.54, (196, 194, 186))
    for x0, x1 in ((0, 0.04), (0.96, 1)):
        rect(leaf, x0, 0, x1, 1)[...] *= 0.7
    rect(leaf, 0, 0, 1, 0.02)[...] *= 0.7
    rect(leaf, 0.04, 0.9, 0.96, 1)[...] *= 0.85
    return leaf


def window(rng: Rng, size: int) -> np.ndarray:
    y, _ = grid(size)
    view = mix(flat(size, (232, 238, 244)), (196, 216, 238), 1 - y)
    tone = 0.5 * noise(rng, size, 2.4)
    line = rng.uniform(0.45, 0.7) + 0.06 * noise(rng, size, 2.5, stretch=0.02)
    below = mix(flat(size, (150, 162, 136)), (110, 128, 96), 0.5 + tone)
    view = mix(view, below, ramp(y - line, -0.02, 0.02))
    panes = int(rng.integers(1, 4))
    frame = warm_grey(rng, 150, 240)
    for i in range(panes + 1):
        at = i / panes
        rect(view, at - 0.025, 0, at + 0.025, 1, frame)
    for at in (0, 0.5 if rng.random() < 0.4 else 1, 1):
        rect(view, 0, at - 0.025, 1, at + 0.025, frame)
    if rng.random() < 0.35:  # blind
        shut = y < rng.uniform(0.2, 0.7)
        slats = 1 - 0.25 * (y * 40 % 1 < 0.3)
        view[shut] = (shaded(warm_grey(rng, 190, 230), slats))[shut]
    return view


def facade(rng: Rng, size: int) -> np.ndarray:
    """House front, repeats: windows with sills on a wall."""
    base = (bricks, plaster, concrete, paint_coat)[int(rng.integers(4))](rng, size)
    image = base * (vector(colour(rng, 190, 255)) / 240 if rng.random() < 0.5 else 1)
    rows, columns = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    width, height = rng.uniform(0.35, 0.7), rng.uniform(0.45, 0.7)
    frame = warm_grey(rng, 90, 235)
    for row in range(rows):
        for column in range(columns):
            x, y = (column + 0.5) / columns, (row + 0.5) / rows
            w, h = width / columns / 2, height / rows / 2
            rect(image, x - w - 0.008, y + h, x + w + 0.008, y + h + 0.02, frame)
            rect(image, x - w, y + h + 0.02, x + w, y + h + 0.04)[...] *= 0.65
            rect(image, x - w - 0.008, y - h - 0.01, x + w + 0.008, y + h, frame)
            glass = rect(image, x - w, y - h, x + w, y + h, (52, 60, 68))
            if rng.random() < 0.2:
                glass[...] = (226, 202, 150)
            glass += np.linspace(rng.uniform(20, 110), 0, glass.shape[0])[:, None, None]
            if rng.random() < 0.5:
                curtain = rect(glass, 0, 0, rng.uniform(0.2, 0.5), 1)
                curtain[...] = 0.4 * curtain + 0.6 * vector(warm_grey(rng, 150, 220))
            rect(image, x - 0.006, y - h, x + 0.006, y + h, frame)
    return image * stains(rng, size, 0.04)[..., None]


def road(rng: Rng, size: int) -> np.ndarray:
    """Road seen from above, its length from top to bottom, for a whole face."""
    y, x = grid(size)
    image = asphalt(rng, size)
    wear = 0.7 + 0.3 * ramp(noise(rng, size, 1.2), -1.5, 0.3)
    for at in (0.04, 0.96):
        image = mix(image, (222, 222, 214), wear * (np.abs(x - at) < 0.012))
    dash = (y * 4 % 1) < 0.5
    image = mix(image, (224, 222, 214), wear * dash * (np.abs(x - 0.5) < 0.01))
    ruts = np.exp(-((x % 0.5 - 0.13) / 0.06) ** 2) + np.exp(-((x % 0.5 - 0.37) / 0.06) ** 2)
    return image * (1 - 0.1 * ruts)[..., None]


PRINTS: dict[str, tuple[Painter, ...]] = {
    'print': (carton, crate, poster, hazard, carton),
    'poster': (poster,),
    'shelf': (shelf,),
    'door': (door,),
    'window': (window,),
    'facade': (facade,),
    'road': (road,),
}

# SPDX-License-Identifier: Apache-2.0
"""Paint the things that stand in the way: crates on a trolley, a van, a walking person.

Textures only; sizes in m stand beside them. All arrays are RGB(A) uint8.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from vjepa_ros.world.textures import Rgb, fractal, tint, to_rgb

WALK_STEPS = 24  # pictures per walking cycle
PERSON_SIZE = (1.1, 1.84)  # width and height of the picture in m


def _write(image: np.ndarray, text: str, at: tuple[int, int], size: float, colour: Rgb) -> None:
    """Letters of a colour on a float image, in place (text is drawn only on uint8)."""
    ink = np.zeros(image.shape[:2], np.uint8)
    cv2.putText(ink, text, at, cv2.FONT_HERSHEY_DUPLEX, size, 255, max(1, round(2.2 * size)),
                cv2.LINE_AA)
    share = ink[..., None] / np.float32(255)
    image += share * (np.float32(colour) - image)


def crate(rng: np.random.Generator, width_m: float, height_m: float, res: float,
          wood: Rgb = (190, 146, 92)) -> np.ndarray:
    """Wooden crate from the side: boards, battens, nails, a stencilled label."""
    rows, cols = round(height_m * res), round(width_m * res)
    image = tint((rows, cols), wood)
    board = max(8, round(rows / 6))
    for top in range(0, rows, board):
        shade = rng.normal(1, 0.09)
        fibre = fractal(rng, (min(board, rows - top), cols), 3, 6, 0.7)
        fibre = cv2.resize(fibre[:, : max(2, cols // 6)], (cols, fibre.shape[0]))
        image[top:top + board] *= shade * (1 + 0.09 * fibre)[..., None]
        image[top:top + max(2, board // 22)] *= 0.45
    batten = max(6, round(0.1 * min(rows, cols)))
    frame = np.zeros((rows, cols), bool)
    frame[:batten] = frame[-batten:] = frame[:, :batten] = frame[:, -batten:] = True
    slope = np.abs(np.arange(cols)[None] * (rows / cols) - np.arange(rows)[:, None])
    cross = (slope < 0.75 * batten) & ~frame
    grain = fractal(rng, (rows, cols), 24, 4)
    shadow = cv2.GaussianBlur((frame | cross).astype(np.float32), (0, 0), batten / 5)
    image *= (1 - 0.55 * shadow)[..., None]
    for part, light in ((cross, 0.98), (frame, 1.12)):
        image[part] = np.float32(wood) * light * (1 + 0.07 * grain[part])[:, None]
    rim = np.zeros((rows, cols), np.uint8)
    cv2.rectangle(rim, (0, 0), (cols - 1, rows - 1), 255, max(2, batten // 9))
    cv2.rectangle(rim, (batten, batten), (cols - batten, rows - batten), 255,
                  max(1, batten // 14))
    image[rim > 0] *= 0.5
    for x in (batten // 2, cols // 2, cols - batten // 2):
        for y in (batten // 2, rows - batten // 2):
            cv2.circle(image, (x, y), max(2, batten // 10), (62, 56, 50), -1, cv2.LINE_AA)
    x, y = round(cols * 0.56), round(rows * 0.2)
    w, h = round(cols * 0.27), round(rows * 0.22)
    cv2.rectangle(image, (x, y), (x + w, y + h), (232, 226, 210), -1)
    _write(image, 'FRAGILE', (x + w // 16, y + h // 2), w / 150, (176, 34, 30))
    for bar in range(18):
        if rng.random() < 0.6:
            at = x + w // 12 + bar * (w * 5 // 6) // 18
            cv2.rectangle(image, (at, y + h * 5 // 8), (at + w // 36, y + h * 7 // 8),
                          (30, 30, 30), -1)
    stain = fractal(rng, (rows, cols), 5, 6)
    fine = fractal(rng, (rows, cols), max(4, cols // 6), 2)
    return to_rgb(image * (1 + 0.04 * stain + 0.05 * fine)[..., None])


def trolley(rng: np.random.Generator, width_m: float, height_m: float, res: float) -> np.ndarray:
    """Low driverless trolley from the front: hazard stripes, lamps, dark gap with wheels."""
    rows, cols = round(height_m * res), round(width_m * res)
    image = tint((rows, cols), (52, 56, 62))
    across = np.arange(cols)[None] + np.arange(rows)[:, None]
    stripe = (across // max(4, rows // 3)) % 2 == 0
    band = slice(round(rows * 0.12), round(rows * 0.5))
    image[band] = np.where(stripe[band, :, None], np.float32([238, 190, 32]),
                           np.float32([26, 26, 28]))
    image[round(rows * 0.72):] = 14
    for at in (0.14, 0.86):
        centre = (round(cols * at), round(rows * 0.78))
        cv2.circle(image, centre, round(rows * 0.22), (34, 34, 36), -1, cv2.LINE_AA)
        cv2.circle(image, centre, round(rows * 0.1), (120, 122, 126), -1, cv2.LINE_AA)
    for at in (0.07, 0.93):
        centre = (round(cols * at), round(rows * 0.61))
        cv2.circle(image, centre, round(rows * 0.08), (250, 240, 200), -1, cv2.LINE_AA)
    return to_rgb(image * (1 + 0.06 * fractal(rng, (rows, cols), 9, 5))[..., None])


def van_rear(rng: np.random.Generator, width_m: float, height_m: float, res: float) -> np.ndarray:
    """Delivery van from behind: doors, windows, lamps, lettering, bumper, wheels, dirt."""
    rows, cols = round(height_m * res), round(width_m * res)

    def part(x0: float, y0: float, x1: float, y1: float, colour: Rgb) -> np.ndarray:
        view = image[round(y0 * rows):round(y1 * rows), round(x0 * cols):round(x1 * cols)]
        view[...] = colour
        return view

    image = tint((rows, cols), (222, 224, 222))
    image *= np.linspace(1.05, 0.9, rows, dtype=np.float32)[:, None, None]
    part(0, 0.55, 1, 0.63, (214, 92, 38))
    part(0, 0.635, 1, 0.655, (38, 70, 118))
    for x0, x1 in ((0.09, 0.475), (0.525, 0.91)):
        part(x0 - 0.012, 0.105, x1 + 0.012, 0.465, (24, 26, 28))
        glass = part(x0, 0.115, x1, 0.455, (44, 54, 62))
        glass += np.linspace(78, 0, glass.shape[0], dtype=np.float32)[:, None, None]
        slant = np.add.outer(np.arange(glass.shape[0]), np.arange(glass.shape[1]))
        glass[(slant // max(6, cols // 16)) % 6 == 1] += 24
        for _ in range(5):  # parcels behind the glass
            x, y = rng.uniform(0.05, 0.75), rng.uniform(0.45, 0.8)
            h, w = glass.shape[:2]
            glass[round(y * h):, round(x * w):round((x + 0.22) * w)] *= rng.uniform(1.1, 1.5)
    for x in (0.495, 0.505):
        part(x - 0.003, 0.06, x + 0.003, 0.78, (60, 62, 64))
    part(0.44, 0.50, 0.485, 0.525, (30, 30, 32))
    part(0.515, 0.50, 0.56, 0.525, (30, 30, 32))
    for x in (0.03, 0.94):
        for y, hinge in ((0.2, 0.03), (0.68, 0.03)):
            part(x, y, x + 0.03, y + hinge, (84, 86, 88))
    for x in (0.012, 0.918):
        part(x, 0.47, x + 0.07, 0.66, (92, 14, 16))
        part(x + 0.008, 0.48, x + 0.062, 0.545, (214, 34, 30))
        part(x + 0.008, 0.55, x + 0.062, 0.595, (232, 140, 30))
        part(x + 0.008, 0.60, x + 0.062, 0.65, (236, 232, 226))
    for text, x in (('PARCEL', 0.15), ('EXPRESS', 0.57)):
        _write(image, text, (round(x * cols), round(0.615 * rows)), cols / 620, (250, 246, 240))
    plate = part(0.36, 0.69, 0.64, 0.745, (236, 226, 150))
    _write(plate, 'VJ 42 RS', (plate.shape[1] // 12, round(plate.shape[0] * 0.8)),
           plate.shape[1] / 185, (24, 24, 24))
    part(0, 0.79, 1, 0.875, (58, 60, 62))
    part(0, 0.79, 1, 0.80, (110, 112, 114))
    for x in np.arange(0.02, 0.98, 0.08):
        part(x, 0.825, x + 0.04, 0.845, (190, 40, 34))
    part(0, 0.875, 1, 1, (16, 16, 18))
    for x0, x1 in ((0.03, 0.17), (0.83, 0.97)):
        tyre = part(x0, 0.84, x1, 1, (36, 36, 38))
        tyre[:, :: max(3, cols // 90)] *= 0.55
    dirt = np.clip(fractal(rng, (rows, cols), 5, 7, 0.7) * 0.16, -0.4, 0.28)
    low = np.linspace(0.25, 1, rows, dtype=np.float32)[:, None]
    specks = 0.035 * fractal(rng, (rows, cols), max(4, cols // 7), 2)
    image *= (1 - low * (0.1 + dirt) - specks)[..., None]
    image[:round(0.03 * rows)] *= 0.8
    return to_rgb(image)


def person(rng: np.random.Generator, res: float) -> list[np.ndarray]:
    """Pictures (RGBA) of a person who walks to the right, one per step of the walking cycle."""
    scale = 2  # painted larger and averaged down for clean edges
    width, height = (round(v * res) * scale for v in PERSON_SIZE)
    cloth = fractal(rng, (height, width), 14, 6)
    unit = height / PERSON_SIZE[1]
    pictures = []
    for step in range(WALK_STEPS):
        phase = 2 * math.pi * step / WALK_STEPS
        image = np.zeros((height, width, 3), np.float32)
        cover = np.zeros((height, width), np.uint8)

        def limb(points: list[tuple[float, float]], thick: tuple[float, float], colour: Rgb,
                 image: np.ndarray = image, cover: np.ndarray = cover) -> None:
            """Rounded, tapering chain of world points (x, height) in m."""
            count = 24
            ends = np.array([(width / 2 + x * unit, height - y * unit) for x, y in points])
            steps = np.linspace(0, len(points) - 1, count * (len(points) - 1))
            for s in steps:
                i = min(int(s), len(points) - 2)
                at = ends[i] + (ends[i + 1] - ends[i]) * (s - i)
                share = s / (len(points) - 1)
                radius = round((thick[0] + (thick[1] - thick[0]) * share) * unit)
                centre = (round(at[0]), round(at[1]))
                cv2.circle(image, centre, radius, colour, -1)
                cv2.circle(cover, centre, radius, 255, -1)

        bob = 0.018 * math.cos(2 * phase)
        hip, shoulder = 0.93 + bob, 1.43 + bob
        for side, shade in ((-1, 0.72), (1, 1.0)):  # far limbs first
            swing = 0.38 * math.sin(phase) * side
            bend = 0.5 * max(0.0, -side * math.sin(phase + 0.1 * math.pi))
            knee = (0.46 * math.sin(swing), hip - 0.46 * math.cos(swing))
            foot = (knee[0] + 0.44 * math.sin(swing - bend),
                    knee[1] - 0.44 * math.cos(swing - bend) + 0.02)
            jeans = tuple(np.float64([48, 66, 104]) * shade)
            arm = -0.5 * math.sin(phase) * side
            elbow = (0.29 * math.sin(arm), shoulder - 0.29 * math.cos(arm))
            hand = (elbow[0] + 0.26 * math.sin(arm + 0.45),
                    elbow[1] - 0.26 * math.cos(arm + 0.45))
            coat = tuple(np.float64([196, 128, 36]) * shade)
            limb([(0, hip), knee, foot], (0.085, 0.05), jeans)
            limb([foot, (foot[0] + 0.14, max(foot[1] - 0.03, 0.045))], (0.05, 0.04),
                 tuple(np.float64([58, 40, 30]) * shade))
            if side < 0:
                limb([(0, shoulder - 0.04), elbow, hand], (0.06, 0.045), coat)
                limb([(0, hip + 0.02), (0.0, 1.15), (0.01, shoulder - 0.06)], (0.115, 0.15),
                     (206, 136, 40))
                limb([(0.01, shoulder), (0.02, shoulder + 0.1)], (0.055, 0.05), (176, 124, 96))
                limb([(0.03, shoulder + 0.19), (0.035, shoulder + 0.23)], (0.09, 0.1),
                     (196, 142, 112))
                limb([(-0.02, shoulder + 0.24), (0.03, shoulder + 0.275)], (0.085, 0.08),
                     (56, 40, 30))
                limb([(-0.13, 1.06 + bob), (-0.15, 1.34 + bob)], (0.11, 0.1), (44, 78, 70))
            else:
                limb([(0, shoulder - 0.05), elbow, hand], (0.058, 0.042), coat)
                limb([hand, (hand[0] + 0.02, hand[1] - 0.03)], (0.042, 0.036), (190, 138, 108))
        light = 1 + 0.1 * cloth + 0.2 * np.linspace(0.6, -0.6, width, dtype=np.float32)[None]
        image = cv2.GaussianBlur(image, (0, 0), 0.004 * unit)
        full = np.dstack((to_rgb(image * light[..., None]), cover))
        pictures.append(cv2.resize(full, (width // scale, height // scale),
                                   interpolation=cv2.INTER_AREA))
    return pictures


def shadow(softness: float = 0.16) -> np.ndarray:
    """Soft dark rectangle (RGBA) to lay under a thing on the ground."""
    side = 96
    cover = np.zeros((side, side), np.float32)
    border = round(side * softness * 1.4)
    cover[border:-border, border:-border] = 235
    cover = cv2.GaussianBlur(cover, (0, 0), side * softness / 2)
    return np.dstack((np.full((side, side, 3), 14, np.uint8), cover.astype(np.uint8)))

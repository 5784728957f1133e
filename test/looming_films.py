# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Films of textured walls, and gyroscopes, whose truth is known exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import cv2
import numpy as np

from vjepa_ros.looming.gyroscope import Gyroscope

SIZE = (384, 288)
FOCAL = SIZE[0] / 2 / math.tan(math.radians(32.5))
K = np.array([[FOCAL, 0, (SIZE[0] - 1) / 2], [0, FOCAL, (SIZE[1] - 1) / 2], [0, 0, 1.0]])
CELL = 16
NS = 1_000_000_000
NOW = 100 * NS          # stamp of the newest frame of a film
Light = Callable[[np.ndarray, float], np.ndarray]
History = list[tuple[int, np.ndarray]]


@lru_cache(maxsize=8)
def texture(seed: int, size: int = 1024) -> np.ndarray:
    """Random texture of many scales, none finer than 6 texels, so that sampling it is exact."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size, size), np.float32)
    for step in (4, 8, 16, 32, 64, 128):
        grain = rng.normal(size=(size // step, size // step)).astype(np.float32)
        total += cv2.resize(grain, (size, size), interpolation=cv2.INTER_CUBIC) * step ** 0.3
    total = cv2.GaussianBlur(total, (0, 0), 1.5)
    return np.clip(120 + 45 * total / total.std(), 5, 250)


@lru_cache(maxsize=1)
def _rays() -> np.ndarray:
    y, x = np.mgrid[0:SIZE[1], 0:SIZE[0]].astype(float)
    return np.stack([(x - K[0, 2]) / FOCAL, (y - K[1, 2]) / FOCAL, np.ones_like(x)], -1)


class Wall:
    """A textured rectangle in the scene (camera axes at the newest frame, metres)."""

    def __init__(self, middle: Sequence[float], along: Sequence[float] = (1, 0, 0),
                 down: Sequence[float] = (0, 1, 0), half: Sequence[float] = (50, 50),
                 velocity: Sequence[float] = (0, 0, 0), look: int = 0,
                 texel: float = 0.0034) -> None:
        self.middle, self.velocity = np.array(middle, float), np.array(velocity, float)
        self.along, self.down = (np.array(v, float) / np.linalg.norm(v) for v in (along, down))
        self.half, self.look, self.texel = half, look, texel

    def seen(self, time_s: float, rotation: np.ndarray,
             position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Image, mask and depth of the rectangle alone, from a camera turned and moved."""
        middle = rotation @ (self.middle + self.velocity * time_s - position)
        along, down = rotation @ self.along, rotation @ self.down
        look = texture(self.look)
        half = self.texel * (len(look) - 1) / 2
        metres = np.array([[self.texel, 0, -half], [0, self.texel, -half], [0, 0, 1]])
        image = cv2.warpPerspective(look, K @ np.stack([along, down, middle], 1) @ metres, SIZE,
                                    flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        normal = np.cross(along, down)
        with np.errstate(divide='ignore', invalid='ignore'):
            depth = (normal @ middle) / (_rays() @ normal)
            rest = _rays() * depth[..., None] - middle
        mask = ((depth > 0.05) & (np.abs(rest @ along) < self.half[0])
                & (np.abs(rest @ down) < self.half[1]))
        return image, mask, depth


def film(walls: Sequence[Wall], velocity: Sequence[float] = (0, 0, 0),
         turn: Sequence[float] = (0, 0, 0), dt: float = 0.1, count: int | None = None,
         noise: float = 2.0, light: Light | None = None,
         jpeg: int | None = None) -> tuple[History, np.ndarray, np.ndarray]:
    """Render stamped grey frames, later walls before earlier ones, by default of 0.4 s.

    The camera moves (m/s) and turns (rad/s about x, y, z); at the newest frame it stands in the
    origin and looks along z. With it come the true looming rates [1/s] there, and the index of
    the wall seen, -1 none.
    """
    rng = np.random.default_rng(0)
    count = count or max(2, round(0.4 / dt) + 1)
    speed, history = np.array(velocity, float), []
    shape = SIZE[::-1]
    for k in range(1 - count, 1):
        time_s = k * dt
        rotation = cv2.Rodrigues(np.array(turn, float) * time_s)[0].T
        frame, rate, which = np.full(shape, 90.0), np.zeros(shape), np.full(shape, -1)
        for i, wall in enumerate(walls):
            image, mask, depth = wall.seen(time_s, rotation, speed * time_s)
            frame[mask], which[mask] = image[mask], i
            rate[mask] = (speed[2] - wall.velocity[2]) / depth[mask]
        frame = frame if light is None else light(frame, time_s)
        frame = np.clip(np.round(frame + rng.normal(size=shape) * noise), 0, 255)
        frame = frame.astype(np.uint8)
        if jpeg:
            code = cv2.imencode('.jpg', frame, [cv2.IMWRITE_JPEG_QUALITY, jpeg])[1]
            frame = cv2.imdecode(code, cv2.IMREAD_GRAYSCALE)
        history.append((NOW + round(NS * time_s), frame))
    return history, rate, which


def cells(values: np.ndarray) -> np.ndarray:
    """Mean over every cell of the looming grid."""
    h, w = values.shape
    return values.reshape(h // CELL, CELL, w // CELL, CELL).mean((1, 3))


def whole(which: np.ndarray, index: int) -> np.ndarray:
    """Cells that show nothing but one wall."""
    return cells((which == index).astype(float)) > 0.999


def gyroscope(rate=(0.0, 0.0, 0.0), hz: float = 200.0, until_s: float = 0.01, **more) -> Gyroscope:
    """A gyroscope with the samples of the last second; `rate` may be a function of time [s]."""
    one = Gyroscope(**more)
    for k in range(round(-hz), math.floor(until_s * hz) + 1):
        one.push(NOW + round(k / hz * NS), rate(k / hz) if callable(rate) else rate)
    return one

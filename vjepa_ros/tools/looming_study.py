# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the looming estimate on rendered sequences whose expansion is known exactly.

    python -m vjepa_ros.tools.looming_study [--quick] [--json FILE]

prints the median relative error of time to contact by condition, frame spacing and true time to
contact, what is seen where nothing looms, and the CPU time of a frame of 384x288.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from vjepa_ros.perception.looming import LoomingEstimator
from vjepa_ros.tools.json_file import write_json

SIZE = (384, 288)
FOCAL = SIZE[0] / 2 / math.tan(math.radians(32.5))
K = np.array([[FOCAL, 0, (SIZE[0] - 1) / 2], [0, FOCAL, (SIZE[1] - 1) / 2], [0, 0, 1.0]])
CELL = 16
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
        """Place it by its middle, two axes and half extents, moving at velocity in m/s.

        look is the seed of its texture, texel the side of a texel in metres.
        """
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
         noise: float = 2.0, light: Light | None = None, jpeg: int | None = None,
         seed: int = 0) -> tuple[History, np.ndarray, np.ndarray]:
    """Render a history of frames, later walls before earlier ones.

    The camera moves at velocity (m/s) and turns at turn (rad/s about x, y, z); at the newest
    frame it stands in the origin and looks along z. light(frame, time_s) changes the grey,
    noise is in grey levels, jpeg a quality; by default the frames span 0.4 s.

    Returns
    -------
    history : (stamp in ns, grey uint8 (288, 384)), oldest first
    rate : (288, 384) true looming rate at the newest frame, 1/s
    which : (288, 384) index of the wall seen there, -1 none
    """
    rng = np.random.default_rng(seed)
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
        history.append((round(1e9 * (100 + time_s)), frame))
    return history, rate, which


def cells(values: np.ndarray) -> np.ndarray:
    """Mean over every cell of the looming grid."""
    h, w = values.shape
    return values.reshape(h // CELL, CELL, w // CELL, CELL).mean((1, 3))


def whole(which: np.ndarray, index: int) -> np.ndarray:
    """Cells that show nothing but one wall."""
    return cells((which == index).astype(float)) > 0.999


def _wall(ttc: float, **options: object) -> tuple[History, np.ndarray, np.ndarray, int]:
    return *film([Wall((0, 0, 2))], velocity=(0, 0, 2 / ttc), **options), 0


def _slanted(ttc: float, **options: object) -> tuple[History, np.ndarray, np.ndarray, int]:
    return *film([Wall((0, 0, 2), along=(1, 0, 1))], velocity=(0, 0, 2 / ttc), **options), 0


def _object(ttc: float, **options: object) -> tuple[History, np.ndarray, np.ndarray, int]:
    thing = Wall((0.2, 0.1, 1.5), half=(0.35, 0.3), velocity=(0, 0, -1.5 / ttc), look=1,
                 texel=0.0025)
    return *film([Wall((0, 0, 4), texel=0.0068), thing], **options), 1


CONDITIONS: dict[str, tuple[Callable, dict]] = {
    'wall': (_wall, {}),
    'wall, two frames': (_wall, {'count': 2}),
    'yaw 1 rad/s': (_wall, {'turn': (0, 1.0, 0)}),
    'pitch 0.3 rad/s': (_wall, {'turn': (0.3, 0, 0)}),
    'yaw 0.3, roll 0.5 rad/s': (_wall, {'turn': (0, 0.3, 0.5)}),
    'slanted 45 degrees': (_slanted, {}),
    'brightness falls to 0.7': (_wall, {'light': lambda g, t: g * (1.0 if t < -1e-6 else 0.7)}),
    'brightness ramp 0.5/s': (_wall, {'light': lambda g, t: g * (1 + 0.5 * t)}),
    'noise 3, jpeg 60': (_wall, {'noise': 3.0, 'jpeg': 60}),
    'object before still wall': (_object, {}),
    'the same, camera turns 0.3': (_object, {'turn': (0, 0.3, 0)}),
}
NOTHING: dict[str, dict] = {
    'still, noise 2': {'dt': 1 / 30}, 'still, noise 3': {'dt': 1 / 30, 'noise': 3.0},
    'still, two frames': {'dt': 1 / 30, 'count': 2, 'noise': 3.0},
    'yaw 1 rad/s': {'turn': (0, 1.0, 0), 'dt': 1 / 15},
    'pitch 0.4 rad/s': {'turn': (0.4, 0, 0), 'dt': 1 / 15},
    'sideways 0.5 m/s at 2 m': {'velocity': (0.5, 0, 0), 'dt': 1 / 15},
}


def errors(estimator: LoomingEstimator, ttcs: Sequence[float],
           spacings: Sequence[float]) -> list[dict]:
    """Error of time to contact for every condition, frame spacing and time to contact."""
    rows = []
    for name, (make, options) in CONDITIONS.items():
        for dt in spacings:
            for ttc in ttcs:
                history, rate, which, index = make(ttc, dt=dt, **options)
                field = estimator.estimate(history, FOCAL)
                on = whole(which, index)
                known = on & np.isfinite(field.rate)
                found = np.where(field.rate[known] == 0, 1e-9, field.rate[known])
                error = np.abs(cells(rate)[known] / found - 1)
                rows.append({
                    'condition': name, 'dt_s': round(dt, 4), 'ttc_s': ttc,
                    'known': round(float(known.sum() / on.sum()), 3),
                    'median_error': round(float(np.median(error)), 4) if len(error) else None,
                    'p90_error': round(float(np.percentile(error, 90)), 4) if len(error) else None,
                })
    return rows


def false_looming(estimator: LoomingEstimator) -> list[dict]:
    """What is reported where nothing looms."""
    rows = []
    for name, options in NOTHING.items():
        field = estimator.estimate(film([Wall((0, 0, 2))], **options)[0], FOCAL)
        rate = np.abs(field.rate[np.isfinite(field.rate)])
        rows.append({'condition': name, 'known': round(len(rate) / field.rate.size, 3),
                     'mean': round(float(rate.mean()), 5),
                     'median': round(float(np.median(rate)), 5),
                     'largest': round(float(rate.max()), 5)})
    return rows


def cpu_time(estimator: LoomingEstimator, runs: int) -> list[dict]:
    """CPU time in ms of one estimate at 384x288, one thread."""
    cases = {
        'approach at 30 Hz': _wall(2.0, dt=1 / 30)[0],
        'approach and yaw at 15 Hz': _wall(2.0, dt=1 / 15, turn=(0, 0.5, 0))[0],
        'object at 30 Hz': _object(2.0, dt=1 / 30)[0],
        'two frames 0.1 s apart': _object(4.0, dt=0.1, count=2)[0],
        'still at 30 Hz': film([Wall((0, 0, 2))], dt=1 / 30)[0],
    }
    rows = []
    for name, history in cases.items():
        spent = []
        for _ in range(runs):
            start = time.process_time()
            estimator.estimate(history, FOCAL)
            spent.append(1e3 * (time.process_time() - start))
        rows.append({'case': name, 'least_ms': round(min(spent), 2),
                     'median_ms': round(float(np.median(spent)), 2),
                     'p95_ms': round(float(np.percentile(spent, 95)), 2)})
    return rows


def _print_errors(rows: list[dict], ttcs: Sequence[float], spacings: Sequence[float]) -> None:
    print('Median relative error of time to contact in %, and cells known in %')
    print(f'{"condition":28}{"dt s":>7}' + ''.join(f'{f"TTC {t:g} s":>13}' for t in ttcs))
    table = {(r['condition'], r['dt_s'], r['ttc_s']): r for r in rows}
    for name in CONDITIONS:
        for dt in spacings:
            texts = []
            for t in ttcs:
                r = table[name, round(dt, 4), t]
                texts.append('unknown' if r['median_error'] is None else
                             f'{100 * r["median_error"]:.1f} / {100 * r["known"]:.0f}')
            print(f'{name:28}{dt:7.3f}' + ''.join(f'{text:>13}' for text in texts))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study; returns the exit status."""
    parser = argparse.ArgumentParser(prog='vjepa-ros looming-study',
                                     description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true', help='fewer spacings and runs')
    parser.add_argument('--json', type=Path, help='also write the figures to this file')
    args = parser.parse_args(argv)
    cv2.setNumThreads(1)
    estimator = LoomingEstimator()
    ttcs = (1.0, 4.0) if args.quick else (0.5, 1.0, 2.0, 4.0, 6.0)
    spacings = (0.1,) if args.quick else (1 / 30, 1 / 15, 0.1, 0.25)
    found = {'errors': errors(estimator, ttcs, spacings),
             'nothing_looms': false_looming(estimator),
             'cpu': cpu_time(estimator, 10 if args.quick else 60),
             'machine': platform.machine(), 'python': platform.python_version(),
             'numpy': np.__version__, 'opencv': cv2.__version__}
    _print_errors(found['errors'], ttcs, spacings)
    print('\nWhere nothing looms, 1/s')
    for r in found['nothing_looms']:
        print(f'{r["condition"]:28}known {100 * r["known"]:.0f} %  mean {r["mean"]:.5f}  '
              f'median {r["median"]:.5f}  largest {r["largest"]:.4f}')
    print('\nCPU time of one frame of 384x288, ms, one thread')
    for r in found['cpu']:
        print(f'{r["case"]:28}least {r["least_ms"]:.1f}  median {r["median_ms"]:.1f}  '
              f'p95 {r["p95_ms"]:.1f}')
    if args.json:
        write_json(args.json, found)
    return 0


if __name__ == '__main__':
    sys.exit(main())

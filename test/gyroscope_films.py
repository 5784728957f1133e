# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Films of a camera that turns, with its gyroscope; as a program: what looming gains by it.

python test/gyroscope_films.py
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from looming_films import FOCAL, Wall, cells, film

from vjepa_ros.looming.estimator import LoomingEstimator
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.gyroscope import Gyroscope
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

NS = 1_000_000_000
NOW = 100 * NS          # stamp of the newest frame of a film
NOISE = 0.003           # of a sample [rad/s]
WALL, FAR = Wall((0, 0, 3)), Wall((0, 0, 4), texel=0.0068)
CROSSING = Wall((0.2, 0.1, 1), half=(0.45, 0.35), velocity=(0.6, 0, -0.5), look=1, texel=0.0025)
NEAR = Wall((0.2, 0.1, 1.5), half=(0.35, 0.3), look=1, texel=0.0025)
# Walls, how they are filmed, and how many times smaller the error becomes at least.
TURNING: dict[str, tuple[list[Wall], dict[str, Any], float]] = {
    'towards a wall, yaw 90 degrees/s, 6.5 Hz': (
        [WALL], {'turn': (0, 1.57, 0), 'velocity': (0, 0, 1), 'dt': 0.154}, 2),
    'towards a wall, yaw 60 degrees/s, 10 Hz': (
        [WALL], {'turn': (0, 1.0, 0), 'velocity': (0, 0, 1), 'dt': 0.1}, 2),
    'something large crosses, yaw 30 degrees/s, 10 Hz': (
        [FAR, CROSSING], {'turn': (0, 0.5, 0), 'dt': 0.1}, 10),
    'towards a near thing, yaw 150 degrees/s, 15 Hz': (
        [FAR, NEAR], {'turn': (0, 2.6, 0), 'velocity': (0, 0, 0.8), 'dt': 1 / 15}, 3)}


def gyroscope(rate=(0.0, 0.0, 0.0), hz: float = 200.0, until_s: float = 0.01, **more) -> Gyroscope:
    """A gyroscope with the samples of the last second; `rate` may be a function of time [s]."""
    one = Gyroscope(**more)
    for k in range(round(-hz), math.floor(until_s * hz) + 1):
        one.push(NOW + round(k / hz * NS), rate(k / hz) if callable(rate) else rate)
    return one


def errors(walls: list[Wall], options: dict[str, Any], bias: float = 0.0, offset_s: float = 0.0,
           by: LoomingEstimator | DeviceLooming | None = None) -> list[tuple[float, float, float]]:
    """Errors without and with a gyroscope; `by` says what estimates.

    Returns
    -------
    list of tuple
        Median and 95th percentile of the error of looming [1/s], and share of known cells.
    """
    history, rate, _ = film(walls, **options)
    rng, turn = np.random.default_rng(0), np.array(options['turn'])
    given = gyroscope(lambda t: turn + bias + rng.normal(size=3) * NOISE, offset_s=offset_s)
    out = []
    for one in (None, given):
        field = (by or LoomingEstimator()).estimate(history, FOCAL, None, one)
        assert field is not None and not field.gyroscope
        error = np.abs(field.rate - cells(rate))
        out.append((float(np.nanmedian(error)), float(np.nanpercentile(error, 95)),
                    float(np.isfinite(error).mean())))
    return out


def main() -> None:
    """Print the table of the notebook."""
    device = DeviceLooming(DeviceStream(torch.device('cpu')))
    print('| Scene | Image alone | Gyroscope | with a bias of 0.02 rad/s | as on a device |\n'
          '|---|---|---|---|---|')
    for name, (walls, options, _) in TURNING.items():
        plain, exact = errors(walls, options)
        shown = [f'{median:.4f} / {high:.3f} ({known:.0%})' for median, high, known in (
            plain, exact, errors(walls, options, bias=0.02)[1],
            errors(walls, options, by=device)[1])]
        print(f'| {name} | {" | ".join(shown)} |')


if __name__ == '__main__':
    main()

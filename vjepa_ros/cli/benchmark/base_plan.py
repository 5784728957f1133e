# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how long the predictor of twists takes to score plans of a base.

see: what all plans share, from the features of the newest frames. imagine: all plans, in one
batched pass with the results on the host. The weights are random; speed does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from rich.table import Table

from vjepa_ros.cli.benchmark import clock
from vjepa_ros.cli.benchmark.clock import statistics, synchronize
from vjepa_ros.model.twist_paths import View
from vjepa_ros.model.variants import PATCH, find_variant
from vjepa_ros.runtime.device import device_name
from vjepa_ros.runtime.imagination import Imagination

WARM = 5    # plans before those that are timed
VIEW = View(0.4, 0.0, 0.3, 0.8, 0.6, 0.25, vx=0.7)


def check(side: int, shape: tuple[int, int]) -> None:
    """Raise ValueError for plans of no step, no plans, or a side that makes no patches."""
    if min(shape) < 1 or side < PATCH or side % PATCH:
        raise ValueError(f'--samples {shape[0]} and --steps {shape[1]} must be at least 1, '
                         f'--image-size {side} a multiple of {PATCH}')


def measure(size: str, side: int, shape: tuple[int, int], runs: int, where: tuple[str, str]
            ) -> dict[str, Any]:
    """Measure plans of `shape`, N plans of K steps, on (device, precision) `where`."""
    model, variant = Imagination.random(size, *where), find_variant(size)
    device, random = model.choice.device, np.random.default_rng(0)
    clip = random.standard_normal((WARM + runs, 2, side // PATCH, side // PATCH, variant.dim),
                                  np.float32)
    twists = random.uniform(-1, 1, (WARM + runs, *shape, 3))
    lasts = np.full(shape[1], 0.5)
    spent = [(_ms(device, lambda n=n: model.see(clip[n], VIEW)),
              _ms(device, lambda n=n: model.imagine(twists[n], lasts)))
             for n in range(WARM + runs)][WARM:]
    return {'configuration': {'model_size': size, 'image_size': side, 'plans': shape[0],
                              'steps': shape[1], 'device': str(device),
                              'device_name': device_name(device),
                              'precision': model.choice.precision,
                              'execution': model.execution,
                              'execution_reason': model.execution_reason,
                              'weights': 'random'},
            'plan_ms': statistics([sum(one) for one in spent]),
            'see_ms': statistics([one[0] for one in spent]),
            'imagine_ms': statistics([one[1] for one in spent])}


def _ms(device: torch.device, work: Callable[[], object]) -> float:
    """Measure some work on any stream of a device [ms], by the clock of the host."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return 1e3 * (time.perf_counter() - start)


def make_table(result: Mapping[str, Any]) -> Table:
    """Return the figures as a table."""
    c = result['configuration']
    return clock.make_table(
        f'{c["plans"]} plans of a base x {c["steps"]} steps, features of {c["model_size"]} '
        f'{c["image_size"]} px, {c["device_name"]}, {c["precision"]}, {c["execution"]}',
        {name: result[f'{name}_ms'] for name in ('plan', 'see', 'imagine')},
        ('median', 'p95', 'p99', 'min', 'runs'))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Take times on a device, measure several contenders in turn, and show the figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from rich.table import Table

LEAST_RUNS = 3
BLOCK = 10      # runs of one contender before the next has its turn


class Contender(Protocol):
    """Something that is measured."""

    def step(self) -> dict[str, float]:
        """Run once on an input that differs from the last; milliseconds by name."""


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished its queue."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
    elif device.type == 'mps':
        torch.mps.synchronize()


def device_ms(device: torch.device, work: Callable[[], object]) -> float:
    """Milliseconds that a device takes for a piece of work, between its own marks on CUDA."""
    synchronize(device)
    if device.type == 'cuda':
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            first.record()
            work()
            last.record()
        last.synchronize()
        return first.elapsed_time(last)
    start = time.perf_counter()
    work()
    synchronize(device)
    return 1e3 * (time.perf_counter() - start)


def measure(contenders: Mapping[str, Contender], iterations: float, seconds: float
            ) -> dict[str, dict[str, list[float]]]:
    """Run contenders in turn, so that what else the machine does meets all alike.

    Parameters
    ----------
    contenders
        By name, warm.
    iterations, seconds
        Each is run so often, or so long when that comes first, but `LEAST_RUNS` times.

    Returns
    -------
    dict of str to dict of str to list of float
        Milliseconds of every run, by contender and by name of the time.
    """
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    spent, done = dict.fromkeys(contenders, 0.0), dict.fromkeys(contenders, 0)

    def open_(name: str) -> bool:
        return done[name] < iterations and (done[name] < LEAST_RUNS or spent[name] < seconds)

    while any(open_(name) for name in contenders):
        for name, contender in contenders.items():
            turn = 0
            # A slow contender keeps its turn for one run only, so that turns stay short.
            while open_(name) and turn < BLOCK and (turn == 0 or spent[name] / done[name] < 0.5):
                start = time.perf_counter()
                for key, value in contender.step().items():
                    samples[name].setdefault(key, []).append(value)
                spent[name] += time.perf_counter() - start
                done[name] += 1
                turn += 1
    return samples


def statistics(samples: Sequence[float]) -> dict[str, Any]:
    """Median, percentiles, minimum and number of times [ms]."""
    median, p95, p99 = (round(float(v), 4) for v in np.percentile(samples, (50, 95, 99)))
    return {'median': median, 'p95': p95, 'p99': p99, 'min': round(float(min(samples)), 4),
            'runs': len(samples)}


def make_table(title: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str],
               caption: str = '', head: str = 'time in ms') -> Table:
    """Figures as a table for people; one that a row lacks stays empty."""
    table = Table(title=title, title_justify='left', caption=caption, caption_justify='left')
    table.add_column(head)
    for name in columns:
        table.add_column(name.replace('_', ' '), justify='right')
    for label, found in rows.items():
        cells = [found.get(name, '') for name in columns]
        table.add_row(label, *(f'{c:.3f}' if isinstance(c, float) else str(c) for c in cells))
    return table

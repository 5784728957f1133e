# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Time work on a device, measure several contenders in turn, and tabulate the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from rich.table import Table

LEAST_RUNS = 3
BLOCK = 10      # runs of one contender before the next has its turn


class Contender(Protocol):
    """Something that is measured."""

    def step(self) -> dict[str, float]:
        """Run once on an input that differs from the last; milliseconds by name."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A contender that others displace: what it remembers, say."""

    def resume(self) -> None:
        """Get ready for a turn, which is not measured."""
        ...


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
    elif device.type == 'mps':
        torch.mps.synchronize()


def device_ms(device: torch.device, work: Callable[[], object]) -> float:
    """Measure how long a device takes for some work [ms], with events on CUDA."""
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
    """Run contenders in turn, so that other load on the machine affects all alike."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    spent, done = dict.fromkeys(contenders, 0.0), dict.fromkeys(contenders, 0)

    def open_(name: str) -> bool:
        return done[name] < iterations and (done[name] < LEAST_RUNS or spent[name] < seconds)

    while any(open_(name) for name in contenders):
        for name, contender in contenders.items():
            turn = 0
            if open_(name) and isinstance(contender, Resuming):
                contender.resume()
            # A slow contender runs once in its turn, so that turns stay short.
            while open_(name) and turn < BLOCK and (turn == 0 or spent[name] / done[name] < 0.5):
                start = time.perf_counter()
                for key, value in contender.step().items():
                    samples[name].setdefault(key, []).append(value)
                spent[name] += time.perf_counter() - start
                done[name] += 1
                turn += 1
    return samples


def statistics(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, percentiles, minimum and number of times [ms]."""
    median, p95, p99 = (round(float(v), 4) for v in np.percentile(samples, (50, 95, 99)))
    return {'median': median, 'p95': p95, 'p99': p99, 'min': round(float(min(samples)), 4),
            'runs': len(samples)}


def make_table(title: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str],
               caption: str = '', head: str = 'time in ms') -> Table:
    """Lay results out as a table; what a row lacks stays empty."""
    table = Table(title=title, title_justify='left', caption=caption, caption_justify='left')
    table.add_column(head)
    for name in columns:
        table.add_column(name.replace('_', ' '), justify='right')
    for label, found in rows.items():
        cells = [found.get(name, '') for name in columns]
        table.add_row(label, *(f'{c:.3f}' if isinstance(c, float) else str(c) for c in cells))
    return table

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Record what the engine runs with PyTorch's profiler: a trace, and the operators that cost most.

The engine is recorded as it is in use, so a CUDA graph shows its kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from vjepa_ros.cli.benchmark.clock import Contender

RUNS = 3


@dataclass(frozen=True)
class Operator:
    """Time of one operator or kernel in a run [ms], and how often a run calls it."""

    name: str
    ms: float
    calls: float


def activities(cuda: bool) -> list[ProfilerActivity]:
    """What the profiler records; on a GPU its kernels, too."""
    return [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])


def device_ms(event: Any, cuda: bool, own: bool = True) -> float:
    """Milliseconds of a profiler event on the GPU or the CPU, `own`: less what it calls."""
    # Older PyTorch calls the device's time cuda.
    device = 'device' if hasattr(event, 'device_time_total') else 'cuda'
    name = f'{device if cuda else "cpu"}_time_total'
    return 1e-3 * getattr(event, f'self_{name}' if own else name)


def record(contender: Contender, cuda: bool, trace: Path | None = None, top: int = 15
           ) -> list[Operator]:
    """Profile some runs.

    Parameters
    ----------
    contender
        Warm.
    cuda
        Whether to record kernels of a GPU; their times then count, else those of the CPU.
    trace
        Chrome trace to write (open in chrome://tracing or ui.perfetto.dev).
    top
        Number of operators to return, the most expensive first.
    """
    with profile(activities=activities(cuda)) as recorded:
        for _ in range(RUNS):
            contender.step()
    if trace is not None:
        trace.parent.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(trace))
    found = []
    for event in recorded.key_averages():
        ms = device_ms(event, cuda)
        if ms > 0:
            found.append(Operator(event.key[:120], ms / RUNS, event.count / RUNS))
    return sorted(found, key=lambda operator: -operator.ms)[:top]

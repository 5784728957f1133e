# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The speeds to reach, and how far the measured ones are from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vjepa_ros.lab.report.targets import BETTER, MISSED, Goal

Results = Mapping[str, Mapping[str, Any]]
FP8 = 'ViT-L in fp8: encode'
LARGE = ('h200_large_compile', 'h200_large_graph')


def median(key: str) -> Callable[[Mapping[str, Any]], float]:
    """Reader of a median [ms]."""
    return lambda result: result[key]['median']


def ratio(name: str) -> Callable[[Mapping[str, Any]], float]:
    """Reader of a ratio to a baseline."""
    return lambda result: result['ratios'][name]


def rate(result: Mapping[str, Any]) -> float:
    """Results per second, end to end."""
    return 1e3 / result['end_to_end_ms']['median']


def ready(result: Mapping[str, Any]) -> float:
    """Seconds from the start of the process to the first features."""
    return result['start']['ready_s']


def _speed(what: str, rows: tuple[str, ...], read: Callable[[Mapping[str, Any]], float],
           reach: float, better: float | None, unit: str = ' ms', more: bool = False) -> Goal:
    return Goal(what, reach, better, read, more, rows, unit)


GOALS = (
    _speed('ViT-L, 16 frames of 256 px, bf16: encode', LARGE, median('encode_ms'), 3.6, 3.2),
    _speed('the same over its floor', LARGE, ratio('floor'), 1.27, None, ' x'),
    _speed('the same without torch.compile', LARGE[1:], median('encode_ms'), 5.0, 4.2),
    _speed('Hugging Face eager over ours', LARGE, ratio('hf_eager'), 10.0, 12.0, ' x', True),
    _speed('Hugging Face compiled over ours', LARGE, ratio('hf_compiled'), 1.8, 2.0, ' x', True),
    _speed('4 cameras in one pass, ViT-L: encode', ('h200_large_cameras4',), median('encode_ms'),
         13.5, 12.0),
    _speed('ViT-g, 16 frames of 256 px: encode over its floor', ('h200_giant',), ratio('floor'),
         1.35, 1.25, ' x'),
    _speed(FP8, ('h200_large_fp8',), median('encode_ms'), float('nan'), 2.6),
    # With what `compile: auto` takes there.
    _speed('720p host image to assessment, beyond encode, ViT-L', ('h200_large_graph',),
         median('beyond_encode_ms'), 2.0, 1.0),
    _speed('node over DDS, 720p image stamp to assessment received, beyond the session',
         ('node_h200',), median('overhead_ms'), 12.0, 8.0),
    _speed('the same on 2 CPU cores', ('node_720p',), median('overhead_ms'), 12.0, 8.0),
    _speed('ViT-L ready from start, graph capture only', LARGE[1:], ready, 15.0, 7.5, ' s'),
    _speed('ViT-L ready from start, with compile, first time', LARGE[:1], ready, 60.0, 30.0, ' s'),
    _speed('ViT-L ready from start, with compile, cached', ('h200_large_cached',), ready, 20.0,
         10.0, ' s'),
    _speed('CPU, 2 cores: `tiny`, default frames and size, end to end',
         ('cpu_tiny',), rate, 12.0, 16.0, ' Hz', True),
    _speed('CPU, 2 cores: ViT-L, 8 frames of 256 px, Hugging Face eager float32 over ours',
         ('cpu_large8',), ratio('hf_eager'), 2.5, 3.0, ' x', True))


@dataclass(frozen=True)
class Standing:
    """How a goal stands: the best figure and its row, None and '' when not measured."""

    goal: Goal
    value: float | None
    row: str = ''

    @property
    def verdict(self) -> str:
        """In words, with how much is missing."""
        goal, value = self.goal, self.value
        if value is None:
            return 'not measured'
        standing = goal.standing(value)
        if standing != MISSED:
            return 'better reached' if standing == BETTER else standing
        missing = goal.reach / value - 1 if goal.more else value / goal.reach - 1
        return f'**missed by {100 * missing:.0f} %**'


def standings(results: Results, goals: Sequence[Goal] = GOALS) -> list[Standing]:
    """How all goals stand."""
    found = []
    for goal in goals:
        if goal.what == FP8:
            goal = _against_bf16(goal, results)
        values = {}
        for row in goal.rows:
            try:
                values[row] = goal.read(results[row])
            except (KeyError, TypeError):   # no such file, or it does not have this figure
                continue
        if not values:
            found.append(Standing(goal, None))
            continue
        best = goal.best(values)
        found.append(Standing(goal, values[best], best))
    return found


def _against_bf16(goal: Goal, results: Results) -> Goal:
    """The goal of fp8 is the time of bf16 that was measured."""
    times = [results[row]['encode_ms']['median'] for row in LARGE if row in results]
    return replace(goal, reach=min(times, default=float('nan')))

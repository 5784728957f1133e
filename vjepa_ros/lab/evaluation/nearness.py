# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge alarms against the size of one thing in the picture, where nothing else is known.

A thing of constant size S at distance Z covers an area proportional to (S / Z)^2 of the picture,
so the square root of its area is a nearness without a unit, and the rate of its logarithm is the
looming rate. It needs no labels, and it also does not care about in-plane rotation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vjepa_ros.lab.evaluation.alarms import runs

SMOOTH_S = 0.3     # time over which the area is averaged
LEAST_CHANGE = 0.05   # relative change of nearness that makes an approach or a retreat
LINGER_S = 0.5     # an alarm may outlast the nearest moment by so much


@dataclass(frozen=True)
class Approach:
    """One approach of the thing, from its turning point to the nearest moment.

    Attributes
    ----------
    start_s, nearest_s
        From when it came nearer, and when it was nearest [s].
    fastest_per_s
        Largest looming rate within [1/s].
    warned_s
        First alarm within, NaN without one [s].
    """

    start_s: float
    nearest_s: float
    fastest_per_s: float
    warned_s: float


def nearness(stamps_s: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearness (square root of the area, smoothed) and looming rate [1/s] at each frame.

    Parameters
    ----------
    stamps_s
        Rising times [s], at least two.
    share
        Part of the picture that the thing covers, above 0.
    """
    stamps_s = np.asarray(stamps_s, float)
    step = float(np.median(np.diff(stamps_s)))
    log_size = _smooth(0.5 * np.log(np.maximum(share, 1e-6)), step)
    return np.exp(log_size), _smooth(np.gradient(log_size, stamps_s), step)


def approaches(stamps_s: np.ndarray, share: np.ndarray,
               alarm: np.ndarray) -> tuple[list[Approach], list[tuple[float, float]]]:
    """Every approach with its first alarm, and the alarms while the thing did not come nearer.

    Returns
    -------
    tuple of list
        Approaches in order; (first, last) stamp [s] of each unbroken alarm that has no frame
        within an approach or shortly after its nearest moment.
    """
    stamps_s, alarm = np.asarray(stamps_s, float), np.asarray(alarm, bool)
    near, rate = nearness(stamps_s, share)
    found, excused = [], np.zeros(stamps_s.size, bool)
    for low, high in _rises(np.log(near)):
        inside = np.arange(low, high + 1)
        first = inside[alarm[inside]]
        found.append(Approach(float(stamps_s[low]), float(stamps_s[high]),
                              float(rate[inside].max()),
                              float(stamps_s[first[0]]) if first.size else math.nan))
        excused |= (stamps_s >= stamps_s[low]) & (stamps_s <= stamps_s[high] + LINGER_S)
    wrong = [(float(stamps_s[a]), float(stamps_s[b - 1])) for a, b in runs(alarm)
             if not excused[a:b].any()]
    return found, wrong


def _rises(curve: np.ndarray) -> list[tuple[int, int]]:
    """(lowest, highest) index of every rise by at least `LEAST_CHANGE`, small dips ignored."""
    out: list[tuple[int, int]] = []
    low = high = 0
    rising = False
    for i, value in enumerate(curve):
        if rising:
            if value > curve[high]:
                high = i
            elif value < curve[high] - LEAST_CHANGE:
                out.append((low, high))
                low, rising = i, False
        elif value <= curve[low]:
            low = i
        elif value > curve[low] + LEAST_CHANGE:
            high, rising = i, True
    if rising:
        out.append((low, high))
    return out


def _smooth(values: np.ndarray, step_s: float) -> np.ndarray:
    half = max(1, round(0.5 * SMOOTH_S / step_s)) if step_s > 0 else 1
    kernel = np.ones(2 * half + 1) / (2 * half + 1)
    return np.convolve(np.pad(values, half, 'edge'), kernel, 'valid')

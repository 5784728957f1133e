# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Count false alarms, and the time from alarm to contact, by labels or by size of an object.

An object of constant size S at distance Z covers an area proportional to (S / Z)^2 of the image.
The square root of its area is a nearness without unit, and the rate of its logarithm is the
looming rate. It needs no labels and does not depend on in-plane rotation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

WARNING, UNKNOWN = 2, 255   # levels as published; UNKNOWN is not an alarm
LONGEST_STEP = 3.0          # longest gap between frames that counts, in usual gaps
SMOOTH_S = 0.3     # time over which the area is averaged
LEAST_CHANGE = 0.05   # relative change of nearness for an approach or a retreat
LINGER_S = 0.5     # time that an alarm may outlast the nearest moment


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return first and one-past-last index of every stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], np.asarray(mask, np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def durations(stamps_s: np.ndarray) -> np.ndarray:
    """Return the time from each frame to the next [s]; the last gets the usual time."""
    stamps_s = np.asarray(stamps_s, float)
    if stamps_s.size < 2:
        return np.zeros(stamps_s.size)
    step = np.diff(stamps_s)
    usual = float(np.median(step))
    return np.append(np.clip(step, 0.0, LONGEST_STEP * usual), usual)


def is_alarm(level: np.ndarray) -> np.ndarray:
    """Return whether a level is WARNING or above; UNKNOWN is not."""
    level = np.asarray(level)
    return (level >= WARNING) & (level != UNKNOWN)


def false_alarms(stamps_s: np.ndarray, level: np.ndarray, collision: np.ndarray,
                 scored: np.ndarray) -> tuple[int, float]:
    """Count alarms where nothing was imminent, and the time without danger.

    `stamps_s, level`: time [s] and level of each frame; `collision`: 1 imminent, 0 not, NaN
    unknown.
    """
    collision, scored = np.asarray(collision, float), np.asarray(scored, bool)
    count = sum(bool((collision[a:b] == 0).any() and not (collision[a:b] == 1).any())
                for a, b in runs(is_alarm(level) & scored))
    seconds = durations(stamps_s)[(collision == 0) & scored].sum()
    return count, float(seconds) / 60.0


@dataclass(frozen=True)
class Contact:
    """One labelled danger."""

    # start_s, end_s: stamps of its first and last frame labelled as collision [s]
    start_s: float
    end_s: float
    # Time of contact: from the true time to contact of its last frame if known, else the stamp
    # of that frame [s]
    contact_s: float
    warned_s: float  # stamp of the first alarm within it, NaN without one [s]

    @property
    def lead_s(self) -> float:
        """Time from the first alarm to contact, 0 when it was missed [s]."""
        return 0.0 if math.isnan(self.warned_s) else self.contact_s - self.warned_s


def contacts(stamps_s: np.ndarray, collision: np.ndarray, time_to_contact: np.ndarray,
             alarm: np.ndarray) -> list[Contact]:
    """Return every stretch of frames labelled as collision, with its first alarm.

    An alarm that began before the stretch counts from its first frame; one that ended before it
    does not count.
    """
    out = []
    for a, b in runs(np.asarray(collision) == 1):
        left = float(time_to_contact[b - 1])
        ahead = left if math.isfinite(left) and left > 0 else 0.0
        hit = np.flatnonzero(np.asarray(alarm[a:b], bool))
        out.append(Contact(float(stamps_s[a]), float(stamps_s[b - 1]),
                           float(stamps_s[b - 1]) + ahead,
                           float(stamps_s[a + hit[0]]) if hit.size else math.nan))
    return out


@dataclass(frozen=True)
class Approach:
    """One approach of the object, from its turning point to the nearest moment."""

    # start_s, nearest_s: when it began to come nearer, and when it was nearest [s]
    start_s: float
    nearest_s: float
    fastest_per_s: float  # largest looming rate within [1/s]
    warned_s: float  # first alarm within, NaN without one [s]


def nearness(stamps_s: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return nearness (smoothed square root of the area) and looming rate [1/s].

    `stamps_s`: rising times [s], at least two.
    """
    stamps_s = np.asarray(stamps_s, float)
    step = float(np.median(np.diff(stamps_s)))
    log_size = _smooth(0.5 * np.log(np.maximum(share, 1e-6)), step)
    return np.exp(log_size), _smooth(np.gradient(log_size, stamps_s), step)


def approaches(stamps_s: np.ndarray, share: np.ndarray,
               alarm: np.ndarray) -> tuple[list[Approach], list[tuple[float, float]]]:
    """Return every approach with its first alarm, and the alarms without approach."""
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
    """Return (lowest, highest) index of every rise by `LEAST_CHANGE`, ignoring small dips."""
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

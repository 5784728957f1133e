# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Take the jitter out of stamps that tell when an image arrived, not when it was taken.

A camera takes pictures by its own clock, every T seconds. Where a driver stamps them when they
arrive, over USB or radio, picture i has the stamp i T + n_i, each n_i another delay. Looming
is a change over time: with 0.03 s of jitter and 0.15 s between two pictures it is wrong by a
quarter.

Such jitter does not add up. Between two pictures, and between two that are far apart, the
stamps deviate from multiples of T by the same 2 var(n), while a camera that really is irregular
deviates the more the farther apart its pictures are. Where stamps deviate like jitter, they are
followed by a clock of the same period, as by an alpha-beta filter with a small gain (Kalata, "The
tracking index", 1984); other stamps stay exactly as they are.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

WINDOW = 64           # intervals that are looked at
LEAST = 16            # intervals before anything is evened out
APART = 8             # pictures over which jitter does not add up
BEGINS, ENDS = 3.0, 4.5   # greatest variance over those, in variances of one interval; 8 if random
SMALL = 0.03          # deviation of intervals, in intervals, that does not matter
GAIN = 0.05           # part of the deviation of a stamp that is believed
USUAL_DELAY = 3.0     # of a picture, in standard deviations of its stamp
FARTHEST = 3.0        # intervals by which a stamp may deviate
CLOSEST = 0.2         # least distance of two evened stamps, in intervals


class StampFilter:
    """Even out the stamps of one camera, in their order."""

    def __init__(self) -> None:
        self._intervals: deque[int] = deque(maxlen=WINDOW)
        self.reset()

    def reset(self) -> None:
        """Begin anew: the next stamp follows no other. What is known of the camera stays."""
        self._stamp_ns = self._even_ns = 0
        self._jitters = False
        self._delay_ns = 0.0

    def forget(self) -> None:
        """Take stamps as they are until enough of them are known again."""
        self._intervals.clear()

    def even(self, stamp_ns: int) -> int:
        """Return when a picture was taken [ns]; stamps [ns], above 0, and results ascend."""
        if not self._stamp_ns:
            self._stamp_ns = self._even_ns = stamp_ns
            return stamp_ns
        self._intervals.append(stamp_ns - self._stamp_ns)
        self._stamp_ns = stamp_ns
        (period, loses), even = self._clock(), stamp_ns
        if period:
            late = stamp_ns - self._delay_ns - self._even_ns - period
            lost = max(0, round(late / period)) if loses else 0
            late -= lost * period
            if abs(late) <= FARTHEST * period:      # else the camera has another clock by now
                even = round(self._even_ns + (1 + lost) * period + GAIN * late)
        self._even_ns = max(even, self._even_ns + max(1, round(CLOSEST * period)))
        return self._even_ns

    def _clock(self) -> tuple[float, bool]:
        """Return T [ns], 0 where stamps are taken as they are; and whether pictures get lost."""
        intervals = np.array(self._intervals, float)
        if len(intervals) < LEAST:
            self._jitters = False
            return 0.0, False
        usual = float(np.median(intervals))
        # A long interval is a picture that came late, or one that was lost before it.
        counted = np.maximum(1.0, np.round(intervals / usual))
        many, one, period = _deviations(intervals, np.ones(len(intervals)))
        without = _deviations(intervals, counted)
        loses = without[0] < 0.5 * many
        if loses:
            many, one, period = without
        jitters = one > (SMALL * period) ** 2 and (
            many < (ENDS if self._jitters else BEGINS) * one)
        if jitters and not self._jitters:
            # Nothing arrives before it was taken: almost every evened stamp is to be the earlier
            # one, so that what a gyroscope said until then is there, too. It comes to that by and
            # by, as a jump would be an error of the time between two pictures.
            self._delay_ns = USUAL_DELAY * math.sqrt(one / 2)
        self._jitters = jitters
        return (period, loses) if self._jitters else (0.0, False)


def _deviations(intervals: np.ndarray, counts: np.ndarray) -> tuple[float, float, float]:
    """Return mean squared deviations over `APART` pictures and over one [ns^2], and T [ns].

    `counts` are the periods in each interval.
    """
    period = float(intervals.sum() / counts.sum())
    off = np.concatenate(([0.0], np.cumsum(intervals - counts * period)))
    return (float(np.mean((off[APART:] - off[:-APART]) ** 2)),
            float(np.mean(np.diff(off) ** 2)), period)

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
tracking index", 1984); other stamps stay exactly as they are. So do those of a camera from which
somebody leaves pictures out, as a busy node does: two of three, say, are multiples of another
period.

Nothing arrives before it was taken, so no evened stamp is later than the one that came.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

WINDOW = 64           # intervals that are looked at
LEAST = 32            # intervals before anything is evened out
APART = 8             # pictures over which jitter does not add up
BEGINS, ENDS = 1.5, 3.5   # greatest variance over those, in variances of one interval; 8 if random
SMALL = 0.03          # deviation of intervals, in periods, that does not matter
FINER = range(2, 9)   # periods in a usual interval where pictures are left out
ON_RASTER = 0.12      # deviation from multiples of those, in periods; 0.29 if random
GAIN = 0.05           # part of the deviation of a stamp that is believed
USUAL_DELAY = 3.0     # of a picture, in standard deviations of its stamp
FARTHEST = 3.0        # periods by which a stamp may deviate
CLOSEST = 0.2         # least distance of two evened stamps, in periods
LEAVES = 0.1          # part of the delay that goes with each picture where stamps are right
SHORT_NS = 1e6        # and what is left of it that may go at once


class StampFilter:
    """Even out the stamps of one camera, in their order."""

    def __init__(self) -> None:
        self._intervals: deque[int] = deque(maxlen=WINDOW)
        self._jitters = False
        self._delay_ns = 0.0
        self.reset()

    def reset(self) -> None:
        """Begin anew: the next stamp follows no other. What is known of the camera stays."""
        self._stamp_ns = self._even_ns = 0

    def forget(self) -> None:
        """Take stamps as they are until enough of them are known again."""
        self._intervals.clear()

    def even(self, stamp_ns: int) -> int:
        """Return when a picture was taken [ns], at most `stamp_ns`.

        Stamps [ns] are above 0 and ascend, and so do results.
        """
        if not self._stamp_ns:
            self._stamp_ns = self._even_ns = stamp_ns
            return stamp_ns
        self._intervals.append(stamp_ns - self._stamp_ns)
        delay_ns, self._stamp_ns = self._stamp_ns - self._even_ns, stamp_ns
        (period, loses), even = self._clock(), stamp_ns
        if period:
            late = stamp_ns - self._delay_ns - self._even_ns - period
            lost = max(0, round(late / period)) if loses else 0
            late -= lost * period
            if abs(late) <= FARTHEST * period:      # else the camera has another clock by now
                even = round(self._even_ns + (1 + lost) * period + GAIN * late)
        elif delay_ns > SHORT_NS:   # by and by: a jump is an error of the time between pictures
            even -= round((1 - LEAVES) * delay_ns)
        least = max(1, round(CLOSEST * period))
        self._even_ns = min(stamp_ns, max(even, self._even_ns + least))
        return self._even_ns

    def _clock(self) -> tuple[float, bool]:
        """Return T [ns], 0 where stamps are taken as they are; and whether pictures get lost."""
        jittered, self._jitters = self._jitters, False
        intervals = np.array(self._intervals, float)
        if len(intervals) < LEAST:
            return 0.0, False
        usual = float(np.median(intervals))
        # A long interval is a picture that came late, or one that was lost before it.
        counted = np.maximum(1.0, np.round(intervals / usual))
        many, one, period = _deviations(intervals, np.ones(len(intervals)))
        without = _deviations(intervals, counted)
        loses = without[0] < 0.5 * many
        if loses:
            many, one, period = without
        off = math.sqrt(one)
        if off <= SMALL * period or many >= (ENDS if jittered else BEGINS) * one or (
                _left_out(intervals, off)):
            return 0.0, False
        self._jitters = True
        # Almost every evened stamp is to be earlier, so that what a gyroscope said until then is
        # there, too. It comes to that by and by.
        delay_ns = USUAL_DELAY * off / math.sqrt(2)
        self._delay_ns += GAIN * (delay_ns - self._delay_ns) if self._delay_ns else delay_ns
        return period, loses


def _left_out(intervals: np.ndarray, off: float) -> bool:
    """Return whether intervals [ns] are multiples of a fraction of the usual one.

    As multiples of the usual one they deviate by `off` [ns].
    """
    usual = float(np.sort(intervals)[len(intervals) // 2])      # of them, no mean of two
    for parts in FINER:
        counts = np.maximum(1.0, np.round(intervals * (parts / usual)))
        period = float(intervals @ counts / (counts @ counts))
        finer = math.sqrt(np.mean((intervals - counts * period) ** 2))
        if finer < min(ON_RASTER * period, 0.5 * off):
            return True
    return False


def _deviations(intervals: np.ndarray, counts: np.ndarray) -> tuple[float, float, float]:
    """Return mean squared deviations over `APART` pictures and over one [ns^2], and T [ns].

    `counts` are the periods in each interval.
    """
    period = float(intervals.sum() / counts.sum())
    off = np.concatenate(([0.0], np.cumsum(intervals - counts * period)))
    return (float(np.mean((off[APART:] - off[:-APART]) ** 2)),
            float(np.mean(np.diff(off) ** 2)), period)

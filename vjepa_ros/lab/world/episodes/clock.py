# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep the time of a simulated world, no faster than rendering and perception."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

STEP_S = 0.1          # of real time that is caught up; longer work slows time down
LONGEST_WAIT_S = 15.0  # real time, for an assessment
CREEP = 1e-3          # of real time that passes while waiting: a guard stops when the clock does
_PICTURES = 2         # greatest age of an assessment, in pictures
_CLOSE_S = 1e-6       # moments closer together are the same


class WorldClock:
    """Simulated time: as fast as real time, slower where the computer cannot keep up.

    It waits for each picture to be rendered, and nearly stops while the newest assessment is two
    pictures old. So the delay of perception, in simulated time, is that of a fast computer, and
    a slow one drives the same episode. When assessments stop coming, time continues: a perception
    that has died must not stop the world.

    `period_s`: between two pictures; not `patient`: real time, whether or not the computer keeps
    up, with pictures that are rendered late; `steady_s`: the clock of real time.
    """

    def __init__(self, start_s: float, period_s: float, patient: bool = True,
                 steady_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s, self._period_s, self._steady_s = start_s, period_s, steady_s
        self._patient = patient
        self._last_s, self._owed_s = steady_s(), 0.0
        self._due_s = start_s
        self._assessed_s = math.nan             # NaN: nothing to wait for
        self._waits_since_s = math.nan          # real time
        self._begun = (math.nan, math.nan)

    @property
    def due(self) -> bool:
        """Whether a picture is to be drawn now."""
        return self.now_s >= self._due_s - _CLOSE_S

    @property
    def factor(self) -> float:
        """Return simulated time over real time since `begin`; NaN before."""
        return (self.now_s - self._begun[0]) / max(1e-9, self._last_s - self._begun[1])

    def begin(self) -> None:
        """Start measuring `factor`."""
        self._begun = self.now_s, self._last_s

    def advance(self) -> None:
        """Advance by the real time since the last call, as far as allowed."""
        steady = self._steady_s()
        self._owed_s, self._last_s = self._owed_s + steady - self._last_s, steady
        last_s = math.inf
        if self._patient:
            self._owed_s = min(STEP_S, self._owed_s)
            last_s = min(self._due_s, self._waits_at_s(steady))
        step = max(0.0, min(self._owed_s, last_s - self.now_s))
        self.now_s += step
        # Waiting is not caught up.
        self._owed_s = self._owed_s - step if math.isnan(self._waits_since_s) else 0.0

    def _waits_at_s(self, steady: float) -> float:
        """Return the time that is not passed before a newer assessment; infinity for none."""
        last_s = self._assessed_s + _PICTURES * self._period_s
        if math.isnan(last_s):
            return math.inf
        if self.now_s < last_s - _CLOSE_S:
            self._waits_since_s = math.nan
            return last_s
        if math.isnan(self._waits_since_s):
            self._waits_since_s = steady
        waited_s = steady - self._waits_since_s
        if waited_s > LONGEST_WAIT_S:           # until something is assessed again
            self._assessed_s = self._waits_since_s = math.nan
        return last_s + CREEP * waited_s

    def drawn(self) -> None:
        """Note that the picture that was due is drawn; the next one comes a period later."""
        on_time = self.now_s < self._due_s + self._period_s
        self._due_s = (self._due_s if on_time else self.now_s) + self._period_s

    def assessed(self, stamp_s: float) -> None:
        """Note that a picture of that time [s] has been assessed."""
        self._assessed_s = stamp_s if math.isnan(self._assessed_s) else max(
            stamp_s, self._assessed_s)

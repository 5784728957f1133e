# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How often assessments of a source come and how old they are, against what the guard accepts."""

from __future__ import annotations

import itertools
import math
from collections import deque
from statistics import median

KEPT = 9                 # assessments that the measurement goes by
LEAST = 3                # with fewer nothing is told
MARGIN = 1.25            # of the timeout that is recommended over what was measured
STEP_S = 0.05            # to which it is rounded up


class SourceTiming:
    """Period and age on arrival of the assessments of one source."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def clear(self) -> None:
        """Forget what was measured (clock jump)."""
        self._times.clear()

    def add(self, stamp_s: float, received_s: float) -> None:
        """Take the stamp of an assessment, newer than all before, and its arrival [s]."""
        self._times.append((stamp_s, received_s))

    @property
    def period_s(self) -> float:
        """Median time between two stamps [s], NaN unknown."""
        if len(self._times) < LEAST:
            return math.nan
        stamps = [stamp for stamp, _ in self._times]
        return median(b - a for a, b in itertools.pairwise(stamps))

    @property
    def arrival_age_s(self) -> float:
        """Median age on arrival [s], NaN unknown."""
        if len(self._times) < LEAST:
            return math.nan
        return median(received - stamp for stamp, received in self._times)

    @property
    def text(self) -> str:
        """Both in words, to follow an age; '' unknown."""
        if len(self._times) < LEAST:
            return ''
        return (f' (they came every {self.period_s:.2f} s, {self.arrival_age_s:.2f} s old on '
                'arrival)')

    def problem(self, timeout_s: float) -> str:
        """Why assessments cannot stay younger than `timeout_s`, with the remedy; '' if they can.

        Just before the next one arrives, the newest is as old as it was on arrival plus a period.
        """
        oldest = self.period_s + self.arrival_age_s
        if not oldest > timeout_s:
            return ''
        enough = math.ceil(round(MARGIN * oldest / STEP_S, 6)) * STEP_S
        return (f'the perception is too slow for source_timeout ({timeout_s:g} s): a period of '
                f'{self.period_s:.2f} s and an age of {self.arrival_age_s:.2f} s on arrival make '
                f'{oldest:.2f} s; set source_timeout to {enough:.2f} or make it faster (device, '
                'model_size, max_rate)')

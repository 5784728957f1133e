# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure rates and latencies over the last seconds, cheaply and from any thread."""

from __future__ import annotations

import math
import threading
from collections import deque

import numpy as np


class Rate:
    """Events per second over a sliding window.

    Parameters
    ----------
    window_s
        Length of the window [s].
    """

    def __init__(self, window_s: float = 3.0) -> None:
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=1024)
        self._lock = threading.Lock()
        self.total = 0

    def tick(self, now_s: float) -> None:
        """Count one event at a steady time [s]."""
        with self._lock:
            self._times.append(now_s)
            self.total += 1

    def hz(self, now_s: float) -> float:
        """Rate in the window that ends now [Hz]; 0 when nothing happened in it."""
        with self._lock:
            while self._times and now_s - self._times[0] > self._window_s:
                self._times.popleft()
            if len(self._times) < 2:
                return 0.0
            span = self._times[-1] - self._times[0]
            return (len(self._times) - 1) / span if span > 0 else 0.0


class Recent:
    """Median and 95th percentile of the last values."""

    def __init__(self, length: int = 100) -> None:
        self._values: deque[float] = deque(maxlen=length)
        self._lock = threading.Lock()

    def add(self, value: float) -> None:
        """Take one value; NaN is left out."""
        if not math.isnan(value):
            with self._lock:
                self._values.append(value)

    def summary(self) -> tuple[float, float]:
        """(median, 95th percentile), NaN when empty."""
        with self._lock:
            values = list(self._values)
        if not values:
            return math.nan, math.nan
        median, high = np.percentile(values, (50, 95))
        return float(median), float(high)

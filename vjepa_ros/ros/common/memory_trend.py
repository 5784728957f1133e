# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell memory that grows steadily from memory that goes up and down."""

from __future__ import annotations

import math
from itertools import pairwise

WINDOW_S = 600.0         # over which growth is judged
PARTS = 6                # of the window; the least memory of each must be above that before
LEAST_SHARE, LEAST_BYTES = 0.03, 32 << 20      # growth below both is none


class MemoryTrend:
    """Growth of the memory of a process.

    Passing peaks do not count: the least memory of each part of the window does.

    Parameters
    ----------
    window_s : float
        Over which growth is judged [s].
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._part_s = window_s / PARTS
        self._began_s = -math.inf
        self._parts: list[int] = []      # least memory of each part, the newest last

    def add(self, used_bytes: int, now_s: float) -> None:
        """Take a measurement at a steady time [s]."""
        if now_s - self._began_s >= self._part_s:
            self._began_s = now_s
            self._parts = [*self._parts[-PARTS:], used_bytes]
        else:
            self._parts[-1] = min(self._parts[-1], used_bytes)

    @property
    def _whole(self) -> list[int]:
        return self._parts[:-1]          # the newest part is not over yet

    @property
    def bytes_per_hour(self) -> float:
        """Growth over the window [bytes/h]; NaN before it is full."""
        if len(self._whole) < PARTS:
            return math.nan
        return (self._whole[-1] - self._whole[0]) / (self._part_s * (PARTS - 1)) * 3600

    @property
    def steady(self) -> bool:
        """Whether memory has grown in every part of a full window, and not just a little."""
        whole = self._whole
        if len(whole) < PARTS or any(b <= a for a, b in pairwise(whole)):
            return False
        growth, late = whole[-1] - whole[0], whole[-1] - whole[PARTS // 2 - 1]
        # A start that takes long slows down.
        return growth > max(LEAST_BYTES, LEAST_SHARE * whole[0]) and late > growth / 3

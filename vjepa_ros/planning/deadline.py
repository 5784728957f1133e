# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep a plan within its time: stop before a piece of work that would not end in time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

CANCELLED, BUDGET = 'cancelled', 'budget'


class PlanStopped(Exception):
    """A plan ends before its time.

    Attributes
    ----------
    reason : str
        `CANCELLED` or `BUDGET`.

    """

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class Watch:
    """The time of one plan, asked before every piece of work.

    Pieces of a kind take about the same time: one begins only when the longest of its kind so
    far still fits.

    Parameters
    ----------
    budget_s : float
        Time from now [s]; infinite for none.
    cancelled : threading.Event, optional
        Set by others to end the plan.
    clock : callable
        Steady time [s].

    """

    def __init__(self, budget_s: float = math.inf, cancelled: threading.Event | None = None,
                 clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._begun = clock()
        self._end = self._begun + budget_s
        self._cancelled = cancelled
        self._reserved_s = 0.0
        self._open: dict[str, float] = {}
        self._longest: dict[str, float] = {}

    def piece(self, kind: str) -> None:
        """Begin a piece of work, and with it end the last one of its kind.

        Raises
        ------
        PlanStopped
            When the plan was cancelled, or the piece would not end in time.

        """
        self.end(kind)
        if self._cancelled is not None and self._cancelled.is_set():
            raise PlanStopped(CANCELLED)
        now = self._clock()
        if now + self._longest.get(kind, 0.0) + self._reserved_s > self._end:
            raise PlanStopped(BUDGET)
        self._open[kind] = now

    def end(self, kind: str) -> None:
        """End the piece of this kind that was begun last, if it is under way."""
        if kind in self._open:
            took = self._clock() - self._open.pop(kind)
            self._longest[kind] = max(took, self._longest.get(kind, 0.0))

    def longest_s(self, kind: str) -> float:
        """Longest piece of a kind so far [s]; 0 before the first."""
        return self._longest.get(kind, 0.0)

    def reserve(self, seconds: float) -> None:
        """Keep so much time for later work; 0 gives it back."""
        self._reserved_s = seconds

    @property
    def spent_s(self) -> float:
        """Time since the beginning [s]."""
        return self._clock() - self._begun

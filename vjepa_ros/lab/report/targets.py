# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A figure that is to be reached, of speed or of accuracy, and how a measured one stands to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BETTER, REACHED, MISSED, OPEN = 'better', 'reached', 'missed', 'measured'


@dataclass(frozen=True)
class Goal:
    """A figure to reach.

    Attributes
    ----------
    what
        In words.
    reach, better
        The goal, and what would be better still: at least these where more is better, else at
        most. NaN: nothing to hold the figure against. `better` None: none was set.
    read
        The figure in a result; None or KeyError when it is not there.
    more
        Whether more is better.
    rows
        Names of the results that may give it, the best counts; () where there is one alone.
    unit
        Such as ' ms'.
    shape
        How the figure is written where that is fixed.
    """

    what: str
    reach: float
    better: float | None
    read: Callable[[Mapping[str, Any]], float | None]
    more: bool = False
    rows: tuple[str, ...] = ()
    unit: str = ''
    shape: str = '{:.3f}'

    def standing(self, value: float) -> str:
        """`BETTER`, `REACHED`, `MISSED`, or `OPEN` without a goal."""
        if self.better is not None and self._reached(value, self.better):
            return BETTER
        if math.isnan(self.reach):
            return OPEN
        return REACHED if self._reached(value, self.reach) else MISSED

    def best(self, values: Mapping[str, float]) -> str:
        """Name of the best of some figures."""
        return (max if self.more else min)(values, key=values.__getitem__)

    def _reached(self, value: float, limit: float) -> bool:
        return value >= limit if self.more else value <= limit

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Hold what a live view shows: the results so far and the state of what makes them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from vjepa_ros.perception.types import Assessment

MAX_POINTS = 36000


@dataclass(frozen=True)
class Point:
    """One assessment on the time axis of its source; truth is NaN where nobody knows it."""

    time_s: float
    assessment: Assessment
    truth_s: float = math.nan
    latency_ms: float = math.nan


@dataclass
class Status:
    """What the view shows; changed by the tool while it runs.

    Attributes
    ----------
    title, source
        Of the panel, and what is played.
    span_s
        Expected length of the source [s], None when it has no end.
    phase
        What is being waited for; '' while results come.
    parts
        State by name of each process: 'starting', 'ready', 'ended'.
    model, trained
        What runs where, in words; whether its weights are trained (None: not known yet).
    points
        Results so far, oldest first.
    frames_in
        Frames that the perception took.
    rate_in_hz
        Of the frames; NaN unknown.
    sides
        Least time to contact of the regions at the left, centre and right [s].
    note
        The last thing that went wrong.
    """

    title: str
    source: str
    span_s: float | None = None
    phase: str = 'starting'
    parts: dict[str, str] = field(default_factory=dict)
    model: str = ''
    trained: bool | None = None
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    results: int = 0
    frames_in: int = 0
    rate_in_hz: float = math.nan
    sides: dict[str, float] = field(default_factory=dict)
    note: str = ''

    def add(self, point: Point) -> None:
        """Take one result."""
        self.points.append(point)
        self.results += 1
        self.phase = ''

    @property
    def time_s(self) -> float:
        """Time of the newest result on the axis of the source [s]."""
        return self.points[-1].time_s if self.points else 0.0

    def recent(self, seconds: float) -> list[Point]:
        """Results of the last seconds, oldest first."""
        out = []
        for point in reversed(self.points.copy()):
            if self.time_s - point.time_s > seconds:
                break
            out.append(point)
        return out[::-1]

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Velocities of the robot over the last seconds."""

from __future__ import annotations

import math
from collections import deque

from vjepa_ros.guard.types import Motion, STILL

KEPT_S = 5.0


class SpeedHistory:
    """Velocities over time; each is valid until the next, and before the first the robot stood.

    Attributes
    ----------
    measured_s
        Time since which they come from odometry [s]; inf while commands count instead.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Motion]] = deque()
        self.measured_s = math.inf

    def add(self, time_s: float, motion: Motion, measured: bool = False) -> None:
        """Add the velocity from a time on [s]; times before the newest are ignored."""
        self.measured_s = min(self.measured_s, time_s) if measured else math.inf
        if self._samples and time_s < self._samples[-1][0]:
            return
        if self._samples and self._samples[-1][1] == motion:
            return
        self._samples.append((time_s, motion))
        while len(self._samples) > 2 and self._samples[1][0] < time_s - KEPT_S:
            self._samples.popleft()

    def clear(self) -> None:
        """Drop all velocities."""
        self._samples.clear()
        self.measured_s = math.inf

    @property
    def newest(self) -> Motion:
        """Return the velocity now."""
        return self._samples[-1][1] if self._samples else STILL

    def travel(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the distance [m] travelled between two times towards a direction (yaw [rad])."""
        return sum(dt * motion.along(yaw) for dt, motion in self._parts(begin_s, end_s))

    def path(self, begin_s: float, end_s: float) -> float:
        """Return the length of the path between two times [m]."""
        return sum(dt * (m.vx ** 2 + m.vy ** 2) ** 0.5 for dt, m in self._parts(begin_s, end_s))

    def turned(self, begin_s: float, end_s: float) -> float:
        """Return the change of heading between two times [rad], counter-clockwise."""
        return sum(dt * motion.omega for dt, motion in self._parts(begin_s, end_s))

    def moved(self, begin_s: float, end_s: float) -> float:
        """Return how far the robot was moved [m] or turned [rad] between two times, the larger."""
        if not begin_s < end_s:     # or one is NaN
            return 0.0
        along, across = (self.travel(begin_s, end_s, yaw) for yaw in (0.0, math.pi / 2))
        return max(math.hypot(along, across), abs(self.turned(begin_s, end_s)))

    def mean(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the mean speed towards a direction between two times [m/s]."""
        if end_s <= begin_s:
            return self.newest.along(yaw)
        return self.travel(begin_s, end_s, yaw) / (end_s - begin_s)

    def least(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the lowest speed towards a direction between two times [m/s].

        It is 0 where the history does not cover the whole time.
        """
        parts = self._parts(begin_s, end_s)
        if sum(dt for dt, _ in parts) < end_s - begin_s - 1e-6:
            return 0.0
        return min((motion.along(yaw) for _, motion in parts), default=0.0)

    def _parts(self, begin_s: float, end_s: float) -> list[tuple[float, Motion]]:
        """Return durations [s] and velocities between two times, the newest first.

        The search starts at the newest sample: queries are mostly about the last moment, and
        odometry may bring a thousand samples.
        """
        parts = []
        until = float('inf')
        for since, motion in reversed(self._samples):
            dt = min(until, end_s) - max(since, begin_s)
            if dt > 0:
                parts.append((dt, motion))
            if since <= begin_s:
                break
            until = since
        return parts

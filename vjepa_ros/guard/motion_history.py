# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Velocities of the robot over the last seconds."""

from __future__ import annotations

import math
from collections import deque

from vjepa_ros.guard.types import Motion, STILL

KEPT_S = 5.0
SENT_S = 1.0             # a robot is no faster than the commands of this time before were
TURN_MARGIN = 1.5        # factor by which it may turn faster than they say


class SpeedHistory:
    """Velocities over time; each is valid until the next, and before the first the robot stood.

    `sent`: the commands sent, where `add` takes measured velocities.
    Directions are yaws in the frame of the robot [rad], times are in s.
    """

    def __init__(self, sent: SpeedHistory | None = None) -> None:
        self._samples: deque[tuple[float, Motion]] = deque()
        self.measured_s = math.inf      # since when they come from odometry; inf: commands count
        self.sent = self if sent is None else sent

    def add(self, time_s: float, motion: Motion, measured: bool = False) -> None:
        """Add the velocity from a time on; times before the newest are ignored."""
        self.measured_s = min(self.measured_s, time_s) if measured else math.inf
        if self._samples and (time_s < self._samples[-1][0] or self._samples[-1][1] == motion):
            return
        self._samples.append((time_s, motion))
        while len(self._samples) > 2 and self._samples[1][0] < time_s - KEPT_S:
            self._samples.popleft()

    def restart(self, time_s: float) -> None:
        """Drop all velocities: the robot stands at a time."""
        self._samples.clear()
        self.add(time_s, STILL)
        if self.sent is not self:
            self.sent.restart(time_s)

    def travel(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the distance travelled towards a direction [m]."""
        return sum(dt * motion.along(yaw) for dt, motion in self._parts(begin_s, end_s))

    def reach(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return `travel`, or that of the commands sent where they lead farther [m]."""
        # A measured speed can be wrong, so what is ahead is never farther away than by either.
        return max(one.travel(begin_s, end_s, yaw) for one in (self, self.sent))

    def path(self, begin_s: float, end_s: float) -> float:
        """Return the length of the path between two times [m]."""
        return sum(dt * motion.speed for dt, motion in self._parts(begin_s, end_s))

    def stood(self, begin_s: float, end_s: float, most: float) -> bool:
        """Return whether the path is shorter than `most` [m], also by the commands sent."""
        return all(one.path(begin_s, end_s) < most for one in (self, self.sent))

    def turned(self, begin_s: float, end_s: float) -> float:
        """Return the change of heading between two times [rad], counter-clockwise."""
        return sum(dt * motion.omega for dt, motion in self._parts(begin_s, end_s))

    def moved(self, begin_s: float, end_s: float) -> float:
        """Return how far the robot was moved [m] or turned [rad] between two times, the larger."""
        if not begin_s < end_s:     # or one is NaN
            return 0.0
        along, across = (self.travel(begin_s, end_s, yaw) for yaw in (0.0, math.pi / 2))
        return max(math.hypot(along, across), abs(self.turned(begin_s, end_s)))

    def commanded_turn(self, begin_s: float, end_s: float) -> float:
        """Return the part of `turned` that the commands sent of the last second can explain."""
        # A gyroscope that drifts turns no obstacle away.
        most = TURN_MARGIN * (end_s - begin_s) * max(
            (abs(m.omega) for _, m in self.sent._parts(begin_s - SENT_S, end_s)), default=0.0)
        return max(-most, min(most, self.turned(begin_s, end_s)))

    def mean(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the mean speed towards a direction [m/s]."""
        return self.travel(begin_s, end_s, yaw) / (end_s - begin_s)

    def least(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the lowest speed towards a direction [m/s], 0 where the history is too short."""
        parts = self._parts(begin_s, end_s)
        if sum(dt for dt, _ in parts) < end_s - begin_s - 1e-6:
            return 0.0
        return min((motion.along(yaw) for _, motion in parts), default=0.0)

    def most(self, begin_s: float, end_s: float, yaw: float) -> float:
        """Return the highest speed towards a direction [m/s], at least 0."""
        return max((0.0, *(motion.along(yaw) for _, motion in self._parts(begin_s, end_s))))

    def _parts(self, begin_s: float, end_s: float) -> list[tuple[float, Motion]]:
        """Return durations [s] and velocities between two times, the newest first."""
        # From the newest sample on: queries are mostly about the last moment, and odometry may
        # bring a thousand samples.
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

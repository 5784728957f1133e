# SPDX-License-Identifier: Apache-2.0
"""What is known about the way towards one direction: how far it is free, and since when.

A camera tells times, not distances: looming is closing speed over distance. While the robot drives
towards a thing that stands, ``distance = speed * time to contact``; when the robot stands,
looming is zero whatever lies ahead. So a distance is measured only while driving, is carried on
by the way covered since, and is kept while the robot stands:

- a *threat* (something nearer than speed * horizon) is kept until it is measured again, until the
  robot has turned away, or until clearance or a range sensor says for `release_hold` that the way
  is free; one that came by itself only until the robot stands,
- a *free* way (nothing comes nearer within the horizon, so speed * horizon is free) is kept for
  `memory` seconds, for somebody may step into it.
"""

from __future__ import annotations

import math
from collections import deque

from vjepa_ros.guard.history import SpeedHistory
from vjepa_ros.guard.settings import GuardSettings

MIN_SAMPLES = 3          # of clearance or range, before they count as steady
CAME = 0.6               # part of the expected distance below which a threat has come by itself
STAYED = 0.85            # part from which it has not


class Steady:
    """Least and greatest of the values of the last time; NaN until the time is covered."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque()
        self._since = math.nan

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._since = math.nan

    def add(self, time_s: float, value: float, window_s: float) -> None:
        """Take a value [m]; an unknown one (NaN) makes all before it forgotten."""
        if math.isnan(value):
            self.clear()
            return
        if not self._values:
            self._since = time_s
        self._values.append((time_s, value))
        while self._values[0][0] < time_s - window_s:
            self._values.popleft()

    def bounds(self, window_s: float) -> tuple[float, float]:
        """(least, greatest) of the window, NaN when it is not covered."""
        if len(self._values) < MIN_SAMPLES or not self._values[-1][0] - self._since >= window_s:
            return math.nan, math.nan
        values = [value for _, value in self._values]
        return min(values), max(values)


class Way:
    """The free way towards one direction.

    Attributes
    ----------
    distance
        How far it is free now [m]; NaN unknown.
    threat
        Whether something was seen at its end.
    moving
        Whether what was seen came nearer than the way driven explains: it moves by itself, and
        its distance is underestimated (``speed * time`` leaves out its own speed).
    known_by
        Where that comes from: 'looming', 'clearance' or 'none'.
    known_s
        When it was last measured or seen [s]; NaN never.
    """

    def __init__(self, yaw: float) -> None:
        self.yaw = yaw
        self.clearance, self.range = Steady(), Steady()
        self.forget()

    def forget(self) -> None:
        """Nothing is known about the way any more."""
        self.distance = self.known_s = math.nan
        self.threat = self.moving = False
        self.known_by = 'none'
        self._farthest = math.nan    # of the estimates of this threat, carried on
        self._turned = 0.0
        self._still_s = 0.0

    def advance(self, begin_s: float, now_s: float, history: SpeedHistory,
                settings: GuardSettings) -> None:
        """Take the motion between two times into account."""
        if not begin_s < now_s:
            return
        covered = history.travel(begin_s, now_s, self.yaw)
        self.distance -= covered
        self._farthest -= covered
        self._turned += history.turned(begin_s, now_s)
        self._still_s = 0.0 if covered else self._still_s + now_s - begin_s
        if abs(self._turned) > settings.release_turn:
            self.clearance.clear()   # of another direction
            self.forget()
        elif self.threat:
            if 0 < settings.forget < self._still_s:
                self.forget()
        elif now_s - self.known_s > settings.memory:
            self.forget()

    def measure(self, speed: float, time_to_contact: float, stamp_s: float, now_s: float,
                history: SpeedHistory, settings: GuardSettings) -> None:
        """Take a time to contact [s] that was measured while driving with a speed [m/s]."""
        since = history.travel(stamp_s, now_s, self.yaw)
        found = speed * min(time_to_contact, settings.horizon) - since
        threat = time_to_contact < settings.horizon
        # Of a thing that stands all estimates agree; of one that comes they fall short more and
        # more, as the robot slows down.
        self._farthest = max(found, self._farthest) if threat and self.threat else found
        if found > STAYED * self._farthest:
            self.moving = False
        elif found < CAME * self._farthest:
            self.moving = True
        self.threat = threat
        if self.threat or math.isnan(self.distance):
            self.distance = found
        else:
            # Nothing within the horizon is a lower bound: more may be known already.
            self.distance = max(self.distance, found)
        self.known_s, self.known_by = now_s, 'looming'
        self._turned = history.turned(stamp_s, now_s)
        self._still_s = 0.0
        self.clearance.clear()

    def see_clearance(self, clearance: float, now_s: float, settings: GuardSettings) -> None:
        """Take the free way that the learned heads see while the camera can not measure [m]."""
        if not settings.use_clearance:
            return
        self.clearance.add(now_s, clearance, settings.release_hold)
        least, greatest = self.clearance.bounds(settings.release_hold)
        if math.isnan(least):
            return
        kept = least if math.isnan(self.distance) else min(max(self.distance, least), greatest)
        if kept != self.distance:
            self.distance, self.threat, self.known_by = kept, kept < math.inf, 'clearance'
        self.known_s = now_s

    def see_range(self, distance: float, now_s: float, settings: GuardSettings) -> None:
        """Take the free way that a range sensor sees [m]; it can make a threat forgotten."""
        self.range.add(now_s, distance, settings.release_hold)
        least, _ = self.range.bounds(settings.release_hold)
        if settings.range_releases and self.threat and least > self.distance:
            self.forget()

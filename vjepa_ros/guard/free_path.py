# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What is known about the way towards one direction: how far it is free, and since when.

A camera tells times, not distances: looming is closing speed over distance. While the robot drives
towards a thing that stands, ``distance = speed * time to contact``; when the robot stands,
looming is zero whatever lies ahead. So a distance is measured only while driving, is carried on
by the way covered since, and is kept while the robot stands:

- a *threat* (something nearer than speed * horizon) is kept until it is measured again, until the
  robot has turned away, until nothing has come nearer for `LIFT_S` and `MIN_SAMPLES` measurements
  while driving, or until clearance or a range sensor says for `release_hold` that the way is free;
  one that came by itself only until the robot stands,
- a *free* way (nothing comes nearer within the horizon, so speed * horizon is free) is kept for
  `memory` seconds, for somebody may step into it.
"""

from __future__ import annotations

import math
from collections import deque

from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import GuardSettings

MIN_SAMPLES = 3          # of clearance, range or a free view, before they count as steady
LIFT_S = 0.6             # time that free views must last, too, before they lift a threat: longer
                         # than it takes until a camera that hangs is flagged (`FrozenWatch`)
CAME = 0.5               # part of the expected distance below which a threat has come by itself
NEAR = 0.1               # by which it must fall short, too [m]
STAYED = 0.85            # part from which it has not
STANDS = 0.02            # speed up to which a robot stands [m/s]
RISE = 0.3               # part of the way to a longer distance that one measurement goes


class Steady:
    """What all values of the last time agree on; unknown until the time is covered."""

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
        self._values.append((time_s, value))
        while self._values[0][0] < time_s - window_s:
            self._values.popleft()
        if len(self._values) == 1:      # after a silence the time is to be covered anew
            self._since = time_s

    def least(self, window_s: float) -> float:
        """The least of the window, NaN when it is not covered."""
        if len(self._values) < MIN_SAMPLES or not self._values[-1][0] - self._since >= window_s:
            return math.nan
        return min(value for _, value in self._values)


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
        self._short = False
        self._free: tuple[int, float] = 0, math.nan    # measurements in a row, and since when
        self._farthest = math.nan    # of the estimates of this threat, carried on
        self._turned = 0.0
        self._still_s = 0.0

    def turn(self, by: float) -> None:
        """The camera was turned on the robot by an angle [rad]."""
        self._turned += by

    def advance(self, begin_s: float, now_s: float, history: SpeedHistory,
                settings: GuardSettings) -> None:
        """Take the motion between two times into account."""
        if not begin_s < now_s:
            return
        covered = history.travel(begin_s, now_s, self.yaw)
        self.distance -= covered
        self._farthest -= covered
        self._turned += history.turned(begin_s, now_s)
        # Measured speeds are never quite zero.
        stands = abs(covered) <= STANDS * (now_s - begin_s)
        self._still_s = self._still_s + now_s - begin_s if stands else 0.0
        if abs(self._turned) > settings.release_turn:
            self.clearance.clear()   # of another direction
            self.forget()
        elif self.threat:
            if 0 < settings.forget < self._still_s:
                self.forget()
        elif now_s - self.known_s > settings.memory:
            self.forget()

    def measure(self, found: float, now_s: float, turned: float) -> None:
        """Take a distance to a thing that was measured while driving.

        Parameters
        ----------
        found
            Speed times time to contact, less the way since [m].
        now_s
            Time [s].
        turned
            Change of heading since the measurement [rad].
        """
        # Of a thing that stands all estimates agree; of one that comes they fall short more and
        # more, as the robot slows down.
        if not self.threat:
            self._farthest = found
        if found > STAYED * self._farthest:
            self.moving = False
        short = found < CAME * self._farthest - NEAR
        self.moving |= short and self._short     # twice in a row, to be believed
        self._short = short
        self._measured(found, now_s, turned)
        self._farthest = max(self.distance, self._farthest)
        self.threat = True

    def free(self, found: float, now_s: float, turned: float) -> bool:
        """Take that nothing comes nearer within a distance [m], measured while driving.

        Returns
        -------
        bool
            Whether that has been so for long enough to be believed against what was seen before.
            One view alone can miss what is there: until then a threat stays where it is.
        """
        count, since_s = self._free
        self._free = count, since_s = count + 1, now_s if count == 0 else since_s
        steady = count >= MIN_SAMPLES and now_s - since_s >= LIFT_S
        if self.threat and not steady:
            return False
        # That is a lower bound: more may be known already.
        if not self.distance > found:
            self._measured(found, now_s, turned)
        self.threat = self.moving = False
        self.known_s, self.known_by = now_s, 'looming'
        return steady

    def interrupt(self) -> None:
        """The views in which nothing comes nearer are not in a row any more."""
        self._free = 0, math.nan

    def _measured(self, found: float, now_s: float, turned: float) -> None:
        if self.threat and found > self.distance:
            # A thing that stands does not draw back: one long time to contact is not believed.
            found = self.distance + RISE * (found - self.distance)
        self.distance = found
        self.known_s, self.known_by = now_s, 'looming'
        self._turned = turned
        self._still_s = 0.0
        self.clearance.clear()

    def see_clearance(self, clearance: float, now_s: float, settings: GuardSettings) -> None:
        """Take the free way that the learned heads see while the camera can not measure [m].

        It can only make a remembered distance longer: on rendered drives the heads told 0.3 m of
        rooms with 3 m of free way while nothing moved, and a robot held by that never starts.
        """
        self.clearance.add(now_s, clearance, settings.release_hold)
        least = self.clearance.least(settings.release_hold)
        if settings.clearance_releases and self.threat and least > self.distance:
            self.distance, self.threat, self.known_by = least, least < math.inf, 'clearance'
            self.known_s = now_s

    def see_range(self, distance: float, now_s: float, settings: GuardSettings) -> None:
        """Take the free way that a range sensor sees [m]; it can make a threat forgotten."""
        self.range.add(now_s, distance, settings.release_hold)
        least = self.range.least(settings.release_hold)
        if settings.range_releases and self.threat and least > self.distance:
            self.forget()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Memory of the free path in one direction: its length, and when it was measured.

Looming is closing speed over distance, so a distance is measured only while the robot drives. From
then on it is reduced by the distance travelled, and kept while the robot stands. ``docs/guard.md``
says when a *threat*, an object at the end of the path, is lifted, and how long a *free* path
counts. What is forgotten without having been seen free may still be there: its place moves with
the robot, which creeps where the place is ahead.
"""

from __future__ import annotations

import cmath
import math
from collections import deque
from typing import NamedTuple, Protocol

from vjepa_ros.guard.motion_history import SpeedHistory
from vjepa_ros.guard.settings import GuardSettings, RELEASE_HOLD_S

MIN_SAMPLES = 3          # of clearance, range or free views before they count
# Least duration of free views that lift a threat: longer than it takes to flag a camera that hangs
# (`StillView`).
LIFT_S = 0.6
APPROACHED = 0.5         # fraction of the expected distance below which a threat moved by itself
MIN_SHORTFALL = 0.1      # and the least difference to the expected distance [m]
AT_REST = 0.85           # fraction from which it did not
MEMORY_S = 2.0           # for so long a path counts as free: people step into it
RELEASE_TURN = 0.35      # heading change after which measurements no longer apply [rad]
RISE = 0.3               # fraction of an increase in distance that one measurement applies
PLACES = 8               # that are kept, the nearest
PLACES_M = 3.0           # how far away they are kept [m]
SAME_PLACE_M = 0.1       # what is nearer to a place is the same object [m]
ASIDE = math.radians(60.0)     # beside the path by up to this angle, it may reach into it...
ASIDE_FACTOR = 2.0       # ...nearer than stop_distance by this factor: then it may be a wall


class Robot(Protocol):
    """Motion and settings of the robot, which all of its sources share."""

    history: SpeedHistory
    settings: GuardSettings


class WindowMinimum:
    """The minimum over `RELEASE_HOLD_S`; unknown until values cover that time."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque()
        self._since = math.nan

    def clear(self) -> None:
        """Drop all values."""
        self._values.clear()

    def add(self, time_s: float, value: float) -> float:
        """Add a value [m]; NaN (unknown) drops all before. Return the minimum, NaN unknown."""
        if math.isnan(value):
            self.clear()
            return math.nan
        self._values.append((time_s, value))
        while self._values[0][0] < time_s - RELEASE_HOLD_S:
            self._values.popleft()
        if len(self._values) == 1:      # after a gap the window starts anew
            self._since = time_s
        if len(self._values) < MIN_SAMPLES or time_s - self._since < RELEASE_HOLD_S:
            return math.nan
        return min(value for _, value in self._values)


class _Place(NamedTuple):
    """Where something was: ahead + 1j left [m]; `wide` until the path beside it is seen free."""

    at: complex
    wide: bool = True


class FreePath:
    """The free path in one direction, a yaw in the frame of the robot [rad]."""

    def __init__(self, yaw: float, robot: Robot) -> None:
        self.yaw, self._robot = yaw, robot
        self.clearance, self.range = WindowMinimum(), WindowMinimum()
        self._places: list[_Place] = []
        self._drop()

    def forget(self) -> None:
        """Drop what is known about the path, but for the place of a threat."""
        if self.threat:
            # An object that moves by itself is farther away than it seems.
            least = self._robot.settings.stop_distance if self.moving else SAME_PLACE_M / 10
            self._note(cmath.rect(max(self.distance, least), -self._aside))
        self._drop()

    def _drop(self) -> None:
        """Drop everything known about the path, which has been seen free or was never known."""
        self.distance = math.nan     # length of the path now [m]
        self.known_s = math.nan      # time of the last measurement [s]
        self.known_by = 'none'       # or 'looming', 'clearance'
        self.threat = False          # an object is at its end
        # The object approaches faster than the robot drives, so it moves by itself, and its
        # distance is underestimated (``speed * time`` leaves out its own speed).
        self.moving = False
        self._short = False          # the last measurement fell short
        self._farthest = math.nan    # largest estimate of this threat, less the travel since
        self._turned = self._aside = 0.0     # by odometry; and what commands explain of it
        self._excess = 0.0           # part of the travel that only commands tell of [m]
        self.interrupt()

    def restart(self) -> None:
        """Forget what depends on times: the clock jumped, but a threat is where it was."""
        self.clearance.clear()
        self.range.clear()
        self.interrupt()
        if not self.threat:
            self._drop()

    def recall(self, other: FreePath) -> None:
        """Forget the path but for the places of another one, or of itself."""
        other.forget()
        self._places = other._places
        self._drop()

    def turn(self, by: float) -> None:
        """Account for a rotation of the camera on the robot [rad]."""
        self._turned += by
        self._aside += by
        self._move(0j, by)

    def _move(self, step: complex, turned: float) -> None:
        """Account for a motion of the camera in its own frame: step [m] and turn [rad]."""
        back = cmath.rect(1.0, -turned)
        moved = [one._replace(at=(one.at - step) * back) for one in self._places]
        self._places = [one for one in moved if abs(one.at) <= PLACES_M]

    def _note(self, at: complex) -> None:
        """Keep a place."""
        others = [one for one in self._places if abs(one.at - at) > SAME_PLACE_M]
        near = min([at, *(one.at for one in self._places if one not in others)], key=abs)
        self._places = sorted([_Place(near), *others], key=lambda one: abs(one.at))[:PLACES]

    def doubted(self) -> float:
        """Return the distance of what was forgotten and has not been seen free [m]; inf: none."""
        nearest = math.inf
        for one in self._places:
            away, beside = abs(one.at), abs(cmath.phase(one.at))
            if beside <= RELEASE_TURN:
                nearest = min(nearest, away)
            elif one.wide and beside < ASIDE:
                wall = away / math.cos(beside)
                if wall < ASIDE_FACTOR * self._robot.settings.stop_distance:
                    nearest = min(nearest, wall)
        return nearest

    def _see_free(self, distance: float) -> None:
        """Drop places ahead up to a distance [m] that is known to be free."""
        aside = [one._replace(wide=False) for one in self._places
                 if abs(cmath.phase(one.at)) > RELEASE_TURN]
        self._places = aside + [one for one in self._places if abs(one.at) > distance
                                and abs(cmath.phase(one.at)) <= RELEASE_TURN]

    def advance(self, begin_s: float, now_s: float) -> None:
        """Account for the motion of the robot between two times [s]."""
        if not begin_s < now_s:
            return
        history = self._robot.history
        covered = history.reach(begin_s, now_s, self.yaw)
        aside = history.commanded_turn(begin_s, now_s)
        self.distance -= covered
        self._farthest -= covered
        self._excess += covered - history.travel(begin_s, now_s, self.yaw)
        self._turned += history.turned(begin_s, now_s)
        self._aside += aside
        self._move(covered + 1j * history.travel(begin_s, now_s, self.yaw + math.pi / 2), aside)
        if abs(self._turned) > RELEASE_TURN:
            self.clearance.clear()   # of another direction
            self.forget()
        elif not self.threat and now_s - self.known_s > MEMORY_S:
            self._drop()

    def measure(self, found: float, now_s: float, turned: float) -> None:
        """Take the distance to an object, measured while driving.

        `found`: speed times time to contact, less the distance travelled since [m]; `turned`:
        change of heading since the measurement [rad].
        """
        # For an object at rest all estimates agree. For one that approaches they fall short more
        # and more as the robot slows down.
        if not self.threat:
            self._farthest = found
        if found > AT_REST * self._farthest:
            self.moving = False
        short = found < APPROACHED * self._farthest - MIN_SHORTFALL
        self.moving |= short and self._short     # a single short estimate may be an error
        self._short = short
        self._update(found, now_s, turned)
        self._farthest = max(self.distance, self._farthest)
        self.threat = True

    def free(self, found: float, now_s: float, turned: float) -> bool:
        """Take a view without any approach within a distance [m], measured while driving.

        Return whether such views have lasted long enough to lift a threat: one can miss an object.
        """
        steady = self._steady(now_s)
        if self.threat and not steady:
            return False
        if steady:
            self._see_free(found)
        # The distance is a lower bound: more may be known already.
        if not self.distance > found:
            self._update(found, now_s, turned)
        self.threat = self.moving = False
        self.known_s, self.known_by = now_s, 'looming'
        return steady

    def hold(self, now_s: float) -> None:
        """Take a view without any approach while only the commands sent tell of motion."""
        # Seen for as long as lifts a threat, it shows that the robot did not execute them.
        if self._steady(now_s):
            self.distance += self._excess
            self._farthest += self._excess
            self._excess = 0.0

    def _steady(self, now_s: float) -> bool:
        """Count a view without any approach; return whether they have lasted long enough."""
        count, since_s = self._free
        self._free = count, since_s = count + 1, now_s if count == 0 else since_s
        return count >= MIN_SAMPLES and now_s - since_s >= LIFT_S

    def interrupt(self) -> None:
        """End the run of free views."""
        self._free: tuple[int, float] = 0, math.nan     # how many in a row, and since when

    def _update(self, found: float, now_s: float, turned: float) -> None:
        if self.threat and found > self.distance:
            # An object at rest does not recede: a single long time to contact is not trusted.
            found = self.distance + RISE * (found - self.distance)
        self.distance = found
        self.known_s, self.known_by = now_s, 'looming'
        self._turned = self._aside = turned
        self._excess = 0.0
        self.clearance.clear()

    def see_clearance(self, clearance: float, now_s: float) -> None:
        """Take the free path by the learned heads while looming cannot measure [m]."""
        # It can only extend a remembered distance: on rendered drives the heads reported 0.3 m in
        # rooms with a free path of 3 m while nothing moved, and a robot held by that never starts.
        least = self.clearance.add(now_s, clearance)
        if self.threat and least > self.distance:
            if self.known_by != 'clearance':
                self.forget()        # heads can be far off while nothing moves
            self.distance, self.threat, self.known_by = least, least < math.inf, 'clearance'
            self.known_s = now_s

    def see_range(self, distance: float, now_s: float) -> None:
        """Take the free path by a range sensor [m]; it can clear a threat."""
        least = self.range.add(now_s, distance)
        if math.isnan(least):
            return
        self._see_free(least)
        if self.threat and least > self.distance:
            self._drop()

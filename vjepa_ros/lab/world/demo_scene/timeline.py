# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say where everything in the alley is at a time: one cycle of encounters, exact and repeatable.

All motion is made of pieces of constant acceleration, so positions, speeds and with them the
time to contact are exact. After one cycle everything has moved on by ``ADVANCE_M`` along the
alley and the next cycle is the same again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ADVANCE_M = 18.0
START_GAP_M = 7.2      # first obstacle ahead of the camera when a cycle starts
SIDE_X_M = -1.75       # where the trolley waits beside the way
BRAKE_TTC_S = 1.0      # the robot brakes when contact is this far away
PERSON_Z_M = 13.0      # the person crosses here, from door to door
_WALK_X_M = 3.4        # the person starts and ends behind the walls


class Track:
    """Piecewise linear rate and its exact integral.

    Parameters
    ----------
    knots : sequence of (time in s, rate)
        Rate is linear between knots and keeps the end values outside.
    """

    def __init__(self, knots: list[tuple[float, float]]):
        self._t, self._v = (np.array(c, float) for c in zip(*knots, strict=True))
        steps = np.diff(self._t) * (self._v[1:] + self._v[:-1]) / 2
        self._x = np.concatenate(([0.0], np.cumsum(steps)))

    @property
    def total(self) -> float:
        """Integral over all knots."""
        return float(self._x[-1])

    def rate(self, t: float) -> float:
        return float(np.interp(t, self._t, self._v))

    def value(self, t: float) -> float:
        """Integral of the rate from the first knot to ``t``."""
        if t <= self._t[0]:
            return float(self._v[0] * (t - self._t[0]))
        i = min(int(np.searchsorted(self._t, t, 'right')) - 1, len(self._t) - 1)
        return float(self._x[i] + (t - self._t[i]) * (self._v[i] + self.rate(t)) / 2)


def _move(start: float, distance: float, speed: float, ramp: float) -> list[tuple[float, float]]:
    """Knots of a move from rest to rest with the given top speed and ramp time."""
    v = math.copysign(speed, distance)
    cruise = abs(distance) / speed - ramp
    if cruise < 0:
        raise ValueError(f'{distance} m are too short for {speed} m/s with ramps of {ramp} s')
    return [(start, 0.0), (start + ramp, v), (start + ramp + cruise, v),
            (start + 2 * ramp + cruise, 0.0)]


@dataclass(frozen=True)
class Moment:
    """Positions (m, alley axes: x right, z along) and speeds (m/s) at one time of the scene.

    ``trolley_z``, ``van_z`` and ``person_z`` are the faces turned to the robot; lists hold the
    things of this cycle and of the next ones.
    """

    phase: str
    robot_z: float
    robot_v: float
    yaw: float
    yaw_rate: float
    trolley: tuple[tuple[float, float, float], ...]  # x, z, lateral speed of each
    van_z: float
    van_v: float
    person: tuple[float, float, float]               # x, z, lateral speed


class Timeline:
    """The cycle: rest, approach, retreat, turn, crossing, faster approach, obstacle leaves."""

    def __init__(self) -> None:
        slow, fast = 1.2, 2.2
        robot: list[tuple[float, float]] = [(0.0, 0.0)]
        phases: list[tuple[float, str]] = [(0.0, 'still'), (2.0, 'obstacle_enters')]
        trolley = [(0.0, 0.0), *_move(2.0, -SIDE_X_M, 1.25, 0.5)]

        def go(seconds: float, speed: float) -> float:
            robot.append((robot[-1][0] + seconds, speed))
            return robot[-1][0]

        def phase(name: str) -> None:
            phases.append((robot[-1][0], name))

        go(4.2, 0.0)
        phase('approach')
        go(0.6, slow)
        go((START_GAP_M - 0.3 * slow - BRAKE_TTC_S * slow) / slow, slow)
        phase('brake')
        go(0.8, 0.0)
        phase('halt')
        go(0.8, 0.0)
        phase('retreat')
        for seconds, speed in ((0.4, -0.9), (1.7, -0.9), (0.4, 0.0)):
            go(seconds, speed)
        phase('obstacle_leaves')
        trolley += _move(robot[-1][0], SIDE_X_M, 1.25, 0.5)
        go(2.0, 0.0)
        phase('turn')
        turn = robot[-1][0]
        top = 0.26
        yaw = [(turn, 0.0), (turn + 0.4, top), (turn + 1.6, top), (turn + 2.4, -top),
               (turn + 3.6, -top), (turn + 4.0, 0.0)]
        go(4.2, 0.0)
        phase('crossing')
        person = [(0.0, 0.0), *_move(robot[-1][0] + 0.9, 2 * _WALK_X_M, 1.5, 0.1)]
        go(0.6, 0.9)
        go(5.0, 0.9)
        phase('fast_approach')
        go(0.8, fast)
        driven = Track(robot).total
        go((ADVANCE_M - driven - 0.55 * fast) / fast, fast)
        phase('brake')
        brake = Track(robot).total
        go(1.1, 0.0)
        phase('halt')
        leave = go(0.6, 0.0)
        phase('obstacle_leaves')
        go(4.5, 0.0)
        self.period_s = round(robot[-1][0], 6)

        self._robot, self._yaw = Track(robot), Track(yaw)
        self._trolley, self._person = Track(trolley), Track(person)
        self._van = Track([(0.0, 0.0), *_move(leave, ADVANCE_M, 6.0, 1.5)])
        self._van_z = brake + BRAKE_TTC_S * fast
        self._phases = phases

    @property
    def phases(self) -> tuple[tuple[float, str], ...]:
        """Start (s in the cycle) and name of every phase."""
        return tuple(self._phases)

    def at(self, t: float) -> Moment:
        """Everything at time ``t`` in s (any value; the scene has no beginning and no end)."""
        cycle = math.floor(t / self.period_s)
        u = t - cycle * self.period_s
        base = cycle * ADVANCE_M
        trolley_x = SIDE_X_M + self._trolley.value(u)
        return Moment(
            phase=next(name for start, name in reversed(self._phases) if u >= start),
            robot_z=base + self._robot.value(u), robot_v=self._robot.rate(u),
            yaw=self._yaw.value(u), yaw_rate=self._yaw.rate(u),
            trolley=((trolley_x, base + START_GAP_M, self._trolley.rate(u)),
                     *((SIDE_X_M, base + ahead * ADVANCE_M + START_GAP_M, 0.0)
                       for ahead in (1, 2))),
            van_z=base + self._van_z + self._van.value(u), van_v=self._van.rate(u),
            person=(-_WALK_X_M + self._person.value(u), base + PERSON_Z_M,
                    self._person.rate(u)))

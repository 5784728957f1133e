# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where an episode's robot wants to go, and what it does when nothing stands in its way."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vjepa_ros.lab.world.episodes.robot import Drive, Unicycles

LOOK_AHEAD_S = 0.9      # of the point on the route that is steered for
LOOK_AHEAD_M = 0.5      # and at least
TURN_GAIN = 1.8         # turn rate per angle to that point [1/s]
ARRIVED_M = 0.3         # from the goal
STOP_GAIN = 1.0         # speed per distance to the goal [1/s]


@dataclass(frozen=True)
class Route:
    """A way along straight lines from the origin.

    Attributes
    ----------
    points
        (P, 2) x and z of the way points, the first one the start, the last one the goal [m].
    cruise
        Wanted speed [m/s].
    """

    points: np.ndarray
    cruise: float

    @property
    def length(self) -> float:
        """[m]."""
        return float(self._steps[-1])

    @property
    def _steps(self) -> np.ndarray:
        gaps = np.linalg.norm(np.diff(self.points, axis=0), axis=-1)
        return np.concatenate(([0.0], np.cumsum(gaps)))

    def at(self, gone: float) -> np.ndarray:
        """(2,) point after a length of the way [m], beyond the goal straight on."""
        steps = self._steps
        number = int(np.clip(np.searchsorted(steps, gone, side='right') - 1, 0,
                             len(steps) - 2))
        return self.points[number] + (gone - steps[number]) * self.direction(gone)

    def direction(self, gone: float) -> np.ndarray:
        """(2,) unit vector along the way."""
        steps = self._steps
        number = int(np.clip(np.searchsorted(steps, gone, side='right') - 1, 0,
                             len(steps) - 2))
        way = self.points[number + 1] - self.points[number]
        return way / np.linalg.norm(way)

    def gone(self, place: np.ndarray) -> float:
        """Length of the way up to its point nearest to a place [m]."""
        starts, ways = self.points[:-1], np.diff(self.points, axis=0)
        lengths = np.linalg.norm(ways, axis=-1)
        along = np.clip(((place - starts) * ways).sum(-1) / lengths, 0, lengths)
        near = starts + along[:, None] * ways / lengths[:, None]
        best = int(np.argmin(np.linalg.norm(near - place, axis=-1)))
        return float(self._steps[best] + along[best])

    def command(self, place: np.ndarray, yaw: float) -> tuple[float, float]:
        """Speed [m/s] and turn rate (positive to the left) [rad/s] of a controller that knows
        only its way: it steers for a point ahead on it, and drives into what stands there."""
        gone = self.gone(place)
        aim = self.at(min(self.length, gone + max(LOOK_AHEAD_M, LOOK_AHEAD_S * self.cruise)))
        if float(np.linalg.norm(aim - place)) < LOOK_AHEAD_M:
            aim = place + self.direction(gone)
        off = math.atan2(aim[0] - place[0], aim[1] - place[1]) - yaw
        off = math.atan2(math.sin(off), math.cos(off))
        left = float(np.linalg.norm(self.points[-1] - place))
        if left < ARRIVED_M or (gone >= self.length - 1e-3 and abs(off) > 1):
            return 0.0, 0.0
        speed = min(self.cruise, STOP_GAIN * left) * max(0.15, math.cos(off))
        return speed, -TURN_GAIN * off


@dataclass(frozen=True)
class Run:
    """A robot's poses and speeds at even times from 0: (N, 2), (N,), (N,)."""

    place: np.ndarray
    yaw: np.ndarray
    speed: np.ndarray
    dt: float

    @property
    def duration(self) -> float:
        """[s]."""
        return (len(self.yaw) - 1) * self.dt

    def when(self, route: Route, gone: float) -> float:
        """Time at which the robot has gone a length of its way [s]; the end when it never has."""
        for number, place in enumerate(self.place):
            if route.gone(place) >= gone:
                return number * self.dt
        return self.duration


def free_run(route: Route, drive: Drive, dt: float = 0.05, longest_s: float = 60.0) -> Run:
    """The run of a robot that meets nothing, up to its arrival."""
    robot = Unicycles(1, drive)
    places, yaws, speeds = [robot.place[0]], [0.0], [0.0]
    for _ in range(round(longest_s / dt)):
        speed, turn = route.command(robot.place[0], float(robot.yaw[0]))
        if speed == 0:
            break
        robot.step(np.array([speed]), np.array([turn]), dt)
        places.append(robot.place[0])
        yaws.append(float(robot.yaw[0]))
        speeds.append(float(robot.speed[0]))
    return Run(np.array(places), np.array(yaws), np.array(speeds), dt)

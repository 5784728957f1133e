# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive robots like unicycles, freely or along a route.

World axes as in `vjepa_ros.lab.world.scenes.scene`: x right, z ahead, yaw 0 looks along z and
grows to the right. Commands are those of a ROS Twist: forward speed [m/s] and turn rate [rad/s],
positive to the left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vjepa_ros.lab.world.rendering.truth import Robot


@dataclass(frozen=True)
class Drive:
    """What the base can do."""

    # speed, turn: greatest forward speed [m/s] and turn rate [rad/s]; backward as fast as
    # forward
    speed: float = 2.0
    turn: float = 1.2
    # acceleration, braking: greatest change of speed away from and towards zero [m/s^2]
    acceleration: float = 1.0
    braking: float = 2.5
    turn_acceleration: float = 4.0  # greatest change of the turn rate [rad/s^2]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f'{name} is {value}, must be a positive number')


class Unicycles:
    """N robots, their poses and speeds."""

    def __init__(self, count: int, drive: Drive | None = None) -> None:
        self.drive = drive or Drive()
        # x and z of the point about which they turn, the middle of the robot [m], and yaw [rad]
        self.place, self.yaw = np.zeros((count, 2)), np.zeros(count)
        # Forward [m/s], and turn rate, positive to the left [rad/s]
        self.speed, self.turn = np.zeros(count), np.zeros(count)

    def step(self, speed: np.ndarray, turn: np.ndarray, dt: float) -> None:
        """Move for a time towards commanded speeds.

        `speed, turn`: (N,) commands [m/s], [rad/s]; clipped to what the base can do; `dt`: time
        [s].
        """
        if not (np.isfinite(speed).all() and np.isfinite(turn).all()):
            raise ValueError(f'commands must be finite numbers, got speed {speed}, turn {turn}')
        can = self.drive
        speed = np.clip(speed, -can.speed, can.speed)
        turn = np.clip(turn, -can.turn, can.turn)
        # Towards zero the base brakes, also on its way to the other direction.
        slows = (np.abs(speed) < np.abs(self.speed)) | (speed * self.speed < 0)
        most = np.where(slows, can.braking, can.acceleration) * dt
        old_speed, old_turn = self.speed, self.turn
        self.speed = old_speed + np.clip(speed - old_speed, -most, most)
        self.turn = old_turn + np.clip(turn - old_turn, -can.turn_acceleration * dt,
                                       can.turn_acceleration * dt)
        gone = 0.5 * (old_speed + self.speed) * dt
        bend = -0.5 * (old_turn + self.turn) * dt       # yaw grows to the right
        # An arc: its chord leads in the mean direction.
        middle = self.yaw + 0.5 * bend
        chord = gone * np.sinc(bend / (2 * np.pi))
        self.place = self.place + chord[:, None] * np.stack((np.sin(middle), np.cos(middle)), -1)
        self.yaw = self.yaw + bend

    def front(self, robot: Robot) -> np.ndarray:
        """(N, 2) x and z of the middle of the front, where the camera sits [m]."""
        ahead = np.stack((np.sin(self.yaw), np.cos(self.yaw)), -1)
        return self.place + 0.5 * robot.length * ahead


def footprint(place: np.ndarray, yaw: np.ndarray, robot: Robot, margin: float = 0.0,
              ahead: float = 0.0) -> np.ndarray:
    """Corners of robots on the ground, in order around.

    `place, yaw`: (..., 2) middle [m] and (...) [rad]; `margin, ahead`: how much wider on each
    side, and longer in front [m].
    """
    side = robot.half_width + margin
    half = 0.5 * robot.length
    own = np.array([(-side, -half - margin), (side, -half - margin),
                    (side, half + margin + ahead), (-side, half + margin + ahead)])
    sine, cosine = np.sin(yaw)[..., None], np.cos(yaw)[..., None]
    x = own[:, 0] * cosine + own[:, 1] * sine
    z = own[:, 1] * cosine - own[:, 0] * sine
    return np.asarray(place)[..., None, :] + np.stack((x, z), -1)


LOOK_AHEAD_S = 0.9      # of the point on the route that is steered for
LOOK_AHEAD_M = 0.5      # and at least
TURN_GAIN = 1.8         # turn rate per angle to that point [1/s]
ARRIVED_M = 0.3         # from the goal
STOP_GAIN = 1.0         # speed per distance to the goal [1/s]


@dataclass(frozen=True)
class Route:
    """A way along straight lines from the origin."""

    # (P, 2) x and z of the way points, the first one the start, the last one the goal [m]
    points: np.ndarray
    cruise: float  # wanted speed [m/s]

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
        """Return speed [m/s] and turn rate [rad/s], positive to the left, at a pose.

        The controller knows only its route: it steers for a point ahead on it, and drives into
        whatever stands there.
        """
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
    """Drive a robot that meets nothing, up to its arrival."""
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

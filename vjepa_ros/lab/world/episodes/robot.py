# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive robots like unicycles, freely or along a route, and tell what they touch.

Axes are x right, z ahead; yaw 0 looks along z and grows to the right. Commands are those of a ROS
Twist: forward speed [m/s] and turn rate [rad/s], positive to the left.

A robot is an upright box on the ground, so that only the height band it occupies and the
horizontal section of each shape in that band matter. A card counts as a rectangle, as wide as its
picture is opaque in that band. Convex sections touch unless a line separates them (Gottschalk, Lin
and Manocha, "OBBTree", 1996); a round section becomes the unit disc when its axes are scaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, ELLIPSOID, Robot

STANDS_M_S = 0.1            # a robot that is slower than this stands
WAIT_M, WAIT_S = 0.6, 0.4   # how far before it others wait: at least, and per speed
BESIDE_M = 0.1              # of the room a mover keeps beside itself


@dataclass(frozen=True)
class Drive:
    speed: float = 2.0  # greatest, forward and backward [m/s]
    turn: float = 1.2  # greatest rate [rad/s]
    acceleration: float = 1.0  # greatest change of speed away from zero [m/s^2]
    braking: float = 2.5  # and towards zero
    turn_acceleration: float = 4.0  # greatest change of the turn rate [rad/s^2]


class Unicycles:
    def __init__(self, count: int, drive: Drive | None = None) -> None:
        self.drive = drive or Drive()
        self.place, self.yaw = np.zeros((count, 2)), np.zeros(count)    # of the middle
        self.speed, self.turn = np.zeros(count), np.zeros(count)

    def step(self, speed: np.ndarray, turn: np.ndarray, dt: float,
             goes: np.ndarray | None = None) -> None:
        """Move for a time towards commands (N,), clipped to what the base can do."""
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
        if goes is not None:                            # the others stay where they are
            self.speed, self.turn = self.speed * goes, self.turn * goes
            old_speed, old_turn = old_speed * goes, old_turn * goes
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
    """Corners (..., 4, 2) of robots on the ground, in order around."""
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

    points: np.ndarray  # (P, 2) x and z of the way points from the start to the goal [m]
    cruise: float  # wanted speed [m/s]

    @property
    def length(self) -> float:
        return float(self._steps[-1])

    @property
    def _steps(self) -> np.ndarray:
        gaps = np.linalg.norm(np.diff(self.points, axis=0), axis=-1)
        return np.concatenate(([0.0], np.cumsum(gaps)))

    def at(self, gone: float) -> tuple[np.ndarray, np.ndarray]:
        """Point after a length of the way [m], beyond the goal straight on, and the way there."""
        steps = self._steps
        number = int(np.clip(np.searchsorted(steps, gone, side='right') - 1, 0, len(steps) - 2))
        way = self.points[number + 1] - self.points[number]
        way = way / np.linalg.norm(way)
        return self.points[number] + (gone - steps[number]) * way, way

    def gone(self, place: np.ndarray) -> float:
        """Length of the way up to its point nearest to a place [m]."""
        starts, ways = self.points[:-1], np.diff(self.points, axis=0)
        lengths = np.linalg.norm(ways, axis=-1)
        along = np.clip(((place - starts) * ways).sum(-1) / lengths, 0, lengths)
        near = starts + along[:, None] * ways / lengths[:, None]
        best = int(np.argmin(np.linalg.norm(near - place, axis=-1)))
        return float(self._steps[best] + along[best])

    def command(self, place: np.ndarray, yaw: float) -> tuple[float, float]:
        """Speed [m/s] and turn rate [rad/s], left positive, to follow the route blindly."""
        gone = self.gone(place)
        aim = self.at(min(self.length, gone + max(LOOK_AHEAD_M, LOOK_AHEAD_S * self.cruise)))[0]
        if float(np.linalg.norm(aim - place)) < LOOK_AHEAD_M:
            aim = place + self.at(gone)[1]
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


def touching(corners: np.ndarray, band: np.ndarray, kinds: tuple[int, ...], alive: np.ndarray,
             position: np.ndarray, yaw: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Tell which robots touch which shapes, (..., K), by corners and height bands."""
    high = -position[..., 1]                                      # of the centre
    low, top = band[..., :1], band[..., 1:]
    off = np.maximum(np.maximum(low - high, high - top), 0.0)     # from the centre to the band
    hit = alive & (off <= half[..., 1])
    if not hit.any():
        return hit
    # Corners in the shape's own axes, (..., K, 4).
    away = corners[..., None, :, :] - position[..., :, None, 0::2]
    sine, cosine = np.sin(yaw)[..., None], np.cos(yaw)[..., None]
    x = away[..., 0] * cosine - away[..., 1] * sine
    z = away[..., 0] * sine + away[..., 1] * cosine
    sort = np.array(kinds)
    flat = (sort == BOX) | (sort == CARD)
    wide, deep = half[..., 0], np.where(sort == CARD, 0.0, half[..., 2])
    deep = np.where(sort == CYLINDER, wide, deep)
    with np.errstate(invalid='ignore', divide='ignore'):
        shrunk = np.sqrt(np.clip(1 - (off / half[..., 1]) ** 2, 0, 1))
    shrunk = np.where(sort == ELLIPSOID, shrunk, 1.0)
    boxes = _box_meets(x, z, wide, deep)
    discs = _disc_meets(x / np.maximum(wide * shrunk, 1e-9)[..., None],
                        z / np.maximum(deep * shrunk, 1e-9)[..., None])
    return hit & np.where(flat, boxes, discs)


def _box_meets(x: np.ndarray, z: np.ndarray, wide: np.ndarray, deep: np.ndarray) -> np.ndarray:
    """Whether quadrilaterals (..., 4) meet the boxes |x| <= wide, |z| <= deep (...)."""
    apart = ((x.min(-1) > wide) | (x.max(-1) < -wide) | (z.min(-1) > deep) | (z.max(-1) < -deep))
    for number in (0, 1):       # the robot is a rectangle: two of its edges give both normals
        ex, ez = x[..., number + 1] - x[..., number], z[..., number + 1] - z[..., number]
        own = x * ex[..., None] + z * ez[..., None]
        reach = wide * np.abs(ex) + deep * np.abs(ez)
        apart |= (own.min(-1) > reach) | (own.max(-1) < -reach)
    return ~apart


def _disc_meets(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Whether convex quadrilaterals (..., 4) meet the unit disc at the origin."""
    ex, ez = np.roll(x, -1, -1) - x, np.roll(z, -1, -1) - z
    side = ex * z - ez * x                         # on which side of each edge the origin lies
    inside = (side >= 0).all(-1) | (side <= 0).all(-1)
    length = np.maximum(ex ** 2 + ez ** 2, 1e-18)
    along = np.clip(-(x * ex + z * ez) / length, 0, 1)
    near = (x + along * ex) ** 2 + (z + along * ez) ** 2
    return inside | (near.min(-1) <= 1.0)


def band_of(robot: Robot, camera_height: np.ndarray) -> np.ndarray:
    """(N, 2) heights between which robots reach [m], see `Robot`."""
    camera_height = np.asarray(camera_height, float)
    return np.stack((np.full_like(camera_height, robot.clearance),
                     np.maximum(camera_height + 0.1, robot.height)), -1)


def reach_of(robot: Robot) -> float:
    return float(np.hypot(robot.half_width, 0.5 * robot.length))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Remember where a robot has seen obstacles, in a frame that its own motion defines.

A surface at rest with looming rate L is at depth v / L along the optical axis of a camera that
moves along it at speed v (Lee 1976: 1 / L is the time to contact), less than 0 where a robot backs
out. ``docs/planning.md`` says what is kept of that. While the robot brakes, the speed during the
measurement is not known well, and the ground would rise before it: points of then count until the
next picture.

Points are (P, 6): x, y [m], their own velocity [m/s], weight, age [s].
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vjepa_ros.guard.types import Motion
from vjepa_ros.parameter import check_ranges, parameter
from vjepa_ros.perception.looming_cells import CELLS_OF_A_VIEW, LoomingCells
from vjepa_ros.perception.types import Assessment, Level, Quality

# Flags of a picture without looming, or with looming of too little of the view.
UNMEASURED_FLAGS = Quality.LOW_TEXTURE | Quality.HEADS_OUT_OF_RANGE
NO_POINTS = np.empty((0, 6))
CELL_M = 0.1             # side of a cell of the ground in which points are summed up
VIEW_COS = math.cos(math.radians(60))    # a camera covers motion within 60 degrees of its axis
REACH_M = 6.0            # points beyond are ignored: their places are not certain
EVIDENCE = 2.5           # sum of the weights of points that count as an obstacle
WINDOW_S = 0.25          # before a picture over which looming is measured
LEAST_SPEED = 0.2        # of a camera at which looming gives distances [m/s]
MIN_CONFIDENCE = 0.3     # of a cell that becomes a point
MIN_KNOWN = 0.25         # fraction of valid cells in a picture that measures the path
HALF_WEIGHT_ERROR = 0.2  # relative error of a rate at which a point has half its weight
FULL_M = 2.0             # from there on points weigh less: their places are less certain
TURN_ERROR = 0.1         # standard error of rates that a turn adds [1/s per rad/s]
MOVING = 0.6             # probability from which a cell moves by itself
MAX_OWN_SPEED = 2.5      # of a point [m/s]
CROSSES_M_S = 0.3        # slower aside, it comes or goes, and is placed where it would be met
STEADY = 0.4             # least fraction of its speed that a robot drives while points are kept
TOLERANCE = 1e-6         # of times [s] and speeds [m/s]
MAX_POINTS = 2000        # in memory, the nearest
MOST_EVIDENCE = 3.0      # of a cell, as a multiple of what counts as an obstacle
LEFT = 0.2               # part of its evidence that a cell keeps when a picture sees beyond it
BEYOND = (1.15, 0.15)     # by this factor and length [m] it must see farther
NEAR_M = 0.3             # what the heads see free counts from there on
UNSEEN_M = 1.0           # nearer, low things are below the picture: nothing is taken away
CLEARS_M_S = 0.3         # slower, rates are too low for that
BLOCKS_SEEN = 0.5        # part of the rows of a column that must be known to see through it
SEEN, BEEN = 1, 2         # how it is known that a place is free
# So far and so long what was probable counts: it may be beside the robot by then, unseen.
SUSPECTS_M, SUSPECTS_S = 3.0, 4.0
MOTION_S = 5.0           # length of the remembered motion [s]
STANDSTILL = 0.05        # a slower robot stands [m/s]


@dataclass(frozen=True)
class Mount:
    """Pose of a camera on the robot; its optical axis is level."""

    yaw: float = parameter(
        0.0, 'Direction of its optical axis seen from above, left positive', low=-math.pi,
        high=math.pi, unit='rad')
    x: float = parameter(0.3, 'Position ahead of the middle of the robot', low=-10.0, high=10.0,
                         unit='m')
    y: float = parameter(0.0, 'Position left of the middle of the robot', low=-10.0, high=10.0,
                         unit='m')
    height: float = parameter(0.4, 'Height above the ground; its optical axis is level', low=0.02,
                              high=10.0, unit='m')

    def __post_init__(self) -> None:
        check_ranges(self)

    def speed(self, twist: Motion) -> tuple[float, float]:
        """Return the speed of the camera along its optical axis and to the right of it [m/s]."""
        vx, vy = twist.vx - twist.omega * self.y, twist.vy + twist.omega * self.x
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return c * vx + s * vy, s * vx - c * vy


@dataclass(frozen=True)
class LocalConfig:
    """The robot, and how it drives. Raises ValueError with the name of what is out of range."""

    half_width: float = parameter(0.3, 'Half the width of the robot', name='robot.half_width',
                                  low=0.01, high=10.0, unit='m')
    length: float = parameter(0.6, 'Length of the robot, which turns about its middle',
                              name='robot.length', low=0.01, high=20.0, unit='m')
    height: float = parameter(0.5, 'Height of the robot; higher objects are ignored',
                              name='robot.height', low=0.01, high=10.0, unit='m')
    clearance: float = parameter(
        0.05, 'Ground clearance of the robot; lower objects are ignored', name='robot.clearance',
        low=0.0, high=5.0, unit='m')
    margin: float = parameter(
        0.15, 'Distance to keep on all sides; half of it where it is narrow', low=0.0, high=5.0,
        unit='m')
    max_speed: float = parameter(2.0, 'Greatest speed of the robot; faster commands are refused',
                                 low=0.01, high=50.0, unit='m/s')
    max_turn: float = parameter(
        1.2, 'Greatest turn rate of the robot; faster commands are refused', low=0.01, high=10.0,
        unit='rad/s')
    acceleration: float = parameter(
        1.0, 'How fast the robot changes its speed on the way to a goal', low=0.01, high=60.0,
        unit='m/s^2')
    cruise: float = parameter(0.5, 'Speed on the way to a goal', low=0.05, high=50.0, unit='m/s')
    backing: float = parameter(0.3, 'Greatest speed back, where no camera looks; 0: never',
                               low=0.0, high=10.0, unit='m/s')
    tolerance: float = parameter(0.3, 'Distance from the goal at which the robot has arrived',
                                 low=0.05, high=10.0, unit='m')
    memory_s: float = parameter(20.0, 'How long measured points are kept', name='memory',
                                low=0.1, high=60.0, unit='s')

    def __post_init__(self) -> None:
        check_ranges(self)


class _Suspicion(NamedTuple):
    """What was probable: way [m] and time [s] since, the probability, and where; NaN unknown."""

    way: float
    age_s: float
    probable: float
    place: complex = complex(math.nan)


class CameraMemory:
    """The newest picture of one camera, and the directions that it measured."""

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.points = NO_POINTS          # (P, 6) of the newest picture that are not kept
        # Probability of contact as things move now, or if a robot that stands went ahead; 0 below
        # level WARNING.
        self.hazard = 0.0
        self.unmeasured_flags = Quality(0)       # those of `UNMEASURED_FLAGS` that it has
        self.measured_s = math.inf       # age of the newest picture that gave distances [s]
        self._suspicions: list[_Suspicion] = []
        self._view = (0.0, 0.0)          # measured: right and left limit from the axis [rad]
        self._turned = 0.0               # heading change of the robot since then [rad]

    def move(self, twist: Motion, dt: float) -> None:
        """Take the motion of the robot."""
        self.measured_s += dt
        self._turned += twist.omega * dt
        self.points = _aged(self.points, dt)
        way = twist.speed * dt
        self._suspicions = [
            one._replace(way=one.way + way, age_s=one.age_s + dt) for one in self._suspicions
            if one.way + way <= SUSPECTS_M and one.age_s + dt <= SUSPECTS_S]

    @property
    def suspected(self) -> float:
        """Return the greatest probability of contact within `SUSPECTS_M` and `SUSPECTS_S`."""
        # What going ahead would have met does not count where the way was seen free since then.
        return max((one.probable for one in self._suspicions), default=1.0)

    def suspect(self, seen: Assessment, age_s: float, speed: float, where: complex) -> None:
        """Take the probabilities of a picture of an age [s], at a speed along the axis [m/s]."""
        now, ahead = np.nan_to_num((seen.collision_probability, seen.collision_if_ahead), nan=1.0)
        self._suspicions.append(_Suspicion(0.0, age_s, float(now)))
        # While the robot drives, the former speaks of its way, too.
        if speed < CLEARS_M_S or math.isnan(seen.collision_if_ahead):
            self._suspicions.append(_Suspicion(0.0, age_s, float(ahead), where))

    def clear(self, free: Callable[[np.ndarray], np.ndarray]) -> None:
        """Suspect nothing more at places (complex) that are seen free."""
        # It stays with a probability of 0: without any nothing is known.
        if self._suspicions:
            seen = free(np.array([one.place for one in self._suspicions]))
            self._suspicions = [one._replace(probable=0.0) if gone else one
                                for one, gone in zip(self._suspicions, seen, strict=True)]

    def covers(self, heading: float) -> bool:
        """Return whether the camera looks towards a heading [rad]."""
        return math.cos(heading - self.mount.yaw) >= VIEW_COS

    def measure(self, cells: LoomingCells, age_s: float,
                since: Iterable[tuple[float, Motion]]) -> None:
        """Note the directions that a picture of an age [s] measured; few cells measure none."""
        known = np.isfinite(cells.rate) & (cells.confidence >= MIN_CONFIDENCE)
        if self.unmeasured_flags or not known.any() or known.mean() < MIN_KNOWN:
            return
        left = -np.arctan(cells.across[known])
        self._view = float(left.min()), float(left.max())
        self.measured_s = age_s
        self._turned = sum(dt * twist.omega for dt, twist in since)

    def measured(self, heading: float, memory_s: float) -> bool:
        """Return whether a heading [rad] was measured, even before the robot turned."""
        right, left = self._view
        there = math.remainder(heading + self._turned - self.mount.yaw, 2 * math.pi)
        return self.measured_s <= memory_s and right <= there <= left


class ObstacleMemory:
    """Obstacles around one robot, whose configuration may be replaced at any time."""

    def __init__(self, config: LocalConfig, mounts: Mapping[str, Mount]) -> None:
        self.config = config
        self.cameras = {name: CameraMemory(mount) for name, mount in mounts.items()}
        self.place, self.yaw = 0j, 0.0   # pose of the robot: x + 1j y [m], and heading [rad]
        self._cells = 2 * math.ceil(2 * REACH_M / CELL_M)
        self._free = np.zeros((self._cells, self._cells), np.uint8)  # around `_middle`
        self._middle = 0j
        self._kept = NO_POINTS           # at rest, one for each cell of the ground
        self._steps: deque[tuple[float, Motion]] = deque()    # motion: durations and twists
        self._known_s = 0.0              # duration of all steps

    def points(self) -> np.ndarray:
        """Return all points (P, 6), in the frame of the memory."""
        return np.concatenate((self._kept, *(c.points for c in self.cameras.values())))

    def move(self, twist: Motion, dt: float) -> None:
        """Take the motion of the robot, and its duration [s], at least 0."""
        self._steps.append((dt, twist))
        self._known_s += dt
        while self._known_s - self._steps[0][0] > MOTION_S:
            self._known_s -= self._steps.popleft()[0]
        self.place, self.yaw = _moved(self.place, self.yaw, twist, dt)
        self._stood()
        self._kept = _aged(self._kept, dt)
        self._kept = self._kept[self._kept[:, 5] <= self.config.memory_s]
        for camera in self.cameras.values():
            camera.move(twist, dt)

    def free(self, at: np.ndarray) -> np.ndarray:
        """Return `BEEN`, `SEEN` or 0 of places (complex): how it is known that they are free."""
        row, column, inside = self._index(at)
        return inside * self._free[row, column]

    def _index(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows and columns of places, and whether they are on the map."""
        away = (at - self._middle) / CELL_M + (0.5 + 0.5j) * self._cells
        row, column = away.imag.astype(int), away.real.astype(int)
        last = self._cells - 1
        inside = (away.imag >= 0) & (away.real >= 0) & (row <= last) & (column <= last)
        return row.clip(0, last), column.clip(0, last), inside

    def _stood(self) -> None:
        """Note that the ground below the robot is free, and keep the map around it."""
        away = self.place - self._middle
        if max(abs(away.real), abs(away.imag)) > 0.5 * REACH_M:
            middle = self._middle + CELL_M * complex(round(away.real / CELL_M),
                                                     round(away.imag / CELL_M))
            side = CELL_M * (np.arange(self._cells) + 0.5 * (1 - self._cells))
            self._free = self.free(middle + side + 1j * side[:, None])
            self._middle = middle
        # A cell more: it backs along its own track, but not to the centimetre.
        along, across = (np.arange(-far, far + 1e-6, CELL_M / 2) for far in (
            0.5 * self.config.length + CELL_M, self.config.half_width + CELL_M))
        self._note(self.place + (along + 1j * across[:, None]) * np.exp(1j * self.yaw), BEEN)

    def _note(self, at: np.ndarray, how: int) -> None:
        """Note how it is known that places (complex) are free."""
        row, column, inside = self._index(at)
        row, column = row[inside], column[inside]
        self._free[row, column] = np.maximum(self._free[row, column], how)

    def _motion_at(self, age_s: float) -> tuple[Motion, bool, list[tuple[float, Motion]]]:
        """Return the mean motion in `WINDOW_S` before a past time, and the motion since."""
        since, window, left, wanted = [], np.zeros(3), age_s, WINDOW_S
        speeds = []
        for dt, twist in reversed(self._steps):
            after = min(dt, left)
            if after > 0:
                since.append((after, twist))
                left -= after
            before = min(dt - after, wanted)
            if before > TOLERANCE:
                speeds.append(twist.speed)
            window += before * np.array(twist)
            wanted -= before
            if wanted <= 0 and left <= 0:
                break
        # Unknown motion counts as rest.
        steady = wanted < TOLERANCE and min(speeds) >= STEADY * max(speeds)
        return Motion(*(window / WINDOW_S).tolist()), steady, since[::-1]

    def see(self, camera: str, cells: LoomingCells, seen: Assessment, age_s: float = 0.0) -> None:
        """Take a picture of a camera of an age [s]; `move` has taken all motion until now."""
        memory, config = self.cameras[camera], self.config
        believed = seen.level >= Level.WARNING
        motion, steady, since = self._motion_at(age_s)
        ahead, aside = memory.mount.speed(motion)
        hazard = seen.collision_probability
        if ahead < STANDSTILL:      # what comes is known, but not what going ahead would meet
            hazard = np.fmax(hazard, seen.collision_if_ahead)
        place, yaw = self._then(since)
        memory.suspect(seen, age_s, ahead, _eye(memory.mount, place, yaw) + min(
            seen.clearance, REACH_M) * np.exp(1j * (yaw + memory.mount.yaw)))
        memory.hazard = float(hazard) if believed and math.isfinite(hazard) else 0.0
        memory.points = NO_POINTS
        if not believed and seen.clearance > 0:
            self._clear_ahead(memory, seen.clearance)
        memory.unmeasured_flags = seen.flags & UNMEASURED_FLAGS
        # The guard may hold it at just this speed.
        if abs(ahead) < LEAST_SPEED - TOLERANCE:
            return
        memory.measure(cells, age_s, since)
        if steady:
            self._see_through(memory.mount, cells, ahead, place, yaw)
        found = self._points_of(cells, memory.mount, ahead, aside, motion.omega)
        barrier = NO_POINTS
        if believed and math.isfinite(seen.clearance) and seen.clearance < REACH_M:
            across = np.linspace(-1, 1, 5) * config.half_width
            barrier = placed(memory.mount, np.full(5, seen.clearance), across, np.zeros(5),
                             np.full(5, EVIDENCE / 2))
        found, barrier = (_aged(turned(one, place, yaw), age_s) for one in (found, barrier))
        still = steady & ~found[:, 2:4].any(-1)
        memory.points = np.concatenate((found[~still], barrier))
        self.keep(found[still])

    def block(self, depth: float) -> None:
        """Note that the robot cannot go ahead by a length [m] from the middle of its front."""
        across = np.arange(-self.config.half_width, self.config.half_width + CELL_M, CELL_M)
        wall = np.zeros((len(across), 6))
        wall[:, 0], wall[:, 1] = 0.5 * self.config.length + depth, across
        wall[:, 4] = EVIDENCE
        self.keep(turned(wall, self.place, self.yaw))

    def keep(self, points: np.ndarray) -> None:
        """Sum up points (P, 6) at rest in the cells of the ground."""
        both = np.concatenate((self._kept, points))
        if not len(both):
            return
        cells, number = np.unique(np.floor(both[:, :2] / CELL_M), axis=0, return_inverse=True)
        kept = np.zeros((len(cells), 6))
        weights = np.bincount(number.ravel(), both[:, 4], len(cells))
        kept[:, 4] = np.minimum(weights, MOST_EVIDENCE * EVIDENCE)
        kept[:, 5] = np.inf
        np.minimum.at(kept[:, 5], number.ravel(), both[:, 5])
        kept[:, :2] = (cells + 0.5) * CELL_M
        here = ((kept[:, 0] + 1j * kept[:, 1]) - self.place) * np.exp(-1j * self.yaw)
        # Where the robot is, nothing else can be.
        inside = (np.abs(here.imag) < self.config.half_width) & (
            np.abs(here.real) < 0.5 * self.config.length)
        away = np.abs(here)
        near = ~inside & (away < 2 * REACH_M)
        kept, away = kept[near], away[near]
        self._kept = kept[np.argsort(away)[:MAX_POINTS]] if len(kept) > MAX_POINTS else kept

    def _then(self, since: Iterable[tuple[float, Motion]]) -> tuple[complex, float]:
        """Return the pose before a motion."""
        place, yaw = 0j, 0.0
        for dt, twist in since:
            place, yaw = _moved(place, yaw, twist, dt)
        yaw = self.yaw - yaw
        return self.place - place * np.exp(1j * yaw), yaw

    def _see_through(self, mount: Mount, cells: LoomingCells, speed: float, place: complex,
                     yaw: float) -> None:
        """Note what a picture of a camera at a pose sees free, and take away what was there."""
        if not len(cells):
            return
        columns, number = np.unique(np.round(cells.across, 3), return_inverse=True)
        config = self.config
        depth = abs(speed) / np.maximum(np.where(cells.rate * speed > 0, np.abs(cells.rate), 0.0),
                                        1e-9)
        height = mount.height - np.minimum(depth, REACH_M) * cells.down
        # Rows that see the band of the robot before whatever ends the view there.
        band = (height > config.clearance) & (height < max(config.height, mount.height + 0.1))
        known = np.isfinite(cells.rate) & (cells.confidence >= MIN_CONFIDENCE)
        rows = np.bincount(number, band, len(columns))
        sees = np.bincount(number, band & known, len(columns)) >= np.maximum(
            1, BLOCKS_SEEN * rows)
        limit = np.full(len(columns), np.inf)
        np.minimum.at(limit, number, np.where(band & known, depth, np.inf))
        limit = np.where(sees, np.minimum(limit, REACH_M), 0.0)
        eye, turn = mount.x + 1j * mount.y, np.exp(-1j * mount.yaw)

        def measured(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return how far ahead places lie, and how far it is free there, 0 unseen."""
            here = ((at - place) * np.exp(-1j * yaw) - eye) * turn
            with np.errstate(divide='ignore', invalid='ignore'):
                across = np.where(here.real > 0, -here.imag / here.real, np.inf)
            column = np.clip(np.searchsorted(columns, across), 1, len(columns) - 1)
            column -= across - columns[column - 1] < columns[column] - across
            inside = (across >= columns[0]) & (across <= columns[-1])
            return here.real, np.where(inside, limit[column], 0.0)

        side = CELL_M * np.arange(-math.ceil(REACH_M / CELL_M), REACH_M / CELL_M + 1)
        around = (place + side + 1j * side[:, None]).ravel()
        ahead, until = measured(around)
        self._note(around[(ahead > 0) & (until > ahead + CELL_M)], SEEN)
        if abs(speed) >= CLEARS_M_S and len(self._kept):
            ahead, until = measured(self._kept[:, 0] + 1j * self._kept[:, 1])
            self._kept[(ahead > UNSEEN_M) & (until > BEYOND[0] * ahead + BEYOND[1]), 4] *= LEFT
            self._kept = self._kept[self._kept[:, 4] > 0.1]

    def _clear_ahead(self, memory: CameraMemory, clearance: float) -> None:
        """Take away what stands in a way that the heads see free, also while the robot stands."""
        turn = np.exp(1j * (self.yaw + memory.mount.yaw))
        eye = _eye(memory.mount, self.place, self.yaw)
        half = self.config.half_width + CELL_M
        along = np.arange(0, min(clearance, REACH_M), CELL_M / 2)
        self._note(eye + (along + 1j * np.arange(-half, half, CELL_M / 2)[:, None]) * turn,
                   SEEN)

        def free(at: np.ndarray) -> np.ndarray:
            here = (at - eye) / turn
            return ((here.real > NEAR_M) & (here.real < clearance / BEYOND[0] - BEYOND[1])
                    & (np.abs(here.imag) < half))

        self._kept[free(self._kept[:, 0] + 1j * self._kept[:, 1]), 4] *= LEFT
        self._kept = self._kept[self._kept[:, 4] > 0.1]
        memory.clear(free)

    def _points_of(self, cells: LoomingCells, mount: Mount, speed: float, aside: float,
                   turn: float) -> np.ndarray:
        """Return the points (P, 6) of a field around the robot, by speeds of its camera."""
        config, pace = self.config, abs(speed)
        rate = math.copysign(1.0, speed) * cells.rate.astype(float)
        sigma = np.hypot(cells.sigma, TURN_ERROR * turn).astype(float)
        known = np.isfinite(rate) & (cells.confidence >= MIN_CONFIDENCE) & np.isfinite(sigma)
        near = known & (np.where(known, rate, 0.0) > np.maximum(
            pace / REACH_M, 2 * np.where(known, sigma, 0.0)))
        rate, sigma = np.where(near, rate, 1.0), np.where(near, sigma, 0.0)
        depth = pace / rate
        height = mount.height - depth * cells.down
        # A point counts as ground by its height, within the error of its rate.
        doubt = 0.08 + 0.25 * np.abs(height - mount.height)
        solid = near & (height > config.clearance + doubt) & (height < max(
            config.height, mount.height + 0.1) + 0.05)
        right = depth * cells.across
        moves = solid & (cells.moving > MOVING) & np.isfinite(cells.drift_across)
        # Sideways speed is the flow without the parts of expansion and of the camera.
        sideways = depth * (np.nan_to_num(cells.drift_across) - rate * cells.across) + aside
        moves &= np.abs(sideways) > CROSSES_M_S
        own = np.where(moves, np.clip(sideways, -MAX_OWN_SPEED, MAX_OWN_SPEED), 0.0)
        # A point weighs as much as its share of the view.
        part = CELLS_OF_A_VIEW / max(1, len(cells))
        weight = part * cells.confidence / (1 + (sigma / (HALF_WEIGHT_ERROR * rate)) ** 2)
        weight /= np.maximum(1.0, depth / FULL_M) ** 2
        return placed(mount, depth[solid], right[solid], own[solid], weight[solid])


# -- points ---------------------------------------------------------------------------------

def placed(mount: Mount, depth: np.ndarray, right: np.ndarray, own: np.ndarray,
           weight: np.ndarray) -> np.ndarray:
    """Return points (P, 6) around the robot, of depth, right [m] and speed to the right [m/s]."""
    c, s = math.cos(mount.yaw), math.sin(mount.yaw)
    return np.column_stack((
        mount.x + c * depth + s * right, mount.y + s * depth - c * right,
        s * own, -c * own, weight, np.zeros(len(depth)))).astype(float)


def turned(points: np.ndarray, place: complex, yaw: float) -> np.ndarray:
    """Return points (P, 6) around a pose in the frame in which the pose is."""
    points, turn = points.copy(), np.exp(1j * yaw)
    at = place + (points[:, 0] + 1j * points[:, 1]) * turn
    own = (points[:, 2] + 1j * points[:, 3]) * turn
    points[:, 0], points[:, 1], points[:, 2], points[:, 3] = at.real, at.imag, own.real, own.imag
    return points


def _eye(mount: Mount, place: complex, yaw: float) -> complex:
    return place + (mount.x + 1j * mount.y) * complex(np.exp(1j * yaw))


def _aged(points: np.ndarray, dt: float) -> np.ndarray:
    """Return points after a time [s]: older, and those that move farther on."""
    points = points.copy()
    points[:, :2] += points[:, 2:4] * dt
    points[:, 5] += dt
    return points


def _moved(place: complex, yaw: float, twist: Motion, dt: float) -> tuple[complex, float]:
    half = 0.5 * twist.omega * dt
    chord = complex(twist.vx, twist.vy) * dt * np.sinc(half / math.pi)
    return place + complex(chord * np.exp(1j * (yaw + half))), yaw + 2 * half

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose the next twist of a base: near a commanded one, or towards a goal.

Candidates are sequences of twists: arcs at several speeds, and samples around the best sequence of
the last time, which the cross-entropy method refines (de Boer et al., "A tutorial on the
cross-entropy method", 2005). All of a round are rolled forward over a grid of the obstacles and
judged in one pass; the first twist of the best is sent. ``docs/planning.md`` says by what they are
judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.guard.types import Motion
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Assessment
from vjepa_ros.planning.obstacle_memory import (
    BEEN,
    CELL_M,
    CameraMemory,
    EVIDENCE,
    LEAST_SPEED,
    LocalConfig,
    Mount,
    ObstacleMemory,
    REACH_M,
    STANDSTILL,
)

HORIZON_S = 2.4          # over which twists are rolled forward
STEPS = 6                # twists of a sequence
STEP_S = HORIZON_S / STEPS
# Candidates near a command: fractions of its speed, and turn rates added to its own [rad/s].
SPEEDS = (1.0, 0.75, 0.5, 0.25, 0.0)
TURNS = (0.0, -1.0, -0.7, -0.45, -0.2, 0.2, 0.45, 0.7, 1.0)
REACTION_S = 1.4         # time to contact at which the risk of a twist is one half
ACCEPTED = 0.3           # largest risk of an accepted twist
SAMPLES = 128            # sequences besides arcs
PARTS = (2, 8)           # moments of a step that are judged: at least, and at most
ROUNDS = 2               # of samples
LEAST_SPREAD = 0.02      # of them in a later round [m/s, rad/s]
ELITES = 12              # the best of a round
SPREAD = (0.35, 0.45)    # of samples: of the fastest speed, and of the greatest turn rate
WAY_CELL_M = 0.2         # of the grid on which ways are searched
WAYS_EVERY_S = 0.25      # how often they are
BARRED = 100.0           # cost of cells where the robot cannot be
WIDE_M = 0.5             # ways keep this far from obstacles where they can
AHEAD_M = 0.4            # ways are judged so far before it as well: it shall look along them
TIGHT = 0.5              # part of the margin in which an obstacle counts as touched
LEAST_M = 0.03           # of room; less is a contact, as exactly as the grid knows it
CLOSER_M = 0.02          # what is less is not closer
TOUCH = 30.0             # cost of a contact [m]
NEAR = 3.0               # cost of being as near as the margin allows all the time [m]
BACK = 0.3               # cost of going back [m per m/s]
UNSEEN = 4.0             # cost of going back all the time where it has not been [m]
BLIND = 4.0              # cost of going ahead all the time where nothing was seen yet [m],
BLIND_S = 1.2            # so soon; what lies beyond is seen on the way there
BESIDE_M = 0.2           # what was not seen so near to an obstacle belongs to it
PACE_S = 0.2             # a faster robot keeps farther away [m per m/s]
ROUGH = 0.05             # cost of a turn, and of its changes [m per rad/s]
EQUAL = 1e-9             # cost of the command itself, up to rounding
SUSPECTED = 0.3          # probability of contact from which points count for all twists
ALIKE = 0.4              # from the turn rate now: twists that are like it [rad/s]
HAZARD = 2.0             # cost of what the heads expect [m]
STUCK_S = 1.0            # at rest; then the robot must move
LOST_S, LOST_M = 4.0, 0.4    # a robot that has come no farther in this time is stuck as well
HELD_S = 0.6             # for so long the base did not follow: something holds it
AGAIN_S = 2.0            # after a fault: a guard may still hold it for a while
BLOCKED_M = 0.4          # and counts as an obstacle so far before the robot
FREES_S = 2.0            # for so long a robot that was stuck goes closer to things
MEASURED_S = 3.0         # a path that was measured earlier is not known: somebody may have come
MOVERS = 60              # points that move, at most
FADE = 0.7               # part of its weight that the oldest point has lost

LONGER = 1.0824        # ways over edges and corners of cells, at most: 1 / cos(22.5 degrees)
_STEPS = tuple((dz, dx) for dz in (-1, 0, 1) for dx in (-1, 0, 1) if dz or dx)


# One candidate; see `LocalPlan.candidates`.
CANDIDATE = np.dtype([('vx', '<f4'), ('vy', '<f4'), ('omega', '<f4'), ('cost', '<f4'),
                      ('risk', '<f4'), ('time_to_contact', '<f4'), ('rank', '<u2'),
                      ('accepted', 'u1'), ('reserved', 'u1')])


@dataclass(frozen=True)
class LocalPlan:
    """The chosen twist, and the candidates."""

    twist: Motion  # the chosen twist
    risk: float  # its risk, 0..1; NaN where it was not judged
    # (C,) `CANDIDATE`, the command first: distance from the command (``cost``), risk 0..1, time
    # to contact with points [s] (inf: none), and rank (0 is chosen). Accepted ones rank first,
    # by cost; the others by risk, then speed. Empty where nothing was judged.
    candidates: np.ndarray
    points: int  # number of points they were judged by
    # Why "no points" does not mean "nothing there": no distances were measured there within
    # ``memory_s``, or the newest picture is flagged; '' otherwise
    unmeasured: str


@dataclass(frozen=True)
class Grid:
    """Square cells over a rectangle of the ground."""

    # low, high: (2,) least and greatest x and z [m]
    low: np.ndarray
    high: np.ndarray
    cell: float  # side of a cell [m]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (z) and columns (x)."""
        wide, deep = np.ceil((self.high - self.low) / self.cell).astype(int)
        return int(deep), int(wide)

    def middles(self) -> np.ndarray:
        """(R, C, 2) x and z of the middles of cells [m]."""
        z, x = np.indices(self.shape)
        return self.low + self.cell * (np.stack((x, z), -1) + 0.5)

    def index(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of places (..., 2); those outside get the nearest cell."""
        at = np.floor((np.asarray(place) - self.low) / self.cell).astype(int)
        rows, columns = self.shape
        return np.clip(at[..., 1], 0, rows - 1), np.clip(at[..., 0], 0, columns - 1)

    def lengths(self, cost: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Return the length of the shortest way from each cell to a goal (2,) [m]."""
        # Over edges and corners of cells, so up to `LONGER` times too long. All cells are relaxed
        # at once until nothing changes (Bellman and Ford). A cost multiplies lengths, from 1 on.
        rows, columns = self.shape
        best = np.full((rows + 2, columns + 2), np.inf)
        row, column = (int(v) for v in self.index(goal))
        best[row + 1, column + 1] = 0 if np.isfinite(cost[row, column]) else np.inf
        inner, paid = best[1:-1, 1:-1], self.cell * cost
        diagonal = math.sqrt(2) * paid
        while True:
            new = inner.copy()
            for dz, dx in _STEPS:
                near = best[1 + dz:1 + dz + rows, 1 + dx:1 + dx + columns]
                np.minimum(new, near + (diagonal if dz and dx else paid), out=new)
            if np.array_equal(new, inner):
                return new
            inner[...] = new


# Judges sequences (N, K, 3): (3, N) cost, risk 0..1, and time to contact [s].
Judge = Callable[[np.ndarray], np.ndarray]


class _Ground:
    """Distances to obstacles on a square around a robot, and lengths of ways."""

    def __init__(self, memory: ObstacleMemory, points: np.ndarray) -> None:
        middle = CELL_M * np.round(np.array((memory.place.real, memory.place.imag)) / CELL_M)
        half = CELL_M * math.ceil(REACH_M / CELL_M)
        self.grid = Grid(middle - half, middle + half, CELL_M)
        rows, columns = self.grid.shape
        place = np.floor((points[:, :2] - self.grid.low) / CELL_M).astype(int)
        inside = ((place >= 0) & (place < (columns, rows))).all(-1)
        flat = place[inside, 1] * columns + place[inside, 0]
        weight = np.bincount(flat, points[inside, 4], rows * columns).reshape(rows, columns)
        # What was measured beside counts: a distance is not known to one cell.
        around = cv2.boxFilter(weight, -1, (3, 3), normalize=False)
        occupied = (weight > 0) & (around >= EVIDENCE)
        self.measured = self._distances(occupied)
        # A view ends somewhere, and walls go on there.
        reach = 2 * round(BESIDE_M / CELL_M) + 1
        beside = cv2.dilate(occupied.astype(np.uint8), np.ones((reach, reach), np.uint8))
        middles = self.grid.middles()
        unseen = memory.free(middles[..., 0] + 1j * middles[..., 1]) == 0
        self.supposed = self._distances(occupied | (beside > 0) & unseen)

    def _distances(self, occupied: np.ndarray) -> np.ndarray:
        """Return the distances (R, C) of cells to the next occupied one [m]."""
        if not occupied.any():
            return np.full(occupied.shape, 2 * self.grid.cell * max(occupied.shape))
        return CELL_M * cv2.distanceTransform((~occupied).astype(np.uint8), cv2.DIST_L2, 5)

    def room(self, at: np.ndarray, supposed: bool = True) -> np.ndarray:
        """Return the distance [m] of places to what was measured, or is supposed to go on."""
        space = self.supposed if supposed else self.measured
        rows, columns = self.grid.shape
        x = ((np.real(at) - self.grid.low[0]) / CELL_M).astype(int).clip(0, columns - 1)
        y = ((np.imag(at) - self.grid.low[1]) / CELL_M).astype(int).clip(0, rows - 1)
        return np.maximum(0.0, space[y, x] - 0.5 * CELL_M)


class _Ways:
    """Lengths of the ways to a goal."""

    def __init__(self, ground: _Ground, goal: complex, reach: float) -> None:
        low, high = ground.grid.low, ground.grid.high
        self._grid = Grid(low, high, WAY_CELL_M)
        middles = self._grid.middles()
        space = ground.room(middles[..., 0] + 1j * middles[..., 1], supposed=False)
        cost = 1 + 4 * np.clip(1 - (space - reach) / (WIDE_M - reach), 0, 1)
        self._lengths = self._grid.lengths(np.where(space < reach, BARRED, cost),
                                           np.array((goal.real, goal.imag)))

    def left(self, at: np.ndarray) -> np.ndarray:
        """Return the length of the way from places (complex) [m], between cells linearly."""
        rows, columns = self._grid.shape
        x = ((np.real(at) - self._grid.low[0]) / WAY_CELL_M - 0.5).clip(0, columns - 1.001)
        y = ((np.imag(at) - self._grid.low[1]) / WAY_CELL_M - 0.5).clip(0, rows - 1.001)
        column, row = x.astype(int), y.astype(int)
        x, y, table = x - column, y - row, self._lengths
        return ((1 - y) * ((1 - x) * table[row, column] + x * table[row, column + 1])
                + y * ((1 - x) * table[row + 1, column] + x * table[row + 1, column + 1]))


class LocalPlanner:
    """Chooses twists for one robot."""

    def __init__(self, config: LocalConfig | None = None,
                 cameras: Mapping[str, Mount] | None = None) -> None:
        self.config = config or LocalConfig()
        self._mounts = {'camera': Mount()} if cameras is None else dict(cameras)
        self.reset()

    def configure(self, config: LocalConfig) -> None:
        """Replace the robot, and how it chooses."""
        self.config = self.memory.config = config

    def reset(self) -> None:
        """Drop everything measured, and the motion of the robot."""
        self.memory = ObstacleMemory(self.config, self._mounts)
        self._random = np.random.default_rng(0)
        self._motion = Motion()
        self._since_s = self._held_s = 0.0
        self._sent = Motion()
        self.forget()

    def forget(self) -> None:
        """Drop the last sequence and the ways (for another goal, or none)."""
        self._best: np.ndarray | None = None
        self._ways: _Ways | None = None
        self._goal, self._ways_s = 0j, math.inf
        self._begin()

    def _begin(self) -> None:
        """Count from now on how long the robot has not come on."""
        self._rested_s = self._frees_s = self._lost_s = 0.0
        self._held_s = min(0.0, self._held_s)
        self._anchor = self.memory.place     # from where it has to come farther

    def rest(self) -> None:
        """Take notice that somebody else lets the robot stand: nothing is in its way for that."""
        self._sent = Motion()
        self._begin()
        self._held_s = -AGAIN_S

    def move(self, twist: Motion, dt: float) -> None:
        """Take the motion of the robot, see `ObstacleMemory.move`."""
        self.memory.move(twist, dt)
        self._motion = twist
        self._since_s += dt
        self._ways_s += dt
        still = twist.speed < STANDSTILL
        self._rested_s = self._rested_s + dt if still and abs(twist.omega) < 0.1 else 0.0
        if self._held_s + dt < 0:            # soon after a fault
            self._held_s += dt
        else:
            held = still and abs(self._sent.vx) > 0.1
            self._held_s = max(0.0, self._held_s) + dt if held else 0.0
        self._frees_s = max(0.0, self._frees_s - dt)
        self._lost_s += dt
        if abs(self.memory.place - self._anchor) > LOST_M:
            self._anchor, self._lost_s = self.memory.place, 0.0

    def see(self, camera: str, cells: LoomingCells, seen: Assessment, age_s: float = 0.0) -> None:
        """Take a picture of a camera, see `ObstacleMemory.see`."""
        self.memory.see(camera, cells, seen, age_s)

    def covering(self, command: Motion) -> tuple[str, ...]:
        """Return the names of cameras that look where a command leads; none for a pure turn."""
        heading = math.atan2(command.vy, command.vx)
        return tuple(name for name, camera in self.memory.cameras.items()
                     if command.speed > 0 and camera.covers(heading))

    # -- a goal ----------------------------------------------------------------------------

    def pursue(self, goal: complex) -> LocalPlan:
        """Choose a twist towards a goal that lies ahead + 1j left of the robot [m]."""
        config, memory = self.config, self.memory
        self._free_itself()
        points = self._weighed()
        still = ~points[:, 2:4].any(-1)
        ground = _Ground(memory, points[still])
        ways = self._way(ground, memory.place + goal * np.exp(1j * memory.yaw))
        fastest = min(config.cruise, max(0.3 * config.cruise, abs(goal)))
        low = np.array((-min(config.backing, fastest), 0.0, -config.max_turn))
        high = np.array((fastest, 0.0, config.max_turn))
        margin = (0.4 if self._frees_s else 1.0) * config.margin
        blind = 0.0 if self._frees_s else BLIND
        tight, here = TIGHT * margin, self._least_room(ground)
        # Where not even what lies straight ahead was seen, it has to drive to see anything.
        ahead = np.full((1, STEPS, 3), (fastest, 0.0, 0.0))
        straight = self._blind(self._room(ground, *self._rolled(ahead, self._motion))[2], ahead[
            ..., :1, 0])

        def judge(plans: np.ndarray) -> np.ndarray:
            at, heading = self._rolled(plans, self._motion)
            room, new, unseen = self._room(ground, at, heading)
            contact = self._contact(room <= min(tight, here), at, heading, points[~still])
            risk = self._risk(contact)
            # At the end, but also on the way there: the sooner the better.
            end = ways.left(at[:, -1])
            looks = ways.left(at[:, -1] + AHEAD_M * np.exp(1j * heading[:, -1]))
            ways_left = (ways.left(at).mean(-1) + end + np.minimum(looks, end + AHEAD_M)) / 2
            pace = np.repeat(plans[..., 0], at.shape[1] // STEPS, 1)
            near = np.clip(1 - room / (margin + PACE_S * np.abs(pace) + 1e-3), 0, 1).mean(-1)
            soon = np.clip(1 - contact / HORIZON_S, 0, 1)
            cost = (ways_left + TOUCH * soon ** 2 + NEAR * near
                    + UNSEEN * (new * (pace < 0)).mean(-1)
                    + blind * np.maximum(0, self._blind(unseen, pace) - straight)
                    + BACK * np.maximum(0, -plans[..., 0]).mean(-1)
                    + ROUGH * np.abs(plans[..., 2]).mean(-1)
                    + ROUGH * np.abs(np.diff(plans[..., 2], axis=-1)).mean(-1)
                    + ROUGH * np.abs(plans[:, 0, 2] - self._sent.omega)
                    + HAZARD * self._hazard(plans))
            if self._frees_s:
                cost += TOUCH * (np.abs(plans[:, 0]).sum(-1) < 0.1)
            return np.stack((cost, risk, contact))

        arcs = np.array([(v * fastest, 0.0, w * config.max_turn) for v in (1, .75, .5, .25, 0)
                         for w in np.linspace(-1, 1, 13)]
                        + [(low[0], 0.0, w * config.max_turn) for w in np.linspace(-1, 1, 7)])
        return self._plan(self._search(arcs, (low, high), judge), len(points),
                          list(memory.cameras.values()), goal)

    def _way(self, ground: _Ground, goal: complex) -> _Ways:
        """Return the ways to a goal, searched anew now and then."""
        if self._ways is None or abs(goal - self._goal) > WAY_CELL_M or (
                self._ways_s >= WAYS_EVERY_S):
            away, most = goal - self.memory.place, REACH_M - WAY_CELL_M
            longest = max(abs(away.real), abs(away.imag))
            self._goal, self._ways_s = goal, 0.0
            self._ways = _Ways(ground, goal if longest <= most else (
                self.memory.place + away * most / longest), self.config.half_width + 0.05)
        return self._ways

    def _free_itself(self) -> None:
        """Note what holds the robot, and that it rests although it has somewhere to go."""
        if self._held_s > HELD_S and self._sent.vx > 0:
            self.memory.block(BLOCKED_M)
            self._held_s, self._ways = 0.0, None
        if self._lost_s > LOST_S:
            self._frees_s, self._lost_s = FREES_S, 0.0
        if self._rested_s > STUCK_S and not self._frees_s:
            self._frees_s, self._rested_s = FREES_S, 0.0

    # -- a command ---------------------------------------------------------------------------

    def choose(self, command: Motion) -> LocalPlan:
        """Choose the safest twist nearest to the commanded one."""
        self._begin()                        # who is steered may rest
        config, heading = self.config, math.atan2(command.vy, command.vx)
        cameras = [self.memory.cameras[name] for name in self.covering(command)]
        if not cameras:
            self._sent = command
            return LocalPlan(command, math.nan, np.empty(0, CANDIDATE), 0, 'no camera looks there')
        points = self._weighed()
        # Who steers sees more than what was there some time ago.
        points = points[points[:, 5] <= MEASURED_S]
        still = ~points[:, 2:4].any(-1)
        ground = _Ground(self.memory, points[still])
        # The place of a point errs, and beside a narrow way one lies in it again and again. Heads
        # judge what comes of going on as now as a whole; where they suspect nothing, it is free.
        unsuspected = max(camera.suspected for camera in cameras) < SUSPECTED
        asked = np.array(command)
        tight, here = TIGHT * config.margin, self._least_room(ground)

        def judge(plans: np.ndarray) -> np.ndarray:
            at, turned = self._rolled(plans)
            room = self._room(ground, at, turned)[0]
            contact = self._contact(room <= min(tight, here), at, turned, points[~still])
            if unsuspected:
                contact[np.abs(plans[..., 2] - self._motion.omega).max(-1) <= ALIKE] = np.inf
            risk = self._risk(contact)
            parts = plans[..., :2] @ asked[:2] / command.speed ** 2
            # The heads report on motion ahead: it counts for similar twists.
            similar = parts[:, 0] * np.exp(-((plans[:, 0, 2] - command.omega) / ALIKE) ** 2)
            for camera in cameras:
                risk = 1 - (1 - risk) * (1 - camera.hazard * np.clip(similar, 0, 1)
                                         * math.cos(heading - camera.mount.yaw))
            # A turn costs less than a loss of speed, and a change of side a little.
            cost = ((2 * (1 - parts)) ** 2 + (0.6 * (plans[..., 2] - command.omega)) ** 2).mean(-1)
            cost += ROUGH * np.abs(plans[:, 0, 2] - self._sent.omega) * (cost > EQUAL)
            # Without an accepted one, and all alike (something inside the outline), the slowest.
            refused = risk > ACCEPTED
            return np.stack((np.where(refused, TOUCH * (1 + np.round(risk, 2)) + parts[:, 0]
                                      + 0.01 * cost, cost), risk, contact))

        parts, turns = self._around(command)
        arcs = np.column_stack((parts * command.vx, parts * command.vy, turns))
        bounds = np.sort(np.stack((asked, np.zeros(3))), 0)
        bounds[:, 2] = turns.min(), turns.max()
        return self._plan(self._search(arcs, (bounds[0], bounds[1]), judge), len(points), cameras,
                          complex(command.vx, command.vy))

    def _around(self, command: Motion) -> tuple[np.ndarray, np.ndarray]:
        """Return fractions of the commanded speed and turn rates [rad/s], the command first."""
        most = self.config.max_turn
        pairs = dict.fromkeys(
            (part, float(np.clip(command.omega + more, -most, most)) if more else command.omega)
            for part in SPEEDS for more in (TURNS if part else (0.0,)))
        parts, turns = np.array(list(pairs)).T
        return parts, turns

    # -- judging -----------------------------------------------------------------------------

    def _search(self, arcs: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], judge: Judge
                ) -> np.ndarray:
        """Find the cheapest of arcs (N, 3) and of samples within bounds (3,)."""
        low, high = bounds
        plans = [np.repeat(arcs[:, None], STEPS, 1)]
        judged = [judge(plans[0])]
        shift, self._since_s = self._since_s / STEP_S, 0.0
        if self._best is not None:
            mean = _later(self._best, shift)
            spread = SPREAD[0] * (high - low)
            spread[2] = SPREAD[1] * self.config.max_turn
            least = min(LEAST_SPEED, max(-low[0], high[0]))
            for _ in range(ROUNDS):
                drawn = mean + spread * self._random.standard_normal((
                    SAMPLES // ROUNDS, STEPS, 3))
                drawn[0] = mean
                drawn = np.clip(drawn, low, high)
                drawn[..., 0] = _seeing(drawn[..., 0], least)
                plans.append(drawn)
                judged.append(judge(plans[-1]))
                every, cost = np.concatenate(plans), np.concatenate(judged, 1)[0]
                elites = every[np.argsort(cost)[:ELITES]]
                mean, spread = elites.mean(0), elites.std(0) + LEAST_SPREAD * (high > low)
            mean[:, 0] = _seeing(mean[:, 0], least)
            plans.append(mean[None])
            judged.append(judge(plans[-1]))
        every = np.concatenate(plans)
        cost, risk, contact = np.concatenate(judged, 1)
        order = np.argsort(cost, kind='stable')
        self._best = every[order[0]]
        table = np.zeros(len(every), CANDIDATE)
        table['vx'], table['vy'], table['omega'] = every[:, 0].T
        table['cost'], table['risk'], table['time_to_contact'] = cost, risk, contact
        table['rank'][order] = np.arange(len(order))
        table['accepted'] = risk <= ACCEPTED
        return table

    def _plan(self, table: np.ndarray, points: int, cameras: list[CameraMemory],
              towards: complex) -> LocalPlan:
        """Return the best sequence of a table of candidates as a plan."""
        assert self._best is not None
        self._sent = Motion(*self._best[0].tolist())
        heading = math.atan2(towards.imag, towards.real)
        return LocalPlan(self._sent, float(table['risk'][table['rank'] == 0][0]), table, points,
                         self._unmeasured(heading, cameras))

    def _rolled(self, plans: np.ndarray, begin: Motion | None = None
                ) -> tuple[np.ndarray, np.ndarray]:
        """Return places (complex) and headings (N, J) on sequences (N, K, 3), `_parts` a step."""
        # With the motion at their begin speeds change by the acceleration of the base: a robot
        # that starts or brakes turns in another place than one that is as fast as its command.
        parts = self._parts(plans)
        step = STEP_S / parts
        turn = np.repeat(plans[..., 2], parts, 1) * step
        speed = np.repeat(plans[..., 0] + 1j * plans[..., 1], parts, 1)
        if begin is not None:
            now = np.full(len(plans), complex(begin.vx, begin.vy))
            for moment in range(speed.shape[1]):
                change = speed[:, moment] - now
                now = now + change * np.minimum(1, self.config.acceleration * step
                                                / np.maximum(np.abs(change), 1e-9))
                speed[:, moment] = now
        heading = self.memory.yaw + np.cumsum(turn, -1)
        chord = speed * step * np.sinc(0.5 * turn / math.pi)
        at = self.memory.place + np.cumsum(chord * np.exp(1j * (heading - 0.5 * turn)), -1)
        return at, heading

    def _parts(self, plans: np.ndarray) -> int:
        """Return how many moments of a step are judged: nothing may fall between two."""
        fastest = float(np.hypot(plans[..., 0], plans[..., 1]).max())
        half = 0.5 * self.config.length + self.config.margin
        return int(np.clip(math.ceil(fastest * STEP_S / half), *PARTS))

    def _room(self, ground: _Ground, at: np.ndarray, heading: np.ndarray
              ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return room (N, J) [m], and parts of the outline where it has not been, nor seen."""
        half, side = 0.5 * self.config.length, self.config.half_width
        along, across, axis = (np.linspace(-far, far, math.ceil(2 * far / CELL_M - 1e-6) + 1)
                               for far in (half, side, abs(half - side)))
        outline = np.concatenate((along + 1j * side, along - 1j * side, half + 1j * across,
                                  1j * across - half))
        turn = np.exp(1j * heading)[..., None]
        edge = at[..., None] + outline * turn
        known = self.memory.free(edge)
        # What is inside is far from the outline, but near the axis.
        inside = ground.room(at[..., None] + axis * (1 if half > side else 1j) * turn).min(-1)
        return (np.minimum(ground.room(edge).min(-1), np.maximum(0, inside - min(half, side))),
                (known < BEEN).mean(-1), (known == 0).mean(-1))

    def _blind(self, unseen: np.ndarray, pace: np.ndarray) -> np.ndarray:
        """Return how much of the way soon ahead (N,) is unseen, of parts of the outline (N, J)."""
        soon = max(1, round(unseen.shape[1] * BLIND_S / HORIZON_S))
        return (unseen * (pace > 0))[:, :soon].mean(-1)

    def _least_room(self, ground: _Ground) -> float:
        """Return the room [m] of a robot that goes no closer to what it is close to already."""
        place, yaw = np.full((1, 1), self.memory.place), np.full((1, 1), self.memory.yaw)
        return max(LEAST_M, float(self._room(ground, place, yaw)[0][0, 0]) - CLOSER_M)

    def _contact(self, near: np.ndarray, at: np.ndarray, heading: np.ndarray,
                 movers: np.ndarray) -> np.ndarray:
        """Return the times (N,) [s] of the first contact; inf means none within the horizon."""
        times = (np.arange(near.shape[1]) + 1) * HORIZON_S / near.shape[1]
        if len(movers):
            config = self.config
            movers = movers[np.argsort(-movers[:, 4])[:MOVERS]]
            there = (movers[:, 0] + 1j * movers[:, 1]) + times[:, None] * (
                movers[:, 2] + 1j * movers[:, 3])                          # J P
            away = (there - at[..., None]) * np.exp(-1j * heading)[..., None]
            inside = (np.abs(away.imag) < config.half_width + config.margin) & (
                np.abs(away.real) < 0.5 * config.length + config.margin)
            near = near | (inside @ movers[:, 4] >= EVIDENCE)
        return np.where(near.any(-1), times[np.argmax(near, -1)], np.inf)

    def _risk(self, contact: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(np.clip((contact - REACTION_S) / 0.3, -50, 50)))

    def _hazard(self, plans: np.ndarray) -> np.ndarray:
        """Return how far first twists (N,) are like the motion that the heads report on, 0..1."""
        most = max((camera.hazard for camera in self.memory.cameras.values()), default=0.0)
        ahead = np.clip(plans[:, 0, 0] / max(self.config.cruise, 1e-3), 0, 1)
        return most * ahead * np.exp(-((plans[:, 0, 2] - self._motion.omega) / ALIKE) ** 2)

    def _weighed(self) -> np.ndarray:
        """Return the points with the weights of their age."""
        points = self.memory.points()
        points[:, 4] *= np.clip(1 - FADE * points[:, 5] / self.config.memory_s, 0, 1)
        return points

    def _unmeasured(self, heading: float, covering: list[CameraMemory]) -> str:
        """Return why the path of a command is unknown, '' when it was measured."""
        flags = sorted({name for camera in covering for name in camera.unmeasured_flags.names})
        memory_s = min(MEASURED_S, self.config.memory_s)
        if flags:
            return f'the newest picture is flagged {" ".join(flags)}'
        if any(camera.measured(heading, memory_s) for camera in self.memory.cameras.values()):
            return ''
        if any(camera.measured_s <= memory_s for camera in covering):
            return 'what was measured lies in another direction'
        return f'nothing for {memory_s:g} s: looming gives distances only while the robot drives'


def _seeing(speed: np.ndarray, least: float) -> np.ndarray:
    """Return speeds at which looming gives distances, or rest: who creeps drives blind."""
    return np.where(np.abs(speed) < least / 2, 0.0,
                    np.copysign(np.maximum(np.abs(speed), least), speed))


def _later(plan: np.ndarray, steps: float) -> np.ndarray:
    """Return a sequence (K, 3) as seen some steps later; its last twist goes on."""
    at = np.minimum(np.arange(len(plan)) + steps, len(plan) - 1)
    first = np.minimum(at.astype(int), len(plan) - 2)
    part = (at - first)[:, None]
    return (1 - part) * plan[first] + part * plan[first + 1]

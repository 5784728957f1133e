# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive by the true depth of what the camera sees: what a planner could reach at best.

Surfaces become a map of the ground that remembers what was seen. Ways to the goal are searched on
it; what was never seen counts as free. Arcs of a sample of twists are rolled forward, as in the
dynamic window approach (Fox, Burgard and Thrun, 1997), and the one is taken that touches least and
ends nearest to the goal. What appears where the ground was free moves, and continues as it did.
"""

from __future__ import annotations

import math
from collections import deque

import cv2
import numpy as np

from vjepa_ros.lab.world.episodes.robot import Drive, Route
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.planning.ways import Grid

DEPTH_PX = 128           # width of the depth pictures
_AROUND_M = 6.0          # the map reaches so far beyond start and goal
_CELL_M = 0.1
_FAR_M = 8.0             # surfaces beyond are not used
_UNSEEN_M = 1.0          # nearer, what is low is below the picture: nothing is cleared
_RAY_M = 0.05            # step along rays
_EVERY = 3               # ways are searched anew at every third picture
_KEEP_M, _TIGHT_M = 0.08, 0.02   # distance of the outline to what it must not touch; when stuck
_STUCK = 6               # pictures at rest after which the robot counts as stuck
_FREES = 24              # and for how many it then goes close to things
_WIDE_M = 0.5            # ways keep this far from obstacles where they can
_SPEEDS = (1.0, 0.75, 0.5, 0.25, 0.0, -0.3)      # parts of the wanted speed
_TURNS = np.linspace(-1.0, 1.0, 13)              # parts of the greatest turn rate
_ROLL_S, _STEPS = 1.0, 8
_LEAST_ROLL_S = 0.5      # in addition to the time that the robot needs to stop
_AHEAD_M = 0.4           # the way is judged so far before the robot: it shall look along it
_TOUCH = 50.0            # cost of a touched cell [m]
_NEWS_S = 1.0            # cells that were seen free so shortly before have got a mover
_PACE_S = 0.3            # over which the velocity of movers is measured
_FASTEST_M_S = 3.0
_AWAY_M = 0.15           # distance of the outline to movers
_MOVERS_S = 2.0          # they are foreseen so far


class DepthOracle:
    """Plans for one robot.

    Parameters
    ----------
    robot, drive, route
        Its size, what its base can do, and where it wants to go.
    """

    def __init__(self, robot: Robot, drive: Drive, route: Route) -> None:
        self._robot, self._drive, self._route = robot, drive, route
        self._grid = Grid(route.points.min(0) - _AROUND_M, route.points.max(0) + _AROUND_M,
                          _CELL_M)
        self._occupied = np.zeros(self._grid.shape, bool)
        self._lengths = np.zeros(self._grid.shape)
        self._freed_s = np.full(self._grid.shape, -math.inf)     # when seen free
        self._groups: deque[tuple[float, np.ndarray]] = deque()  # of movers: time, middles
        self._movers = np.empty((0, 4))                          # x, z and their velocity
        self._calls = 0
        speeds, turns = np.meshgrid(np.array(_SPEEDS) * route.cruise, _TURNS * drive.turn)
        self._twists = np.stack((speeds.ravel(), turns.ravel()), -1)
        self._body, self._tight = (_outline(robot, margin) for margin in (_KEEP_M, _TIGHT_M))
        self._rests = self._frees = 0            # pictures at rest, and left to get free

    def act(self, seen: np.ndarray, place: np.ndarray, yaw: float, height: float,
            now_s: float) -> tuple[float, float]:
        """Return speed [m/s] and turn rate [rad/s] (positive to the left) for the base.

        Parameters
        ----------
        seen
            (H, W, 3) x, height and z of the surface in each pixel [m]; not finite for the sky.
        place, yaw
            (2,) of the robot [m], and where it heads [rad].
        height
            Of the camera above ground [m].
        now_s
            Time [s], rising.
        """
        self._look(seen, place, yaw, max(self._robot.height, height + 0.1), now_s)
        if self._calls % _EVERY == 0:
            self._lengths = self._search()
        self._calls += 1
        left = float(np.linalg.norm(self._route.points[-1] - place))
        twists = self._twists
        twists = twists[np.abs(twists[:, 0]) <= max(0.3 * self._route.cruise, left)]
        self._frees = _FREES if self._rests >= _STUCK else max(0, self._frees - 1)
        stuck = self._frees > 0
        touched, ends = self._roll(twists, place, yaw, self._tight if stuck else self._body)
        cost = _TOUCH * touched + ends + 0.02 * np.abs(twists[:, 1]) + 0.1 * (twists[:, 0] < 0)
        rests = ~twists.any(-1)
        speed, turn = twists[int(np.argmin(cost + stuck * rests))]
        self._rests = 0 if speed or turn else self._rests + 1
        return float(speed), float(turn)

    def _look(self, seen: np.ndarray, place: np.ndarray, yaw: float, top: float,
              now_s: float) -> None:
        """Put the newest surfaces into the map."""
        eye = place + 0.5 * self._robot.length * np.array((math.sin(yaw), math.cos(yaw)))
        away = seen[..., 0::2] - eye
        distance = np.linalg.norm(away, axis=-1)
        with np.errstate(invalid='ignore'):
            solid = ((seen[..., 1] > self._robot.clearance + 0.02) & (seen[..., 1] < top)
                     & (distance < _FAR_M))
        # A pixel column looks in one direction along the ground.
        nearest = np.where(solid, distance, _FAR_M).min(0)
        low = np.where(np.isfinite(distance[-1]), away[-1].T / distance[-1], np.nan).T
        steps = np.arange(_UNSEEN_M, _FAR_M, _RAY_M)
        free = (steps < nearest[:, None] - _CELL_M) & np.isfinite(low[:, :1])
        columns, numbers = np.nonzero(free)
        cleared = self._grid.index(eye + low[columns] * steps[numbers, None])
        self._occupied[cleared] = False
        shown = np.zeros(self._grid.shape, bool)
        shown[self._grid.index(seen[solid][:, 0::2])] = True
        shown[[0, -1]] = shown[:, [0, -1]] = False
        self._occupied |= shown
        self._follow(shown & (now_s - self._freed_s < _NEWS_S), now_s)
        self._freed_s[cleared] = now_s

    def _follow(self, new: np.ndarray, now_s: float) -> None:
        """Find movers by cells that have become occupied, and their velocity."""
        count, labels, _, middles = cv2.connectedComponentsWithStats(
            cv2.dilate(new.astype(np.uint8), np.ones((3, 3), np.uint8)))
        middles = self._grid.low + _CELL_M * (middles[1:] + 0.5)
        self._groups.append((now_s, middles))
        while len(self._groups) > 2 and now_s - self._groups[1][0] >= _PACE_S:
            self._groups.popleft()
        since, before = self._groups[0]
        found: list[np.ndarray] = [np.empty((0, 4))]
        for number in range(count - 1):
            away = middles[number] - before
            gone = np.linalg.norm(away, axis=-1)
            if not len(gone) or gone.min() > _FASTEST_M_S * (now_s - since):
                continue
            velocity = away[gone.argmin()] / max(now_s - since, 1e-3)
            cells = self._grid.low + _CELL_M * (np.argwhere(new & (labels == number + 1))[:, ::-1]
                                                + 0.5)
            found.append(np.concatenate((cells, np.tile(velocity, (len(cells), 1))), -1))
        self._movers = np.concatenate(found)

    def _search(self) -> np.ndarray:
        """Return the length of the way to the goal from each cell, longer beside obstacles."""
        space = cv2.distanceTransform((~self._occupied).astype(np.uint8), cv2.DIST_L2,
                                      5) * _CELL_M
        reach = self._robot.half_width + 0.5 * _CELL_M
        cost = 1 + 4 * np.clip(1 - (space - reach) / (_WIDE_M - reach), 0, 1)
        # Where the robot cannot be, ways are so long that others are taken if there are any.
        return self._grid.lengths(np.where(space < reach, 100.0, cost), self._route.points[-1])

    def _roll(self, twists: np.ndarray, place: np.ndarray, yaw: float,
              outline: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many cells each arc (N, 2) touches, and how long the way is from its end."""
        stops = np.abs(twists[:, :1]) / self._drive.braking + _LEAST_ROLL_S
        share = np.linspace(0, 1, _STEPS + 1)[1:]
        at, right, ahead = _arcs(twists, share * np.maximum(stops, _ROLL_S), place, yaw)
        body = (at[..., None, :] + outline[:, :1] * right[..., None, :]
                + outline[:, 1:] * ahead[..., None, :])
        touched = self._occupied[self._grid.index(body)].sum((-1, -2))
        before = at[:, -1] + _AHEAD_M * ahead[:, -1]
        ways = 0.5 * self._lengths[self._grid.index(at[:, -1])] + self._lengths[
            self._grid.index(before)]
        times = share * _MOVERS_S
        at, right, ahead = _arcs(twists, np.tile(times, (len(twists), 1)), place, yaw)
        there = self._movers[:, :2] + times[:, None, None] * self._movers[:, 2:]    # S P 2
        away = there - at[..., None, :]
        met = ((np.abs((away * right[..., None, :]).sum(-1)) < self._robot.half_width + _AWAY_M)
               & (np.abs((away * ahead[..., None, :]).sum(-1))
                  < 0.5 * self._robot.length + _AWAY_M))
        return touched + met.sum((-1, -2)), ways


def _outline(robot: Robot, margin: float) -> np.ndarray:
    """Return points (64, 2) all over a robot, x to its right and z ahead [m]."""
    side, half = robot.half_width + margin, 0.5 * robot.length + margin
    return np.stack(np.meshgrid(np.linspace(-side, side, 8), np.linspace(-half, half, 8)),
                    -1).reshape(-1, 2)


def _arcs(twists: np.ndarray, times: np.ndarray, place: np.ndarray,
          yaw: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places, and unit vectors to the right and ahead, (N, S, 2) each, at times (N, S)."""
    speed, turn = twists[:, :1], -twists[:, 1:]                  # yaw grows to the right
    heading, middle = yaw + turn * times, yaw + 0.5 * turn * times
    chord = speed * times * np.sinc(0.5 * turn * times / np.pi)
    at = place + chord[..., None] * np.stack((np.sin(middle), np.cos(middle)), -1)
    return (at, np.stack((np.cos(heading), -np.sin(heading)), -1),
            np.stack((np.sin(heading), np.cos(heading)), -1))

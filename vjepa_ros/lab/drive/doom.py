# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive in ViZDoom: maps of Freedoom that nobody made for this package.

Doom draws the pictures and moves the monsters (`doom_map`); base, contacts and ways are those of
the rendered world.

Contacts come from positions: walls, edges of the floor of more than 7 cm, openings lower than
1.2 m, and everything that stands on the floor, as an octagon as wide as a drawn body.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.lab.drive.doom_map import CAMERA_M, Map, UNIT_M
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, GOAL_M, PATIENCE
from vjepa_ros.lab.world.episodes.robot import Route, Run, Unicycles, free_run
from vjepa_ros.lab.world.episodes.world import SUBSTEP_S
from vjepa_ros.lab.world.reaction import STANDS_M_S
from vjepa_ros.planning.ways import Grid, LONGER

MAPS = tuple(f'MAP{number:02d}' for number in range(1, 25))     # of Freedoom, phase 2
SCENARIOS = ('around', 'monsters')   # something that stands still blocks the straight line, or not
SIZE, FOV = (400, 300), math.radians(90)
_THING_M = 13 * UNIT_M               # half the width of drawn bodies, without their arms
_OCTAGON = _THING_M * np.array([(math.cos(a), math.sin(a)) for a in np.arange(9) * math.pi / 4])
_TICS_HZ = 35
_SPEED, _LENGTH = (0.7, 1.5), (5.0, 8.0)     # ranges [m/s], [m]
_WINDOW_M, _CELL_M = 9.0, 0.1        # searched around the middle of a route
_SHIFT = 4                           # binary digits behind the point of cells
_MARGIN_M, _APART_M = 0.08, 1.5      # more than half a cell; nobody is nearer to a start
_DROP_M = 2.0                        # floors drop no nearer to a straight line
_TRIES, _HASTE = 400, 0.8            # see `get_past`


@dataclass(frozen=True)
class DoomEpisode:
    """A way on a map; attributes as in `Episode`, and where it starts.

    Attributes
    ----------
    start, level
        (2,) x and y of the start in the map, and the height of its floor [units].
    """

    number: int
    scenario: str
    place: str
    route: Route
    run: Run
    start: np.ndarray
    level: float
    shortest: float
    camera_height: float = CAMERA_M

    @property
    def ends_s(self) -> float:
        """Time at which it ends at the latest [s]."""
        return PATIENCE * self.run.duration


def draw(seed: int, number: int, config: EpisodeConfig) -> DoomEpisode:
    """Draw a way that passes where a monster of a map is at first, and can be driven.

    In half of them the straight line is blocked by something that stands still. The number says
    which map; where that has no such way, it is the next one.

    Raises
    ------
    RuntimeError
        When no map has such a way.
    """
    scenario = SCENARIOS[(number + number // len(MAPS)) % len(SCENARIOS)]
    for more in range(len(MAPS)):
        here = Map(MAPS[(number + more) % len(MAPS)], 1 + number)
        rng = np.random.default_rng((seed, number, 3))
        try:
            for _ in range(_TRIES):
                episode = _attempt(here, rng, number, config)
                if episode is not None and episode.scenario == scenario:
                    return episode
        finally:
            here.close()
    raise RuntimeError(f'no map has a way for the robot in {_TRIES} drawings; is it too large?')


def _attempt(here: Map, rng: np.random.Generator, number: int,
             config: EpisodeConfig) -> DoomEpisode | None:
    monsters = [o for o in here.state.objects if o.name.startswith('Calm')]
    if not monsters:
        return None
    monster = monsters[int(rng.integers(len(monsters)))]
    middle = np.array((monster.position_x, monster.position_y))
    level, robot = monster.position_z, config.robot
    length, way = rng.uniform(*_LENGTH), rng.uniform(-math.pi, math.pi)
    along = np.array((math.cos(way), math.sin(way)))
    aside = rng.uniform(-0.6, 0.6) * np.array((-along[1], along[0]))
    begin = middle + (aside - along * length * rng.uniform(0.4, 0.7)) / UNIT_M
    goal = along * length
    grid = Grid(0.5 * goal - _WINDOW_M, 0.5 * goal + _WINDOW_M, _CELL_M)
    line = grid.index(np.linspace(0, 1, 99)[:, None] * goal)
    things, names = here.things(level)
    still = np.array([not name.startswith('Calm') for name in names], bool)
    solid = (_outlines(here.walls, things[still]) - np.tile(begin, 2)) * UNIT_M
    gaps = _gaps(grid, solid)
    inner = min(robot.half_width, 0.5 * robot.length)
    reach = math.hypot(robot.half_width, 0.5 * robot.length) + _MARGIN_M
    apart = UNIT_M * float(np.linalg.norm(things - begin, axis=-1).min())
    drops = solid[:len(here.walls)][here.drops(level)]
    if (min(gaps[line][[0, -1]]) < reach or apart < _APART_M
            or _gaps(grid, drops)[line].min() < _DROP_M):
        return None

    def shortest(least: float) -> np.ndarray:
        return grid.lengths(np.where(gaps < least, np.inf, 1.0), goal)

    ways, at = shortest(reach), grid.index(np.stack((np.zeros(2), (middle - begin) * UNIT_M)))
    route = Route(np.stack((np.zeros(2), goal)), float(rng.uniform(*_SPEED)))
    run = free_run(Route(np.array(((0.0, 0.0), (0.0, length))), route.cruise), config.drive)
    if not ways[at].max() < _HASTE * PATIENCE * run.duration * route.cruise:
        return None
    # A disc within the robot fits wherever the robot does; a way on the grid is longer.
    least = max(length, float(shortest(inner)[at][0]) / LONGER) - GOAL_M
    return DoomEpisode(number, SCENARIOS[int(gaps[line].min() >= inner)], here.name, route, run,
                       begin, level, least)


def _outlines(walls: np.ndarray, things: np.ndarray) -> np.ndarray:
    """Return (L + 8 N, 4) lines: walls (L, 4), then octagons around things (N, 2) [units]."""
    corners = things[:, None] + _OCTAGON / UNIT_M
    return np.concatenate((walls, np.concatenate((corners[:, :-1], corners[:, 1:]), -1)
                           .reshape(-1, 4)))


def _gaps(grid: Grid, lines: np.ndarray) -> np.ndarray:
    """Return the distance of cells to lines, to about half a cell [m]."""
    drawn = np.ones(grid.shape, np.uint8)
    ends = ((lines.reshape(-1, 2, 2) - grid.low) / grid.cell - 0.5) * 2 ** _SHIFT
    cv2.polylines(drawn, list(np.round(ends).astype(np.int32)), False, 0, shift=_SHIFT)
    return cv2.distanceTransform(drawn, cv2.DIST_L2, 5) * grid.cell


class DoomWorld:
    """Episodes in Doom, with the interface of `EpisodeWorld`; x and z are x and y of a map.

    Parameters
    ----------
    episodes, config
        Drawn with this configuration.
    """

    def __init__(self, episodes: Sequence[DoomEpisode], config: EpisodeConfig) -> None:
        self.episodes, self.config, self.size = list(episodes), config, SIZE
        count = len(self.episodes)
        self.robots = Unicycles(count, config.drive)
        self.robots.yaw = np.array([math.atan2(*e.route.direction(0)) for e in episodes])
        self.collided, self.struck = np.zeros(count, bool), np.zeros(count, bool)
        self.touched = [''] * count
        self.frame, self.time_s = 0, -math.ceil(config.settle_s * config.rate) / config.rate
        self.maps = [Map(e.place, 1 + e.number) for e in episodes]
        self._lines, self._names = [np.empty(0)] * count, [['']] * count
        self._show(range(count), 1)

    @property
    def intrinsics(self) -> np.ndarray:
        """(N, 4) fx, fy, cx, cy [px]."""
        focal = 0.5 * SIZE[0] / math.tan(0.5 * FOV)
        lens = (focal, focal, 0.5 * (SIZE[0] - 1), 0.5 * (SIZE[1] - 1))
        return np.tile(lens, (len(self.episodes), 1))

    def _show(self, which: Sequence[int], tics: int) -> None:
        """Let time pass in Doom, and look where everything is."""
        eyes = self.robots.front(self.config.robot)
        for n in which:
            here, episode = self.maps[n], self.episodes[n]
            here.go(episode.start + eyes[n] / UNIT_M, episode.level,
                    0.5 * math.pi - self.robots.yaw[n], tics)
            things, names = here.things(episode.level)
            self._lines[n] = (_outlines(here.walls, things) - np.tile(episode.start, 2)) * UNIT_M
            self._names[n] = [*np.where(here.drops(episode.level), 'edge', 'wall'),
                              *np.repeat(names, len(_OCTAGON) - 1)]

    def step(self, speed: np.ndarray, turn: np.ndarray, active: np.ndarray) -> None:
        """Go on to the next picture; arguments as in `EpisodeWorld.step`."""
        which = np.flatnonzero(active & ~self.collided).tolist()
        length_s = 1 / self.config.rate
        count = max(1, round(length_s / SUBSTEP_S))
        tics = (round((self.frame + 1) * _TICS_HZ * length_s)
                - round(self.frame * _TICS_HZ * length_s))
        for part in range(count):
            before = self.robots.place, self.robots.yaw
            self.robots.step(speed, turn, length_s / count)
            goes = active & ~self.collided
            self.robots.place = np.where(goes[:, None], self.robots.place, before[0])
            self.robots.yaw = np.where(goes, self.robots.yaw, before[1])
            self.robots.speed = np.where(goes, self.robots.speed, 0.0)
            if part == count - 1:       # others have moved, too
                self._show(which, tics)
            for number in np.flatnonzero(goes).tolist():
                self._test(number)
        self.frame += 1
        self.time_s += length_s

    def _test(self, number: int) -> None:
        robot = self.config.robot
        low, high = _ahead(self._lines[number], self.robots.place[number],
                           self.robots.yaw[number], robot.half_width)
        touched = (low < 0.5 * robot.length) & (high > -0.5 * robot.length)
        if touched.any():
            self.collided[number] = True
            self.struck[number] = abs(self.robots.speed[number]) < STANDS_M_S / 2
            self.robots.speed[number] = self.robots.turn[number] = 0
            self.touched[number] = str(self._names[number][int(np.argmax(touched))])

    def clearance(self, number: int, longest: float = 8.0) -> float:
        """Return the free length in front of a robot [m]; see `EpisodeWorld`."""
        robot, half = self.config.robot, 0.5 * self.config.robot.length
        low, high = _ahead(self._lines[number], self.robots.place[number],
                           self.robots.yaw[number], robot.half_width)
        return float(np.clip(low[high > -half].min(initial=math.inf) - half, 0.0, longest))

    def pictures(self, which: np.ndarray) -> np.ndarray:
        """(len(which), H, W, 3) uint8 RGB of the present moment."""
        return np.stack([self.maps[n].state.screen_buffer for n in which])

    def surfaces(self, which: np.ndarray, width: int) -> np.ndarray:
        """(len(which), 2, width, 3) x, height, z of what cameras see at 0.3 m, and of the floor.

        Each column has the nearest wall or thing in its direction; inf where there is none.
        """
        angles = np.arctan(np.linspace(-1, 1, width) * math.tan(0.5 * FOV))
        found = []
        for n in which:
            eye, yaws = self.robots.front(self.config.robot)[n], self.robots.yaw[n] + angles
            rays = np.stack((np.sin(yaws), np.cos(yaws)), -1)
            far = [_ahead(self._lines[n], eye, yaw, 0.0)[0] for yaw in yaws]
            far = np.array([low[low > 0].min(initial=math.inf) for low in far])
            found.append(np.stack((np.insert(eye + far[:, None] * rays, 1, 0.3, -1),
                                   np.insert(eye + 2.0 * rays, 1, 0.0, -1))))
        return np.stack(found)

    def close(self) -> None:
        """End all processes."""
        for one in self.maps:
            one.close()


def _ahead(lines: np.ndarray, place: np.ndarray, yaw: float,
           half_width: float) -> tuple[np.ndarray, np.ndarray]:
    """Return how far ahead of a pose lines (L, 4) begin and end in a strip; (inf, -inf) outside.

    The strip leads straight ahead and back from the pose.
    """
    cosine, sine = math.cos(yaw), math.sin(yaw)
    ends = (lines.reshape(-1, 2, 2) - place) @ np.array(((cosine, sine), (-sine, cosine)))
    first, way = ends[:, 0], ends[:, 1] - ends[:, 0]
    with np.errstate(divide='ignore', invalid='ignore'):
        sides = (np.array(((-half_width,), (half_width,))) - first[:, 0]) / way[:, 0]
    enter, leave = np.maximum(sides.min(0), 0), np.minimum(sides.max(0), 1)
    inside = enter <= leave
    at = first[:, 1] + way[:, 1] * np.where(inside, (enter, leave), 0)
    return np.where(inside, at.min(0), np.inf), np.where(inside, at.max(0), -np.inf)

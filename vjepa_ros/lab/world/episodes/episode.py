# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw random episodes: a robot, its route, and a world in which the route is free or not.

Episodes about stopping: in the scenario 'free' nothing is put into the robot's way, in the others
something stands in it, or gets into it.

Episodes about getting past: the robot can get to its goal, but not straight on. A search over the
true layout shows that there is a way for a disc around the robot. Who moves is proven harmless in
one of two ways: no moment of the motion touches the way, or the robot can wait at the start until
everybody has come to rest, and then go around them. Other drawings are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.episodes.robot import (
    Drive,
    Route,
    Run,
    WAIT_M,
    WAIT_S,
    band_of,
    footprint,
    free_run,
    reach_of,
    touching,
)
from vjepa_ros.lab.world.episodes.surroundings import (
    Body,
    KITS,
    PLACES,
    SHARES,
    Setting,
    beside,
    build,
    in_the_way,
    passer_by,
    shapes_of,
    standing,
)
from vjepa_ros.lab.world.scenes.scene import BOX, Robot, SceneRng, Shapes, join, still
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials
from vjepa_ros.planning.local_planner import Grid, LONGER

STOPS = {'free': .36, 'wall': .1, 'static': .24, 'cross': .16, 'approach': .07, 'leader': .07}
# What is in the way; an episode's number chooses, so that all are equally frequent.
GETS_PAST = ('beside', 'doorway', 'slalom', 'dead_end', 'cross', 'approach', 'leader')
GOAL_M = 0.5         # a robot so near to its goal has reached it
PATIENCE = 3.0      # times the free time, for a robot that has to get to its goal
AFTER_S = 2.0      # bodies keep moving for this long after the robot has arrived
_SPEED, _LENGTH = (0.7, 1.5), (7.0, 10.0)     # of routes past something [m/s], [m]
_ROOM_M = (1.6, 3.0)      # beside them, at least
_MARGIN_M = 0.03          # around the robot
_CELL_M = 0.15
_WIDE_M = 6.0             # the search reaches so far to both sides
_HASTE = 0.8              # share of its time within which the robot must be able to get there
_NEAREST_M = 2.0          # those who come towards the start stop so far from it
_TRIES = 200
_BOXES = 8
_GROUPS = ('wall', 'wood', 'print', 'metal', 'shelf')
# x, z, half width, half depth, height [m]
_Box = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class EpisodeConfig:
    robot: Robot = field(default_factory=Robot)  # its volume
    drive: Drive = field(default_factory=Drive)  # what its base can do
    speed: tuple[float, float] = (0.5, 2.0)  # least and greatest wanted speed [m/s]
    travel_s: tuple[float, float] = (5.0, 8.0)  # length of the route over the wanted speed [s]
    camera_height: tuple[float, float] = (0.3, 0.5)  # [m]
    fov: tuple[float, float] = (math.radians(60), math.radians(90))  # horizontal [rad]
    aspect: float = 4 / 3  # width by height of the pictures
    rate: float = 12.0  # pictures per second [Hz]
    settle_s: float = 3.3  # the robot stands before it starts [s]: perception needs a full clip

    def __post_init__(self) -> None:
        if not 1 <= self.rate <= 60:
            raise ValueError(f'rate is {self.rate} Hz, must be within 1..60')


@dataclass(frozen=True)
class Episode:
    """One episode; times count from the start of the drive."""

    number: int
    scenario: str  # what gets into the way
    place: str  # what kind of place
    route: Route  # where the robot wants to go
    run: Run  # and how it gets there when it meets nothing
    camera_height: float  # [m]
    fov: float  # of the camera [rad]
    pitch: float  # of the camera [rad]
    times: np.ndarray  # (T,) times at which bodies are known [s], evenly spaced
    bodies: tuple[Body, ...]  # those of importance first
    heedless: int  # how many of these, from the first, do not see a robot that drives
    shapes: Shapes  # one scene, over the times where they move; its fixed ones first
    owner: np.ndarray  # (K,) number of the body that a shape belongs to, -1 for what is fixed
    fields: dict[str, Tensor]  # of `Scenes` for ground, light and sensor
    shortest: float = math.nan  # least length of a way to the goal [m]; NaN: it is about stopping

    @property
    def ends_s(self) -> float:
        return self.run.duration * (PATIENCE if math.isfinite(self.shortest) else 1)


def draw_stop(seed: int, number: int, materials: Materials, config: EpisodeConfig) -> Episode:
    rng = np.random.default_rng((seed, number))
    scenario = str(rng.choice(tuple(STOPS), p=tuple(STOPS.values())))
    place = str(rng.choice(PLACES, p=SHARES))
    route = _route(rng, place, scenario, config)
    run = free_run(route, config.drive)
    height = float(rng.uniform(*config.camera_height))
    times = _times(run, config)
    outline = footprint(run.place, run.yaw, config.robot)
    span = (float(outline[..., 0].min()), float(outline[..., 0].max()))
    end = None
    if scenario == 'wall':
        end = max(1.5, float(route.at(route.length * rng.uniform(0.5, 0.95))[0][1]))
    boxes, sides, fields = build(rng, place, span, float(route.points[-1][1]), end, materials,
                                 len(times), 1 / config.rate)
    setting = Setting(place, route, run, sides, times, config.robot.half_width)
    fov = float(np.random.default_rng((seed, number, 1)).uniform(*config.fov))
    heroes = []
    if scenario not in ('free', 'wall'):
        heroes.append(in_the_way(rng, scenario, setting, fov))
    wanted = len(heroes)
    while len(heroes) < KITS[0][1]:
        heroes.append(passer_by(rng, setting) if rng.random() < 0.6
                      else standing(rng, 'box', (0.0, -30.0), 0.0, times))
    return _furnished(rng, Episode(number, scenario, place, route, run, height, fov, 0.0, times,
                                   tuple(heroes), wanted, boxes, np.full(len(boxes.kinds), -1),
                                   fields), setting, materials, config)


def draw_get_past(seed: int, number: int, materials: Materials, config: EpisodeConfig) -> Episode:
    for attempt in range(_TRIES):
        episode = _attempt(np.random.default_rng((seed, number, 2, attempt)), number, materials,
                           config)
        shortest = _shortest_way(episode, config)
        if math.isfinite(shortest):
            return replace(episode, shortest=shortest)
    raise RuntimeError(f'episode {number} of seed {seed} has no way to its goal in {_TRIES} '
                       'drawings; is the robot too large?')


SETS = {'stop': draw_stop, 'get_past': draw_get_past}


def _times(run: Run, config: EpisodeConfig) -> np.ndarray:
    step = 1 / config.rate
    return np.arange(-math.ceil(config.settle_s / step),
                     math.ceil((run.duration + AFTER_S) / step) + 1) * step


def _route(rng: np.random.Generator, place: str, scenario: str, config: EpisodeConfig) -> Route:
    cruise = float(rng.uniform(*config.speed))
    length = cruise * rng.uniform(*config.travel_s)
    points = [np.zeros(2), np.array((0.0, length))]
    bends = place not in ('corridor', 'warehouse') and scenario != 'wall' and rng.random() < 0.4
    if bends:
        turn = rng.uniform(0.2, 0.7) * (-1 if rng.random() < 0.5 else 1)
        first = length * rng.uniform(0.35, 0.6)
        points = [np.zeros(2), np.array((0.0, first)), np.array((0.0, first)) + (
            length - first) * np.array((math.sin(turn), math.cos(turn)))]
    return Route(np.array(points), cruise)


def _attempt(rng: np.random.Generator, number: int, materials: Materials,
             config: EpisodeConfig) -> Episode:
    scenario = GETS_PAST[number % len(GETS_PAST)]
    place = str(rng.choice(PLACES, p=SHARES))
    length = float(rng.uniform(*_LENGTH))
    route = Route(np.array(((0.0, 0.0), (0.0, length))), float(rng.uniform(*_SPEED)))
    run, half_width = free_run(route, config.drive), config.robot.half_width
    times = _times(run, config)
    room = half_width + rng.uniform(*_ROOM_M, 2)
    boxes, sides, fields = build(rng, place, (-room[0], room[1]), length, None, materials,
                                 len(times), 1 / config.rate)
    setting = Setting(place, route, run, sides, times, half_width)
    fov = float(rng.uniform(*config.fov))
    heroes = []
    if scenario in ('beside', 'cross', 'approach', 'leader'):
        body = in_the_way(rng, 'static' if scenario == 'beside' else scenario, setting, fov)
        if scenario == 'approach':
            body.place[:, 1] = np.maximum(body.place[:, 1], _NEAREST_M)
        heroes.append(body)
    wanted = len(heroes)
    while len(heroes) < KITS[0][1]:
        heroes.append(standing(rng, 'box', (0.0, -30.0), 0.0, times))
    barriers = _shapes(rng, _barriers(rng, scenario, length), materials)
    fixed = join((boxes, barriers), len(times))
    return _furnished(rng, Episode(number, scenario, place, route, run,
                                   float(rng.uniform(*config.camera_height)), fov, 0.0, times,
                                   tuple(heroes), wanted, fixed, np.full(len(fixed.kinds), -1),
                                   fields), setting, materials, config)


def _furnished(rng: np.random.Generator, bare: Episode, setting: Setting, materials: Materials,
               config: EpisodeConfig) -> Episode:
    """Add things beside the way to an episode, and the shapes of all its bodies."""
    heroes, wanted, times, run = bare.bodies, bare.heedless, bare.times, bare.run
    side = [beside(rng, False, setting) for _ in range(KITS[1][1])]
    thin = [beside(rng, True, setting) for _ in range(KITS[2][1])]
    margin = float(rng.uniform(0.12, 0.45))
    # Where the robot is at all times, also before the start and after its arrival.
    at = np.arange(0, len(times), 2)
    moments = np.clip(np.round(times[at] / run.dt).astype(int), 0, len(run.yaw) - 1)
    corners = footprint(run.place[moments], run.yaw[moments], config.robot, margin, 0.3)
    band = np.broadcast_to(band_of(config.robot, np.array(bare.camera_height)), (len(at), 2))
    seen_at = int(np.searchsorted(times, run.duration * 0.5))
    parts, owners, first = [bare.shapes], [bare.owner], 0
    for (kit, count), bodies in zip(KITS, (heroes, side, thin), strict=True):
        draws = SceneRng(int(rng.integers(2**31)), 1)
        shapes = shapes_of(kit, bodies, times, seen_at, materials, draws)
        keep = _kept(rng, shapes, bodies, heroes[:wanted], wanted if first == 0 else 0, at,
                     corners, band)
        mask = np.repeat(keep, len(kit.kinds))
        parts.append(replace(shapes, alive=shapes.alive & torch.tensor(mask)))
        owners.append(first + np.repeat(np.arange(count), len(kit.kinds)))
        first += count
    return replace(bare, pitch=float(rng.normal(0, 0.02)), bodies=(*heroes, *side, *thin),
                   shapes=join(parts, len(times)), owner=np.concatenate(owners))


def _kept(rng: np.random.Generator, shapes: Shapes, bodies: Sequence[Body],
          heroes: Sequence[Body], wanted: int, at: np.ndarray, corners: np.ndarray,
          band: np.ndarray) -> np.ndarray:
    """Return which bodies stay, (M,) bool: the first wanted ones, and those in nobody's way."""
    count = len(bodies)
    share = 0.75 if count > 2 else 1.0
    keep = np.array([n < wanted or rng.random() < share for n in range(count)])

    def along(values: Tensor) -> np.ndarray:
        return values[0].numpy().astype(float)

    hit = touching(corners, band, shapes.kinds, along(shapes.alive)[None] > 0,
                   along(shapes.position)[at], along(shapes.yaw)[at], along(shapes.half)[None])
    blocked = np.any(np.any(hit, axis=0).reshape(count, -1), axis=-1).tolist()
    for number, body in enumerate(bodies[wanted:], wanted):
        clash = blocked[number] or body.place[0, 1] < -20 or any(
            np.linalg.norm(body.place - hero.place, axis=-1).min() < body.reach + hero.reach
            for hero in heroes)
        keep[number] &= not clash
    return keep


def _barriers(rng: np.random.Generator, scenario: str, length: float) -> list[_Box]:
    """Draw the walls and boxes of a scenario; none for those with bodies."""
    tall = float(rng.uniform(0.7, 2.4))
    side = 1.0 if rng.random() < 0.5 else -1.0
    if scenario == 'doorway':
        z, thick, gap = length * rng.uniform(0.4, 0.65), rng.uniform(0.05, 0.15), rng.uniform(
            1.05, 1.5)
        middle = side * rng.uniform(0.5, 1.2)
        low, high = middle - gap / 2, middle + gap / 2
        return [((low - 8) / 2, z, (low + 8) / 2, thick, tall),
                ((high + 8) / 2, z, (8 - high) / 2, thick, tall)]
    if scenario == 'slalom':
        return [(side * (-1) ** n * rng.uniform(0.05, 0.4), length * part,
                 rng.uniform(0.25, 0.5), rng.uniform(0.1, 0.4), rng.uniform(0.5, 1.5))
                for n, part in enumerate((0.28, 0.5, 0.72))]
    if scenario == 'dead_end':
        within = rng.random() < 0.5         # the robot starts right before it, facing in
        wide, deep = rng.uniform(0.6, 0.85), rng.uniform(1.0, 2.0)
        back = deep + rng.uniform(0.5, 0.9) if within else length * rng.uniform(0.5, 0.65)
        middle, thin, z = side * rng.uniform(0, 0.2), 0.06, back - deep / 2
        return [(middle, back, wide + 2 * thin, thin, tall),
                (middle - wide - thin, z, thin, deep / 2, tall),
                (middle + wide + thin, z, thin, deep / 2, tall)]
    return []


def _shapes(rng: np.random.Generator, boxes: list[_Box], materials: Materials) -> Shapes:
    """Return boxes as fixed shapes, always as many."""
    draws = SceneRng(int(rng.integers(2**31)), 1)
    rows = torch.tensor([*boxes, *[(0.0, -30.0, 0.1, 0.1, 0.1)] * (_BOXES - len(boxes))])
    x, z, wide, deep, tall = rows.float().T
    group = torch.full((1, _BOXES), GROUPS[str(rng.choice(_GROUPS))])
    texture, tile, tint = materials.draw(draws, group, torch.zeros(1, _BOXES, dtype=torch.long), 1)
    return still((BOX,) * _BOXES, torch.arange(_BOXES)[None] < len(boxes),
                 torch.stack((x, -tall / 2, z), -1)[None], torch.zeros(1, _BOXES),
                 torch.stack((wide, tall / 2, deep), -1)[None],
                 (texture, tile.clamp(min=0.5), tint))


def _shortest_way(episode: Episode, config: EpisodeConfig) -> float:
    """Return a length that no way to the goal falls below [m]; inf if none is proven in time."""
    robot, route = config.robot, episode.route
    reach = reach_of(robot) + _MARGIN_M
    grid = Grid(np.array((-_WIDE_M, -2.5)), np.array((_WIDE_M, route.length + 2.5)), _CELL_M)
    places = grid.middles()
    start, goal = route.points[0], route.points[-1]

    def fixed(reach: float) -> np.ndarray:
        return _occupied(episode, robot, places.reshape(-1, 2), reach).reshape(grid.shape)

    def way(blocked: np.ndarray) -> float:
        lengths = grid.lengths(np.where(blocked, np.inf, 1.0), goal)
        return float(lengths[grid.index(start)])

    passes, rests, waits_s = fixed(reach), fixed(reach), 0.0
    for body in (b for b in episode.bodies[:episode.heedless] if b.moves):
        passes |= _near(places, body.place, body.reach + reach)
        rests |= _near(places, body.place[-1:], body.reach + reach)
        waits_s = float(episode.times[-1])
        pace = float(np.linalg.norm(np.diff(body.place, axis=0), axis=-1).max()) * config.rate
        if _near(start, body.place, body.reach + reach + WAIT_M + WAIT_S * pace):
            waits_s = math.inf          # it would wait for a robot that waits
    limit_s = _HASTE * PATIENCE * episode.run.duration
    lost_s = episode.run.duration - route.length / route.cruise     # to speed up, and to arrive
    if all(way(blocked) / route.cruise + lost_s + wait_s >= limit_s
           for blocked, wait_s in ((passes, 0.0), (rests, waits_s))):
        return math.inf
    # A disc within the robot fits wherever the robot does; a way on the grid is longer.
    inner = way(fixed(min(robot.half_width, 0.5 * robot.length)))
    return max(route.length, inner / LONGER) - GOAL_M


def _near(places: np.ndarray, others: np.ndarray, within: float) -> np.ndarray:
    gaps = np.linalg.norm(places[..., None, :] - others, axis=-1)
    return np.asarray((gaps < within).any(-1))


def _occupied(episode: Episode, robot: Robot, places: np.ndarray, reach: float) -> np.ndarray:
    """(N,) bool, whether a robot in places (N, 2) touches what never moves."""
    shapes = episode.shapes
    moves = np.array([n < episode.heedless and b.moves for n, b in enumerate(episode.bodies)])
    pick = np.flatnonzero(shapes.alive[0].numpy() & ((episode.owner < 0) | ~moves[episode.owner]))
    square = replace(robot, half_width=reach, length=2 * reach)
    corners = footprint(places, np.zeros(len(places)), square)

    def of(values: Tensor) -> np.ndarray:
        return values[pick].numpy().astype(float)[None]

    band = np.broadcast_to(band_of(robot, np.array(episode.camera_height)), (len(places), 2))
    hit = touching(corners, band, tuple(shapes.kinds[n] for n in pick), np.array([[True]]),
                   of(shapes.position[0, 0]), of(shapes.yaw[0, 0]), of(shapes.half[0]))
    return np.asarray(hit.any(-1))

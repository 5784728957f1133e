# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw episodes in which a robot can get to its goal, but not straight on.

A search over the true layout shows for each of them that there is a way for a disc around the
robot, which can turn anywhere on it. Who moves is proven harmless in one of two ways: no moment of
the motion touches the way, or the robot can wait at the start until everybody has come to rest,
and then go around them. Drawings without such a way, or without time for it, are dropped.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from vjepa_ros.lab.world.episodes.episode import (
    AFTER_S,
    Episode,
    EpisodeConfig,
    GOAL_M,
    PATIENCE,
    furnish,
)
from vjepa_ros.lab.world.episodes.robot import (
    Route,
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
    build,
    in_the_way,
    standing,
)
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.scene import BOX, SceneRng, Shapes, join
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials
from vjepa_ros.planning.ways import Grid, LONGER

# What is in the way; an episode's number chooses, so that all are equally frequent.
SCENARIOS = ('beside', 'doorway', 'slalom', 'dead_end', 'cross', 'approach', 'leader')
SPEED, LENGTH = (0.7, 1.5), (7.0, 10.0)     # ranges [m/s], [m]
_ROOM_M = (1.6, 3.0)      # beside the route, at least
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


def draw(seed: int, number: int, materials: Materials, config: EpisodeConfig) -> Episode:
    """Draw the episode of a seed and a number; it belongs to these alone."""
    for attempt in range(_TRIES):
        episode = _attempt(np.random.default_rng((seed, number, 2, attempt)), number, materials,
                           config)
        shortest = shortest_way(episode, config)
        if math.isfinite(shortest):
            return replace(episode, shortest=shortest)
    raise RuntimeError(f'episode {number} of seed {seed} has no way to its goal in {_TRIES} '
                       'drawings; is the robot too large?')


def _attempt(rng: np.random.Generator, number: int, materials: Materials,
             config: EpisodeConfig) -> Episode:
    scenario = SCENARIOS[number % len(SCENARIOS)]
    place = str(rng.choice(PLACES, p=SHARES))
    length = float(rng.uniform(*LENGTH))
    route = Route(np.array(((0.0, 0.0), (0.0, length))), float(rng.uniform(*SPEED)))
    run, robot, step = free_run(route, config.drive), config.robot, 1 / config.rate
    times = np.arange(-math.ceil(config.settle_s / step),
                      math.ceil((run.duration + AFTER_S) / step) + 1) * step
    room = robot.half_width + rng.uniform(*_ROOM_M, 2)
    around = build(rng, place, (-room[0], room[1]), length, None, materials, len(times), step)
    setting = Setting(place, route, run, around.sides, times, robot.half_width)
    fov = float(rng.uniform(*config.fov))
    heroes = []
    if scenario in ('beside', 'cross', 'approach', 'leader'):
        body = in_the_way(rng, 'static' if scenario == 'beside' else scenario, setting, fov)
        heroes.append(_held(body) if scenario == 'approach' else body)
    wanted = len(heroes)
    while len(heroes) < KITS[0][1]:
        heroes.append(standing(rng, 'box', (0.0, -30.0), 0.0, times))
    boxes = _shapes(rng, _barriers(rng, scenario, length), materials)
    fixed = join((around.boxes, boxes), len(times))
    return furnish(rng, Episode(number, scenario, place, route, run,
                                float(rng.uniform(*config.camera_height)), fov, 0.0, times,
                                tuple(heroes), wanted, fixed, np.full(len(fixed.kinds), -1),
                                around.fields), setting, materials, config)


def _held(body: Body) -> Body:
    """Return somebody who stops before the start of the robot."""
    place = body.place.copy()
    place[:, 1] = np.maximum(place[:, 1], _NEAREST_M)
    return replace(body, place=place)


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
    texture, tile, tint = materials.draw(draws, group, torch.zeros(1, _BOXES, dtype=torch.long),
                                         1)
    still = torch.zeros(1, _BOXES)
    return Shapes((BOX,) * _BOXES, torch.arange(_BOXES)[None] < len(boxes),
                  torch.stack((x, -tall / 2, z), -1)[None, None], still[:, None],
                  torch.stack((wide, tall / 2, deep), -1)[None], torch.zeros(1, _BOXES, 3), still,
                  texture[:, None], tile.clamp(min=0.5), tint)


def shortest_way(episode: Episode, config: EpisodeConfig) -> float:
    """Return a length that no way to the goal falls below [m].

    It is inf unless the robot is proven to be able to get there in time, whatever moves.
    """
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
    """Whether places (..., 2) are near any of the others (N, 2)."""
    gaps = np.linalg.norm(places[..., None, :] - others, axis=-1)
    return np.asarray((gaps < within).any(-1))


def _occupied(episode: Episode, robot: Robot, places: np.ndarray, reach: float) -> np.ndarray:
    """(N,) bool, whether a robot in places (N, 2) touches what never moves."""
    shapes = episode.shapes
    moves = np.array([n < episode.heedless and b.moves for n, b in enumerate(episode.bodies)])
    pick = np.flatnonzero(shapes.alive[0].numpy() & ((episode.owner < 0) | ~moves[episode.owner]))
    square = replace(robot, half_width=reach, length=2 * reach)
    corners = footprint(places, np.zeros(len(places)), square)
    band = np.broadcast_to(band_of(robot, np.array(episode.camera_height)), (len(places), 2))

    def of(values: torch.Tensor) -> np.ndarray:
        rows = values[pick].numpy().astype(float)
        return np.broadcast_to(rows, (len(places), *rows.shape))

    hit = touching(corners, band, tuple(shapes.kinds[n] for n in pick),
                   np.ones((len(places), len(pick)), bool), of(shapes.position[0, 0]),
                   of(shapes.yaw[0, 0]), of(shapes.half[0]))
    return np.asarray(hit.any(-1))

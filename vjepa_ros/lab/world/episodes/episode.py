# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw random episodes: a robot, its route, and a world in which the route is free or not.

An episode belongs to its seed and number alone: it does not change with how many are drawn. In
the scenario 'free' nothing is put into the robot's way, in the others something stands in it, or
gets into it. Whether a robot without guard really collides is never planned, but found out by
driving.
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
    band_of,
    footprint,
    free_run,
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
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.scene import SceneRng, Shapes, join
from vjepa_ros.lab.world.textures.bank import Materials

SCENARIOS = {'free': .36, 'wall': .1, 'static': .24, 'cross': .16, 'approach': .07, 'leader': .07}
GOAL_M = 0.5         # a robot so near to its goal has reached it
PATIENCE = 3.0      # times the free time, for a robot that has to get to its goal
AFTER_S = 2.0      # bodies keep moving for this long after the robot has arrived


@dataclass(frozen=True)
class EpisodeConfig:
    """The robot, its camera and how it drives."""

    robot: Robot = field(default_factory=Robot)  # its volume
    drive: Drive = field(default_factory=Drive)  # what its base can do
    speed: tuple[float, float] = (0.5, 2.0)  # least and greatest wanted speed [m/s]
    # Least and greatest length of the route over the wanted speed [s]
    travel_s: tuple[float, float] = (5.0, 8.0)
    # camera_height, fov, aspect: ranges of the height above ground [m] and of the horizontal
    # field of view [rad]; width by height of the pictures
    camera_height: tuple[float, float] = (0.3, 0.5)
    fov: tuple[float, float] = (math.radians(60), math.radians(90))
    aspect: float = 4 / 3
    rate: float = 12.0  # pictures per second [Hz]
    # Time for which the robot stands before it starts [s]: its perception needs a full clip
    settle_s: float = 3.3

    def __post_init__(self) -> None:
        for name in ('speed', 'travel_s', 'camera_height', 'fov'):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f'{name} is {(low, high)}; it needs 0 < least <= greatest')
        if self.speed[1] > self.drive.speed:
            raise ValueError(f'speed goes up to {self.speed[1]} m/s, the base to '
                             f'{self.drive.speed} m/s')
        if not 1 <= self.rate <= 60:
            raise ValueError(f'rate is {self.rate} Hz, must be within 1..60')


@dataclass(frozen=True)
class Episode:
    """One episode; times count from the start of the drive."""

    # number, scenario, place: which one, what gets into the way, what kind of place
    number: int
    scenario: str
    place: str
    # route, run: where the robot wants to go and how it gets there when it meets nothing
    route: Route
    run: Run
    # camera_height, fov, pitch: of the camera [m], [rad], [rad]
    camera_height: float
    fov: float
    pitch: float
    times: np.ndarray  # (T,) times at which bodies are known [s], evenly spaced
    bodies: tuple[Body, ...]  # those of importance first
    heedless: int  # how many of these, from the first, do not see a robot that drives
    shapes: Shapes  # one scene, over the times where they move; its fixed ones first
    owner: np.ndarray  # (K,) number of the body that a shape belongs to, -1 for what is fixed
    # Fields of `Scenes` for ground, light and sensor; exposure at each picture
    fields: dict[str, Tensor]
    # Least length of a way to the goal [m] in an episode that is about getting there; NaN in one
    # that is about stopping in time
    shortest: float = math.nan

    @property
    def ends_s(self) -> float:
        """Time at which it ends at the latest [s]."""
        return self.run.duration * (PATIENCE if math.isfinite(self.shortest) else 1)


def draw(seed: int, number: int, materials: Materials, config: EpisodeConfig) -> Episode:
    """Draw the episode of a seed and a number."""
    rng = np.random.default_rng((seed, number))
    scenario = str(rng.choice(tuple(SCENARIOS), p=tuple(SCENARIOS.values())))
    place = str(rng.choice(PLACES, p=SHARES))
    route = _route(rng, place, scenario, config)
    run = free_run(route, config.drive)
    robot = config.robot
    height = float(rng.uniform(*config.camera_height))
    step = 1 / config.rate
    times = np.arange(-math.ceil(config.settle_s / step), math.ceil(
        (run.duration + AFTER_S) / step) + 1) * step
    outline = footprint(run.place, run.yaw, robot)
    span = (float(outline[..., 0].min()), float(outline[..., 0].max()))
    end = None
    if scenario == 'wall':
        end = max(1.5, float(route.at(route.length * rng.uniform(0.5, 0.95))[1]))
    around = build(rng, place, span, float(route.points[-1][1]), end, materials, len(times), step)
    setting = Setting(place, route, run, around.sides, times, robot.half_width)
    fov = float(np.random.default_rng((seed, number, 1)).uniform(*config.fov))
    heroes = []
    if scenario not in ('free', 'wall'):
        heroes.append(in_the_way(rng, scenario, setting, fov))
    wanted = len(heroes)
    while len(heroes) < KITS[0][1]:
        heroes.append(passer_by(rng, setting)
                      if rng.random() < 0.6 else
                      standing(rng, 'box', (0.0, -30.0), 0.0, times))
    return furnish(rng, Episode(number, scenario, place, route, run, height, fov, 0.0, times,
                                tuple(heroes), wanted, around.boxes,
                                np.full(len(around.boxes.kinds), -1), around.fields),
                   setting, materials, config)


def furnish(rng: np.random.Generator, bare: Episode, setting: Setting, materials: Materials,
            config: EpisodeConfig) -> Episode:
    """Add things beside the way to an episode, and the shapes of all its bodies."""
    heroes, wanted, times, run = bare.bodies, bare.heedless, bare.times, bare.run
    side = [beside(rng, False, setting)
            for _ in range(KITS[1][1])]
    thin = [beside(rng, True, setting)
            for _ in range(KITS[2][1])]
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
        shapes = shapes_of(kit, bodies, [True] * count, times, seen_at, materials, draws)
        keep = _kept(rng, shapes, bodies, heroes[:wanted], wanted if first == 0 else 0, at,
                     corners, band)
        mask = np.repeat(keep, len(kit.kinds))
        parts.append(replace(shapes, alive=shapes.alive & torch.tensor(mask)))
        owners.append(first + np.repeat(np.arange(count), len(kit.kinds)))
        first += count
    return replace(bare, pitch=float(rng.normal(0, 0.02)), bodies=(*heroes, *side, *thin),
                   shapes=join(parts, len(times)), owner=np.concatenate(owners))


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


def _kept(rng: np.random.Generator, shapes: Shapes, bodies: Sequence[Body],
          heroes: Sequence[Body], wanted: int, at: np.ndarray, corners: np.ndarray,
          band: np.ndarray) -> np.ndarray:
    """Return which bodies stay, (M,) bool: the first wanted ones, and those in nobody's way."""
    count = len(bodies)
    share = 0.75 if count > 2 else 1.0
    keep = np.array([n < wanted or rng.random() < share for n in range(count)])

    def along(values: Tensor) -> np.ndarray:
        return values[0].numpy().astype(float)

    hit = touching(corners, band, shapes.kinds,
                   np.broadcast_to(along(shapes.alive) > 0, (len(at), len(shapes.kinds))),
                   along(shapes.position)[at], along(shapes.yaw)[at],
                   np.broadcast_to(along(shapes.half), (len(at), len(shapes.kinds), 3)))
    blocked = np.any(np.any(hit, axis=0).reshape(count, -1), axis=-1).tolist()
    for number, body in enumerate(bodies[wanted:], wanted):
        clash = blocked[number] or body.place[0, 1] < -20 or any(
            np.linalg.norm(body.place - hero.place, axis=-1).min() < body.reach + hero.reach
            for hero in heroes)
        keep[number] &= not clash
    return keep

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What stands, crosses and comes towards a robot on its route."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from vjepa_ros.lab.world.episodes.route import Route, Run
from vjepa_ros.lab.world.scenes.bodies import Bodies, assemble
from vjepa_ros.lab.world.scenes.body_templates import HERO, SIDE, SIZES, THIN, Kit
from vjepa_ros.lab.world.scenes.scene import Shapes
from vjepa_ros.lab.world.scenes.scene_rng import Dice
from vjepa_ros.lab.world.textures.materials import Materials

HEROES, SIDES, THINS = 2, 4, 4      # bodies of each kit in an episode
OUTDOORS = ('street', 'park', 'empty')
_STILL = ('box', 'stack', 'column', 'bin', 'chair', 'desk', 'person', 'cart', 'panel', 'door')
_CROSS = {'person': (0.5, 1.8), 'cart': (0.4, 1.3), 'dog': (0.8, 2.5), 'car': (1.5, 3.5)}
_MEET = {'person': (0.4, 1.4), 'cart': (0.3, 1.0), 'car': (0.5, 2.0)}
_IN_VIEW = 0.85      # part of the half field of view within which somebody crosses
_SIDE = ('crates', 'cabinet', 'shelf', 'desk', 'sofa', 'hedge', 'parcel', 'car')
_THIN = ('pole', 'bin', 'column', 'bottle', 'sign', 'tree', 'bush', 'figure')


@dataclass(frozen=True)
class Body:
    """One body over the times of an episode.

    Attributes
    ----------
    kind
        Name of a type of its kit.
    size
        Half width, height, half length [m].
    place, yaw
        (T, 2) x and z [m] and (T,) [rad]; heading along its own z axis.
    """

    kind: str
    size: tuple[float, float, float]
    place: np.ndarray
    yaw: np.ndarray

    @property
    def moves(self) -> bool:
        """Whether it changes its place."""
        return bool(np.ptp(self.place, axis=0).max() > 1e-6)

    @property
    def reach(self) -> float:
        """Radius of a circle around all of it [m]."""
        return math.hypot(self.size[0], self.size[2])


def size_of(rng: np.random.Generator, kind: str) -> tuple[float, float, float]:
    """Random half width, height and half length of a type of body [m]."""
    low, high = np.array(SIZES[kind])
    wide, tall, deep = low + (high - low) * rng.random(3)
    return (float(wide), float(tall), float(deep if low[2] > 0 else wide))


def standing(rng: np.random.Generator, kind: str, spot: np.ndarray, yaw: float,
             times: np.ndarray) -> Body:
    """A body that stays where it is."""
    return Body(kind, size_of(rng, kind), np.tile(np.asarray(spot, float), (len(times), 1)),
                np.full(len(times), yaw))


def in_the_way(rng: np.random.Generator, scenario: str, place: str, route: Route, run: Run,
               sides: tuple[float, float], times: np.ndarray, half_width: float,
               fov: float) -> Body:
    """The body that a robot would run into, for the scenarios 'static', 'cross', 'approach' and
    'leader'.

    Parameters
    ----------
    run
        The robot's run when it meets nothing.
    sides
        x between which bodies can move [m].
    half_width
        Of the robot [m].
    fov
        Of its camera, which looks ahead [rad]. Who crosses stays within it: on a course to a
        contact the bearing does not change, and no guard can see who comes from outside.
    """
    gone = route.length * rng.uniform(0.4, 0.85)
    spot, along = route.at(gone), route.direction(gone)
    across = np.array((along[1], -along[0]))
    heading = math.atan2(along[0], along[1])
    if scenario == 'static':
        kinds = _STILL + (('car',) if place in OUTDOORS else ())
        kind = str(rng.choice(kinds))
        body = standing(rng, kind, spot, heading + rng.uniform(-0.6, 0.6)
                        + (math.pi if rng.random() < 0.5 else 0), times)
        off = rng.uniform(-0.8, 0.8) * (half_width + 0.7 * body.size[0])
        return Body(kind, body.size, body.place + off * across, body.yaw)
    if scenario == 'leader':
        kind = str(rng.choice(('person', 'cart') + (('car',) if place in OUTDOORS else ())))
        size = size_of(rng, kind)
        pace = route.cruise * rng.uniform(0.7, 1.0)
        first = half_width + size[2] + rng.uniform(1.2, 3.0)
        halt = run.duration * rng.uniform(0.3, 0.7)
        ways = first + np.clip(times, 0, halt) * pace
        points = np.array([route.at(way) for way in ways])
        yaws = np.array([math.atan2(*route.direction(way)) for way in ways])
        return Body(kind, size, points, yaws)
    speeds = _CROSS if scenario == 'cross' else _MEET
    kinds = [name for name in speeds if name != 'car' or place in OUTDOORS]
    kind = str(rng.choice(kinds))
    size = size_of(rng, kind)
    pace = float(rng.uniform(*speeds[kind]))
    meets = run.when(route, gone)
    if scenario == 'approach':
        way = -along
        lane = spot + rng.uniform(-0.35, 0.35) * across
        points = lane + (times - meets)[:, None] * pace * way
    else:
        slant = rng.uniform(-0.4, 0.4)
        edge = math.tan(_IN_VIEW * 0.5 * fov)
        pace = min(pace, route.cruise * edge / max(0.3, math.cos(slant) + math.sin(slant) * edge))
        sign = -1.0 if rng.random() < 0.5 else 1.0
        way = sign * math.cos(slant) * across + math.sin(slant) * along
        points = spot + rng.uniform(0.1, 0.5) * along + (times - meets)[:, None] * pace * way
        # Between walls somebody waits at one of them, and stays at the other.
        low, high = sides[0] + size[2] + 0.05, sides[1] - size[2] - 0.05
        if low < high and abs(way[0]) > 0.3:
            ends = np.sort((np.array((low, high)) - spot[0]) / (way[0] * pace)) + meets
            when = np.clip(times, *ends)
            points = points + ((when - times) * pace)[:, None] * way
    yaw = math.atan2(way[0], way[1])
    return Body(kind, size, points, np.full(len(times), yaw))


def passer_by(rng: np.random.Generator, place: str, route: Route, sides: tuple[float, float],
              times: np.ndarray, half_width: float) -> Body:
    """Somebody who moves beside the way, or crosses it at any time."""
    kind = str(rng.choice(('person', 'cart', 'dog', *(('car',) if place in OUTDOORS else ()))))
    size = size_of(rng, kind)
    pace = float(rng.uniform(*_CROSS[kind]))
    gone = route.length * rng.uniform(0.2, 1.2)
    spot, along = route.at(gone), route.direction(gone)
    across = np.array((along[1], -along[0]))
    if rng.random() < 0.7:
        side = -1.0 if rng.random() < 0.5 else 1.0
        way = along * (1.0 if rng.random() < 0.5 else -1.0)
        spot = spot + side * (half_width + size[0] + rng.uniform(0.25, 1.8)) * across
    else:
        way = across * (1.0 if rng.random() < 0.5 else -1.0)
    points = spot + (times - rng.uniform(0, times[-1]))[:, None] * pace * way
    low, high = sides[0] + max(size[0], size[2]), sides[1] - max(size[0], size[2])
    if low < high:
        points[:, 0] = np.clip(points[:, 0], low, high)
    return Body(kind, size, points, np.full(len(times), math.atan2(way[0], way[1])))


def beside(rng: np.random.Generator, thin: bool, place: str, route: Route,
           sides: tuple[float, float], times: np.ndarray, half_width: float) -> Body:
    """Furniture, piles, poles and plants beside the way."""
    names = _THIN if thin else _SIDE
    indoor = place not in OUTDOORS
    usual = [n for n in names if n not in (('car', 'hedge', 'tree', 'sign') if indoor
                                           else ('sofa', 'desk', 'cabinet', 'shelf'))]
    kind = str(rng.choice(usual))
    size = size_of(rng, kind)
    gone = route.length * rng.uniform(-0.1, 1.4)
    spot, along = route.at(gone), route.direction(gone)
    across = np.array((along[1], -along[0]))
    side = -1.0 if rng.random() < 0.5 else 1.0
    square = 0.5 * math.pi * rng.integers(4)
    yaw = math.atan2(*along) + (square if indoor or kind == 'car' else rng.uniform(-3, 3))
    spot = spot + side * (half_width + size[0] + 0.12 + abs(rng.normal(0, 1.2))) * across
    low, high = sides[0] + size[0], sides[1] - size[0]
    if low < high:
        spot[0] = np.clip(spot[0], low, high)
    return standing(rng, kind, spot, yaw, times)


def shapes_of(kit: Kit, bodies: list[Body], present: list[bool], times: np.ndarray, seen_at: int,
              materials: Materials, dice: Dice) -> Shapes:
    """Shapes of bodies of one kit over the times, one scene.

    ``seen_at`` is the number of the time at which the pictures on ends and flanks of vehicles
    are put on the sides that face the start of the route.
    """
    order = [*range(len(times)), seen_at]       # the last one decides about ends and flanks
    place = np.stack([b.place[order] for b in bodies], 1)               # T+1 M 2
    still = np.zeros(place.shape[:2])
    at = torch.tensor(np.stack((place[..., 0], still, place[..., 1]), -1)[None],
                      dtype=torch.float32)
    yaw = torch.tensor(np.stack([b.yaw[order] for b in bodies], 1)[None], dtype=torch.float32)
    dt = times[1] - times[0]
    velocity = torch.zeros(1, len(bodies), 3)
    for number, body in enumerate(bodies):
        pace = np.linalg.norm(np.diff(body.place, axis=0), axis=-1).max() / dt
        way = float(body.yaw[seen_at])
        velocity[0, number] = torch.tensor((math.sin(way), 0.0, math.cos(way))) * float(pace)
    made = assemble(
        kit, Bodies(torch.tensor([[kit.index(b.kind) for b in bodies]]), torch.tensor([present]),
                    torch.tensor([[b.size for b in bodies]], dtype=torch.float32), at, yaw,
                    velocity, torch.zeros(1, len(bodies))),
        torch.tensor(times[order][None], dtype=torch.float32), materials, dice)
    steps = slice(0, len(times))
    return Shapes(made.kinds, made.alive, made.position[:, steps], made.yaw[:, steps], made.half,
                  made.velocity, made.yaw_rate, made.texture[:, steps], made.tile_m, made.tint)


KITS = ((HERO, HEROES), (SIDE, SIDES), (THIN, THINS))

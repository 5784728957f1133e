# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Build what surrounds a route: walls, ground, light, and bodies that stand or move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.episodes.robot import Route, Run
from vjepa_ros.lab.world.scenes.bodies import Bodies, HERO, Kit, SIDE, SIZES, THIN, assemble
from vjepa_ros.lab.world.scenes.camera import brightness, light, sensor
from vjepa_ros.lab.world.scenes.places import INDOORS, LAYOUTS, STRUCTURE_KINDS, ground
from vjepa_ros.lab.world.scenes.scene import SceneRng, Shapes, still
from vjepa_ros.lab.world.scenes.scene_spec import PLACE, WorldConfig, make_spec
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials

PLACES = ('corridor', 'room', 'warehouse', 'street', 'park', 'empty')
SHARES = (.24, .2, .18, .14, .12, .12)
_SPAN_M = 25.0     # of side walls before the start


def build(rng: np.random.Generator, name: str, span_x: tuple[float, float], goal_z: float,
          end_z: float | None, materials: Materials, frames: int, interval_s: float
          ) -> tuple[Shapes, tuple[float, float], dict[str, Tensor]]:
    """Build boxes of a place around a route, x of its walls [m], and fields of `Scenes`."""
    layout = LAYOUTS[name]
    draws = SceneRng(int(rng.integers(2**31)), 1)
    indoors = name in INDOORS
    gap = rng.uniform(*((0.35, 1.6) if name in ('corridor', 'warehouse', 'room')
                        else layout.gap), 2)
    if name == 'room':
        gap += rng.uniform(0, 2, 2)
    left, right = span_x[0] - gap[0], span_x[1] + gap[1]
    tall = max(float(rng.uniform(*layout.tall)), 1.0)
    thick = layout.thick
    walled = [bool(rng.random() < layout.sides) for _ in range(2)]
    has_end = end_z is not None or rng.random() < max(layout.end, 0.3)
    end = end_z if end_z is not None else goal_z + rng.uniform(3.5, 20)
    roofed = indoors and bool(rng.random() < layout.ceiling)
    position, half = torch.zeros(1, 8, 3), torch.ones(1, 8, 3)
    for number, (side, face) in enumerate(((-1, left), (1, right))):
        split = rng.uniform(2, max(3.0, end - 1))
        opening = rng.uniform(0.8, 1.3) if rng.random() < layout.door else 0.0
        far_end = end if has_end else end + 60
        for at, begin, stop in ((2 * number, -_SPAN_M, split),
                                (2 * number + 1, split + opening, max(far_end, split + 2))):
            position[0, at] = torch.tensor((face + side * thick, -tall / 2, (begin + stop) / 2))
            half[0, at] = torch.tensor((thick, tall / 2, (stop - begin) / 2))
    wide = (right - left) / 2 + 0.5 if all(walled) else 25.0
    middle = (left + right) / 2
    position[0, 4] = torch.tensor((middle, -tall / 2, end + 0.15))
    half[0, 4] = torch.tensor((wide, tall / 2, 0.15))
    position[0, 5] = torch.tensor((middle, -tall - 0.1, 30.0))
    half[0, 5] = torch.tensor((40.0, 0.1, 90.0))
    width = float(rng.uniform(*layout.width))
    position[0, 6] = torch.tensor((float(rng.normal(0, 0.4)), -0.006, 0.0))
    half[0, 6] = torch.tensor((width / 2, 0.006, 250.0))
    alive = torch.tensor([[walled[0], walled[0], walled[1], walled[1], has_end, roofed,
                           bool(rng.random() < layout.strip), False]])
    group = torch.full((1, 8), GROUPS[layout.group])
    group[0, 4] = GROUPS['wall' if indoors else 'facade']
    group[0, 5], group[0, 6] = GROUPS['wall'], GROUPS[layout.cover]
    look = torch.tensor([[0, 0, 0, 0, 4, 5, 6, 7]])
    texture, tile, tint = materials.draw(draws, group, look, 8)
    tile[:, 6] = torch.where(group[:, 6] == GROUPS['road'], width, tile[:, 6])
    tile[:, 4] = torch.where(tile[:, 4] > 0, tile[:, 4], 3.0)
    boxes = still(STRUCTURE_KINDS, alive, position, torch.zeros(1, 8), half, (texture, tile, tint))
    number = torch.tensor([PLACE[name]])
    spec = replace(make_spec(draws, WorldConfig()), place=number,
                   interval_s=torch.tensor([interval_s]))
    below, below_tile, below_tint = ground(draws, number, materials)
    fields = {'ground_texture': below, 'ground_tile_m': below_tile, 'ground_tint': below_tint,
              **light(draws, spec, torch.tensor([roofed]), materials),
              **sensor(draws, spec, brightness(boxes, below_tint), frames)}
    # The camera of a robot that drives for seconds: one jump of the exposure is for clips.
    fields['exposure'] = fields['exposure'].clamp(0.4, 2.5)
    fields['shutter'] = torch.zeros(1)
    sides = (left if walled[0] else -40.0, right if walled[1] else 40.0)
    return boxes, sides, fields


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
    kind: str  # name of a type of its kit
    size: tuple[float, float, float]  # half width, height, half length [m]
    place: np.ndarray  # (T, 2) x and z [m]
    yaw: np.ndarray  # (T,) heading along its own z axis [rad]

    @property
    def moves(self) -> bool:
        return bool(np.ptp(self.place, axis=0).max() > 1e-6)

    @property
    def reach(self) -> float:
        return math.hypot(self.size[0], self.size[2])


@dataclass(frozen=True)
class Setting:
    place: str  # one of `PLACES`
    route: Route
    run: Run  # of the robot when it meets nothing
    sides: tuple[float, float]  # x between which bodies can move [m]
    times: np.ndarray  # (T,) times at which bodies are known [s]
    half_width: float  # of the robot [m]


def size_of(rng: np.random.Generator, kind: str) -> tuple[float, float, float]:
    low, high = np.array(SIZES[kind])
    wide, tall, deep = low + (high - low) * rng.random(3)
    return (float(wide), float(tall), float(deep if low[2] > 0 else wide))


def standing(rng: np.random.Generator, kind: str, spot: Sequence[float] | np.ndarray, yaw: float,
             times: np.ndarray) -> Body:
    return Body(kind, size_of(rng, kind), np.tile(np.asarray(spot, float), (len(times), 1)),
                np.full(len(times), yaw))


def in_the_way(rng: np.random.Generator, scenario: str, setting: Setting, fov: float) -> Body:
    """Draw the body that a robot with a field of view [rad] would run into."""
    route, run, sides, times = setting.route, setting.run, setting.sides, setting.times
    outdoors = setting.place in OUTDOORS
    gone = route.length * rng.uniform(0.4, 0.85)
    spot, along = route.at(gone)
    across = np.array((along[1], -along[0]))
    heading = math.atan2(along[0], along[1])
    if scenario == 'static':
        kind = str(rng.choice(_STILL + (('car',) if outdoors else ())))
        body = standing(rng, kind, spot, heading + rng.uniform(-0.6, 0.6)
                        + (math.pi if rng.random() < 0.5 else 0), times)
        off = rng.uniform(-0.8, 0.8) * (setting.half_width + 0.7 * body.size[0])
        return Body(kind, body.size, body.place + off * across, body.yaw)
    if scenario == 'leader':
        kind = str(rng.choice(('person', 'cart') + (('car',) if outdoors else ())))
        size = size_of(rng, kind)
        pace = route.cruise * rng.uniform(0.7, 1.0)
        first = setting.half_width + size[2] + rng.uniform(1.2, 3.0)
        halt = run.duration * rng.uniform(0.3, 0.7)
        led = [route.at(way) for way in first + np.clip(times, 0, halt) * pace]
        return Body(kind, size, np.array([point for point, _ in led]),
                    np.array([math.atan2(*way) for _, way in led]))
    speeds = _CROSS if scenario == 'cross' else _MEET
    kind = str(rng.choice([name for name in speeds if name != 'car' or outdoors]))
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


def passer_by(rng: np.random.Generator, setting: Setting) -> Body:
    route, sides, times = setting.route, setting.sides, setting.times
    kinds = ('person', 'cart', 'dog') + (('car',) if setting.place in OUTDOORS else ())
    kind = str(rng.choice(kinds))
    size = size_of(rng, kind)
    pace = float(rng.uniform(*_CROSS[kind]))
    spot, along = route.at(route.length * rng.uniform(0.2, 1.2))
    across = np.array((along[1], -along[0]))
    if rng.random() < 0.7:
        side = -1.0 if rng.random() < 0.5 else 1.0
        way = along * (1.0 if rng.random() < 0.5 else -1.0)
        spot = spot + side * (setting.half_width + size[0] + rng.uniform(0.25, 1.8)) * across
    else:
        way = across * (1.0 if rng.random() < 0.5 else -1.0)
    points = spot + (times - rng.uniform(0, times[-1]))[:, None] * pace * way
    low, high = sides[0] + max(size[0], size[2]), sides[1] - max(size[0], size[2])
    if low < high:
        points[:, 0] = np.clip(points[:, 0], low, high)
    return Body(kind, size, points, np.full(len(times), math.atan2(way[0], way[1])))


def beside(rng: np.random.Generator, thin: bool, setting: Setting) -> Body:
    """Draw furniture, a pile, a pole or a plant beside the way."""
    route, sides, indoor = setting.route, setting.sides, setting.place not in OUTDOORS
    usual = [n for n in (_THIN if thin else _SIDE) if n not in (
        ('car', 'hedge', 'tree', 'sign') if indoor else ('sofa', 'desk', 'cabinet', 'shelf'))]
    kind = str(rng.choice(usual))
    size = size_of(rng, kind)
    spot, along = route.at(route.length * rng.uniform(-0.1, 1.4))
    across = np.array((along[1], -along[0]))
    side = -1.0 if rng.random() < 0.5 else 1.0
    square = 0.5 * math.pi * rng.integers(4)
    yaw = math.atan2(*along) + (square if indoor or kind == 'car' else rng.uniform(-3, 3))
    off = setting.half_width + size[0] + 0.12 + abs(rng.normal(0, 1.2))
    spot = spot + side * off * across
    low, high = sides[0] + size[0], sides[1] - size[0]
    if low < high:
        spot[0] = np.clip(spot[0], low, high)
    return standing(rng, kind, spot, yaw, setting.times)


def shapes_of(kit: Kit, bodies: Sequence[Body], times: np.ndarray, seen_at: int,
              materials: Materials, draws: SceneRng) -> Shapes:
    """Return the shapes of bodies of a kit over the times; cards face the start at `seen_at`."""
    order = [*range(len(times)), seen_at]       # the last one decides about ends and flanks
    place = np.stack([b.place[order] for b in bodies], 1)               # T+1 M 2
    level = np.zeros(place.shape[:2])
    at = torch.tensor(np.stack((place[..., 0], level, place[..., 1]), -1)[None],
                      dtype=torch.float32)
    yaw = torch.tensor(np.stack([b.yaw[order] for b in bodies], 1)[None], dtype=torch.float32)
    dt = times[1] - times[0]
    velocity = torch.zeros(1, len(bodies), 3)
    for number, body in enumerate(bodies):
        pace = np.linalg.norm(np.diff(body.place, axis=0), axis=-1).max() / dt
        way = float(body.yaw[seen_at])
        velocity[0, number] = torch.tensor((math.sin(way), 0.0, math.cos(way))) * float(pace)
    kinds = torch.tensor([[kit.index(body.kind) for body in bodies]])
    size = torch.tensor([[body.size for body in bodies]], dtype=torch.float32)
    present, turning = torch.ones_like(kinds, dtype=torch.bool), torch.zeros(1, len(bodies))
    made = assemble(kit, Bodies(kinds, present, size, at, yaw, velocity, turning),
                    torch.tensor(times[order][None], dtype=torch.float32), materials, draws)
    steps = slice(0, len(times))
    return Shapes(made.kinds, made.alive, made.position[:, steps], made.yaw[:, steps], made.half,
                  made.velocity, made.yaw_rate, made.texture[:, steps], made.tile_m, made.tint)


KITS = ((HERO, HEROES), (SIDE, SIDES), (THIN, THINS))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Walls, ground and light of the place in which a robot drives along its route."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.appearance import brightness, light, sensor
from vjepa_ros.lab.world.scenes.places import INDOORS, LAYOUTS, STRUCTURE_KINDS, Place, ground
from vjepa_ros.lab.world.scenes.scene import Shapes
from vjepa_ros.lab.world.scenes.scene_rng import Dice
from vjepa_ros.lab.world.scenes.scene_spec import PLACE, WorldConfig, make_plan
from vjepa_ros.lab.world.textures.materials import GROUPS, Materials

PLACES = ('corridor', 'room', 'warehouse', 'street', 'park', 'empty')
SHARES = (.24, .2, .18, .14, .12, .12)
_SPAN_M = 25.0     # of side walls before the start


@dataclass(frozen=True)
class Surroundings:
    """What stands around one route.

    Attributes
    ----------
    name
        Kind of the place.
    boxes
        Fixed shapes, one scene.
    sides
        x of the inner faces of the walls left and right [m]; far off where there are none.
    fields
        Fields of `Scenes` for ground, sky, light and sensor, one scene; exposure has one value
        per frame.
    """

    name: str
    boxes: Shapes
    sides: tuple[float, float]
    fields: dict[str, Tensor]


def build(rng: np.random.Generator, name: str, span_x: tuple[float, float], goal_z: float,
          end_z: float | None, materials: Materials, frames: int,
          interval_s: float) -> Surroundings:
    """A place around a route.

    Parameters
    ----------
    rng
        Decides everything.
    name
        One of `PLACES`.
    span_x
        Least and greatest x that the robot's body reaches on its route [m].
    goal_z
        z of the goal [m].
    end_z
        z of the face of a wall across the way; None for whatever the place has beyond the goal.
    materials
        What surfaces are made of.
    frames, interval_s
        Number and distance [s] of the pictures.
    """
    layout = LAYOUTS[name]
    dice = Dice(int(rng.integers(2**31)), 1)
    indoors = name in INDOORS
    gap = rng.uniform(*((0.35, 1.6) if name in ('corridor', 'warehouse', 'room')
                        else layout.gap), 2)
    if name == 'room':
        gap += rng.uniform(0, 2, 2)
    left, right = span_x[0] - gap[0], span_x[1] + gap[1]
    tall = float(rng.uniform(*layout.tall))
    tall = max(tall, 1.0)
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
    texture, tile, tint = materials.draw(dice, group, look, 8)
    tile[:, 6] = torch.where(group[:, 6] == GROUPS['road'], width, tile[:, 6])
    tile[:, 4] = torch.where(tile[:, 4] > 0, tile[:, 4], 3.0)
    still = torch.zeros(1, 8)
    boxes = Shapes(STRUCTURE_KINDS, alive, position[:, None], still[:, None], half,
                   torch.zeros(1, 8, 3), still, texture[:, None], tile, tint)

    number = torch.tensor([PLACE[name]])
    plan = replace(make_plan(dice, WorldConfig()), place=number,
                   interval_s=torch.tensor([interval_s]))
    one = torch.ones(1)
    place = Place(boxes, torch.tensor([[left, right]]), torch.tensor([walled]),
                  torch.tensor([span_x]), one * end, torch.zeros(1, 2), one * tall,
                  torch.tensor([roofed]), torch.zeros(1), one)
    below, below_tile, below_tint = ground(dice, number, materials)
    fields = {'ground_texture': below, 'ground_tile_m': below_tile, 'ground_tint': below_tint,
              **light(dice, plan, place, materials),
              **sensor(dice, plan, brightness(place, below_tint), frames)}
    # The camera of a robot that drives for seconds: one jump of the exposure is for clips.
    fields['exposure'] = fields['exposure'].clamp(0.4, 2.5)
    fields['shutter'] = torch.zeros(1)
    sides = (left if walled[0] else -40.0, right if walled[1] else 40.0)
    return Surroundings(name, boxes, sides, fields)

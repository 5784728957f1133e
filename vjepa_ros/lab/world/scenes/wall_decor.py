# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Put on walls, ceilings and the horizon what is seen there."""

from __future__ import annotations

import math

import torch

from vjepa_ros.lab.world.scenes.encounter_solver import Meeting
from vjepa_ros.lab.world.scenes.places import INDOORS, Place
from vjepa_ros.lab.world.scenes.scene import CARD, ELLIPSOID, Shapes
from vjepa_ros.lab.world.scenes.scene_rng import Dice
from vjepa_ros.lab.world.textures.materials import GROUPS, Materials

DECOR_KINDS = (CARD,) * 5 + (ELLIPSOID,) * 2


def decor(dice: Dice, meeting: Meeting, place: Place, materials: Materials) -> Shapes:
    """Doors, pictures and windows on walls, lamps at ceilings; hills and trees far away."""
    plan = meeting.plan
    b, n = dice.count, len(DECOR_KINDS)
    indoors = plan.at(*INDOORS)
    position, half, yaw = torch.zeros(b, n, 3), torch.full((b, n, 3), 0.01), torch.zeros(b, n)
    group = torch.zeros(b, n, dtype=torch.int64)
    side = torch.tensor([0, 1, 0, 1])
    sign = side * 2.0 - 1
    which = dice.pick(torch.tensor([.3, .5, .2]), 5)
    kinds = torch.tensor([GROUPS[name] for name in ('door', 'poster', 'window')])[which]
    door = which == 0
    tall = torch.where(door, 1.03, dice.uniform(0.25, 0.6, 5))
    wide = torch.where(door, 0.45, dice.uniform(0.25, 0.9, 5))
    high = torch.where(door, 1.03, dice.uniform(1.3, 1.8, 5))
    z = dice.uniform(-0.5, 8, 4) + torch.tensor([0, 0, 3.0, 3.0])
    inner = place.inner[:, side]
    on_wall = place.walled[:, side] & (z < place.split[:, side] - 1) \
        & (z < place.end[:, None] - 0.6) & ~plan.at('warehouse')[:, None]
    fits = place.tall[:, None] > 2.2
    ends = (place.end < 60) & dice.chance(0.5) & ~plan.at('table')
    on_end = dice.uniform(-1.2, 1.2) + place.inner.mean(-1)
    walls = torch.stack((inner - 0.015 * sign, -high[:, :4], z), -1)
    front = torch.stack((on_end, -high[:, 4], place.end - 0.015), -1)
    indoor = torch.cat((walls, front[:, None]), 1)                      # B 5 3
    plates = torch.stack((wide, tall, torch.full_like(wide, 0.01)), -1)
    shown = torch.cat((on_wall, ends[:, None]), 1) & fits & dice.chance(0.75, 5)

    # Outdoors: what closes the view far away, as cards that face the camera.
    spread = torch.tensor([-0.8, -0.4, 0.0, 0.4, 0.8]) * plan.hfov[:, None] \
        + dice.normal(0.1, 5) + plan.heading[:, None]
    off = dice.uniform(70, 160, 5)
    rise = dice.uniform(1.5, 9, 5)
    horizon = torch.stack((spread.sin() * off, -rise, spread.cos() * off), -1)
    broad = torch.stack((dice.uniform(0.25, 0.6, 5) * off, rise, torch.full_like(off, 0.01)), -1)
    backs = torch.tensor([GROUPS[name] for name in ('hills', 'hills', 'bush')])
    behind = backs[dice.pick(torch.tensor([.5, .2, .3]), 5)]

    inside = indoors[:, None]
    position[:, :5] = torch.where(inside[..., None], indoor, horizon)
    half[:, :5] = torch.where(inside[..., None], plates, broad)
    yaw[:, :4] = torch.where(inside, math.pi / 2 * sign, spread[:, :4])
    yaw[:, 4] = torch.where(indoors, 0, spread[:, 4])
    group[:, :5] = torch.where(inside, kinds, behind)
    seen = torch.where(plan.at('empty')[:, None], dice.chance(0.5, 5), dice.chance(0.7, 5))
    middle = place.inner.mean(-1, keepdim=True)
    place_z = dice.uniform(0.5, 5, 1) + torch.tensor([0, 3.0])
    position[:, 5:] = torch.stack((middle + dice.normal(0.15, 1) + torch.zeros(2),
                                   0.02 - place.tall[:, None].expand(-1, 2), place_z), -1)
    half[:, 5:] = torch.stack((dice.uniform(0.08, 0.3, 1), torch.full((b, 1), 0.05),
                               dice.uniform(0.08, 0.3, 1)), -1)
    group[:, 5:] = GROUPS['window']
    lamps = place.roofed[:, None] & dice.chance(0.7, 1) & (place_z < place.end[:, None] - 0.4)
    alive = torch.cat((torch.where(inside, shown, seen), lamps), -1)
    texture, tile, tint = materials.draw(dice, group)
    tint[:, 5:] = 2.0
    return Shapes(DECOR_KINDS, alive, position[:, None], yaw[:, None], half,
                  torch.zeros(b, n, 3), torch.zeros(b, n), texture[:, None], tile, tint)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Build bodies of their shapes and move them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.body_templates import LOOKS, Kit
from vjepa_ros.lab.world.scenes.scene import Shapes
from vjepa_ros.lab.world.scenes.scene_rng import Dice
from vjepa_ros.lab.world.textures.materials import GROUPS, Materials

STEP_M = 0.7     # a leg swings to and fro in two of them


@dataclass(frozen=True)
class Bodies:
    """M bodies of one kit in each of B scenes.

    Attributes
    ----------
    kind, present : Tensor
        (B, M) type and whether it is there.
    size : Tensor
        (B, M, 3) half width, height, half length [m].
    place, yaw : Tensor
        (B, T, M, 3), (B, T, M) bottom of the middle [m] in world axes, and yaw [rad].
    velocity, yaw_rate : Tensor
        (B, M, 3), (B, M) at the newest frame.
    """

    kind: Tensor
    present: Tensor
    size: Tensor
    place: Tensor
    yaw: Tensor
    velocity: Tensor
    yaw_rate: Tensor


def assemble(kit: Kit, bodies: Bodies, times: Tensor, materials: Materials,
             dice: Dice) -> Shapes:
    """Shapes of bodies: the row of the kit for the first body, then for the second, and so on.

    Parameters
    ----------
    bodies : Bodies
        Where they are relative to a camera at the world's origin at the newest frame.
    times : Tensor
        (B, T) [s], at most 0.
    """
    b, m = bodies.kind.shape
    n = len(kit.kinds)
    kind = bodies.kind
    scale = bodies.size.unsqueeze(2)                                    # B M 1 3
    at, half = kit.at[kind] * scale, kit.half[kind] * scale             # B M N 3
    now, yaw_now = bodies.place[:, -1], bodies.yaw[:, -1]
    sine, cosine = yaw_now.sin(), yaw_now.cos()
    # The camera is at the origin: on which side of the body, and at which end?
    flank = torch.where(sine * now[..., 2] - cosine * now[..., 0] < 0, -1.0, 1.0)
    end = torch.where(-sine * now[..., 0] - cosine * now[..., 2] < 0, -1.0, 1.0)
    at_x = torch.where(kit.flank[kind], at[..., 0] * flank[..., None], at[..., 0])
    at_z = torch.where(kit.end[kind], at[..., 2] * end[..., None], at[..., 2])
    half = torch.where(kit.aside[kind].unsqueeze(-1),
                       torch.stack((half[..., 0] * scale[..., 2] / scale[..., 0], half[..., 1],
                                    half[..., 2]), -1), half)
    half = half.clamp(min=0.002)
    group = torch.where(end[..., None] > 0, kit.front[kind], kit.group[kind])
    texture, tile, tint = materials.draw(dice, group, kit.look[kind], LOOKS)

    # Legs stand still for the moment at either end of their swing, so that the velocity of
    # the walker is that of all its parts at the newest frame.
    speed = bodies.velocity[..., 0::2].norm(dim=-1)                     # B M
    wave = (math.pi / STEP_M * speed.unsqueeze(1) * times.unsqueeze(-1)).cos()  # B T M
    wide = dice.uniform(0.2, 1, m) * dice.sign(m) * bodies.size[..., 1]
    swing = kit.swing[kind].unsqueeze(1) * (wave * wide.unsqueeze(1)).unsqueeze(-1)

    at_z = at_z.unsqueeze(1) + swing                                    # B T M N
    sine, cosine = bodies.yaw.sin().unsqueeze(-1), bodies.yaw.cos().unsqueeze(-1)
    at_x, at_y = at_x.unsqueeze(1), at[..., 1].unsqueeze(1)
    place = bodies.place.unsqueeze(3)                                   # B T M 1 3
    position = torch.stack((place[..., 0] + at_x * cosine + at_z * sine,
                            place[..., 1] - at_y + torch.zeros_like(at_z),
                            place[..., 2] + at_z * cosine - at_x * sine), -1)
    arm = position[:, -1] - place[:, -1]                                # B M N 3
    rate = bodies.yaw_rate[..., None]
    carried = torch.stack((rate * arm[..., 2], torch.zeros_like(arm[..., 1]),
                           -rate * arm[..., 0]), -1)
    yaw = bodies.yaw.unsqueeze(-1) + torch.where(kit.aside[kind], math.pi / 2, 0.0).unsqueeze(1)
    alive = kit.alive[kind] & bodies.present.unsqueeze(-1)
    frames = times.shape[1]
    cycles = (speed.unsqueeze(1) * times.unsqueeze(-1) / (2 * STEP_M)).unsqueeze(-1)
    texture = materials.walking(
        dice, texture.reshape(b, m * n), (group == GROUPS['walker']).reshape(b, m * n),
        cycles.expand(b, frames, m, n).reshape(b, frames, m * n))
    return Shapes(
        kit.kinds * m, alive.reshape(b, m * n), position.reshape(b, frames, m * n, 3),
        yaw.reshape(b, frames, m * n), half.reshape(b, m * n, 3),
        (bodies.velocity.unsqueeze(2) + carried).reshape(b, m * n, 3),
        rate.expand(b, m, n).reshape(b, m * n), texture,
        tile.reshape(b, m * n), tint.reshape(b, m * n, 3))

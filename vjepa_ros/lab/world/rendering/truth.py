# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Exact truth per pixel at the newest frame: depth, motion, contact.

Worked out from positions and speeds, never from pictures. The looming rate leaves out the
camera's own rotation; the flow contains it. Where rows are exposed one after the other, each row
has the truth of the camera turned as at its own time, at the position of the stamp: that is what
the row shows (`Capture`). The robot's heading and the contact times are those at the stamp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.lens import (
    all_rays,
    bars,
    bend_turn,
    image_rays,
    image_speed,
    row_turns,
)
from vjepa_ros.lab.world.rendering.shading import Hits
from vjepa_ros.lab.world.rendering.stage import Stage, stage
from vjepa_ros.lab.world.rendering.trace import Extents, nearest, world_directions
from vjepa_ros.lab.world.scenes.scene import GROUND, SKY, Scenes
from vjepa_ros.lab.world.textures.atlas import Atlas
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.runtime.device import computing_with

MOVING_M_S = 0.03   # a surface that is faster than this moves by itself
_STILL = 1e-6       # slower relative motion [m/s] is none


@dataclass(frozen=True)
class Robot:
    """The robot's volume [m]; the camera sits at the middle of its front.

    It reaches from ``clearance`` above the ground to ``height`` (at least 0.1 above the
    camera), ``half_width`` to both sides and ``length`` behind the camera.
    """

    half_width: float = 0.3
    height: float = 0.5
    length: float = 0.6
    clearance: float = 0.05


ROBOT = Robot()


@dataclass(frozen=True)
class Truth:
    """Truth at the newest frame of B scenes, (B, H, W) each."""

    depth: Tensor  # along the optical axis [m], inf for the sky
    looming: Tensor  # -dZ/dt / Z [1/s] without the camera's rotation
    moving: Tensor  # bool, the surface moves in the world
    flow: Tensor  # (B, H, W, 2) of the shown surface [px/s], columns and rows
    enters: Tensor  # bool, at constant speeds the surface enters the robot's volume
    enter_time: Tensor  # when [s], inf for never, 0 inside the volume
    # Distance [m] along the robot's heading to surfaces ahead that lie within its width and
    # height, inf for all others: how far it could drive if nothing moved
    clearance: Tensor
    shape: Tensor  # int16, number of the shape, -1 ground, -2 sky


def entry(position: Tensor, speed: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """When a point moving evenly along one axis is between two limits: from, to [s]."""
    moves = speed.abs() > _STILL
    inverse = 1 / torch.where(moves, speed, 1.0)
    a, b = (low - position) * inverse, (high - position) * inverse
    inside = (position >= low) & (position <= high)
    first = torch.where(moves, torch.minimum(a, b), torch.where(inside, -torch.inf, torch.inf))
    last = torch.where(moves, torch.maximum(a, b), torch.where(inside, torch.inf, -torch.inf))
    return first, last


def in_robot_axes(vector: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts (right, ahead) of world vectors (..., 3) for a robot.

    Its heading is the level part of ``ahead`` (..., 3).
    """
    level = torch.rsqrt((ahead[..., 0] ** 2 + ahead[..., 2] ** 2).clamp(min=1e-12))
    fx, fz = ahead[..., 0] * level, ahead[..., 2] * level
    return (fz * vector[..., 0] - fx * vector[..., 2], fx * vector[..., 0] + fz * vector[..., 2])


def contact(point: Tensor, velocity: Tensor, camera_height: Tensor, ahead: Tensor,
            robot: Robot = ROBOT) -> tuple[Tensor, Tensor]:
    """When surface points enter the robot's volume [s], and how far ahead of it they are [m].

    `point, velocity`: (..., 3) relative to the camera, world axes [m], [m/s]; `ahead`: (..., 3)
    optical axis in world axes; its level part is the robot's heading. inf for points that never
    enter, and for points beside, above or behind its way.

    Nobody turns, and the robot stays on its ground: what ``velocity`` holds of the camera's
    up and down has to be left out by the caller.
    """
    x, z = in_robot_axes(point, ahead)
    vx, vz = in_robot_axes(velocity, ahead)
    y, vy = point[..., 1] - camera_height, velocity[..., 1]   # 0 at the ground
    top = -torch.clamp(camera_height + 0.1, min=robot.height)
    half, zero = torch.full_like(top, robot.half_width), torch.zeros_like(top)
    low = zero - robot.clearance
    first = torch.zeros_like(x)
    last = torch.full_like(x, torch.inf)
    for at, speed, begin, end in ((x, vx, -half, half), (z, vz, zero - robot.length, zero),
                                  (y, vy, top, low)):
        a, b = entry(at, speed, begin, end)
        first, last = torch.maximum(first, a), torch.minimum(last, b)
    in_way = (x.abs() <= half) & (y >= top) & (y <= low) & (z > 0)
    return (torch.where(first <= last, first, torch.inf), torch.where(in_way, z, torch.inf))


def truth(scenes: Scenes, bank: TextureBank, size: tuple[int, int],
          compile: bool = False) -> Truth:
    """Compute the truth at the newest frame, for the robot `ROBOT`."""
    newest = slice(scenes.camera_position.shape[1] - 1, None)
    with torch.no_grad():
        if compile or scenes.interval_s.device.type != 'cpu':
            look, follow = _compiled() if compile else (_look, _motion)
            scene = stage(scenes, bank.atlas, newest)
            seen = look(scenes.intrinsics, scenes.distortion, size, bend_turn(scenes, newest),
                        scene, scenes.kinds, bank.atlas)
            return Truth(**follow(scenes, seen))
        with computing_with(1):
            parts = [_single(scenes.map(lambda v, b=b: v[b:b + 1]), bank, size, newest)
                     for b in range(len(scenes))]
        return Truth(**{f.name: torch.cat([getattr(p, f.name) for p in parts])
                        for f in fields(Truth)})


@lru_cache(maxsize=1)
def _compiled() -> tuple[Callable[..., Hits], Callable[..., dict[str, Tensor]]]:
    return torch.compile(_look, dynamic=False), torch.compile(_motion, dynamic=False)


def _look(intrinsics: Tensor, distortion: Tensor, size: tuple[int, int],
          capture: tuple[Tensor | None, Tensor | None], scene: Stage, kinds: tuple[int, ...],
          atlas: Atlas) -> Hits:
    """Search among all shapes everywhere for what a batch of cameras sees."""
    rays = all_rays(intrinsics, distortion, size, (0.0, 0.0), *capture)
    d = world_directions(rays, scene.poses.rotation)
    depth, index = nearest(scene, d, kinds, atlas, None)
    return Hits(rays, d, depth[:, 0], index[:, 0])


def _single(scenes: Scenes, bank: TextureBank, size: tuple[int, int], newest: slice) -> Truth:
    """Truth of one scene on the CPU."""
    rays = image_rays(scenes, size, newest)
    scene = stage(scenes, bank.atlas, newest, grouped=False)
    d = world_directions(rays, scene.poses.rotation)
    depth, index = nearest(scene, d, scenes.kinds, bank.atlas,
                           Extents(scene, scenes.kinds).windows(rays))
    seen = Hits(rays, d, depth[:, 0], index[:, 0])
    return Truth(**_motion(scenes, seen))


def _motion(scenes: Scenes, seen: Hits) -> dict[str, Tensor]:
    """Return the fields of `Truth`, a pure function of tensors to compile as one.

    Depth and number of the hits are (B, H, W).
    """
    rays, d, depth, index = seen
    count = len(scenes.kinds)
    if scenes.capture is not None:        # bars show nothing, as the sky does
        bar = bars(scenes.capture.shown, index.shape[1])[..., None]
        index = torch.where(bar, count + 1, index)
        depth = torch.where(bar, torch.inf, depth)
    is_sky = index == count + 1
    t = torch.where(is_sky, 1.0, depth)
    ray = torch.stack([v[:, 0] for v in (d.dx, d.dy, d.dz)], -1)
    point = t[..., None] * ray                                    # relative to the camera

    flat = index.flatten(1)

    def of_shape(values: Tensor) -> Tensor:
        """(B, K) spread over the pixels, 0 on ground and sky."""
        padded = torch.nn.functional.pad(values, (0, 2))
        return padded.gather(1, flat).view(index.shape)

    own = torch.stack([of_shape(scenes.velocity[..., i]) for i in range(3)], -1)
    spin = of_shape(scenes.yaw_rate)
    centre = scenes.position[:, -1] - scenes.camera_position[:, -1, None]
    arm_x = point[..., 0] - of_shape(centre[..., 0])
    arm_z = point[..., 2] - of_shape(centre[..., 2])
    own = own + torch.stack((spin * arm_z, torch.zeros_like(spin), -spin * arm_x), -1)
    camera = scenes.camera_velocity[:, None, None]
    relative = torch.where(is_sky[..., None], 0.0, own - camera)

    rotation = scenes.camera_rotation[:, -1]
    along = (relative[..., None, :] * rotation[:, None, None]).sum(-1)  # camera axes
    x, y = rays.x[:, 0], rays.y[:, 0]
    bend, turn = bend_turn(scenes, slice(-1, None))
    if bend is not None and turn is not None:
        rows = torch.arange(x.shape[1], device=x.device)[:, None]
        back = row_turns(turn, rows, len(rows))[:, 0]                   # B H 1 3 3
        along = (along[..., None, :] @ back)[..., 0, :]                 # the row's axes
        x, y, scale = (x[..., None] * back[..., 0, :] + y[..., None] * back[..., 1, :]
                       + back[..., 2, :]).unbind(-1)
        x, y, t = x / scale, y / scale, t * scale
        depth, bend = depth * scale, bend[:, None, None]
    looming = -along[..., 2] / t
    wx, wy, wz = (w[:, None, None] for w in scenes.camera_spin.unbind(1))
    # The camera's turn moves points of the ray (x, y, 1) by -w x (x, y, 1) per unit of depth.
    vx = along[..., 0] / t - (wy - wz * y)
    vy = along[..., 1] / t - (wz * x - wx)
    vz = along[..., 2] / t - (wx * y - wy * x)
    flow = image_speed(x, y, vx - x * vz, vy - y * vz, scenes.intrinsics[:, None, None],
                       scenes.distortion[:, None, None], bend)

    level = relative.clone()
    level[..., 1] = own[..., 1]  # the robot stays on the ground however its camera shakes
    when, free = contact(point, level, -scenes.camera_position[:, -1, 1, None, None],
                         rotation[:, 2, None, None])
    when, free = (torch.where(is_sky, torch.inf, v) for v in (when, free))
    shape = torch.where(index == count, GROUND, torch.where(is_sky, SKY, index))
    return {
        'depth': depth, 'looming': looming, 'moving': own.norm(dim=-1) > MOVING_M_S,
        'flow': torch.stack(flow, -1),
        'enters': torch.isfinite(when), 'enter_time': when, 'clearance': free,
        'shape': shape.to(torch.int16)}

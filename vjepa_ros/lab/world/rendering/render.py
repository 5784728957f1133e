# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw scenes: uint8 frames, and the exact truth per pixel at the newest frame.

The looming rate leaves out the camera's own rotation; the flow contains it. Where rows are exposed
one after the other, each row has the truth of the camera turned as at its own time, at the
position of the stamp (`Capture`). The robot's heading and contact times are those at the stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering import front, lens
from vjepa_ros.lab.world.rendering.lens import Rays
from vjepa_ros.lab.world.rendering.shading import Hits
from vjepa_ros.lab.world.rendering.trace import Extents, Stage, Windows, colour, look, stage, trace
from vjepa_ros.lab.world.scenes.scene import GROUND, ROBOT, Robot, SKY, Scenes
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.runtime.device import computing_with

# Where in the pixel, and when while the shutter is open, the rays of a pixel are sent.
PATTERN = ((-0.25, -0.25, -0.25), (0.25, 0.25, 0.25))
_BESIDE = ((-0.17, -0.34), (0.17, 0.34))  # where the other rays of an edge are, beside 0, 0
_CROSS = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
# Rendered at once on a GPU: compiled, and not (then what all shapes give is stored for a while).
_MOST_PIXELS, _MOST_PLAIN = 1 << 25, 1 << 22


def drawing_device(device: torch.device) -> torch.device:
    """Return where pictures are drawn for a model; MPS lacks some operators of the renderer."""
    return torch.device('cpu') if device.type == 'mps' else device


def render(scenes: Scenes, bank: TextureBank, size: tuple[int, int],
           compile: bool = False) -> Tensor:
    frames = scenes.exposure.shape[1]
    with torch.no_grad():
        if scenes.interval_s.device.type == 'cpu' and not compile:
            # A frame is thousands of small steps. Threads that wait for one another in each of
            # them take a hundred times as long on a busy computer.
            with computing_with(1):
                return torch.cat([
                    torch.cat([_single(scene, bank, size, n) for n in range(frames)], 1)
                    for scene in _parts(scenes, 1)])
        # Parts of one size: a compiled function is made for each size.
        most = max(1, (_MOST_PIXELS if compile else _MOST_PLAIN) // (size[0] * size[1] * frames))
        step = -(-len(scenes) // -(-len(scenes) // most))
        return torch.cat([render_together(part, bank, size, compile)
                          for part in _parts(scenes, step)])


@lru_cache(maxsize=16)
def _ready(step: Callable[..., Any], compile: bool) -> Callable[..., Any]:
    return torch.compile(step, dynamic=False) if compile else step


def _parts(scenes: Scenes, count: int) -> Iterator[Scenes]:
    for first in range(0, len(scenes), count):
        yield scenes.map(lambda values, first=first: values[first:first + count])


def _open_for(scenes: Scenes) -> Tensor:
    """(B,) how long rows are exposed: in intervals, or with a `Capture` in seconds."""
    return scenes.shutter if scenes.capture is None else scenes.capture.exposure_s


def render_together(scenes: Scenes, bank: TextureBank, size: tuple[int, int],
                    compile: bool = False) -> Tensor:
    """Render all pictures at once, with all shapes tried everywhere, as a GPU does."""
    # The rays on their own: as a part of the trace they would be worked out for each frame.
    send, follow, develop = (
        _ready(step, compile) for step in (lens.all_rays, trace, lens.expose))
    frames, total = slice(None), list[Tensor]()
    for dx, dy, when in PATTERN:
        rays = send(scenes, frames, size, (dx, dy))
        light = follow(rays, stage(scenes, bank.atlas, frames, when * _open_for(scenes)))
        total = [a + b for a, b in zip(total, light, strict=True)] if total else light
    light = torch.stack(total, -1) / len(PATTERN)
    return develop(light, scenes, frames, lens.tables(light.device))


def _single(scenes: Scenes, bank: TextureBank, size: tuple[int, int], number: int) -> Tensor:
    frames = slice(number, number + 1)
    taken = scenes.capture
    blurs = float(_open_for(scenes)) > 0 and (taken is not None or scenes.exposure.shape[1] > 1)
    pattern = PATTERN if blurs else ((0.0, 0.0, 0.0),)
    planes = torch.zeros(3, 1, 1, size[1], size[0])
    for dx, dy, when in pattern:
        rays = lens.all_rays(scenes, frames, size, (dx, dy))
        scene = stage(scenes, bank.atlas, frames, when * _open_for(scenes) if blurs else None,
                      grouped=False)
        index = _in_bands(planes, rays, scene, 1 / len(pattern))
        if not blurs:
            _smooth_edges(planes, index, scenes, scene, frames)
    return lens.expose_single(planes, scenes, frames)


def _in_bands(planes: Tensor, rays: Rays, scene: Stage, weight: float) -> Tensor:
    """Add the light of one frame to its planes; return the number of the shape in each pixel."""
    height, width = rays.x.shape[2:]
    extents = Extents(scene)
    index = torch.empty(1, 1, height, width, dtype=torch.int64)
    count = -(-height * width // lens.BAND_PIXELS)
    step = -(-height // count)
    for top in range(0, height, step):      # so few rows that they stay in the cache
        rows = slice(top, top + step)
        part = Rays(*(field[:, :, rows] for field in rays))
        narrow = extents.windows(part)
        hits = look(part, scene, narrow)
        index[:, :, rows] = hits.number
        for plane, own in zip(planes, colour(hits, scene, narrow), strict=True):
            plane[:, :, rows].add_(own, alpha=weight)
    return index


def _smooth_edges(planes: Tensor, index: Tensor, scenes: Scenes, scene: Stage,
                  frames: slice) -> None:
    """Give pixels at the edges of shapes two more rays, in place."""
    shown = index[0, 0].numpy()
    edge = cv2.morphologyEx(shown.astype(np.int16), cv2.MORPH_GRADIENT, _CROSS)
    found = torch.from_numpy(np.stack(np.nonzero(edge)))
    if not found.numel():
        return
    shifts = torch.tensor(_BESIDE)
    whole = Windows.whole(scenes.kinds)
    for rows, columns in found.split(lens.BAND_PIXELS // len(shifts), dim=1):
        rays = lens.rays_at(scenes, frames, columns + shifts[:, :1], rows + shifts[:, 1:],
                            len(shown))
        fine = trace(rays, scene, whole)
        for plane, more in zip(planes[:, 0, 0], fine, strict=True):
            plane[rows, columns] = (plane[rows, columns] + more[0, 0].sum(0)) / 3


MOVING_M_S = 0.03   # a surface that is faster than this moves by itself
PART_M = 0.3       # how far off a part of the robot in the picture is taken to be
_STILL = 1e-6       # slower relative motion [m/s] is none


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
    """Parts (right, ahead) of world vectors, by the level part of ``ahead``."""
    level = torch.rsqrt((ahead[..., 0] ** 2 + ahead[..., 2] ** 2).clamp(min=1e-12))
    fx, fz = ahead[..., 0] * level, ahead[..., 2] * level
    return (fz * vector[..., 0] - fx * vector[..., 2], fx * vector[..., 0] + fz * vector[..., 2])


def contact(point: Tensor, velocity: Tensor, camera_height: Tensor, ahead: Tensor,
            robot: Robot = ROBOT) -> tuple[Tensor, Tensor]:
    """When points (..., 3) enter the robot's volume [s], and how far ahead of it they are [m]."""
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
    newest = slice(scenes.camera_position.shape[1] - 1, None)
    with torch.no_grad():
        if compile or scenes.interval_s.device.type != 'cpu':
            see, follow = _ready(_look, compile), _ready(_motion, compile)
            seen = see(scenes, newest, size, stage(scenes, bank.atlas, newest))
            return Truth(**follow(scenes, seen))
        parts = []
        with computing_with(1):
            for one in _parts(scenes, 1):
                rays = lens.all_rays(one, newest, size)
                scene = stage(one, bank.atlas, newest, grouped=False)
                parts.append(_motion(one, look(rays, scene, Extents(scene).windows(rays))))
        return Truth(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def _look(scenes: Scenes, frames: slice, size: tuple[int, int], scene: Stage) -> Hits:
    """Search among all shapes everywhere for what a batch of cameras sees."""
    return look(lens.all_rays(scenes, frames, size), scene, None)


def _motion(scenes: Scenes, seen: Hits) -> dict[str, Tensor]:
    """Fields of `Truth`, a pure function of tensors."""
    rays, d, depth, index = seen.rays, seen.directions, seen.depth[:, 0], seen.number[:, 0]
    count, part = len(scenes.kinds), None
    if scenes.capture is not None:        # bars show nothing, as the sky does
        bar = lens.bars(scenes.capture.shown, index.shape[1])[..., None]
        if scenes.capture.front is not None:    # nor does what moves with the camera
            part = ~bar & (front.part(scenes.capture.front.bands, *index.shape[1:])[0] > 0.5)
            bar = bar | part
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
    taken, bend = scenes.capture, None
    if taken is not None:
        rows = torch.arange(x.shape[1], device=x.device)[:, None]
        back = lens.row_turns(taken.turn[:, -1:], rows, len(rows))[:, 0]     # B H 1 3 3
        along = (along[..., None, :] @ back)[..., 0, :]                 # the row's axes
        x, y, scale = (x[..., None] * back[..., 0, :] + y[..., None] * back[..., 1, :]
                       + back[..., 2, :]).unbind(-1)
        x, y, t = x / scale, y / scale, t * scale
        depth, bend = depth * scale, taken.bend[:, None, None]
    looming = -along[..., 2] / t
    wx, wy, wz = (w[:, None, None] for w in scenes.camera_spin.unbind(1))
    # The camera's turn moves points of the ray (x, y, 1) by -w x (x, y, 1) per unit of depth.
    vx = along[..., 0] / t - (wy - wz * y)
    vy = along[..., 1] / t - (wz * x - wx)
    vz = along[..., 2] / t - (wx * y - wy * x)
    flow = lens.image_speed(x, y, vx - x * vz, vy - y * vz, scenes.intrinsics[:, None, None],
                            scenes.distortion[:, None, None], bend)

    level = relative.clone()
    level[..., 1] = own[..., 1]  # the robot stays on the ground however its camera shakes
    when, free = contact(point, level, -scenes.camera_position[:, -1, 1, None, None],
                         rotation[:, 2, None, None])
    when, free = (torch.where(is_sky, torch.inf, v) for v in (when, free))
    shape = torch.where(index == count, GROUND, torch.where(is_sky, SKY, index))
    flow = torch.stack(flow, -1)
    if part is not None:
        depth, flow = torch.where(part, PART_M, depth), torch.where(part[..., None], 0, flow)
    return {
        'depth': depth, 'looming': looming, 'moving': own.norm(dim=-1) > MOVING_M_S,
        'flow': flow,
        'enters': torch.isfinite(when), 'enter_time': when, 'clearance': free,
        'shape': shape.to(torch.int16)}

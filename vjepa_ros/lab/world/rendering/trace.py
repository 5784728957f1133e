# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow one ray per pixel: the nearest hit, then its colour.

Without ``Windows`` everything here is a pure function of tensors without branches on their
values, so that a frame compiles as a whole. With them the work per shape is narrowed, for one
frame on the CPU.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.lens import Rays
from vjepa_ros.lab.world.rendering.shading import cast, lit, sky_colour, sky_place
from vjepa_ros.lab.world.rendering.shapes import (
    FULL,
    NEAREST_M,
    Body,
    Directions,
    card,
    directions,
    hit,
)
from vjepa_ros.lab.world.rendering.stage import Stage
from vjepa_ros.lab.world.rendering.surface import locate
from vjepa_ros.lab.world.scenes.scene import CARD, CYLINDER, ELLIPSOID
from vjepa_ros.lab.world.textures.atlas import Atlas, fetch, opacity

_FARTHEST_M = 1e4  # the ground ends there
Window = tuple[slice, slice] | None  # rows and columns; None where nothing is to do


class Windows(NamedTuple):
    """Rows and columns in which each shape, and its shadow, can be seen in a part of one frame.

    ``curved`` is where cylinders and ellipsoids can be seen.
    """

    shapes: tuple[Window, ...]
    shadows: tuple[Window, ...]
    curved: Window

    @staticmethod
    def around(shapes: tuple[Window, ...], shadows: tuple[Window, ...],
               kinds: tuple[int, ...]) -> Windows:
        bent = [w for w, k in zip(shapes, kinds, strict=True)
                if w is not None and k in (CYLINDER, ELLIPSOID)]
        joined = tuple(slice(min(w[i].start for w in bent), max(w[i].stop for w in bent))
                       for i in (0, 1)) if bent else None
        return Windows(shapes, shadows, joined)

    @staticmethod
    def whole(kinds: tuple[int, ...]) -> Windows:
        """Everything everywhere, shape by shape."""
        every = (FULL,) * len(kinds)
        return Windows(every, every, _curved(kinds))


def _curved(kinds: tuple[int, ...]) -> Window:
    return FULL if any(k in (CYLINDER, ELLIPSOID) for k in kinds) else None


def world_directions(rays: Rays, rotation: Tensor) -> Directions:
    """Rays (B, 1, H, W) in world axes, (B, T, H, W)."""
    r = rotation[..., None, None]
    return directions(*(rays.x * r[:, :, 0, i] + rays.y * r[:, :, 1, i] + r[:, :, 2, i]
                        for i in range(3)))


def _depth(kind: int, body: Body, cell: tuple[Tensor, Tensor], d: Directions, focal: Tensor,
           atlas: Atlas) -> Tensor:
    """Depth at which rays meet shapes of a kind, inf where they miss."""
    if kind != CARD:
        return hit(kind, d, body)
    t, x, y = card(d, body)
    away = torch.sqrt(body.wx ** 2 + body.wy ** 2 + body.wz ** 2)
    level = torch.log2(away * atlas.size / (2 * torch.minimum(body.hx, body.hy) * focal))
    solid = opacity(atlas, cell, 0.5 + 0.5 * x, 0.5 + 0.5 * y, level) > 127.5
    return torch.where(solid & (t > NEAREST_M) & body.alive, t, torch.inf)


def nearest(stage: Stage, d: Directions, kinds: tuple[int, ...], atlas: Atlas,
            windows: Windows | None) -> tuple[Tensor, Tensor]:
    """Depth [m] and number of the nearest hit; K is the ground, K + 1 the sky (inf)."""
    count = len(kinds)
    below = -stage.camera_y * d.inverse_y
    down = (d.dy > 0) & (below > NEAREST_M) & (below < _FARTHEST_M)
    depth = torch.where(down, below, torch.inf)
    index = torch.where(down, count, count + 1)
    focal = stage.focal[..., 0]
    if windows is None:
        # A compiled reduction tries shape after shape without storing what each of them gives.
        wide = Directions(*(field[..., None] for field in d))
        for kind, numbers, body, cell in stage.groups:
            t, which = _depth(kind, body, cell, wide, focal[..., None], atlas).min(-1)
            index = torch.where(t < depth, numbers[which], index)
            depth = torch.minimum(t, depth)
        return depth, index
    for number, (kind, window) in enumerate(zip(kinds, windows.shapes, strict=True)):
        if window is not None:
            rows, columns = window
            t = _depth(kind, *stage.one(number), d.cut(window), focal, atlas)
            here = depth[..., rows, columns]
            index[..., rows, columns].masked_fill_(t < here, number)
            torch.minimum(here, t, out=here)
    return depth, index


def _shadows(stage: Stage, d: Directions, t: Tensor, is_ground: Tensor, kinds: tuple[int, ...],
             windows: Windows | None) -> tuple[Tensor, Tensor]:
    """Sunlight and sky light (0..1) that reach the ground; 1 on everything else."""
    sun, sky = torch.ones_like(t), torch.ones_like(t)
    gx, gz = t * d.dx, t * d.dz
    towards = stage.light[:3]
    if windows is None:
        wide = tuple(v[..., None] for v in towards)
        for kind, _, body, _ in stage.groups:
            dark, blocked = cast(kind, body, gx[..., None], gz[..., None],
                                 stage.camera_y[..., None], wide)
            sun = torch.minimum(sun, 1 - dark.amax(-1))
            sky = sky * (1 - blocked).prod(-1)
    else:
        for number, (kind, window) in enumerate(zip(kinds, windows.shadows, strict=True)):
            if window is not None:
                here = (Ellipsis, *window)
                dark, blocked = cast(kind, stage.one(number)[0], gx[here], gz[here],
                                     stage.camera_y, towards)
                torch.minimum(sun[here], 1 - dark, out=sun[here])
                sky[here] *= 1 - blocked
    sun = 1 - stage.light.shadow * (1 - sun)
    return (torch.where(is_ground, sun, 1.0), torch.where(is_ground, sky, 1.0))


def trace(rays: Rays, stage: Stage, atlas: Atlas, kinds: tuple[int, ...],
          windows: Windows | None = None) -> list[Tensor]:
    """Light that arrives along rays, 0..1 and more: red, green and blue, (B, T, H, W) each.

    With ``windows``, of a single frame on the CPU, what nobody sees is left out.
    """
    d = world_directions(rays, stage.poses.rotation)
    depth, index = nearest(stage, d, kinds, atlas, windows)
    return colour(rays, d, depth, index, stage, atlas, kinds, windows)


def colour(rays: Rays, d: Directions, depth: Tensor, index: Tensor, stage: Stage, atlas: Atlas,
           kinds: tuple[int, ...], windows: Windows | None) -> list[Tensor]:
    """Light from what the rays hit, as in `trace`."""
    count = len(kinds)
    is_sky = index == count + 1
    sky_seen = windows is None or bool(is_sky.any())
    t = torch.where(is_sky, 1.0, depth) if sky_seen else depth
    surface = locate(stage.table, index, t, d, rays, stage.focal, stage.poses.rotation,
                     atlas.size, _curved(kinds) if windows is None else windows.curved,
                     CARD in kinds)
    place = (*surface.origin, surface.u, surface.v, surface.level_u, surface.level_v)
    if sky_seen:
        sky = (*stage.sky_cell, *sky_place(d.dx, d.dy, d.dz, stage.focal[..., 0], atlas.size))
        place = tuple(torch.where(is_sky, a, b) for a, b in zip(sky, place, strict=True))
    texture = fetch(atlas, place[:2], *place[2:], fast=windows is not None)
    sun, open_sky = _shadows(stage, d, t, index == count, kinds, windows)
    height = -(stage.camera_y + t * d.dy)
    light = lit(surface, sun, open_sky, height, stage.light)
    length = torch.sqrt(d.flat + d.dy * d.dy)
    distance = t * length
    if sky_seen:
        unit_y = d.dy / length
        above = sky_colour(unit_y, texture, stage.light)
        # The sky is far away, more so at the horizon.
        distance = torch.where(is_sky, 40 / (unit_y.abs() + 0.04), distance)
    clear = torch.exp(-stage.light.fog * distance)
    fog = stage.light.fog_color ** 2
    pick = stage.table.picker(index)
    planes = []
    for c, tint in enumerate((stage.table.red, stage.table.green, stage.table.blue)):
        seen = texture[..., c] * (pick(tint) * light)
        if sky_seen:
            seen = torch.where(is_sky, above[c], seen)
        planes.append(torch.lerp(fog[..., c], seen, clear))
    return planes

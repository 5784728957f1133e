# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow one ray per pixel: the nearest hit, then its colour.

Without ``Windows`` everything here is a pure function of tensors without branches on their
values, so that a frame compiles as a whole. ``Windows`` narrow the work per shape, for one frame
on the CPU: each is a rectangle of the image that contains the shape, or its shadow, whatever the
lens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.lens import Rays
from vjepa_ros.lab.world.rendering.shading import (
    Body,
    CONTACT_REACH_M,
    Directions,
    FULL,
    Hits,
    NEAREST_M,
    card,
    cast,
    directions,
    hit,
    lit,
    locate,
    sky_colour,
    sky_place,
)
from vjepa_ros.lab.world.rendering.stage import Stage
from vjepa_ros.lab.world.scenes.scene import CARD, COVERING, CYLINDER, ELLIPSOID
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
        """Return the windows of shapes and of their shadows."""
        bent = [w for w, k in zip(shapes, kinds, strict=True)
                if w is not None and k in (CYLINDER, ELLIPSOID)]
        if not bent:
            return Windows(shapes, shadows, None)
        rows, columns = (slice(min(w[i].start for w in bent), max(w[i].stop for w in bent))
                         for i in (0, 1))
        return Windows(shapes, shadows, (rows, columns))

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
        wide = (towards[0][..., None], towards[1][..., None], towards[2][..., None])
        for kind, _, body, _ in stage.groups:
            if kind == COVERING:
                continue
            dark, blocked = cast(kind, body, gx[..., None], gz[..., None],
                                 stage.camera_y[..., None], wide)
            sun = torch.minimum(sun, 1 - dark.amax(-1))
            sky = sky * (1 - blocked).prod(-1)
    else:
        for number, (kind, window) in enumerate(zip(kinds, windows.shadows, strict=True)):
            if window is not None and kind != COVERING:
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

    ``windows``, for a single frame on the CPU, leave out invisible parts.
    """
    d = world_directions(rays, stage.poses.rotation)
    depth, index = nearest(stage, d, kinds, atlas, windows)
    return colour(Hits(rays, d, depth, index), stage, atlas, kinds, windows)


def colour(hits: Hits, stage: Stage, atlas: Atlas, kinds: tuple[int, ...],
           windows: Windows | None) -> list[Tensor]:
    """Light from what the rays hit, as in `trace`."""
    rays, d, depth, index = hits
    count = len(kinds)
    is_sky = index == count + 1
    sky_seen = windows is None or bool(is_sky.any())
    t = torch.where(is_sky, 1.0, depth) if sky_seen else depth
    surface = locate(stage.table, Hits(rays, d, t, index), stage.focal, stage.poses.rotation,
                     atlas.size, _curved(kinds) if windows is None else windows.curved,
                     CARD in kinds)
    place = (*surface.origin, surface.u, surface.v, surface.level_u, surface.level_v)
    if sky_seen:
        sky = (*stage.sky_cell, *sky_place(d.dx, d.dy, d.dz, stage.focal[..., 0], atlas.size))
        place = tuple(torch.where(is_sky, a, b) for a, b in zip(sky, place, strict=True))
    column, row, *where = place
    texture = fetch(atlas, (column, row), *where, fast=windows is not None)
    is_ground = (index >= count - kinds.count(COVERING)) & (index <= count)
    sun, open_sky = _shadows(stage, d, t, is_ground, kinds, windows)
    height = -(stage.camera_y + t * d.dy)
    light = lit(surface, sun, open_sky, height, stage.light)
    length = torch.sqrt(d.flat + d.dy * d.dy)
    distance = t * length
    above: list[Tensor] = []
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
        if above:
            seen = torch.where(is_sky, above[c], seen)
        planes.append(torch.lerp(fog[..., c], seen, clear))
    return planes


_NEAR = 0.01
_REACH = 12.0   # a shadow longer than this many heights has faded into the light of the sky
_BESIDE_M = 1.0  # how far beside a shape the ground is darkened at most
_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
_EDGES = np.array([(a, b) for a in range(8) for b in range(a + 1, 8)
                   if np.abs(_CORNERS[a] - _CORNERS[b]).sum() == 2])


def _spans(points: np.ndarray) -> np.ndarray:
    """Least and greatest x/z and y/z (N, 4) of boxes (N, 8, 3) in camera axes; empty behind."""
    a, b = points[:, _EDGES[:, 0]], points[:, _EDGES[:, 1]]
    rise = b[..., 2] - a[..., 2]
    share = (_NEAR - a[..., 2]) / np.where(np.abs(rise) < 1e-9, 1, rise)
    cut = (a[..., 2] > _NEAR) != (b[..., 2] > _NEAR)
    at_near = a + share[..., None] * (b - a)
    corners = np.concatenate((points, at_near), 1)
    shown = np.concatenate((points[..., 2] > _NEAR, cut), 1)
    flat = corners[..., :2] / np.where(shown, corners[..., 2], 1)[..., None]
    low = np.where(shown[..., None], flat, np.inf).min(1)
    high = np.where(shown[..., None], flat, -np.inf).max(1)
    return np.concatenate((low, high), 1)


class Extents:
    """What the shapes and shadows of a single frame (B = T = 1, CPU) span."""

    def __init__(self, stage: Stage, kinds: tuple[int, ...]):
        fields = torch.stack([f[0, 0].float() for f in stage.bodies]).double().numpy()
        wx, wy, wz, _, _, c, s, hx, hy, hz, alive = fields
        rotation = stage.poses.rotation[0, 0].double().numpy()
        sun = np.array([float(v) for v in stage.light[:3]])
        camera_y = float(stage.camera_y)
        self._alive = alive > 0
        self._kinds = kinds
        hz = np.where(np.array(kinds) == CYLINDER, hx, hz)
        local = _CORNERS * np.stack((hx, hy, hz), -1)[:, None]
        c, s = c[:, None], s[:, None]
        corners = np.stack((local[..., 0] * c + local[..., 2] * s, local[..., 1],
                            local[..., 2] * c - local[..., 0] * s), -1)
        corners -= np.stack((wx, wy, wz), -1)[:, None]
        self._shapes = _spans(corners @ rotation.T)

        # A flat box on the ground that holds the shape's foot and its shadow.
        casts = bool(stage.light.sun * stage.light.shadow > 0)
        low_enough = -(corners[..., 1].max(1) + camera_y) < CONTACT_REACH_M
        self._shading = self._alive & (low_enough | casts)
        height = np.maximum(-(corners[..., 1] + camera_y), 0)
        slide = np.minimum(height / max(-sun[1], 1e-3), (_REACH * 2 * hy)[:, None] + height)
        slide *= casts
        ground = np.concatenate((corners, corners - sun * slide[..., None]), 1)
        low, high = ground.min(1) - _BESIDE_M, ground.max(1) + _BESIDE_M
        low[:, 1] = high[:, 1] = -camera_y
        floor = low[:, None] + (_CORNERS + 1) / 2 * (high - low)[:, None]
        self._shadows = _spans(floor @ rotation.T)

    def windows(self, rays: Rays) -> Windows:
        """Windows of all shapes among rays (1, 1, H, W)."""
        x, y = rays.x[0, 0], rays.y[0, 0]
        limits = tuple(v.numpy() for v in (x.amin(0), x.amax(0), y.amin(1), y.amax(1)))
        return Windows.around(_cut(self._shapes, self._alive, limits),
                              _cut(self._shadows, self._shading, limits), self._kinds)


def _cut(spans: np.ndarray, wanted: np.ndarray,
         limits: tuple[np.ndarray, ...]) -> tuple[Window, ...]:
    columns = ((limits[1] >= spans[:, 0, None]) & (limits[0] <= spans[:, 2, None])
               & wanted[:, None])
    rows = (limits[3] >= spans[:, 1, None]) & (limits[2] <= spans[:, 3, None])
    seen: np.ndarray = np.any(columns, axis=1) & np.any(rows, axis=1)
    ends = (rows.argmax(1), rows.shape[1] - rows[:, ::-1].argmax(1),
            columns.argmax(1), columns.shape[1] - columns[:, ::-1].argmax(1))
    return tuple((slice(r0, r1), slice(c0, c1)) if some else None
                 for some, r0, r1, c0, c1 in zip(seen.tolist(), *(e.tolist() for e in ends),
                                                 strict=True))

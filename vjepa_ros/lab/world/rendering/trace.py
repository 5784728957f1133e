# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow one ray per pixel: where camera and shapes are, the nearest hit, then its colour.

Without ``Windows`` everything here is a pure function of tensors, so that a frame compiles as a
whole. ``Windows`` narrow the work for one frame on the CPU: each is a rectangle of the image that
contains a shape, or its shadow, whatever the lens.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering import shading
from vjepa_ros.lab.world.rendering.lens import Rays, cross_of, rotation_of
from vjepa_ros.lab.world.rendering.shading import Body, Directions, Hits, Light, Table
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, COVERING, CYLINDER, ELLIPSOID, Scenes
from vjepa_ros.lab.world.textures.bank import Atlas, fetch, opacity

_WIDE_M = 1e6       # half side of the ground's box
_FARTHEST_M = 1e4  # the ground ends there
_ALL = (slice(None), slice(None))  # rows and columns
_CURVED = (CYLINDER, ELLIPSOID)
Cell = tuple[Tensor, Tensor]   # column and row of a texture in the atlas
# Shapes of a kind: their numbers (G), and what rays need of them, (B, T, 1, 1, G).
Group = tuple[int, Tensor, Body, Cell]
# Camera (B, T, 3), (B, T, 3, 3) and shapes (B, T, K, 3), (B, T, K) in some frames.
Poses = tuple[Tensor, Tensor, Tensor, Tensor]
Window = tuple[slice, slice] | None  # rows and columns; None where nothing is to do


class Stage(NamedTuple):
    """All a frame is made of but its rays."""

    kinds: tuple[int, ...]         # of the K shapes
    atlas: Atlas
    rotation: Tensor               # (B, T, 3, 3) of the camera
    bodies: Body                   # (B, T, K)
    groups: tuple[Group, ...]      # the same by kind; empty where shapes are drawn one by one
    table: Table                   # (B, T, K + 2)
    light: Light
    camera_y: Tensor               # (B, T, 1, 1)
    focal: Tensor                  # (B, 1, 1, 1, 2)
    sky_cell: Cell                 # (B, 1, 1, 1)

    def one(self, number: int) -> tuple[Body, Cell]:
        body = Body(*(field[:, :, number, None, None] for field in self.bodies))
        return body, (self.table.column[:, :, number, None, None],
                      self.table.row[:, :, number, None, None])


def _turned(rotation: Tensor, turn: Tensor, share: Tensor) -> Tensor:
    """``rotation`` (..., 3, 3) after a share (..., 1) of a ``turn`` (..., 3, 3)."""
    axis = torch.stack((turn[..., 2, 1] - turn[..., 1, 2], turn[..., 0, 2] - turn[..., 2, 0],
                        turn[..., 1, 0] - turn[..., 0, 1]), -1) / 2
    sine = axis.norm(dim=-1, keepdim=True)
    cosine = (turn.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - 1) / 2
    angle = torch.atan2(sine, cosine)
    axis = axis / sine.clamp(min=1e-9)
    cross = cross_of(axis)
    part = (share * angle)[..., None]
    step = (torch.eye(3, device=rotation.device) + torch.sin(part) * cross
            + (1 - torch.cos(part)) * (cross @ cross))
    return step @ rotation


def _poses(scenes: Scenes, frames: slice, share: Tensor | None = None) -> Poses:
    """Poses in some frames, and a share (B,) of an interval, or seconds, later."""
    taken = scenes.capture
    if share is not None and taken is not None:     # seconds, at the speeds of the camera there
        after = share[:, None, None]
        turn = rotation_of(-after * taken.spin[:, frames])
        return (scenes.camera_position[:, frames] + after * taken.velocity[:, frames],
                turn @ scenes.camera_rotation[:, frames],
                scenes.position[:, frames] + after[..., None] * scenes.velocity[:, None],
                scenes.yaw[:, frames] + after * scenes.yaw_rate[:, None])
    parts = (scenes.camera_position, scenes.position, scenes.yaw)
    if share is not None and scenes.yaw.shape[1] > 1:
        # Slices, not lists of numbers: those would have to be copied to the device.
        parts = tuple(p + share.view(-1, *[1] * (p.ndim - 1))
                      * torch.cat((p[:, 1:2] - p[:, :1], p[:, 1:] - p[:, :-1]), 1)
                      for p in parts)
        now = scenes.camera_rotation
        turn = now[:, 1:] @ now[:, :-1].transpose(-1, -2)
        rotation = _turned(now, torch.cat((turn[:, :1], turn), 1), share[:, None, None])
    else:
        rotation = scenes.camera_rotation
    camera, position, yaw = (p[:, frames] for p in parts)
    return camera, rotation[:, frames], position, yaw


def _bodies(poses: Poses, half: Tensor, alive: Tensor) -> Body:
    camera, _, position, yaw = poses
    wx, wy, wz = (camera[:, :, None] - position).unbind(-1)
    c, s = torch.cos(yaw), torch.sin(yaw)
    hx, hy, hz = (h[:, None].expand_as(wx) for h in half.unbind(-1))
    return Body(wx, wy, wz, c * wx - s * wz, s * wx + c * wz, c, s, hx, hy, hz,
                alive[:, None].expand_as(wx))


def _with_ground(field: Tensor, ground: Tensor | float) -> Tensor:
    """(B, T, K) and the ground's value as (B, T, K + 2); the sky's row is never looked at."""
    last = ground if isinstance(ground, Tensor) else field.new_full(field.shape[:2], ground)
    return torch.cat((field, last[..., None], last[..., None]), -1)


@lru_cache(maxsize=64)
def _kind_row(kinds: tuple[int, ...], device: torch.device) -> Tensor:
    """Kinds (K + 2) of shapes, ground and sky; kept, for copies make the device wait."""
    return torch.tensor((*kinds, BOX, BOX), device=device)


def _table(scenes: Scenes, camera: Tensor, b: Body, atlas: Atlas, frames: slice) -> Table:
    """Return what shading looks up, with the ground as a wide box under y = 0."""
    kinds = _kind_row(scenes.kinds, b.hx.device).expand(*b.hx.shape[:2], -1)
    is_card, is_upright = kinds == CARD, kinds == CYLINDER
    card, upright = is_card[..., :-2], is_upright[..., :-2]
    # Of a card only its face counts: no edge may ever win.
    ix, iy = (torch.where(card, 0.0, 1 / h) for h in (b.hx, b.hy))
    # A card may be given no thickness at all.
    round_half = torch.where(upright, b.hx, b.hz).clamp(min=1e-4)
    iz = torch.where(card, 1.0, 1 / round_half)
    tile = scenes.tile_m[:, None].expand_as(b.hx)
    repeat = torch.where(tile > 0, 1 / tile.clamp(min=1e-3), 0.0)
    rx, ry, rz = (torch.where(tile > 0, repeat, 0.5 / h) for h in (b.hx, b.hy, round_half))
    around = torch.round(math.pi * (b.hx + round_half) * repeat).clamp(min=1)
    ground = (1 / scenes.ground_tile_m.clamp(min=1e-3))[:, None].expand(camera.shape[:2])
    texture = scenes.texture
    texture = (texture[:, None].expand(b.hx.shape) if texture.ndim == 2 else texture[:, frames])
    column, row = atlas.origin(texture)
    below = [v[:, None].expand(camera.shape[:2]) for v in atlas.origin(scenes.ground_texture)]
    below_tint = scenes.ground_tint[:, None]
    tint = torch.cat((scenes.tint, below_tint, below_tint), 1)[:, None]
    x, y, z = camera.unbind(-1)
    red, green, blue = tint.expand(-1, camera.shape[1], -1, -1).unbind(-1)
    return Table(
        _with_ground(b.c, 1.0), _with_ground(b.s, 0.0), _with_ground(b.ox, x),
        _with_ground(b.wy, y - 1), _with_ground(b.oz, z), _with_ground(ix, 1 / _WIDE_M),
        _with_ground(iy, 1.0), _with_ground(iz, 1 / _WIDE_M), _with_ground(rx, ground),
        _with_ground(ry, ground), _with_ground(rz, ground), _with_ground(around, 1.0),
        red, green, blue, _with_ground(column, below[0]), _with_ground(row, below[1]),
        is_upright.float(), (is_upright | (kinds == ELLIPSOID)).float(), is_card.float())


@lru_cache(maxsize=64)
def _numbers(kinds: tuple[int, ...], kind: int, device: torch.device) -> tuple[Tensor, ...]:
    """Numbers of the shapes of a kind in parts; kept, for copies make the device wait."""
    numbers = torch.tensor([n for n, k in enumerate(kinds) if k == kind], device=device)
    # A compiled reduction works on powers of two: 19 shapes at once cost as much as 32.
    whole = 1 << len(numbers).bit_length() - 1
    waste = 2 * whole - len(numbers)
    return numbers.split(whole) if whole // 4 <= waste < whole else (numbers,)


def stage(scenes: Scenes, atlas: Atlas, frames: slice, share: Tensor | None = None,
          grouped: bool = True) -> Stage:
    kinds, poses = scenes.kinds, _poses(scenes, frames, share)
    camera, rotation = poses[:2]
    b = _bodies(poses, scenes.half, scenes.alive)
    table = _table(scenes, camera, b, atlas, frames)
    groups = []
    for kind in sorted(set(kinds)) if grouped else ():
        for numbers in _numbers(kinds, kind, b.hx.device):
            body, cell = ([field.index_select(2, numbers)[:, :, None, None] for field in fields]
                          for fields in (b, (table.column, table.row)))
            groups.append((kind, numbers, Body(*body), (cell[0], cell[1])))
    light = (*scenes.sun_direction.unbind(1), scenes.sun, scenes.ambient, scenes.shadow,
             scenes.fog_per_m, scenes.fog_color, scenes.sky_top, scenes.sky_horizon,
             (scenes.sky_texture >= 0).float())
    sky = [v.view(-1, 1, 1, 1) for v in atlas.origin(scenes.sky_texture.clamp(min=0))]
    return Stage(kinds, atlas, rotation, b, tuple(groups), table,
                 Light(*(v.view(-1, 1, 1, 1, *v.shape[1:]) for v in light)),
                 camera[..., 1, None, None], scenes.intrinsics[:, None, None, None, :2],
                 (sky[0], sky[1]))


class Windows(NamedTuple):
    """Where each shape and its shadow can be seen in a part of one frame."""

    shapes: tuple[Window, ...]
    shadows: tuple[Window, ...]
    curved: bool     # whether cylinders and ellipsoids can be seen

    @staticmethod
    def whole(kinds: tuple[int, ...]) -> Windows:
        every = (_ALL,) * len(kinds)
        return Windows(every, every, _curved(kinds))


def _curved(kinds: tuple[int, ...]) -> bool:
    return any(kind in _CURVED for kind in kinds)


def _depth(kind: int, body: Body, cell: Cell, d: Directions, focal: Tensor,
           atlas: Atlas) -> Tensor:
    """Depth at which rays meet shapes of a kind, inf where they miss."""
    if kind != CARD:
        return shading.hit(kind, d, body)
    t, x, y = shading.card(d, body)
    away = torch.sqrt(body.wx ** 2 + body.wy ** 2 + body.wz ** 2)
    level = torch.log2(away * atlas.size / (2 * torch.minimum(body.hx, body.hy) * focal))
    solid = opacity(atlas, cell, 0.5 + 0.5 * x, 0.5 + 0.5 * y, level) > 127.5
    return torch.where(solid & (t > shading.NEAREST_M) & body.alive, t, torch.inf)


def look(rays: Rays, stage: Stage, windows: Windows | None) -> Hits:
    """Find what rays (B, 1, H, W) hit first, (B, T, H, W)."""
    r = stage.rotation[..., None, None]
    d = shading.directions(*(rays.x * r[:, :, 0, i] + rays.y * r[:, :, 1, i] + r[:, :, 2, i]
                             for i in range(3)))
    return Hits(rays, d, *_nearest(stage, d, windows))


def _nearest(stage: Stage, d: Directions, windows: Windows | None) -> tuple[Tensor, Tensor]:
    """Depth [m] and number of the nearest hit; K is the ground, K + 1 the sky (inf)."""
    count = len(stage.kinds)
    below = -stage.camera_y * d.inverse_y
    down = (d.dy > 0) & (below > shading.NEAREST_M) & (below < _FARTHEST_M)
    depth = torch.where(down, below, torch.inf)
    index = torch.where(down, count, count + 1)
    focal = stage.focal[..., 0]
    if windows is None:
        # A compiled reduction tries shape after shape without storing what each of them gives.
        wide = Directions(*(field[..., None] for field in d))
        for kind, numbers, body, cell in stage.groups:
            t, which = _depth(kind, body, cell, wide, focal[..., None], stage.atlas).min(-1)
            index = torch.where(t < depth, numbers[which], index)
            depth = torch.minimum(t, depth)
        return depth, index
    for number, (kind, window) in enumerate(zip(stage.kinds, windows.shapes, strict=True)):
        if window is not None:
            rows, columns = window
            part = Directions(*(field[..., rows, columns] for field in d))
            t = _depth(kind, *stage.one(number), part, focal, stage.atlas)
            here = depth[..., rows, columns]
            index[..., rows, columns].masked_fill_(t < here, number)
            torch.minimum(here, t, out=here)
    return depth, index


def _shadows(stage: Stage, d: Directions, t: Tensor, is_ground: Tensor,
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
            dark, blocked = shading.cast(kind, body, gx[..., None], gz[..., None],
                                         stage.camera_y[..., None], wide)
            sun = torch.minimum(sun, 1 - dark.amax(-1))
            sky = sky * (1 - blocked).prod(-1)
    else:
        for number, (kind, window) in enumerate(zip(stage.kinds, windows.shadows, strict=True)):
            if window is not None and kind != COVERING:
                here = (Ellipsis, *window)
                dark, blocked = shading.cast(kind, stage.one(number)[0], gx[here], gz[here],
                                             stage.camera_y, towards)
                torch.minimum(sun[here], 1 - dark, out=sun[here])
                sky[here] *= 1 - blocked
    sun = 1 - stage.light.shadow * (1 - sun)
    return (torch.where(is_ground, sun, 1.0), torch.where(is_ground, sky, 1.0))


def trace(rays: Rays, stage: Stage, windows: Windows | None = None) -> list[Tensor]:
    """Light that arrives along rays: red, green and blue planes (B, T, H, W), 1 is white."""
    return colour(look(rays, stage, windows), stage, windows)


def colour(hits: Hits, stage: Stage, windows: Windows | None) -> list[Tensor]:
    """Light from what the rays hit, as in `trace`."""
    rays, d, depth, index = hits
    atlas, kinds, count = stage.atlas, stage.kinds, len(stage.kinds)
    is_sky = index == count + 1
    sky_seen = windows is None or bool(is_sky.any())
    t = torch.where(is_sky, 1.0, depth) if sky_seen else depth
    surface = shading.locate(
        stage.table, Hits(rays, d, t, index), stage.focal, stage.rotation, atlas.size,
        _curved(kinds) if windows is None else windows.curved, CARD in kinds)
    place = (*surface.origin, surface.u, surface.v, surface.level_u, surface.level_v)
    if sky_seen:
        clouds = shading.sky_place(d.dx, d.dy, d.dz, stage.focal[..., 0], atlas.size)
        sky = (*stage.sky_cell, *clouds)
        place = tuple(torch.where(is_sky, a, b) for a, b in zip(sky, place, strict=True))
    column, row, *where = place
    texture = fetch(atlas, (column, row), *where, fast=windows is not None)
    is_ground = (index >= count - kinds.count(COVERING)) & (index <= count)
    sun, open_sky = _shadows(stage, d, t, is_ground, windows)
    height = -(stage.camera_y + t * d.dy)
    light = shading.lit(surface, sun, open_sky, height, stage.light)
    length = torch.sqrt(d.flat + d.dy * d.dy)
    distance = t * length
    above: list[Tensor] = []
    if sky_seen:
        unit_y = d.dy / length
        above = shading.sky_colour(unit_y, texture, stage.light)
        # The sky is far away, more so at the horizon.
        distance = torch.where(is_sky, 40 / (unit_y.abs() + 0.04), distance)
    clear = torch.exp(-stage.light.fog * distance)
    fog = stage.light.fog_color ** 2
    pick = shading.picker(index)
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

    def __init__(self, stage: Stage):
        fields = torch.stack([f[0, 0].float() for f in stage.bodies]).double().numpy()
        wx, wy, wz, _, _, c, s, hx, hy, hz, alive = fields
        rotation = stage.rotation[0, 0].double().numpy()
        sun = np.array([float(v) for v in stage.light[:3]])
        camera_y = float(stage.camera_y)
        self._alive = alive > 0
        self._kinds = stage.kinds
        hz = np.where(np.array(stage.kinds) == CYLINDER, hx, hz)
        local = _CORNERS * np.stack((hx, hy, hz), -1)[:, None]
        c, s = c[:, None], s[:, None]
        corners = np.stack((local[..., 0] * c + local[..., 2] * s, local[..., 1],
                            local[..., 2] * c - local[..., 0] * s), -1)
        corners -= np.stack((wx, wy, wz), -1)[:, None]
        self._shapes = _spans(corners @ rotation.T)

        # A flat box on the ground that holds the shape's foot and its shadow.
        casts = bool(stage.light.sun * stage.light.shadow > 0)
        low_enough = -(corners[..., 1].max(1) + camera_y) < shading.CONTACT_REACH_M
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
        x, y = rays.x[0, 0], rays.y[0, 0]
        limits = tuple(v.numpy() for v in (x.amin(0), x.amax(0), y.amin(1), y.amax(1)))
        shapes = _cut(self._shapes, self._alive, limits)
        return Windows(shapes, _cut(self._shadows, self._shading, limits),
                       _curved(tuple(k for k, w in zip(self._kinds, shapes, strict=True) if w)))


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

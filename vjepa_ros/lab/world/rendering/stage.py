# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Set the stage for some frames: where camera and shapes are, in the form rays need it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.lens import rotation_of
from vjepa_ros.lab.world.rendering.shading import Body, Light, Table
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER, Capture, ELLIPSOID, Scenes
from vjepa_ros.lab.world.textures.atlas import Atlas

_WIDE_M = 1e6       # half side of the ground's box


class Poses(NamedTuple):
    """Camera (B, T, 3), (B, T, 3, 3) and shapes (B, T, K, 3), (B, T, K) in some frames."""

    camera: Tensor
    rotation: Tensor
    position: Tensor
    yaw: Tensor


class Group(NamedTuple):
    """Shapes of one kind that are tried against a ray together.

    ``numbers`` (G) of the shapes; ``body`` fields and ``cell`` (texture's column and row)
    (B, T, 1, 1, G).
    """

    kind: int
    numbers: Tensor
    body: Body
    cell: tuple[Tensor, Tensor]


class Stage(NamedTuple):
    """All a frame is made of but its rays.

    ``bodies`` fields (B, T, K); ``groups`` the same by kind, empty where shapes are drawn one
    by one; ``table`` fields (B, T, K + 2); ``camera_y`` (B, T, 1, 1); ``focal`` (B, 1, 1, 1, 2);
    ``sky_cell`` (B, 1, 1, 1) twice.
    """

    poses: Poses
    bodies: Body
    groups: tuple[Group, ...]
    table: Table
    light: Light
    camera_y: Tensor
    focal: Tensor
    sky_cell: tuple[Tensor, Tensor]

    def one(self, number: int) -> tuple[Body, tuple[Tensor, Tensor]]:
        """One shape and its texture's cell, (B, T, 1, 1) each."""
        body = Body(*(field[:, :, number, None, None] for field in self.bodies))
        return body, (self.table.column[:, :, number, None, None],
                      self.table.row[:, :, number, None, None])


def turned(rotation: Tensor, turn: Tensor, share: Tensor) -> Tensor:
    """``rotation`` (..., 3, 3) after a share (..., 1) of a ``turn`` (..., 3, 3)."""
    axis = torch.stack((turn[..., 2, 1] - turn[..., 1, 2], turn[..., 0, 2] - turn[..., 2, 0],
                        turn[..., 1, 0] - turn[..., 0, 1]), -1) / 2
    sine = axis.norm(dim=-1, keepdim=True)
    cosine = (turn.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - 1) / 2
    angle = torch.atan2(sine, cosine)
    axis = axis / sine.clamp(min=1e-9)
    x, y, z = axis.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))
    part = (share * angle)[..., None]
    step = (torch.eye(3, device=rotation.device) + torch.sin(part) * cross
            + (1 - torch.cos(part)) * (cross @ cross))
    return step @ rotation


def poses(scenes: Scenes, frames: slice, share: Tensor | None = None) -> Poses:
    """Poses in some frames.

    ``share`` (B,) moves the moment by that part of the interval (-0.5..0.5), along the motion
    since the frame before (the first frame: up to the next). With a `Capture` it is in seconds,
    and the motion is that of the moment.
    """
    if share is not None and scenes.capture is not None:
        return _moved(scenes, scenes.capture, frames, share)
    parts = (scenes.camera_position, scenes.position, scenes.yaw)
    if share is not None and scenes.yaw.shape[1] > 1:
        # Slices, not lists of numbers: those would have to be copied to the device.
        parts = tuple(p + share.view(-1, *[1] * (p.ndim - 1))
                      * torch.cat((p[:, 1:2] - p[:, :1], p[:, 1:] - p[:, :-1]), 1)
                      for p in parts)
        now = scenes.camera_rotation
        turn = now[:, 1:] @ now[:, :-1].transpose(-1, -2)
        rotation = turned(now, torch.cat((turn[:, :1], turn), 1), share[:, None, None])
    else:
        rotation = scenes.camera_rotation
    camera, position, yaw = (p[:, frames] for p in parts)
    return Poses(camera, rotation[:, frames], position, yaw)


def _moved(scenes: Scenes, taken: Capture, frames: slice, seconds: Tensor) -> Poses:
    """Poses some seconds (B,) beside the stamps of frames, at the speeds of the camera there."""
    after = seconds[:, None, None]
    turn = rotation_of(-after * taken.spin[:, frames])
    return Poses(
        scenes.camera_position[:, frames] + after * taken.velocity[:, frames],
        turn @ scenes.camera_rotation[:, frames],
        scenes.position[:, frames] + after[..., None] * scenes.velocity[:, None],
        scenes.yaw[:, frames] + after * scenes.yaw_rate[:, None])


def bodies_of(p: Poses, half: Tensor, alive: Tensor) -> Body:
    """Return the camera as seen from every shape."""
    away = p.camera[:, :, None] - p.position
    wx, wy, wz = away.unbind(-1)
    c, s = torch.cos(p.yaw), torch.sin(p.yaw)
    hx, hy, hz = (h[:, None].expand_as(wx) for h in half.unbind(-1))
    return Body(wx, wy, wz, c * wx - s * wz, s * wx + c * wz, c, s, hx, hy, hz,
                alive[:, None].expand_as(wx))


def _with_ground(field: Tensor, ground: Tensor | float) -> Tensor:
    """(B, T, K) and the ground's value as (B, T, K + 2); the sky's row is never looked at."""
    last = ground if isinstance(ground, Tensor) else field.new_full(field.shape[:2], ground)
    return torch.cat((field, last[..., None], last[..., None]), -1)


@lru_cache(maxsize=64)
def _flag_row(kinds: tuple[int, ...], wanted: tuple[int, ...], device: torch.device) -> Tensor:
    """(K + 2) 1.0 where a kind is wanted; kept, for copies make the device wait."""
    return torch.tensor([float(k in wanted) for k in (*kinds, BOX, BOX)], device=device)


def _flags(kinds: tuple[int, ...], wanted: tuple[int, ...], like: Tensor) -> Tensor:
    return _flag_row(kinds, wanted, like.device).expand(*like.shape[:2], -1)


def table_of(scenes: Scenes, p: Poses, b: Body, atlas: Atlas, frames: slice) -> Table:
    """Return what shading looks up, with the ground as a wide box under y = 0."""
    kinds = scenes.kinds
    card, upright = (_flags(kinds, (kind,), b.hx)[..., :-2] > 0 for kind in (CARD, CYLINDER))
    # Of a card only its face counts: no edge may ever win.
    ix, iy = (torch.where(card, 0.0, 1 / h) for h in (b.hx, b.hy))
    # A card may be given no thickness at all.
    round_half = torch.where(upright, b.hx, b.hz).clamp(min=1e-4)
    iz = torch.where(card, 1.0, 1 / round_half)
    tile = scenes.tile_m[:, None].expand_as(b.hx)
    repeat = torch.where(tile > 0, 1 / tile.clamp(min=1e-3), 0.0)
    rx, ry, rz = (torch.where(tile > 0, repeat, 0.5 / h) for h in (b.hx, b.hy, round_half))
    around = torch.round(math.pi * (b.hx + round_half) * repeat).clamp(min=1)
    ground = (1 / scenes.ground_tile_m.clamp(min=1e-3))[:, None].expand(p.camera.shape[:2])
    texture = scenes.texture
    texture = (texture[:, None].expand(b.hx.shape) if texture.ndim == 2
               else texture[:, frames])
    column, row = atlas.origin(texture)
    below = [v[:, None].expand(p.camera.shape[:2]) for v in atlas.origin(scenes.ground_texture)]
    below_tint = scenes.ground_tint[:, None]
    tint = torch.cat((scenes.tint, below_tint, below_tint), 1)[:, None]
    x, y, z = p.camera.unbind(-1)
    red, green, blue = tint.expand(-1, p.camera.shape[1], -1, -1).unbind(-1)
    return Table(
        _with_ground(b.c, 1.0), _with_ground(b.s, 0.0), _with_ground(b.ox, x),
        _with_ground(b.wy, y - 1), _with_ground(b.oz, z), _with_ground(ix, 1 / _WIDE_M),
        _with_ground(iy, 1.0), _with_ground(iz, 1 / _WIDE_M), _with_ground(rx, ground),
        _with_ground(ry, ground), _with_ground(rz, ground), _with_ground(around, 1.0),
        red, green, blue, _with_ground(column, below[0]), _with_ground(row, below[1]),
        _flags(kinds, (CYLINDER,), b.hx), _flags(kinds, (CYLINDER, ELLIPSOID), b.hx),
        _flags(kinds, (CARD,), b.hx))


def light_of(scenes: Scenes) -> Light:
    """Return the light of scenes in the shape that rays need."""
    def field(values: Tensor) -> Tensor:
        return values.view(-1, 1, 1, 1, *values.shape[1:])

    sun = scenes.sun_direction
    return Light(field(sun[:, 0]), field(sun[:, 1]), field(sun[:, 2]), field(scenes.sun),
                 field(scenes.ambient), field(scenes.shadow), field(scenes.fog_per_m),
                 field(scenes.fog_color), field(scenes.sky_top), field(scenes.sky_horizon),
                 field((scenes.sky_texture >= 0).float()))


@lru_cache(maxsize=64)
def _numbers(kinds: tuple[int, ...], kind: int, device: torch.device) -> tuple[Tensor, ...]:
    """Numbers of the shapes of a kind in parts; kept, for copies make the device wait.

    A compiled reduction works on powers of two: nineteen shapes at once cost as much as
    thirty-two, sixteen and then three as much as twenty.
    """
    numbers = torch.tensor([n for n, k in enumerate(kinds) if k == kind], device=device)
    whole = 1 << len(numbers).bit_length() - 1
    waste = 2 * whole - len(numbers)
    return numbers.split(whole) if whole // 4 <= waste < whole else (numbers,)


def groups_of(kinds: tuple[int, ...], b: Body, table: Table) -> tuple[Group, ...]:
    """Return the shapes by kind."""
    groups = []
    parts = ((kind, numbers) for kind in sorted(set(kinds))
             for numbers in _numbers(kinds, kind, b.hx.device))
    for kind, numbers in parts:

        def chosen(field: Tensor, numbers: Tensor = numbers) -> Tensor:
            return field.index_select(2, numbers)[:, :, None, None]

        groups.append(Group(kind, numbers, Body(*(chosen(f) for f in b)),
                            (chosen(table.column), chosen(table.row))))
    return tuple(groups)


def stage(scenes: Scenes, atlas: Atlas, frames: slice, share: Tensor | None = None,
          grouped: bool = True) -> Stage:
    """Set the stage of some frames; ``share`` as in ``poses``."""
    p = poses(scenes, frames, share)
    b = bodies_of(p, scenes.half, scenes.alive)
    table = table_of(scenes, p, b, atlas, frames)
    sky = [v.view(-1, 1, 1, 1) for v in atlas.origin(scenes.sky_texture.clamp(min=0))]
    return Stage(p, b, groups_of(scenes.kinds, b, table) if grouped else (), table,
                 light_of(scenes), p.camera[..., 1, None, None],
                 scenes.intrinsics[:, None, None, None, :2], (sky[0], sky[1]))

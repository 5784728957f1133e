# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Light the scene: sun, sky light, shadows on the ground, fog, and the sky itself.

Colours in textures are as a screen shows them; light adds up after squaring them, and the
sensor turns it back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.shapes import Body, slab
from vjepa_ros.lab.world.rendering.surface import Surface
from vjepa_ros.lab.world.scenes.scene import BOX, CARD, CYLINDER

_PENUMBRA_M = 0.12   # a shadow is full where the sun ray is this long inside the body
_CONTACT = 0.62      # how dark the ground gets under a body that touches it
CONTACT_REACH_M = 0.5  # a body higher above the ground than this darkens it only by the sun


class Light(NamedTuple):
    """Light of each scene; all (B, 1, 1, 1) or (B, 1, 1, 1, 3)."""

    sun_x: Tensor
    sun_y: Tensor
    sun_z: Tensor
    sun: Tensor
    ambient: Tensor
    shadow: Tensor
    fog: Tensor
    fog_color: Tensor
    sky_top: Tensor
    sky_horizon: Tensor
    clouds: Tensor     # 1 where the sky has a texture


def contact_width(half_height: Tensor) -> Tensor:
    """How far beside a body the ground is darkened [m]."""
    return 0.1 + 0.3 * (2 * half_height).clamp(max=1.0)


def cast(kind: int, b: Body, gx: Tensor, gz: Tensor, camera_y: Tensor,
         towards: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Share (0..1) of sunlight and of sky light that a body takes from ground points.

    ``gx, gz`` are the points relative to the camera [m], ``towards`` the sun's direction, both
    in world axes.
    """
    sun_x, sun_y, sun_z = towards
    # The ground point seen from the body's centre, in its own axes.
    wx, wz = gx + b.wx, gz + b.wz
    wy = b.wy - camera_y
    ox, oz = b.c * wx - b.s * wz, b.s * wx + b.c * wz
    lx = b.c * sun_x - b.s * sun_z
    lz = b.s * sun_x + b.c * sun_z
    hx, hz = b.hx, b.hz
    if kind == CYLINDER:
        hz = hx
    if kind == CARD:
        hx, hz = 0.7 * hx, torch.full_like(hx, 0.12)
    if kind == BOX:
        x0, x1 = slab(ox, 1 / (lx + 1e-6), hx)
        z0, z1 = slab(oz, 1 / (lz + 1e-6), hz)
        y0, y1 = slab(wy, 1 / (sun_y - 1e-6), b.hy)
        near = torch.maximum(torch.maximum(x0, y0), z0).clamp(min=0)
        chord = torch.minimum(torch.minimum(x1, y1), z1) - near
    elif kind == CYLINDER:
        flat = lx * lx + lz * lz + 1e-6
        beside = ox * lz - oz * lx
        room = flat * (hx * hx) - beside * beside
        reach = torch.sqrt(room.clamp(min=0)) / flat
        middle = -(ox * lx + oz * lz) / flat
        y0, y1 = slab(wy, 1 / (sun_y - 1e-6), b.hy)
        near = torch.maximum(middle - reach, y0).clamp(min=0)
        chord = torch.minimum(middle + reach, y1) - near
        chord = torch.where(room > 0, chord, torch.zeros_like(chord))
    else:
        ix, iy, iz = 1 / hx, 1 / b.hy, 1 / hz
        ax, ay, az = lx * ix, sun_y * iy, lz * iz
        qx, qy, qz = ox * ix, wy * iy, oz * iz
        a = ax * ax + ay * ay + az * az
        along = qx * ax + qy * ay + qz * az
        room = along * along - a * (qx * qx + qy * qy + qz * qz - 1)
        chord = torch.where(along < 0, 2 * torch.sqrt(room.clamp(min=0)) / a,
                            torch.zeros_like(room))
    soft = (chord * (1 / _PENUMBRA_M)).clamp(0, 1)

    beside_x, beside_z = (ox.abs() - hx).clamp(min=0), (oz.abs() - hz).clamp(min=0)
    width = contact_width(b.hy)
    near2 = (beside_x * beside_x + beside_z * beside_z) / (width * width)
    bottom = -wy_bottom(b, camera_y)
    lift = (1 - bottom.clamp(min=0) / CONTACT_REACH_M).clamp(min=0)
    alive = b.alive.float()
    return soft * alive, alive * lift * _CONTACT / (1 + 3 * near2) ** 2


def wy_bottom(b: Body, camera_y: Tensor) -> Tensor:
    """World y of a body's lowest point (negative above the ground)."""
    return camera_y - b.wy + b.hy


def sky_place(dx: Tensor, dy: Tensor, dz: Tensor, focal: Tensor,
              size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Texture place and levels of clouds in a flat layer overhead."""
    length = torch.rsqrt(dx * dx + dy * dy + dz * dz)
    up = (-dy * length).clamp(min=0) + 0.12
    scale = 0.28 * length / up
    per_pixel = size * scale / focal
    level_u = torch.log2(per_pixel)
    return dx * scale, dz * scale, level_u, level_u - torch.log2(up)


def lit(surface: Surface, sunlit: Tensor, open_sky: Tensor, height: Tensor,
        light: Light) -> Tensor:
    """Light on a surface.

    ``sunlit`` and ``open_sky`` (0..1) say what shadows leave; ``height`` above the ground [m].
    """
    towards = (surface.nx * light.sun_x + surface.ny * light.sun_y
               + surface.nz * light.sun_z).clamp(min=0)
    # Less of the sky is seen by what looks down, and less near the ground.
    from_above = 0.86 - 0.14 * surface.ny
    low = 1 - 0.3 * (1 - surface.ny.abs()) * torch.exp(-4 * height)
    return light.ambient * from_above * low * open_sky + light.sun * towards * sunlit


def sky_colour(unit_y: Tensor, texture: Tensor, light: Light) -> list[Tensor]:
    """Light of the sky, three planes, for directions with vertical part ``unit_y`` (negative
    up)."""
    up = (-unit_y).clamp(min=0)
    share = torch.sqrt(1.6 * up).clamp(max=1)
    cover = texture[..., 3] * light.clouds * (6 * up).clamp(max=1)
    low, high = light.sky_horizon ** 2, light.sky_top ** 2
    return [torch.lerp(low[..., c] + share * (high - low)[..., c], texture[..., c], cover)
            for c in range(3)]

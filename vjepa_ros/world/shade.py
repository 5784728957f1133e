# SPDX-License-Identifier: Apache-2.0
"""Light the scene: sun, sky light, shadows on the ground, fog, and the sky itself.

Colours in textures are as a screen shows them; light adds up after squaring them, and the
sensor turns it back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vjepa_ros.world.scene import BOX, CARD, CYLINDER
from vjepa_ros.world.shapes import Body, slab
from vjepa_ros.world.surface import Surface

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


class Shadow(NamedTuple):
    """What the shadow of a body needs that is the same for all rays; fields as in `Body`.

    On a GPU a reciprocal for each ray and shape takes longer than the rest of its shadow.

    ``wx, wz, c, s`` as in `Body`; ``hx, hz`` half sizes of the ground darkened around it.
    ``x, z`` the sun's direction in the body's axes: per size for ellipsoids and cards, as it is
    for cylinders, its reciprocal for boxes. ``a, b`` by kind: of boxes and cylinders the
    nearest and farthest distance at which a sun ray is between bottom and top, of the others
    the vertical part of the ray's origin times its direction, and its square less one.
    ``ix, iz`` reciprocal half sizes, of cylinders the square of the half width and the
    reciprocal of ``flat``; ``flat`` squared length of the sun's direction in units of the body,
    ``contact`` reciprocal squared width of the darkened ground, ``dark`` the most it takes from
    the sky, ``alive`` 0 or 1.
    """

    wx: Tensor
    wz: Tensor
    c: Tensor
    s: Tensor
    hx: Tensor
    hz: Tensor
    x: Tensor
    z: Tensor
    a: Tensor
    b: Tensor
    ix: Tensor
    iz: Tensor
    flat: Tensor
    inverse_flat: Tensor
    contact: Tensor
    dark: Tensor
    alive: Tensor


def shadow_of(kind: int, b: Body, camera_y: Tensor,
              towards: tuple[Tensor, Tensor, Tensor]) -> Shadow:
    """The part of `cast` that is the same for all ground points.

    ``towards`` is the sun's direction in world axes.
    """
    sun_x, sun_y, sun_z = towards
    wy = b.wy - camera_y
    lx = b.c * sun_x - b.s * sun_z
    lz = b.s * sun_x + b.c * sun_z
    hx, hz = b.hx, b.hz
    if kind == CYLINDER:
        hz = hx
    if kind == CARD:
        hx, hz = 0.7 * hx, torch.full_like(hx, 0.12)
    ix, iz = 1 / hx, 1 / hz
    if kind in (BOX, CYLINDER):
        first, second = slab(wy, 1 / (sun_y - 1e-6), b.hy)
        flat = lx * lx + lz * lz + 1e-6
        if kind == BOX:
            lx, lz = 1 / (lx + 1e-6), 1 / (lz + 1e-6)
        else:
            ix = hx * hx
    else:
        iy = 1 / b.hy
        lx, ly, lz = lx * ix, sun_y * iy, lz * iz
        flat = lx * lx + ly * ly + lz * lz
        up = wy * iy
        first, second = up * ly, up * up - 1
    width = contact_width(b.hy)
    alive = b.alive.float()
    bottom = -wy_bottom(b, camera_y)
    lift = (1 - bottom.clamp(min=0) / CONTACT_REACH_M).clamp(min=0)
    fields = (b.wx, b.wz, b.c, b.s, hx, hz, lx, lz, first, second, ix, iz, flat, 1 / flat,
              1 / (width * width), alive * lift * _CONTACT, alive)
    return Shadow(*torch.broadcast_tensors(*fields))


def cast(kind: int, b: Shadow, gx: Tensor, gz: Tensor) -> tuple[Tensor, Tensor]:
    """Share (0..1) of sunlight and of sky light that a body takes from ground points.

    ``gx, gz`` are the points relative to the camera in world axes [m].
    """
    # The ground point seen from the body's centre, in its own axes.
    wx, wz = gx + b.wx, gz + b.wz
    ox, oz = b.c * wx - b.s * wz, b.s * wx + b.c * wz
    if kind == BOX:
        x0, x1 = slab(ox, b.x, b.hx)
        z0, z1 = slab(oz, b.z, b.hz)
        near = torch.maximum(torch.maximum(x0, b.a), z0).clamp(min=0)
        chord = torch.minimum(torch.minimum(x1, b.b), z1) - near
    elif kind == CYLINDER:
        beside = ox * b.z - oz * b.x
        room = b.flat * b.ix - beside * beside
        reach = torch.sqrt(room.clamp(min=0)) * b.inverse_flat
        middle = -(ox * b.x + oz * b.z) * b.inverse_flat
        near = torch.maximum(middle - reach, b.a).clamp(min=0)
        chord = torch.minimum(middle + reach, b.b) - near
        chord = torch.where(room > 0, chord, torch.zeros_like(chord))
    else:
        qx, qz = ox * b.ix, oz * b.iz
        along = qx * b.x + b.a + qz * b.z
        room = along * along - b.flat * (qx * qx + b.b + qz * qz)
        chord = torch.where(along < 0, 2 * torch.sqrt(room.clamp(min=0)) * b.inverse_flat,
                            torch.zeros_like(room))
    soft = (chord * (1 / _PENUMBRA_M)).clamp(0, 1)

    beside_x, beside_z = (ox.abs() - b.hx).clamp(min=0), (oz.abs() - b.hz).clamp(min=0)
    near2 = (beside_x * beside_x + beside_z * beside_z) * b.contact
    fall = 1 / (1 + 3 * near2)
    return soft * b.alive, b.dark * (fall * fall)


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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where rays meet boxes, cylinders, ellipsoids, cards and coverings, and the light there.

Rays start at the camera and have direction (dx, dy, dz) in world axes, (B, T, H, W) or a cut-out
of it; what belongs to a shape has shape (B, T, 1, 1). All bodies are convex: a ray is inside from
``near`` to ``far`` and misses where near >= far. The ground is the last box but one of the table,
its top the plane y = 0; the sky is the last row. Light is the square of what a texture shows.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import BOX, CARD, COVERING, CYLINDER, ELLIPSOID

NEAREST_M = 0.02   # nothing nearer than this is drawn
_ABOVE = 1e-6      # a covering is nearer than the ground by this part of the depth
_TINY = 1e-20      # keeps reciprocals finite; the slab test stays right


# Rays in world axes, and what several tests need of them: flat = dx^2 + dz^2.
Directions = namedtuple('Directions', 'dx dy dz inverse_y flat inverse_flat')
# A shape in each frame, (B, T, 1, 1) each: camera minus centre in world axes (w) and in the
# shape's own (o; the vertical is common), cosine and sine of its yaw, half sizes.
Body = namedtuple('Body', 'wx wy wz ox oz c s hx hy hz alive')
# What rays hit: depth [m] and number of the shape; K is the ground, K + 1 the sky.
Hits = namedtuple('Hits', 'rays directions depth number')
# Per pixel: unit normal in world axes, place in the texture and levels there, the texture's cell.
Surface = namedtuple('Surface', 'nx ny nz u v level_u level_v origin')
# Light of each scene, (B, 1, 1, 1) or (B, 1, 1, 1, 3); clouds: 1 where the sky has a texture.
Light = namedtuple('Light', 'sun_x sun_y sun_z sun ambient shadow fog fog_color sky_top '
                   'sky_horizon clouds')
# Tangent plane of a hit in its shape's axes: normal up to its sign, the direction (ux, 0, uz)
# along which u runs, place and repeats per metre of the texture.
_Tangent = namedtuple('_Tangent', 'mx my mz ux uz u su')


# What shading needs of each shape, (B, T, K + 2), then of ground and sky: yaw; camera in the
# shape's axes; inverse half sizes; repeats of the texture per metre along the axes, and around a
# round shape; tint; the texture's cell in the atlas; 1 for cylinders, for cylinders and
# ellipsoids, and for cards.
Table = namedtuple('Table', 'c s ox oy oz ix iy iz rx ry rz around red green blue column row cap '
                   'round card')


def picker(index: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that gives each pixel the value of its own shape."""
    flat = index.flatten(2)
    return lambda field: field.gather(2, flat).view(index.shape)


def directions(dx: Tensor, dy: Tensor, dz: Tensor) -> Directions:
    flat = dx * dx + dz * dz
    return Directions(dx, dy, dz, 1 / (dy + _TINY), flat, 1 / (flat + _TINY))


def slab(origin: Tensor, inverse: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays pass between two planes at -half and +half."""
    middle = -origin * inverse
    reach = half * inverse.abs()
    return middle - reach, middle + reach


def box(d: Directions, b: Body) -> tuple[Tensor, Tensor]:
    lx = b.c * d.dx - b.s * d.dz
    lz = b.s * d.dx + b.c * d.dz
    x0, x1 = slab(b.ox, 1 / (lx + _TINY), b.hx)
    y0, y1 = slab(b.wy, d.inverse_y, b.hy)
    z0, z1 = slab(b.oz, 1 / (lz + _TINY), b.hz)
    return (torch.maximum(torch.maximum(x0, y0), z0), torch.minimum(torch.minimum(x1, y1), z1))


def cylinder(d: Directions, b: Body) -> tuple[Tensor, Tensor]:
    # The distance of the ray's line from the axis, not b^2 - ac: thin posts far away would
    # drown in rounding.
    beside = b.wx * d.dz - b.wz * d.dx
    room = d.flat * (b.hx * b.hx) - beside * beside
    reach = torch.sqrt(room.clamp(min=0)) * d.inverse_flat
    middle = -(b.wx * d.dx + b.wz * d.dz) * d.inverse_flat
    y0, y1 = slab(b.wy, d.inverse_y, b.hy)
    near = torch.maximum(middle - reach, y0)
    far = torch.minimum(middle + reach, y1)
    return near, torch.where(room > 0, far, -torch.inf)


def ellipsoid(d: Directions, b: Body) -> tuple[Tensor, Tensor]:
    ix, iy, iz = 1 / b.hx, 1 / b.hy, 1 / b.hz
    lx = (b.c * ix) * d.dx - (b.s * ix) * d.dz
    ly = d.dy * iy
    lz = (b.s * iz) * d.dx + (b.c * iz) * d.dz
    ox, oy, oz = b.ox * ix, b.wy * iy, b.oz * iz
    a = lx * lx + ly * ly + lz * lz
    u, v, w = oy * lz - oz * ly, oz * lx - ox * lz, ox * ly - oy * lx
    room = a - (u * u + v * v + w * w)
    inverse = 1 / a
    reach = torch.sqrt(room.clamp(min=0)) * inverse
    middle = -(ox * lx + oy * ly + oz * lz) * inverse
    return middle - reach, torch.where(room > 0, middle + reach, -torch.inf)


def card(d: Directions, b: Body) -> tuple[Tensor, Tensor, Tensor]:
    """Depth of the card's plane (inf beside the card), and where it is hit (-1..1, -1..1)."""
    lz = b.s * d.dx + b.c * d.dz
    t = -b.oz / (lz + _TINY)
    x = (b.ox + t * (b.c * d.dx - b.s * d.dz)) / b.hx
    y = (b.wy + t * d.dy) / b.hy
    inside = torch.maximum(x.abs(), y.abs()) < 1
    return torch.where(inside, t, torch.inf), x, y


def covering(d: Directions, b: Body) -> Tensor:
    """Return the depth at which rays meet a covering, a little before the ground."""
    t = -(b.wy + b.hy) * d.inverse_y
    beside = torch.maximum((b.ox + t * (b.c * d.dx - b.s * d.dz)).abs() - b.hx,
                           (b.oz + t * (b.s * d.dx + b.c * d.dz)).abs() - b.hz)
    return torch.where((beside < 0) & (t > NEAREST_M) & b.alive, t * (1 - _ABOVE), torch.inf)


_SOLID = {BOX: box, CYLINDER: cylinder, ELLIPSOID: ellipsoid}


def hit(kind: int, d: Directions, b: Body) -> Tensor:
    """Depth at which rays enter a body, inf where they miss it or start inside."""
    if kind == COVERING:
        return covering(d, b)
    near, far = _SOLID[kind](d, b)
    return torch.where((near < far) & (near > NEAREST_M) & b.alive, near, torch.inf)


_GRAZING = 0.02  # a surface seen edge-on shrinks without end; levels need not


def _half_log2(x: Tensor) -> Tensor:
    return 0.5 * torch.log2(x + 1e-12)


def _bend(flat: _Tangent, table: Table, index: Tensor, p: tuple[Tensor, Tensor, Tensor],
          cap: Tensor) -> _Tangent:
    """Cylinders and ellipsoids: normal and texture of their round parts."""
    pick = picker(index)
    px, py, pz = p
    ix, iy, iz = pick(table.ix), pick(table.iy), pick(table.iz)
    round_part = (pick(table.round) > 0) & ~cap
    mx, mz = px * ix * ix, pz * iz * iz
    my = py * iy * iy * (1 - pick(table.cap))
    unit = torch.rsqrt(mx * mx + my * my + mz * mz + 1e-20)
    inverse = torch.rsqrt(px * px + pz * pz + 1e-12)
    around = pick(table.around) * (1 / (2 * math.pi))
    bent = (mx * unit, my * unit, mz * unit, pz * inverse, -px * inverse,
            torch.atan2(px, -pz) * around, around * inverse)
    return _Tangent(*(torch.where(round_part, new, old)
                      for old, new in zip(flat, bent, strict=True)))


def locate(table: Table, hits: Hits, focal: Tensor, rotation: Tensor, size: int,
           curved: bool, cards: bool) -> Surface:
    """Find the surface that each ray hits, whether or not curved shapes and cards are there."""
    rays, d, t, index = hits
    pick = picker(index)
    c, s = pick(table.c), pick(table.s)
    lx, lz = c * d.dx - s * d.dz, s * d.dx + c * d.dz
    px = pick(table.ox) + t * lx
    py = pick(table.oy) + t * d.dy
    pz = pick(table.oz) + t * lz
    ax, ay, az = ((p * pick(i)).abs() for p, i in ((px, table.ix), (py, table.iy), (pz, table.iz)))
    flat_y = ay > torch.maximum(ax, az)
    cap = flat_y
    if curved:
        # The cap of a cylinder is where its height, not its radius, is reached.
        cap = (pick(table.cap) > 0) & (ay * ay > ax * ax + az * az)
        flat_y = torch.where(pick(table.round) > 0, cap, flat_y)
    # Arithmetic instead of choices: it is several times faster on the CPU.
    on_y = flat_y.float()
    on_x = (ax > az).float() * (1 - on_y)
    on_z = 1 - on_x - on_y
    rx, ry, rz = pick(table.rx), pick(table.ry), pick(table.rz)
    su = rx + on_x * (rz - rx)
    sv = ry + on_y * (rz - ry)
    v = (py - on_y * (pz + py)) * sv
    # Seen from outside u leads to the right and v down; a card is mirrored from behind.
    side = torch.sign(on_x * lx + on_z * lz) * (on_z - on_x) + on_y
    if cards:
        side = side + pick(table.card) * (1 - side)
    u = (px + on_x * (pz - px)) * su * side
    at = _Tangent(on_x, on_y, on_z, 1 - on_x, on_x, u, su)
    if curved:
        at = _bend(at, table, index, (px, py, pz), cap)

    # How far the hit moves over the surface from one pixel to the next, on its tangent plane.
    ahead = at.mx * lx + at.my * d.dy + at.mz * lz
    sign = torch.sign(ahead)
    inverse = 1 / (ahead + _GRAZING * sign + 1e-9)
    u_ray = at.ux * lx + at.uz * lz
    v_ray = d.dy + on_y * (lz - d.dy)
    areas = []
    for axis in (0, 1):
        wx, wy, wz = (rotation[:, :, axis, i, None, None] / focal[..., axis] for i in range(3))
        ex, ez = c * wx - s * wz, s * wx + c * wz
        slip = (at.mx * ex + at.my * wy + at.mz * ez) * inverse
        du = at.ux * ex + at.uz * ez - u_ray * slip
        dv = wy + on_y * (ez - wy) - v_ray * slip
        areas.append((du * du, dv * dv))
    step = t * rays.spread * size
    level_u = _half_log2((areas[0][0] + areas[1][0]) * (step * at.su) ** 2)
    level_v = _half_log2((areas[0][1] + areas[1][1]) * (step * sv) ** 2)
    mx, mz = -sign * at.mx, -sign * at.mz
    return Surface(c * mx + s * mz, -sign * at.my, c * mz - s * mx, at.u + 0.5, v + 0.5,
                   level_u, level_v, (pick(table.column), pick(table.row)))


_PENUMBRA_M = 0.12   # a shadow is full where the sun ray is this long inside the body
_CONTACT = 0.62      # how dark the ground gets under a body that touches it
CONTACT_REACH_M = 0.5  # a body higher above the ground than this darkens it only by the sun


def cast(kind: int, b: Body, gx: Tensor, gz: Tensor, camera_y: Tensor,
         towards: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Shares (0..1) of sunlight and sky light that a body takes from ground points gx, gz [m]."""
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
    width = 0.1 + 0.3 * (2 * b.hy).clamp(max=1.0)     # beside a body the ground is darker [m]
    near2 = (beside_x * beside_x + beside_z * beside_z) / (width * width)
    bottom = -(camera_y - b.wy + b.hy)
    lift = (1 - bottom.clamp(min=0) / CONTACT_REACH_M).clamp(min=0)
    alive = b.alive.float()
    return soft * alive, alive * lift * _CONTACT / (1 + 3 * near2) ** 2


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
    """Light on a surface at a height [m]; what shadows leave is 0..1."""
    towards = (surface.nx * light.sun_x + surface.ny * light.sun_y
               + surface.nz * light.sun_z).clamp(min=0)
    # Less of the sky is seen by what looks down, and less near the ground.
    from_above = 0.86 - 0.14 * surface.ny
    low = 1 - 0.3 * (1 - surface.ny.abs()) * torch.exp(-4 * height)
    return light.ambient * from_above * low * open_sky + light.sun * towards * sunlit


def sky_colour(unit_y: Tensor, texture: Tensor, light: Light) -> list[Tensor]:
    """Three planes of light of the sky; ``unit_y`` is the vertical part, up negative."""
    up = (-unit_y).clamp(min=0)
    share = torch.sqrt(1.6 * up).clamp(max=1)
    cover = texture[..., 3] * light.clouds * (6 * up).clamp(max=1)
    low, high = light.sky_horizon ** 2, light.sky_top ** 2
    return [torch.lerp(low[..., c] + share * (high - low)[..., c], texture[..., c], cover)
            for c in range(3)]

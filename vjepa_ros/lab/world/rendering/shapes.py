# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where rays meet boxes, cylinders, ellipsoids, cards and coverings of the ground.

Rays start at the camera and have direction (dx, dy, dz) in world axes, fields of shape
(B, T, H, W) or a cut-out of it; what belongs to a shape has shape (B, T, 1, 1). All bodies are
convex: a ray is inside from ``near`` to ``far`` and misses where near >= far.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import BOX, COVERING, CYLINDER, ELLIPSOID

NEAREST_M = 0.02   # nothing nearer than this is drawn
FULL = (slice(None), slice(None))  # all rows and columns
_ABOVE = 1e-6      # a covering is nearer than the ground by this part of the depth
_TINY = 1e-20      # keeps reciprocals finite; the slab test stays right


class Directions(NamedTuple):
    """Directions of rays in world axes and what several tests need of them."""

    dx: Tensor
    dy: Tensor
    dz: Tensor
    inverse_y: Tensor
    flat: Tensor           # dx^2 + dz^2
    inverse_flat: Tensor

    def cut(self, window: tuple[slice, slice] | None) -> Directions:
        """Return the rays within a window (rows, columns)."""
        if window is None:
            return self
        return Directions(*(field[..., window[0], window[1]] for field in self))


class Body(NamedTuple):
    """One shape in each frame: the camera seen from it, its turn and size; (B, T, 1, 1) each.

    ``wx, wy, wz`` camera minus centre in world axes; ``ox, oz`` the same in the shape's own
    axes (vertical is common); ``c, s`` cosine and sine of its yaw; ``hx, hy, hz`` half sizes.
    """

    wx: Tensor
    wy: Tensor
    wz: Tensor
    ox: Tensor
    oz: Tensor
    c: Tensor
    s: Tensor
    hx: Tensor
    hy: Tensor
    hz: Tensor
    alive: Tensor


def directions(dx: Tensor, dy: Tensor, dz: Tensor) -> Directions:
    """Return directions with what all shapes need of them."""
    flat = dx * dx + dz * dz
    return Directions(dx, dy, dz, 1 / (dy + _TINY), flat, 1 / (flat + _TINY))


def slab(origin: Tensor, inverse: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays pass between two planes at -half and +half."""
    middle = -origin * inverse
    reach = half * inverse.abs()
    return middle - reach, middle + reach


def box(d: Directions, b: Body) -> tuple[Tensor, Tensor]:
    """Return the depths at which rays enter and leave a box, by its slabs."""
    lx = b.c * d.dx - b.s * d.dz
    lz = b.s * d.dx + b.c * d.dz
    x0, x1 = slab(b.ox, 1 / (lx + _TINY), b.hx)
    y0, y1 = slab(b.wy, d.inverse_y, b.hy)
    z0, z1 = slab(b.oz, 1 / (lz + _TINY), b.hz)
    return (torch.maximum(torch.maximum(x0, y0), z0), torch.minimum(torch.minimum(x1, y1), z1))


def cylinder(d: Directions, b: Body) -> tuple[Tensor, Tensor]:
    """Return the depths at which rays enter and leave an upright cylinder."""
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
    """Return the depths at which rays enter and leave an ellipsoid."""
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

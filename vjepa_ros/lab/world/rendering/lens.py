# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn pixels into viewing rays and points into pixels, through a lens with distortion.

A ray is scaled so that its part along the optical axis is 1: the distance along it is then the
depth. Distorted = undistorted * (1 + k1 r^2 + k2 r^4), r the distance from the axis at depth 1.
A wide lens is bent before: at the angle a from the axis it has r = tan(s a) / s instead of tan a,
which is a straight lens for s = 1, a stereographic one for 1/2, and nearly equidistant for 0.05.

The rows of a rolling shutter are exposed one after the other while the camera turns. Their rays
are given in the axes that the camera has at the stamp, the time of the middle row.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import Scenes

_STEPS = 7  # Newton steps; a strong wide-angle lens needs five for float32


class Rays(NamedTuple):
    """Viewing rays (x, y, 1) in camera axes.

    ``x``, ``y`` have any shape; ``spread`` says how far apart neighbouring rays are, relative
    to a lens without distortion.
    """

    x: Tensor
    y: Tensor
    spread: Tensor


def undistort(x: Tensor, y: Tensor, k1: Tensor, k2: Tensor) -> Rays:
    """Rays of distorted normalised image coordinates.

    The lens must be monotone within the image: 1 + 3 k1 r^2 + 5 k2 r^4 > 0 up to the corner.
    """
    seen = torch.sqrt(x * x + y * y)
    r = seen
    for _ in range(_STEPS):
        r2 = r * r
        slope = 1 + r2 * (3 * k1 + 5 * k2 * r2)
        r = r - (r * (1 + r2 * (k1 + k2 * r2)) - seen) / slope.clamp(min=0.05)
    r2 = r * r
    along = 1 / (1 + r2 * (k1 + k2 * r2)).clamp(min=0.05)
    across = 1 / (1 + r2 * (3 * k1 + 5 * k2 * r2)).clamp(min=0.05)
    return Rays(x * along, y * along, torch.sqrt(along * across))


def bent(rays: Rays, bend: Tensor) -> Rays:
    """Rays through a wide lens of rays through a straight one.

    `bend` is s (...), above 0 and at most 1; all angles must be below 90 degrees.
    """
    r = torch.sqrt(rays.x * rays.x + rays.y * rays.y).clamp(min=1e-6)
    out = torch.tan(torch.atan(bend * r) / bend)
    along = out / r
    across = (1 + out * out) / (1 + (bend * r).square())
    return Rays(rays.x * along, rays.y * along, rays.spread * torch.sqrt(along * across))


def pixel_rays(intrinsics: Tensor, distortion: Tensor, columns: Tensor, rows: Tensor,
               bend: Tensor | None = None) -> Rays:
    """Rays of pixels.

    `intrinsics, distortion`: (B, 4), (B, 2); `columns, rows`: pixel coordinates that broadcast
    against each other, (H, W) or the like; `bend`: (B,) see `bent`.
    """
    fx, fy, cx, cy, k1, k2 = (v[:, None, None, None] for v in
                              torch.cat((intrinsics, distortion), 1).unbind(1))
    x, y = torch.broadcast_tensors((columns - cx) / fx, (rows - cy) / fy)
    rays = undistort(x, y, k1, k2)
    return rays if bend is None else bent(rays, bend.view(-1, 1, 1, 1))


def bars(shown: Tensor, height: int) -> Tensor:
    """Tell which rows are bars, (B, height) bool, where a share (B,) of them shows the view."""
    count = torch.round(shown * height)[:, None]
    first = torch.floor((height - count) / 2)
    rows = torch.arange(height, device=shown.device)
    return (rows < first) | (rows >= first + count)


def rotation_of(vector: Tensor) -> Tensor:
    """Matrix (..., 3, 3) that turns about a vector (..., 3) by its length [rad], right-handed."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))
    angle = vector.norm(dim=-1)[..., None, None]
    # Rodrigues' formula with quotients that stay exact at small angles.
    return (torch.eye(3, device=vector.device) + torch.sinc(angle / math.pi) * cross
            + 0.5 * torch.sinc(angle / (2 * math.pi)).square() * (cross @ cross))


def row_turns(turn: Tensor, rows: Tensor, height: int) -> Tensor:
    """Turn of the axes of rows into those at the stamp, (B, T, ..., 3, 3).

    `turn`: (B, T, 3) of the camera from the first row to the last [rad].
    """
    share = rows / (height - 1) - 0.5
    return rotation_of(turn.view(*turn.shape[:2], *[1] * rows.ndim, 3) * share[..., None])


def rolled(rays: Rays, turn: Tensor, rows: Tensor, height: int) -> Rays:
    """Rays of rows of a rolling shutter, in the axes at the stamp, as in `row_turns`.

    `rows` (H, W), or (H, 1), broadcasts with the rays (B, 1, H, W).
    """
    m = row_turns(turn, rows, height)
    x, y, z = (m[..., i, 0] * rays.x + m[..., i, 1] * rays.y + m[..., i, 2] for i in range(3))
    return Rays(x / z, y / z, rays.spread.expand_as(x))


def image_rays(scenes: Scenes, size: tuple[int, int], frames: slice,
               shift: tuple[float, float] = (0.0, 0.0)) -> Rays:
    """Rays of all pixels of a frame of one scene on the CPU, ``shift`` beside their centres.

    (1, 1, H, W). Those of a lens are kept from call to call.
    """
    taken = scenes.capture
    values = (*scenes.intrinsics[0].tolist(), *scenes.distortion[0].tolist())
    rays = _kept_rays(values, size, shift, None if taken is None else float(taken.bend))
    if taken is None or float(taken.readout_s) == 0:
        return rays
    rows = torch.arange(size[1], dtype=torch.float32)[:, None] + shift[1]
    return rolled(rays, taken.turn[:, frames], rows, size[1])


def bend_turn(scenes: Scenes, frames: slice) -> tuple[Tensor | None, Tensor | None]:
    """Bend of the lenses and turn during the readout of some frames, as `all_rays` takes them."""
    taken = scenes.capture
    return (None, None) if taken is None else (taken.bend, taken.turn[:, frames])


def all_rays(intrinsics: Tensor, distortion: Tensor, size: tuple[int, int],
             shift: tuple[float, float] = (0.0, 0.0), bend: Tensor | None = None,
             turn: Tensor | None = None) -> Rays:
    """Rays of all pixels, a pure function of tensors.

    `intrinsics, distortion, bend, turn`: (B, 4), (B, 2), and from `bend_turn` (B,), (B, T, 3).
    """
    device = intrinsics.device
    columns = torch.arange(size[0], device=device, dtype=torch.float32) + shift[0]
    rows = torch.arange(size[1], device=device, dtype=torch.float32)[:, None] + shift[1]
    rays = pixel_rays(intrinsics, distortion, columns[None], rows, bend)
    return rays if turn is None else rolled(rays, turn, rows, size[1])


@lru_cache(maxsize=8)
def _kept_rays(values: tuple[float, ...], size: tuple[int, int],
               shift: tuple[float, float], bend: float | None) -> Rays:
    lens = torch.tensor([values])
    return all_rays(lens[:, :4], lens[:, 4:], size, shift,
                    None if bend is None else torch.tensor([bend]))


def project(points: Tensor, intrinsics: Tensor, distortion: Tensor,
            bend: Tensor | None = None) -> Tensor:
    """Pixels (..., 2) of points (..., 3) in camera axes with z > 0.

    ``intrinsics`` (..., 4), ``distortion`` (..., 2) and ``bend`` (...) broadcast with the points.
    """
    x, y = points[..., 0] / points[..., 2], points[..., 1] / points[..., 2]
    if bend is not None:
        r = torch.sqrt(x * x + y * y).clamp(min=1e-6)
        inward = torch.tan(bend * torch.atan(r)) / (bend * r)
        x, y = x * inward, y * inward
    r2 = x * x + y * y
    stretch = 1 + r2 * (distortion[..., 0] + distortion[..., 1] * r2)
    return torch.stack((intrinsics[..., 0] * x * stretch + intrinsics[..., 2],
                        intrinsics[..., 1] * y * stretch + intrinsics[..., 3]), -1)


def image_speed(x: Tensor, y: Tensor, vx: Tensor, vy: Tensor, intrinsics: Tensor,
                distortion: Tensor, bend: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Speed in the image [px/s] of rays (x, y, 1) that change by (vx, vy) per second."""
    if bend is not None:
        r = torch.sqrt(x * x + y * y).clamp(min=1e-6)
        inner = torch.tan(bend * torch.atan(r)) / bend
        along, out = inner / r, (x * vx + y * vy) / (r * r)
        # Outwards the lens shrinks by another factor than around the axis.
        across = (1 + (bend * inner).square()) / (1 + r * r)
        vx, vy = (along * v + (across - along) * out * p for v, p in ((vx, x), (vy, y)))
        x, y = x * along, y * along
    k1, k2 = distortion[..., 0], distortion[..., 1]
    r2 = x * x + y * y
    stretch = 1 + r2 * (k1 + k2 * r2)
    change = 2 * (x * vx + y * vy) * (k1 + 2 * k2 * r2)
    return (intrinsics[..., 0] * (vx * stretch + x * change),
            intrinsics[..., 1] * (vy * stretch + y * change))

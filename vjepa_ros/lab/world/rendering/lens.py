# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn pixels into viewing rays and points into pixels, through a lens with distortion.

A ray is scaled so that its part along the optical axis is 1: the distance along it is then the
depth. Distorted = undistorted * (1 + k1 r^2 + k2 r^4), r the distance from the axis at depth 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

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


def pixel_rays(intrinsics: Tensor, distortion: Tensor, columns: Tensor, rows: Tensor) -> Rays:
    """Rays of pixels.

    Parameters
    ----------
    intrinsics, distortion : Tensor
        (B, 4), (B, 2).
    columns, rows : Tensor
        Pixel coordinates that broadcast against each other, (H, W) or the like.

    Returns
    -------
    Rays of shape (B, 1, ...)
    """
    fx, fy, cx, cy, k1, k2 = (v[:, None, None, None] for v in
                              torch.cat((intrinsics, distortion), 1).unbind(1))
    x, y = torch.broadcast_tensors((columns - cx) / fx, (rows - cy) / fy)
    return undistort(x, y, k1, k2)


def image_rays(intrinsics: Tensor, distortion: Tensor, size: tuple[int, int],
               shift: tuple[float, float] = (0.0, 0.0)) -> Rays:
    """Rays of all pixels of an image, (B, 1, H, W), ``shift`` pixels beside their centres.

    One camera on the CPU keeps its rays from call to call.
    """
    if len(intrinsics) == 1 and intrinsics.device.type == 'cpu':
        values = (*intrinsics[0].tolist(), *distortion[0].tolist())
        return _kept_rays(values, size, shift)
    return all_rays(intrinsics, distortion, size, shift)


def all_rays(intrinsics: Tensor, distortion: Tensor, size: tuple[int, int],
             shift: tuple[float, float] = (0.0, 0.0)) -> Rays:
    """Return the same rays without keeping any: a pure function of tensors."""
    device = intrinsics.device
    columns = torch.arange(size[0], device=device, dtype=torch.float32) + shift[0]
    rows = torch.arange(size[1], device=device, dtype=torch.float32) + shift[1]
    return pixel_rays(intrinsics, distortion, columns[None], rows[:, None])


@lru_cache(maxsize=8)
def _kept_rays(values: tuple[float, ...], size: tuple[int, int],
               shift: tuple[float, float]) -> Rays:
    lens = torch.tensor([values])
    return all_rays(lens[:, :4], lens[:, 4:], size, shift)


def project(points: Tensor, intrinsics: Tensor, distortion: Tensor) -> Tensor:
    """Pixels (..., 2) of points (..., 3) in camera axes with z > 0.

    ``intrinsics`` (..., 4) and ``distortion`` (..., 2) broadcast with the points.
    """
    x, y = points[..., 0] / points[..., 2], points[..., 1] / points[..., 2]
    r2 = x * x + y * y
    stretch = 1 + r2 * (distortion[..., 0] + distortion[..., 1] * r2)
    return torch.stack((intrinsics[..., 0] * x * stretch + intrinsics[..., 2],
                        intrinsics[..., 1] * y * stretch + intrinsics[..., 3]), -1)


def image_speed(x: Tensor, y: Tensor, vx: Tensor, vy: Tensor, intrinsics: Tensor,
                distortion: Tensor) -> tuple[Tensor, Tensor]:
    """Speed in the image [px/s] of rays (x, y, 1) that change by (vx, vy) per second."""
    k1, k2 = distortion[..., 0], distortion[..., 1]
    r2 = x * x + y * y
    stretch = 1 + r2 * (k1 + k2 * r2)
    change = 2 * (x * vx + y * vy) * (k1 + 2 * k2 * r2)
    return (intrinsics[..., 0] * (vx * stretch + x * change),
            intrinsics[..., 1] * (vy * stretch + y * change))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw what is fixed to a camera and stands in its view: parts of its robot, dirt on its lens."""

from __future__ import annotations

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import Front

_SOFT_PARTS = 32         # across a picture as a drop on the lens shows it


def wide(planes: Tensor, size: int, steps: int) -> Tensor:
    """Planes (N, C, H, W) without details smaller than a size [px]."""
    small = torch.nn.functional.avg_pool2d(planes, size, ceil_mode=True)
    for _ in range(steps):
        small = torch.nn.functional.avg_pool2d(small, 3, 1, 1)
    return torch.nn.functional.interpolate(small, planes.shape[2:], mode='bilinear')


def _grid(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Places from -1 to 1 to the right (W) and down (H, 1)."""
    x, y = ((torch.arange(n, device=device) * 2 + 1) / n - 1 for n in (width, height))
    return x, y[:, None]


def part(bands: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """How much of each pixel bands (B, M, 11) cover, 0..1, and their shade, (B, H, W) each."""
    x, y = _grid(height, width, bands.device)
    cover = shade = bands.new_zeros(len(bands), height, width)
    for band in bands.unbind(1):
        cosine, sine, across, half, along, reach, bow, soft, light, stripes, pitch = (
            v[:, None, None] for v in band.unbind(-1))
        v = cosine * y - sine * x - along
        u = cosine * x + sine * y - across + bow * v * v
        inside = torch.minimum(half - u.abs(), reach - v.abs())
        own = (0.5 + inside / soft).clamp(0, 1)
        tone = light * (1 - 0.5 * (u / half.clamp(min=0.01)).square().clamp(max=1)) * (
            1 + stripes * torch.sign(torch.sin(pitch * (u + v))))
        shade = torch.lerp(shade, tone, own)
        cover = own + cover * (1 - own)
    return cover, shade


def _dirt(blobs: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of the light, and of what drops make of it, that pass; and light from dirt."""
    x, y = _grid(height, width, blobs.device)
    clear = blobs.new_ones(len(blobs), height, width)
    drops = shine = torch.zeros_like(clear)
    for blob in blobs.unbind(1):
        right, down, radius, soft, opacity, drop, light = (
            v[:, None, None] for v in blob.unbind(-1))
        off = ((x - right).square() + (y - down).square()).sqrt()
        own = opacity * ((radius - off) / (soft * radius)).clamp(0, 1)
        clear, drops = clear * (1 - own), torch.lerp(drops, drop, own)
        shine = torch.lerp(shine, light, own)
    return clear, drops, shine


def is_clear(front: Front) -> bool:
    """Whether nothing stands before the cameras; asks the device."""
    return not bool((front.bands[..., 3] > 0).any() | (front.blobs[..., 4] > 0).any())


def seen_past(light: Tensor, front: Front, frames: slice) -> Tensor:
    """Light (B, T, H, W, 3) that comes past a robot's part and through the dirt on a lens."""
    height, width = light.shape[2:4]
    cover, shade = part(front.bands, height, width)
    own = shade[:, None] * front.shine[:, frames, None, None]
    light = light * (1 - cover)[:, None, ..., None] + own[..., None]
    planes = light.flatten(0, 1).permute(0, 3, 1, 2)
    soft = wide(planes, max(2, width // _SOFT_PARTS), 1).permute(0, 2, 3, 1)
    clear, drops, shine = (v[:, None, ..., None] for v in _dirt(front.blobs, height, width))
    return light * clear + soft.unflatten(0, light.shape[:2]) * drops + shine

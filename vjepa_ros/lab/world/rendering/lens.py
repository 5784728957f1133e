# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lens and sensor of cameras: pixels to rays and back, and what they make of light.

A ray is scaled so that its part along the optical axis is 1: the distance along it is then the
depth. Distorted = undistorted * (1 + k1 r^2 + k2 r^4), r the distance from the axis at depth 1.
A wide lens is bent before: at the angle a from the axis it has r = tan(s a) / s instead of tan a,
which is a straight lens for s = 1, a stereographic one for 1/2, and nearly equidistant for 0.05.
Rays of a rolling shutter are in the axes that the camera has at the stamp, the time of the middle
row. Noise depends on the scene's seed and the frame's number only.
"""

from __future__ import annotations

import math
from collections import namedtuple
from functools import lru_cache

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.resize import LETTERBOX_RGB
from vjepa_ros.lab.world.rendering import front
from vjepa_ros.lab.world.scenes.scene import Capture, Scenes

_STEPS = 7  # Newton steps; a strong wide-angle lens needs five for float32

# Viewing rays (x, y, 1) in camera axes, and their spread against a straight lens.
Rays = namedtuple('Rays', 'x y spread')


def bent(rays: Rays, bend: Tensor) -> Rays:
    """Rays through a lens of bend 0..1 of rays through a straight one; below 90 degrees."""
    r = torch.sqrt(rays.x * rays.x + rays.y * rays.y).clamp(min=1e-6)
    out = torch.tan(torch.atan(bend * r) / bend)
    along = out / r
    across = (1 + out * out) / (1 + (bend * r).square())
    return Rays(rays.x * along, rays.y * along, rays.spread * torch.sqrt(along * across))


def pixel_rays(intrinsics: Tensor, distortion: Tensor, columns: Tensor, rows: Tensor,
               bend: Tensor | None = None) -> Rays:
    """Rays (B, 1, H, W) of pixels at columns and rows, for lenses (B, 4), (B, 2), (B,)."""
    fx, fy, cx, cy, k1, k2 = (v[:, None, None, None] for v in
                              torch.cat((intrinsics, distortion), 1).unbind(1))
    x, y = torch.broadcast_tensors((columns - cx) / fx, (rows - cy) / fy)
    seen = torch.sqrt(x * x + y * y)
    r = seen
    for _ in range(_STEPS):
        r2 = r * r
        slope = 1 + r2 * (3 * k1 + 5 * k2 * r2)
        r = r - (r * (1 + r2 * (k1 + k2 * r2)) - seen) / slope.clamp(min=0.05)
    r2 = r * r
    along = 1 / (1 + r2 * (k1 + k2 * r2)).clamp(min=0.05)
    across = 1 / (1 + r2 * (3 * k1 + 5 * k2 * r2)).clamp(min=0.05)
    rays = Rays(x * along, y * along, torch.sqrt(along * across))
    return rays if bend is None else bent(rays, bend.view(-1, 1, 1, 1))


def bars(shown: Tensor, height: int) -> Tensor:
    """Tell which rows are bars, (B, height) bool; a share (B,) of them shows the view."""
    count = torch.round(shown * height)[:, None]
    first = torch.floor((height - count) / 2)
    rows = torch.arange(height, device=shown.device)
    return (rows < first) | (rows >= first + count)


def cross_of(vector: Tensor) -> Tensor:
    """Matrix (..., 3, 3) of the cross product with a vector (..., 3)."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))


def rotation_of(vector: Tensor) -> Tensor:
    """Matrix (..., 3, 3) that turns about a vector (..., 3) by its length [rad], right-handed."""
    cross = cross_of(vector)
    angle = vector.norm(dim=-1)[..., None, None]
    # Rodrigues' formula with quotients that stay exact at small angles.
    return (torch.eye(3, device=vector.device) + torch.sinc(angle / math.pi) * cross
            + 0.5 * torch.sinc(angle / (2 * math.pi)).square() * (cross @ cross))


def row_turns(turn: Tensor, rows: Tensor, height: int) -> Tensor:
    """Turn the axes of rows into those at the stamp, (B, T, ..., 3, 3)."""
    share = rows / (height - 1) - 0.5
    return rotation_of(turn.view(*turn.shape[:2], *[1] * rows.ndim, 3) * share[..., None])


def rays_at(scenes: Scenes, frames: slice, columns: Tensor, rows: Tensor, height: int) -> Rays:
    taken = scenes.capture
    if taken is None:
        return pixel_rays(scenes.intrinsics, scenes.distortion, columns, rows)
    rays = pixel_rays(scenes.intrinsics, scenes.distortion, columns, rows, taken.bend)
    # Rows of a rolling shutter, in the axes at the stamp.
    m = row_turns(taken.turn[:, frames], rows, height)
    x, y, z = (m[..., i, 0] * rays.x + m[..., i, 1] * rays.y + m[..., i, 2] for i in range(3))
    return Rays(x / z, y / z, rays.spread.expand_as(x))


def all_rays(scenes: Scenes, frames: slice, size: tuple[int, int],
             shift: tuple[float, float] = (0.0, 0.0)) -> Rays:
    """Rays of all pixels, ``shift`` beside their centres; a pure function of tensors."""
    device = scenes.intrinsics.device
    columns = torch.arange(size[0], device=device, dtype=torch.float32) + shift[0]
    rows = torch.arange(size[1], device=device, dtype=torch.float32)[:, None] + shift[1]
    return rays_at(scenes, frames, columns[None], rows, size[1])


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


_NOISE = (1024, 4096)    # rows and columns of the table of noise
BAND_PIXELS = 32_000     # worked on at once where one frame is drawn on the CPU
_RADIUS = 5              # of the lens blur's kernel [px]
_MOST_BLUR_PX = 2.0
_LEAST_BLUR_PX = 0.15    # less is none
_MOST_GLARE = 20.0       # light above white that spreads
_GLARE_PARTS, _GLARE_STEPS = 48, 3   # of the width, and how often it spreads to the next
_FIXED = 1 << 20         # number of the frame whose noise is in all frames
_LUMA = (0.299, 0.587, 0.114)
_QUANTA = (  # how coarsely jpeg rounds each frequency of brightness
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56], [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99])
_COLOUR_QUANTA = (
    [17, 18, 24, 47, 99, 99, 99, 99], [18, 21, 26, 66, 99, 99, 99, 99],
    [24, 26, 56, 99, 99, 99, 99, 99], [47, 66, 99, 99, 99, 99, 99, 99], *[[99] * 8] * 4)


# Constants on a device: table of noise; cosines (8, 8), quanta (3, 8, 8) and turns of colours
# (3, 3) of jpeg; colour of bars.
Tables = namedtuple('Tables', 'noise cosines quanta turn back bars')


@lru_cache(maxsize=4)
def tables(device: torch.device) -> Tables:
    noise = torch.randn(_NOISE, generator=torch.Generator().manual_seed(20_240))
    at = torch.arange(8, dtype=torch.float64)
    cosines = torch.cos(math.pi / 8 * at[:, None] * (at[None] + 0.5)) * 0.5
    cosines[0] /= math.sqrt(2)
    quanta = torch.stack([torch.tensor(t, dtype=torch.float32)
                          for t in (_QUANTA, _COLOUR_QUANTA, _COLOUR_QUANTA)])
    turn = torch.tensor([_LUMA, (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312)])
    back = torch.linalg.inv(turn)
    colour = torch.tensor(LETTERBOX_RGB)
    return Tables(*(t.float().to(device) for t in (noise, cosines, quanta, turn, back, colour)))


def blurred(light: Tensor, sigma: Tensor) -> Tensor:
    wide = sigma.clamp(_LEAST_BLUR_PX, _MOST_BLUR_PX).reshape(len(light), -1, 1, 1, 1)
    weights = [torch.exp(-0.5 * (i / wide) ** 2) for i in range(_RADIUS + 1)]
    total = weights[0] + 2 * sum(weights[1:])
    for axis in (2, 3):
        length = light.shape[axis]
        at = torch.arange(length, device=light.device)
        out = light * (weights[0] / total)
        for i in range(1, _RADIUS + 1):
            sides = (light.index_select(axis, (at - i).clamp(min=0))
                     + light.index_select(axis, (at + i).clamp(max=length - 1)))
            out = out + sides * (weights[i] / total)
        light = out
    return light


def _noise(table: Tensor, seed: Tensor, frames: Tensor, size: tuple[int, int],
           rows: slice) -> Tensor:
    """Noise (B, T, rows, W, 3) from parts of one table, chosen by seed and frame."""
    width, height = size
    down_all, across_all = table.shape
    key = (seed[:, None] * 7_919 + frames[None] * 104_729 + 12_345) * 2_654_435_761
    mixed = key & 0x7FFF_FFFF_FFFF   # a cheap hash: of a product the upper bits count
    down = (mixed >> 17) % max(1, down_all - height)
    across = (mixed >> 29) % max(1, across_all - 3 * width)
    y = torch.arange(height, device=seed.device)[rows] + down[..., None]
    x = torch.arange(3 * width, device=seed.device) + across[..., None]
    at = (y % down_all * across_all)[..., :, None] + (x % across_all)[..., None, :]
    return table.view(-1)[at].unflatten(-1, (width, 3))


def compressed(image: Tensor, strength: Tensor, constant: Tables) -> Tensor:
    """(B, T, H, W, 3) grey levels as after jpeg of ``strength`` (B,) 0..1; 0 changes nothing."""
    height, width = image.shape[2:4]
    planes = (image - 128) @ constant.turn.T
    planes = planes.permute(0, 1, 4, 2, 3).flatten(0, 1)              # BT 3 H W
    pad = (0, -width % 8, 0, -height % 8)
    planes = torch.nn.functional.pad(planes, pad, 'replicate')
    blocks = planes.unflatten(3, (-1, 8)).unflatten(2, (-1, 8))       # BT 3 h 8 w 8
    # One direction after the other, as products with many rows and an 8 x 8 matrix.
    turned = (blocks @ constant.cosines.T).transpose(3, 5)
    waves = (turned @ constant.cosines.T).unflatten(0, image.shape[:2])  # .. h across w down
    # Quality 95 at strength 0, about 25 at strength 1.
    scale = (0.1 * 20 ** strength).view(-1, 1, 1, 1, 1, 1, 1)
    step = (constant.quanta.transpose(1, 2)[:, None, :, None] * scale).clamp(min=1)
    waves = torch.round(waves / step) * step
    blocks = (waves @ constant.cosines).transpose(4, 6) @ constant.cosines
    planes = blocks.flatten(5, 6).flatten(3, 4)[..., :height, :width]  # B T 3 H W
    back = planes.permute(0, 1, 3, 4, 2) @ constant.back.T + 128
    return torch.where(strength.view(-1, 1, 1, 1, 1) > 0, back, image)


def glared(light: Tensor, glare: Tensor) -> Tensor:
    """Light (B, T, H, W, 3) with a part (B,) of what is above white spread around it."""
    over = (light - 1).clamp(0, _MOST_GLARE).flatten(0, 1).permute(0, 3, 1, 2)     # BT 3 H W
    wide = front.wide(over, max(2, over.shape[3] // _GLARE_PARTS), _GLARE_STEPS)
    spread = wide.permute(0, 2, 3, 1).unflatten(0, light.shape[:2])
    return light + glare.view(-1, 1, 1, 1, 1) * spread


def _lines(table: Tensor, key: Tensor, count: int) -> Tensor:
    """Noise of zero mean and unit spread for each key (...), (..., count)."""
    start = ((key * 2_654_435_761 & 0x7FFF_FFFF_FFFF) >> 17) % (table.numel() - count)
    return table.view(-1)[start[..., None] + torch.arange(count, device=key.device)]


def _pattern(scenes: Scenes, taken: Capture, constant: Tables, numbers: Tensor,
             size: tuple[int, int], rows: slice) -> Tensor:
    """Noise of pixels and columns, the same in all frames, and of rows, (B, T, rows, W, 1)."""
    table, always = constant.noise, torch.full_like(numbers[:1], _FIXED)
    pixels = _noise(table, scenes.seed, always, size, rows)[..., :1]
    columns = _lines(table, scenes.seed * 31 + _FIXED, size[0])[:, None, None, :, None]
    down = _lines(table, scenes.seed[:, None] * 131 + numbers, size[1])[..., rows, None, None]
    pixel, column, row = (v.view(-1, 1, 1, 1, 1) for v in (
        taken.pattern, taken.stripes, taken.banding))
    return pixel * pixels + column * columns + row * down


def _blur(scenes: Scenes, frames: slice) -> Tensor:
    return scenes.blur_px[:, frames] if scenes.blur_px.ndim == 2 else scenes.blur_px


def expose(light: Tensor, scenes: Scenes, frames: slice, constant: Tables) -> Tensor:
    """Pictures uint8 (B, T, H, W, 3) of the light in some frames of the scenes."""
    height, width = light.shape[2:4]
    if scenes.capture is not None:
        light = glared(light, scenes.capture.glare)
    light = blurred(light, _blur(scenes, frames))
    if scenes.capture is not None and scenes.capture.front is not None:
        light = front.seen_past(light, scenes.capture.front, frames)
    image = _developed(light, scenes, frames, constant, (width, height), slice(0, height))
    image = compressed(image, scenes.jpeg, constant)
    return _rounded(image, scenes, constant, slice(0, height), height)


def expose_single(planes: Tensor, scenes: Scenes, frames: slice) -> Tensor:
    """Do the same for one frame on the CPU, given as (3, 1, 1, H, W); skip what is off."""
    height, width = planes.shape[3:]
    constant = tables(planes.device)
    if scenes.capture is not None and float(scenes.capture.glare) > 0:
        light = glared(torch.stack(planes.unbind(0), -1), scenes.capture.glare)
        planes = torch.stack(light.unbind(-1))
    sigma = float(_blur(scenes, frames))
    if sigma >= _LEAST_BLUR_PX:
        soft = [cv2.GaussianBlur(p[0, 0].numpy(), (0, 0), min(sigma, _MOST_BLUR_PX))
                for p in planes]
        planes = torch.from_numpy(np.stack(soft))[:, None, None]
    before = scenes.capture and scenes.capture.front
    if before is not None and not front.is_clear(before):
        light = torch.stack(planes.unbind(0), -1)
        planes = torch.stack(front.seen_past(light, before, frames).unbind(-1))
    out = torch.empty(1, 1, height, width, 3, dtype=torch.uint8)
    step = max(8, BAND_PIXELS // width // 8 * 8)   # whole blocks of jpeg
    for top in range(0, height, step):
        rows = slice(top, min(top + step, height))
        light = torch.stack(planes[:, :, :, rows].unbind(0), -1)
        image = _developed(light, scenes, frames, constant, (width, height), rows, alone=True)
        if float(scenes.jpeg) > 0:
            image = compressed(image, scenes.jpeg, constant)
        out[:, :, rows] = _rounded(image, scenes, constant, rows, height)
    return out


def _rounded(image: Tensor, scenes: Scenes, constant: Tables, rows: slice,
             height: int) -> Tensor:
    """Return some rows of pictures of a height as uint8, with the bars of a letterbox."""
    if scenes.capture is not None:
        bar = bars(scenes.capture.shown, height)[:, None, rows, None, None]
        image = torch.where(bar, constant.bars, image)
    return (image + 0.5).clamp(0, 255).to(torch.uint8)


def _developed(light: Tensor, scenes: Scenes, frames: slice, constant: Tables,
               size: tuple[int, int], rows: slice, alone: bool = False) -> Tensor:
    """Grey levels 0..255 (B, T, rows, W, 3); ``alone``: of one frame."""
    batch, count = light.shape[:2]
    width, height = size
    wide = (batch, 1, 1, 1, 1)
    y = (torch.arange(height, device=light.device)[rows] * 2 / (height - 1) - 1)[:, None]
    x = torch.arange(width, device=light.device) * 2 / (width - 1) - 1
    shape = height / width
    corner = (x * x + (y * shape) ** 2) / (1 + shape ** 2)
    gain = scenes.exposure[:, frames].reshape(batch, count, 1, 1) * (
        1 - scenes.vignette.view(-1, 1, 1, 1) * corner)
    light = light * (gain[..., None] * scenes.white_balance.view(batch, 1, 1, 1, 3))
    grey = scenes.grey.view(wide)
    light = torch.where(grey, (light @ constant.turn[0])[..., None], light)
    levels = light.clamp(1e-6, 1) ** (float(scenes.gamma) if alone else scenes.gamma.view(wide))
    numbers = torch.arange(scenes.exposure.shape[1], device=light.device)[frames]
    noise = _noise(constant.noise, scenes.seed, numbers, size, rows)
    noise = torch.where(grey, noise[..., :1], noise)
    spread = scenes.read_noise.view(wide) + scenes.shot_noise.view(wide) * levels
    noise = noise * spread
    if scenes.capture is not None:
        noise = noise + _pattern(scenes, scenes.capture, constant, numbers, size, rows)
    return (255 * levels + noise).clamp(0, 255)

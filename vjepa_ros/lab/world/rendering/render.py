# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw scenes: uint8 frames from ``Scenes`` and a bank of textures."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.lens import (
    Rays,
    all_rays,
    bend_turn,
    image_rays,
    pixel_rays,
    rolled,
)
from vjepa_ros.lab.world.rendering.sensor import BAND_PIXELS, expose, expose_single, tables
from vjepa_ros.lab.world.rendering.shading import Hits
from vjepa_ros.lab.world.rendering.stage import Stage, stage
from vjepa_ros.lab.world.rendering.trace import (
    Extents,
    Windows,
    colour,
    nearest,
    trace,
    world_directions,
)
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.runtime.device import computing_with

# Where in the pixel, and when while the shutter is open, the rays of a pixel are sent.
PATTERN = ((-0.25, -0.25, -0.25), (0.25, 0.25, 0.25))
# Send rays, follow them, develop their light.
Steps = tuple[Callable[..., Rays], Callable[..., list[Tensor]], Callable[..., Tensor]]
_BESIDE = ((-0.17, -0.34), (0.17, 0.34))  # where the other rays of an edge are, beside 0, 0
# Rendered at once on a GPU: compiled, and not (then what all shapes give is stored for a while).
_MOST_PIXELS, _MOST_PLAIN = 1 << 25, 1 << 22


def drawing_device(device: torch.device) -> torch.device:
    """Return where pictures are drawn for a model on a device: with MPS on the CPU.

    MPS has no float64 and lacks some operators of the renderer.
    """
    return torch.device('cpu') if device.type == 'mps' else device


def render(scenes: Scenes, bank: TextureBank, size: tuple[int, int],
           compile: bool = False) -> Tensor:
    """Render all pictures of scenes, (B, T, H, W, 3) uint8 RGB."""
    if bank.atlas.texels.device != scenes.interval_s.device:
        raise ValueError(f'the texture bank is on {bank.atlas.texels.device}, the scenes are on '
                         f'{scenes.interval_s.device}; move one of them')
    frames = scenes.exposure.shape[1]
    with torch.no_grad():
        if scenes.interval_s.device.type == 'cpu' and not compile:
            # A frame is thousands of small steps. Threads that wait for one another in each of
            # them take a hundred times as long on a busy computer.
            with computing_with(1):
                return torch.cat([
                    torch.cat([_single(_part(scenes, b, 1), bank, size, n)
                               for n in range(frames)], 1) for b in range(len(scenes))])
        steps = _compiled() if compile else (all_rays, trace, expose)
        # Parts of one size: a compiled function is made for each size.
        most = max(1, (_MOST_PIXELS if compile else _MOST_PLAIN)
                   // (size[0] * size[1] * frames))
        step = -(-len(scenes) // -(-len(scenes) // most))
        return torch.cat([
            _batch(_part(scenes, b, step), bank, size, steps)
            for b in range(0, len(scenes), step)])


@lru_cache(maxsize=1)
def _compiled() -> Steps:
    # The rays on their own: as a part of the trace they would be worked out for each frame.
    return (torch.compile(all_rays, dynamic=False), torch.compile(trace, dynamic=False),
            torch.compile(expose, dynamic=False))


def _part(scenes: Scenes, first: int, count: int) -> Scenes:
    if count >= len(scenes):
        return scenes
    return scenes.map(lambda values: values[first:first + count])


def open_for(scenes: Scenes) -> Tensor:
    """(B,) how long rows are exposed: in intervals, or with a `Capture` in seconds."""
    return scenes.shutter if scenes.capture is None else scenes.capture.exposure_s


def _batch(scenes: Scenes, bank: TextureBank, size: tuple[int, int], steps: Steps) -> Tensor:
    send, follow, develop = steps
    frames, total = slice(None), list[Tensor]()
    for dx, dy, when in PATTERN:
        rays = send(scenes.intrinsics, scenes.distortion, size, (dx, dy),
                    *bend_turn(scenes, frames))
        scene = stage(scenes, bank.atlas, frames, when * open_for(scenes))
        light = follow(rays, scene, bank.atlas, scenes.kinds)
        total = [a + b for a, b in zip(total, light, strict=True)] if total else light
    light = torch.stack(total, -1) / len(PATTERN)
    return develop(light, scenes, frames, tables(light.device))


def _single(scenes: Scenes, bank: TextureBank, size: tuple[int, int], number: int) -> Tensor:
    """One frame of one scene on the CPU."""
    frames = slice(number, number + 1)
    taken = scenes.capture
    blurs = float(open_for(scenes)) > 0 and (taken is not None or scenes.exposure.shape[1] > 1)
    pattern = PATTERN if blurs else ((0.0, 0.0, 0.0),)
    planes = torch.zeros(3, 1, 1, size[1], size[0])
    for dx, dy, when in pattern:
        rays = image_rays(scenes, size, frames, (dx, dy))
        scene = stage(scenes, bank.atlas, frames, when * open_for(scenes) if blurs else None,
                      grouped=False)
        index = _in_bands(planes, rays, scene, bank, scenes.kinds, 1 / len(pattern))
        if not blurs:
            _smooth_edges(planes, index, scenes, scene, bank, frames)
    return expose_single(planes, scenes, frames)


def _in_bands(planes: Tensor, rays: Rays, scene: Stage, bank: TextureBank,
              kinds: tuple[int, ...], weight: float) -> Tensor:
    """Add the light of one frame to its planes; gives the number of the shape in each pixel.

    Some rows at a time, so few that they stay in the cache.
    """
    height, width = rays.x.shape[2:]
    extents = Extents(scene, kinds)
    index = torch.empty(1, 1, height, width, dtype=torch.int64)
    count = -(-height * width // BAND_PIXELS)
    step = -(-height // count)
    for top in range(0, height, step):
        rows = slice(top, top + step)
        part = Rays(*(field[:, :, rows] for field in rays))
        narrow = extents.windows(part)
        d = world_directions(part, scene.poses.rotation)
        depth, shown = nearest(scene, d, kinds, bank.atlas, narrow)
        index[:, :, rows] = shown
        light = colour(Hits(part, d, depth, shown), scene, bank.atlas, kinds, narrow)
        for plane, own in zip(planes, light, strict=True):
            plane[:, :, rows].add_(own, alpha=weight)
    return index


def _smooth_edges(planes: Tensor, index: Tensor, scenes: Scenes, scene: Stage,
                  bank: TextureBank, frames: slice) -> None:
    """Give pixels at the edges of shapes two more rays, in place."""
    shown = index[0, 0].numpy()
    edge = np.zeros(shown.shape, bool)
    beside, below = shown[:, 1:] != shown[:, :-1], shown[1:] != shown[:-1]
    edge[:, 1:] |= beside
    edge[:, :-1] |= beside
    edge[1:] |= below
    edge[:-1] |= below
    found = torch.from_numpy(np.stack(np.nonzero(edge)))
    if not found.numel():
        return
    shifts = torch.tensor(_BESIDE)
    whole = Windows.whole(scenes.kinds)
    bend, turn = bend_turn(scenes, frames)
    for rows, columns in found.split(BAND_PIXELS // len(shifts), dim=1):
        rays = pixel_rays(scenes.intrinsics, scenes.distortion, columns + shifts[:, :1],
                          rows + shifts[:, 1:], bend)
        if turn is not None:
            rays = rolled(rays, turn, rows + shifts[:, 1:], len(shown))
        fine = trace(rays, scene, bank.atlas, scenes.kinds, whole)
        for plane, more in zip(planes[:, 0, 0], fine, strict=True):
            plane[rows, columns] = (plane[rows, columns] + more[0, 0].sum(0)) / 3

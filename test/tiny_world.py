# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A world that is drawn in a moment: a wall of noise; stands in for `ClipWorld` in training."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from vjepa_ros.lab.world.clips import WorldClips
from vjepa_ros.lab.world.rendering.render import Truth
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.model.variants import Variant

TINY = Variant('test', 48, 2, 3, 96)


TinySample = namedtuple('TinySample', 'texture interval_s expansion')


class TinyWorld:
    """Has the interface of `ClipWorld` that training uses."""

    def __init__(self, size: int = 32, num_frames: int = 4, device: str = 'cpu', bank=None,
                 config: WorldConfig | None = None, compile: bool = False,
                 stream: bool = False) -> None:
        self.size, self.num_frames, self.bank = size, num_frames, bank or 'bank'
        self.device, self.config = torch.device(device), config or WorldConfig()
        self.filmed: list[int] = []      # clips of each film, for the tests

    def sample(self, seed: int, count: int) -> TinySample:
        random = torch.Generator().manual_seed(seed)
        texture = torch.rand(count, 3, 12, 12, generator=random)
        interval, expansion = torch.rand(2, count, generator=random)
        return TinySample(texture, 0.05 + 0.45 * interval, 0.3 * (expansion - 0.4))

    def film(self, sample: TinySample) -> WorldClips:
        count, side = len(sample.interval_s), self.size
        self.filmed.append(count)
        back = torch.arange(self.num_frames) - (self.num_frames - 1)
        distance = torch.exp(-sample.expansion[:, None] * back)             # B T
        line = torch.linspace(-0.6, 0.6, side)
        x, y = torch.meshgrid(line, line, indexing='xy')
        grid = torch.stack((x, y), -1) * distance[..., None, None, None]    # B T S S 2
        texture = sample.texture.repeat_interleave(self.num_frames, 0)
        drawn = F.grid_sample(texture, grid.flatten(0, 1), padding_mode='reflection',
                              align_corners=False)
        frames = (255 * drawn).round().to(torch.uint8).permute(0, 2, 3, 1)
        rate = (sample.expansion / sample.interval_s)[:, None, None].expand(-1, side, side)
        contact = torch.where(rate > 0.02, 1 / rate.clamp(min=1e-3), torch.inf)
        moving = torch.zeros(count, side, side, dtype=torch.bool)
        moving[:, :, :side // 2] = (sample.texture[:, 0, 0, 0] > 0.5)[:, None, None]
        pixel = torch.arange(side) + 0.5 - side / 2
        across, down = torch.meshgrid(pixel, pixel, indexing='xy')
        flow = rate[..., None] * torch.stack((across, down), -1)
        truth = Truth(depth=contact, looming=rate, moving=moving, flow=flow,
                      enters=contact.isfinite(), enter_time=contact,
                      clearance=contact,
                      shape=torch.zeros(count, side, side, dtype=torch.int16))
        # What turns is always visible.
        scenes = SimpleNamespace(velocity=torch.zeros(count, 1, 3), yaw_rate=torch.ones(count, 1),
                                 intrinsics=torch.full((count, 4), float(side)))
        return WorldClips(frames.unflatten(0, (count, -1)), sample.interval_s,
                          torch.ones(count, dtype=torch.long), truth,
                          scenes, contact[:, 0, 0], contact[:, 0, 0],
                          back * sample.interval_s[:, None])

    def clips(self, seed: int, count: int) -> WorldClips:
        return self.film(self.sample(seed, count))

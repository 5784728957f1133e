# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Make clips of random scenes, with their truth, and draw the seeds of their parts.

Every random choice of a run is a function of its seed, the step, the rank of the process and
the stream it is for. A run that is stopped and continued therefore draws the same numbers as
one that ran through, and no state of a generator has to be kept.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.lab.world.rendering.render import Truth, render, truth
from vjepa_ros.lab.world.scenes.motion import picture_of
from vjepa_ros.lab.world.scenes.sampler import Sample, SceneSampler
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.model.variants import TUBELET

TRAINING_SEEDS = 1_000_000_000       # training draws worlds with seeds below this
HELD_OUT_SEED = 1_000_000_000        # first seed of the clips that figures are given for
CALIBRATION_SEED = 2_000_000_000     # first seed of the clips that calibration is fitted on
VALIDATION_SEED = 2_100_000_000      # first seed of the clips that are watched while training
SPLIT_BATCH = 100                    # clips per seed in the splits above
BANK_SEED = 1  # of the painted textures that are used by default
SEEN = 0.001   # share of the picture that must show the touched surface


@dataclass(frozen=True)
class WorldClips:
    """B clips."""

    frames: Tensor  # (B, T, H, W, 3) uint8 RGB, the newest last
    interval_s: Tensor  # (B,) time between frames [s], but for jitter and pictures that were lost
    hold: Tensor  # (B,) 1 where all frames differ, 2 where each picture is shown twice
    truth: Truth  # at the newest frame
    scenes: Scenes  # what was drawn
    # (B,) until something enters the robot's volume at constant velocities [s], inf for never;
    # at least 0.1 % of the picture must show what does
    contact_time: Tensor
    # (B,) distance along the heading to the nearest visible surface in the robot's way [m], inf
    # where it is free; at least 0.1 % of the picture
    clearance: Tensor
    # (B, T) stamp of each frame relative to the newest [s], ascending, the last 0; exact but for
    # `WorldConfig.training`. Equal where a picture is shown twice. `interval_s` is the time
    # between frames as wanted.
    stamps_s: Tensor

    @property
    def stamps(self) -> Tensor:
        """(B, T) float64 `stamps_s` in intervals, as encoders count time."""
        return self.stamps_s.double() / self.interval_s[:, None]


class ClipWorld:
    """An endless supply of clips with square pictures of a side [px].

    `bank`: textures; painted ones by default, which worlds of several sizes may share; `compile`:
    compile the drawing, see `render`.
    """

    def __init__(self, size: int, num_frames: int, device: torch.device | str = 'cpu',
                 bank: TextureBank | None = None, config: WorldConfig | None = None,
                 compile: bool = False) -> None:
        self.size, self.num_frames, self.compile = size, num_frames, compile
        self.device = torch.device(device)
        self.config = config or WorldConfig()
        self.bank = (bank or TextureBank.procedural(BANK_SEED)).to(self.device)
        self.sampler = SceneSampler(Materials(self.bank.groups, self.bank.walks), size,
                                    num_frames, self.config)

    def sample(self, seed: int, count: int) -> Sample:
        """Draw random scenes on the CPU, in any thread; the same for the same seed and count."""
        return self.sampler.sample(seed, count)

    def film(self, sample: Sample) -> WorldClips:
        """Render a sample on this world's device, without waiting for it."""
        scenes = sample.scenes.map(self._sent)
        square = (self.size, self.size)
        frames = render(scenes, self.bank, square, compile=self.compile)
        shown = self._sent(picture_of(sample.hold, self.num_frames))
        clip = torch.arange(len(scenes), device=self.device)[:, None]
        known = truth(scenes, self.bank, square, compile=self.compile)
        return WorldClips(
            frames[clip, shown], scenes.interval_s, self._sent(sample.hold), known, scenes,
            soonest(known.enter_time), soonest(known.clearance), self._sent(sample.stamps_s))

    def _sent(self, values: Tensor) -> Tensor:
        # From pinned memory a copy to a GPU does not wait for what is being drawn there.
        if self.device.type == 'cuda' and values.device.type == 'cpu':
            return values.pin_memory().to(self.device, non_blocking=True)
        return values.to(self.device)

    def clips(self, seed: int, count: int) -> WorldClips:
        return self.film(self.sample(seed, count))


def soonest(values: Tensor) -> Tensor:
    """Return the least of (B, H, W) values that a share of `SEEN` of the pixels reaches, (B,)."""
    flat = values.flatten(1)
    count = max(1, math.ceil(SEEN * flat.shape[1]))
    return flat.topk(count, dim=1, largest=False).values[:, -1]


def derive(seed: int, stream: str, *where: int) -> int:
    """Seed 0 .. TRAINING_SEEDS - 1 of a stream at a place, such as (step, rank)."""
    text = ' '.join([stream, str(seed), *map(str, where)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, 'little') % TRAINING_SEEDS


def generator(seed: int, stream: str, *where: int) -> torch.Generator:
    """Return a generator on the CPU for a stream at a place."""
    return torch.Generator().manual_seed(derive(seed, stream, *where))


def stream_frames(stamps: Tensor, count: int) -> Tensor:
    """Choose the frames (B, 2 count) of the last tubelets that a stream would have encoded."""
    newest = torch.full_like(stamps[:, 0], stamps.shape[1] - 1, dtype=torch.int64)
    pair = torch.stack((newest, newest), 1)
    pairs = []
    for _ in range(count):
        partner, there = _nearest(stamps, newest, 1.0)
        pair = torch.where(there[:, None], torch.stack((partner, newest), 1), pair)
        pairs.append(pair)
        newest = torch.where(there, _nearest(stamps, newest, float(TUBELET))[0], newest)
    return torch.stack(pairs[::-1], 1).flatten(1)


def _nearest(stamps: Tensor, of: Tensor, back: float) -> tuple[Tensor, Tensor]:
    """Find the earlier frame (B,) nearest to a time before another, and whether there is one."""
    at = stamps.gather(1, of[:, None])
    away = torch.where(stamps < at, (stamps - (at - back)).abs(), torch.inf)
    least, place = away.min(1)
    return place, least.isfinite()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Make clips of random scenes, with their truth and the targets of the heads.

Every random choice of a run is a function of its seed, the step, the rank of the process and
the stream it is for: a run that is continued draws the same numbers as one that ran through.
B clips, Hp x Wp patches, J horizons of the hazard. Nothing here waits for the device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from vjepa_ros.lab.world.rendering.render import Truth, render, truth
from vjepa_ros.lab.world.scenes.sampler import Sample, SceneSampler
from vjepa_ros.lab.world.scenes.scene import Scenes, picture_of
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.model.variants import PATCH

TRAINING_SEEDS = 1_000_000_000       # training draws worlds with seeds below this
HELD_OUT_SEED = 1_000_000_000        # first seed of the clips that figures are given for
CALIBRATION_SEED = 2_000_000_000     # first seed of the clips that calibration is fitted on
VALIDATION_SEED = 2_100_000_000      # first seed of the clips that are watched while training
SPLIT_BATCH = 100                    # clips per seed in the splits above
BANK_SEED = 1  # of the painted textures that are used by default
SEEN = 0.001   # share of the picture that must show the touched surface
HORIZONS_S = (0.5, 1.0, 1.5, 2.0, 3.0)   # of the hazard
EXPANSION_LIMIT = 3.0   # per interval; a surface nearer than a third of an interval is "at once"
RATE_LIMIT = 12.0       # [1/s]; so is one that is nearer than 1/12 s
MOVING_YES, MOVING_NO = 0.5, 0.1         # fraction of a patch; masked between them
COURSE_YES, COURSE_NO = 0.25, 0.05       # lower: a thin pole must count
ENTER_SHARE = 0.05                       # of a patch that must enter for the patch to do so
DEPTH_M = (0.05, 100.0)                  # the sky is as far as the end of it
VISIBLE_PX = 0.5                         # own motion over a clip below which it is masked
FLOW_UNIT = 0.25                         # of a patch per interval, where asinh begins to bend


@dataclass(frozen=True)
class WorldClips:
    frames: Tensor  # (B, T, H, W, 3) uint8 RGB, the newest last
    # (B,) time between frames [s], but for jitter and pictures that were lost; between the newest
    # two of a stream
    interval_s: Tensor
    hold: Tensor  # (B,) 1 where all frames differ, 2 where each picture is shown twice
    truth: Truth  # at the newest frame
    scenes: Scenes  # what was drawn
    # Of what at least 0.1 % of the picture shows, inf for none:
    contact_time: Tensor  # (B,) until it enters the robot's volume at constant velocities [s]
    clearance: Tensor  # (B,) distance along the heading to the nearest in the robot's way [m]
    # (B, T) stamp of each frame relative to the newest [s]; exact but for `WorldConfig.training`,
    # equal where a picture is shown twice
    stamps_s: Tensor


class ClipWorld:
    """An endless supply of clips with square pictures of a side [px].

    `stream`: of the tubelets that block-causal encoders take, else of even clips.
    """

    def __init__(self, size: int, num_frames: int, device: torch.device | str = 'cpu',
                 bank: TextureBank | None = None, config: WorldConfig | None = None,
                 compile: bool = False, stream: bool = False) -> None:
        self.size, self.num_frames, self.compile = size, num_frames, compile
        self.device = torch.device(device)
        self.config = config or WorldConfig()
        self.bank = (bank or TextureBank.procedural(BANK_SEED)).to(self.device)
        self.sampler = SceneSampler(Materials(self.bank.groups, self.bank.walks), size,
                                    num_frames, self.config, stream)

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
    return torch.Generator().manual_seed(derive(seed, stream, *where))


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What is known about a batch of clips; unknown values are masked, never guessed."""

    interval_s: Tensor  # (B,) time between frames [s]
    expansion: Tensor  # (B, Hp, Wp) looming rate times interval, patch mean
    moving: Tensor  # (B, Hp, Wp) 0 or 1
    course: Tensor  # (B, Hp, Wp) 0 or 1
    expansion_known: Tensor  # (B, Hp, Wp) bool, as the next two
    moving_known: Tensor
    course_known: Tensor
    contact_s: Tensor  # (B,) time until something enters the robot's volume [s], inf for never
    contact_known: Tensor  # (B,) bool
    hazard: Tensor  # (B, J) 1 where the contact comes within the horizon, else 0
    hazard_known: Tensor  # (B, J) bool
    clearance_m: Tensor  # (B,) free way straight ahead of the robot [m], inf for free
    clearance_known: Tensor  # (B,) bool
    # (B,) 1 where people say that something is about to be hit or blocks the way nearby, 0 where
    # not. Only recordings have it.
    danger: Tensor
    danger_s: Tensor  # (B,) time ahead that they speak about [s]
    danger_known: Tensor  # (B,) bool
    enter_s: Tensor  # (B, Hp, Wp) time until `ENTER_SHARE` of the patch has entered [s], or inf
    log_depth: Tensor  # (B, Hp, Wp) ln of the depth [m], patch mean, depth within `DEPTH_M`
    flow_x: Tensor  # (B, Hp, Wp) asinh of the flow in units of `FLOW_UNIT`, as the next
    flow_y: Tensor
    scene_known: Tensor  # (B, Hp, Wp) bool, for the four before

    def to(self, device: torch.device | str) -> Targets:
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def flipped(self, which: Tensor) -> Targets:
        """Dense targets mirrored left to right where `which` (B,) bool is set."""
        turned = {name: mirror(values, which, 2) for name, values in vars(self).items()
                  if values.ndim == 3}
        turned['flow_x'] = torch.where(which[:, None, None], -turned['flow_x'], turned['flow_x'])
        return replace(self, **turned)

    @classmethod
    def unknown(cls, interval_s: Tensor, side: int) -> Targets:
        """Nothing is known of clips with these intervals (B,) [s] and `side` x `side` patches."""
        clip = torch.zeros_like(interval_s)
        dense, never = clip.new_zeros(len(clip), side, side), torch.full_like(clip, math.inf)
        horizons = clip.new_zeros(len(clip), len(HORIZONS_S))
        return cls(
            interval_s=interval_s, expansion=dense, moving=dense, course=dense,
            expansion_known=dense.bool(), moving_known=dense.bool(), course_known=dense.bool(),
            contact_s=never, contact_known=clip.bool(), hazard=horizons,
            hazard_known=horizons.bool(), clearance_m=never, clearance_known=clip.bool(),
            danger=clip, danger_s=torch.ones_like(clip), danger_known=clip.bool(),
            enter_s=dense, log_depth=dense, flow_x=dense, flow_y=dense, scene_known=dense.bool())


def mirror(values: Tensor, which: Tensor, axis: int) -> Tensor:
    """`values` (B, ...) mirrored along an axis for the clips where `which` (B,) is set."""
    chosen = which.view(-1, *[1] * (values.ndim - 1))
    return torch.where(chosen, values.flip(axis), values)


def clip_targets(clips: WorldClips) -> Targets:
    """Targets of rendered clips; everything is known but the opinion of people."""
    truth, interval_s, contact_s = clips.truth, clips.interval_s, clips.contact_time
    dt = interval_s[:, None, None]
    rate = torch.nan_to_num(truth.looming, 0.0, 0.0, 0.0).clamp(-RATE_LIMIT, RATE_LIMIT)
    moving, course = patch_mean(truth.moving.float()), patch_mean(truth.enters.float())
    # Motion that nobody could see is not asked for.
    hidden = patch_mean((truth.moving & ~_visible(clips)).float()) > MOVING_NO
    flow = torch.nan_to_num(truth.flow * dt[..., None] / (PATCH * FLOW_UNIT)).asinh()
    pixels = truth.enter_time.unflatten(2, (-1, PATCH)).unflatten(1, (-1, PATCH))
    soonest = pixels.transpose(2, 3).flatten(3).topk(round(ENTER_SHARE * PATCH * PATCH),
                                                     largest=False)
    hazard = contact_s[:, None] <= constant(HORIZONS_S, contact_s.device)
    every, patches = torch.ones_like(contact_s).bool(), torch.ones_like(moving).bool()
    return replace(
        Targets.unknown(interval_s, moving.shape[1]),
        expansion=patch_mean((rate * dt).clamp(-EXPANSION_LIMIT, EXPANSION_LIMIT)),
        moving=(moving > MOVING_YES).float(), course=(course > COURSE_YES).float(),
        expansion_known=patches,
        moving_known=((moving > MOVING_YES) | (moving < MOVING_NO)) & ~hidden,
        course_known=(course > COURSE_YES) | (course < COURSE_NO),
        contact_s=contact_s, contact_known=every,
        hazard=hazard.float(), hazard_known=torch.ones_like(hazard),
        clearance_m=clips.clearance, clearance_known=every,
        enter_s=soonest.values[..., -1],
        log_depth=patch_mean(truth.depth.clamp(*DEPTH_M).log()),
        flow_x=patch_mean(flow[..., 0]), flow_y=patch_mean(flow[..., 1]), scene_known=patches)


def _visible(clips: WorldClips) -> Tensor:
    """Where surfaces would move by `VISIBLE_PX` if they went across, (B, H, W) bool."""
    scenes, shape = clips.scenes, clips.truth.shape.long()
    speed = scenes.velocity.norm(dim=-1)
    # Ground and sky have negative numbers, and what turns on the spot is visible.
    own = F.pad(speed, (2, 0)).gather(1, shape.flatten(1) + 2).view(shape.shape)
    turns = F.pad(scenes.yaw_rate.abs() > 0, (2, 0)).gather(1, shape.flatten(1) + 2)
    duration = clips.stamps_s[:, -1] - clips.stamps_s[:, 0]
    pixels = own / clips.truth.depth * (scenes.intrinsics[:, 0] * duration)[:, None, None]
    return (pixels >= VISIBLE_PX) | turns.view(shape.shape)


@lru_cache(maxsize=16)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, uploaded once: an upload waits for the device."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def patch_mean(values: Tensor) -> Tensor:
    """Mean of (B, H, W) over patches: (B, Hp, Wp)."""
    return F.avg_pool2d(values[:, None], PATCH)[:, 0]


def joined(parts: Sequence[Targets]) -> Targets:
    return Targets(**{f.name: torch.cat([getattr(p, f.name) for p in parts])
                      for f in fields(Targets)})

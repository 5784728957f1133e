# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Reduce the truth of rendered pixels to the targets of the heads.

B clips, Hp x Wp patches, J horizons of the hazard. Everything here runs on the device of its
input and never waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from vjepa_ros.lab.world.clips import WorldClips
from vjepa_ros.lab.world.rendering.render import Truth
from vjepa_ros.model.variants import PATCH

HORIZONS_S = (0.5, 1.0, 1.5, 2.0, 3.0)   # of the hazard
EXPANSION_LIMIT = 3.0   # per interval; a surface nearer than a third of an interval is "at once"
MOVING_YES, MOVING_NO = 0.5, 0.1         # fraction of a patch; masked between them
COURSE_YES, COURSE_NO = 0.25, 0.05       # lower: a thin pole must count
ENTER_SHARE = 0.05                       # of a patch that must enter for the patch to do so
DEPTH_M = (0.05, 100.0)                  # the sky is as far as the end of it
VISIBLE_PX = 0.5                         # own motion over a clip below which it is masked
FLOW_UNIT = 0.25                         # of a patch per interval, where asinh begins to bend


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What is known about a batch of clips; unknown values are masked, never guessed."""

    interval_s: Tensor  # (B,) time between frames [s]
    # (B, Hp, Wp) looming rate times interval, patch mean, within +-EXPANSION_LIMIT
    expansion: Tensor
    # moving, course: (B, Hp, Wp) 0 or 1
    moving: Tensor
    course: Tensor
    # expansion_known, moving_known, course_known: (B, Hp, Wp) bool
    expansion_known: Tensor
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
    # (B, Hp, Wp) time until `ENTER_SHARE` of the patch has entered the robot's volume [s], inf
    # for never
    enter_s: Tensor
    log_depth: Tensor  # (B, Hp, Wp) ln of the depth [m], patch mean, depth within `DEPTH_M`
    # flow_x, flow_y: (B, Hp, Wp) asinh of the flow in units of `FLOW_UNIT` patches per interval,
    # patch mean
    flow_x: Tensor
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
        dense, never = torch.zeros(len(clip), side, side), torch.full_like(clip, math.inf)
        horizons = torch.zeros(len(clip), len(HORIZONS_S))
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


def world_targets(truth: Truth, interval_s: Tensor, contact_s: Tensor, clearance_m: Tensor,
                  horizons_s: Sequence[float] = HORIZONS_S) -> Targets:
    """Targets of rendered clips; everything is known but the opinion of people."""
    interval_s = interval_s.float()
    rate = torch.nan_to_num(truth.looming.float(), 0.0, 0.0, 0.0)
    expansion = (rate * interval_s[:, None, None]).clamp(-EXPANSION_LIMIT, EXPANSION_LIMIT)
    moving = patch_mean(truth.moving.float())
    course = patch_mean(truth.enters.float())
    contact_s = contact_s.float()
    hazard = contact_s[:, None] <= constant(tuple(horizons_s), contact_s.device)
    return Targets(
        interval_s=interval_s, expansion=patch_mean(expansion),
        moving=(moving > MOVING_YES).float(), course=(course > COURSE_YES).float(),
        expansion_known=torch.ones_like(moving, dtype=torch.bool),
        moving_known=(moving > MOVING_YES) | (moving < MOVING_NO),
        course_known=(course > COURSE_YES) | (course < COURSE_NO),
        contact_s=contact_s, contact_known=torch.ones_like(contact_s, dtype=torch.bool),
        hazard=hazard.float(), hazard_known=torch.ones_like(hazard),
        clearance_m=clearance_m.float(),
        clearance_known=torch.ones_like(contact_s, dtype=torch.bool),
        danger=torch.zeros_like(contact_s), danger_s=torch.ones_like(contact_s),
        danger_known=torch.zeros_like(contact_s, dtype=torch.bool),
        enter_s=_enter_time(truth.enter_time.float()),
        log_depth=patch_mean(truth.depth.float().clamp(*DEPTH_M).log()),
        flow_x=_flow(truth.flow[..., 0], interval_s), flow_y=_flow(truth.flow[..., 1], interval_s),
        scene_known=torch.ones_like(moving, dtype=torch.bool))


def _enter_time(values: Tensor) -> Tensor:
    """Time that the soonest `ENTER_SHARE` of the pixels of each patch keep to."""
    pixels = values.unflatten(2, (-1, PATCH)).unflatten(1, (-1, PATCH)).transpose(2, 3).flatten(3)
    count = max(1, round(ENTER_SHARE * PATCH * PATCH))
    return pixels.topk(count, dim=-1, largest=False).values[..., -1]


def _flow(speed: Tensor, interval_s: Tensor) -> Tensor:
    steps = torch.nan_to_num(speed.float() * interval_s[:, None, None] / (PATCH * FLOW_UNIT))
    return patch_mean(steps.asinh())


def clip_targets(clips: WorldClips) -> Targets:
    """Targets of rendered clips; motion below `VISIBLE_PX` over a clip is masked."""
    targets = world_targets(clips.truth, clips.interval_s, clips.contact_time, clips.clearance)
    seen = patch_mean((clips.truth.moving & ~_visible(clips)).float()) <= MOVING_NO
    return replace(targets, moving_known=targets.moving_known & seen)


def _visible(clips: WorldClips) -> Tensor:
    """Where surfaces would move by `VISIBLE_PX` if they went across, (B, H, W) bool."""
    scenes, shape = clips.scenes, clips.truth.shape.long()
    speed = scenes.velocity.norm(dim=-1)
    # Ground and sky have negative numbers, and what turns on the spot is visible.
    own = F.pad(speed, (2, 0)).gather(1, shape.flatten(1) + 2).view(shape.shape)
    turns = F.pad(scenes.yaw_rate.abs() > 0, (2, 0)).gather(1, shape.flatten(1) + 2)
    duration = clips.interval_s * (clips.frames.shape[1] - 1)
    pixels = own / clips.truth.depth * (scenes.intrinsics[:, 0] * duration)[:, None, None]
    return (pixels >= VISIBLE_PX) | turns.view(shape.shape)


@lru_cache(maxsize=16)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, uploaded once: an upload waits for the device."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def patch_mean(values: Tensor, patch: int = PATCH) -> Tensor:
    """Mean of (B, H, W) over squares of `patch` pixels: (B, H / patch, W / patch)."""
    return F.avg_pool2d(values[:, None], patch)[:, 0]


def joined(parts: Sequence[Targets]) -> Targets:
    return Targets(**{f.name: torch.cat([getattr(p, f.name) for p in parts])
                      for f in fields(Targets)})

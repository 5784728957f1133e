# SPDX-License-Identifier: Apache-2.0
"""Reduce the truth of rendered pixels to what the heads are asked for.

B clips, Hp x Wp patches, J horizons of the hazard. Everything here runs on the device of its
input and never waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from vjepa_ros.model.variants import PATCH
from vjepa_ros.world.clips import WorldClips
from vjepa_ros.world.truth import Truth

HORIZONS_S = (0.5, 1.0, 1.5, 2.0, 3.0)   # at which the hazard is asked for
EXPANSION_LIMIT = 3.0   # per interval; a surface nearer than a third of an interval is "at once"
MOVING_YES, MOVING_NO = 0.5, 0.1         # fraction of a patch; between them is not asked
DENSE = ('expansion', 'moving', 'course', 'expansion_known', 'moving_known', 'course_known')
COURSE_YES, COURSE_NO = 0.25, 0.05       # lower: a thin pole must count


@dataclass(frozen=True)
class Targets:
    """What is known about a batch of clips; unknown values are masked, never guessed.

    Attributes
    ----------
    interval_s : Tensor
        (B,) time between frames [s].
    expansion : Tensor
        (B, Hp, Wp) looming rate times interval, patch mean, within +-EXPANSION_LIMIT.
    moving, course : Tensor
        (B, Hp, Wp) 0 or 1.
    expansion_known, moving_known, course_known : Tensor
        (B, Hp, Wp) bool.
    contact_s : Tensor
        (B,) time until something enters the robot's volume [s], inf for never.
    contact_known : Tensor
        (B,) bool.
    hazard : Tensor
        (B, J) 1 where the contact comes within the horizon, else 0.
    hazard_known : Tensor
        (B, J) bool.
    clearance_m : Tensor
        (B,) free way straight ahead of the robot [m], inf for free.
    clearance_known : Tensor
        (B,) bool.
    danger : Tensor
        (B,) 1 where people say that something is about to be hit or blocks the way nearby, 0
        where not. Only recordings have it.
    danger_s : Tensor
        (B,) time ahead that they speak about [s].
    danger_known : Tensor
        (B,) bool.
    """

    interval_s: Tensor
    expansion: Tensor
    moving: Tensor
    course: Tensor
    expansion_known: Tensor
    moving_known: Tensor
    course_known: Tensor
    contact_s: Tensor
    contact_known: Tensor
    hazard: Tensor
    hazard_known: Tensor
    clearance_m: Tensor
    clearance_known: Tensor
    danger: Tensor
    danger_s: Tensor
    danger_known: Tensor

    def to(self, device: torch.device | str) -> Targets:
        """The same targets on a device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def at(self, places: Tensor) -> Targets:
        """Dense targets at chosen patches.

        Parameters
        ----------
        places : Tensor
            (B, n) int64 row-major numbers of patches.

        Returns
        -------
        Targets
            Dense fields are (B, n, 1), as the heads answer for a grid of n x 1 patches.
        """
        return replace(self, **{name: getattr(self, name).flatten(1).gather(1, places)[..., None]
                                for name in DENSE})

    def flipped(self, which: Tensor) -> Targets:
        """Dense targets mirrored left to right where `which` (B,) bool is set."""
        return replace(self, **{name: mirror(getattr(self, name), which, 2) for name in DENSE})


def mirror(values: Tensor, which: Tensor, axis: int) -> Tensor:
    """`values` (B, ...) mirrored along an axis for the clips where `which` (B,) is set."""
    chosen = which.view(-1, *[1] * (values.ndim - 1))
    return torch.where(chosen, values.flip(axis), values)


def world_targets(truth: Truth, interval_s: Tensor, contact_s: Tensor, clearance_m: Tensor,
                  horizons_s: Sequence[float] = HORIZONS_S) -> Targets:
    """Targets of rendered clips, for which everything is known but the opinion of people.

    Parameters
    ----------
    truth : Truth
        Per pixel of the newest frame; of it `looming`, `moving` and `enters` are read.
    interval_s : Tensor
        (B,) [s].
    contact_s : Tensor
        (B,) [s], inf for no contact.
    clearance_m : Tensor
        (B,) [m], inf for a free way.
    horizons_s : sequence of float
        Horizons of the hazard [s].
    """
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
        danger_known=torch.zeros_like(contact_s, dtype=torch.bool))


def clip_targets(clips: WorldClips) -> Targets:
    """Targets of rendered clips."""
    return world_targets(clips.truth, clips.interval_s, clips.contact_time, clips.clearance)


@lru_cache(maxsize=16)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, uploaded once: an upload waits for the device."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def patch_mean(values: Tensor, patch: int = PATCH) -> Tensor:
    """Mean of (B, H, W) over squares of `patch` pixels: (B, H / patch, W / patch)."""
    return F.avg_pool2d(values[:, None], patch)[:, 0]


def joined(parts: Sequence[Targets]) -> Targets:
    """Several batches of targets as one."""
    return Targets(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Targets)))

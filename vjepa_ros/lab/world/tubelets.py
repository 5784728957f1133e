# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Cut clips into the tubelets that a stream would have encoded, chosen by stamps.

A stream pairs its newest frame with the one a frame interval before; the tubelet before that ends
two intervals earlier, and so on. B clips, T frames.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vjepa_ros.model.variants import TUBELET


def stream_frames(stamps: Tensor, count: int) -> Tensor:
    """Choose the frames of the last tubelets of a stream.

    `stamps`: (B, T) in frame intervals, ascending; equal where a frame is shown again.
    """
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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose which patches of a clip the encoder sees: tubes through all of its frames.

A place is a patch of the image; hiding a place hides it in every tubelet, so that what is
hidden cannot be copied from the frame before.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCKS = 8                     # blocks drawn for each clip
BLOCK_AREA = (0.10, 0.25)      # of the image
BLOCK_ASPECT = (0.75, 1.5)


def places_kept(share: float, rows: int, cols: int) -> int:
    """Number of places that a share keeps, at least one."""
    return max(1, round(share * rows * cols))


def random_places(count: int, kept: int, places: int, generator: torch.Generator) -> Tensor:
    """Places chosen evenly at random: (count, kept) int64, ascending."""
    order = torch.rand(count, places, generator=generator).argsort(1)
    return order[:, :kept].sort(1).values


def block_places(count: int, kept: int, rows: int, cols: int,
                 generator: torch.Generator) -> Tensor:
    """Places that large blocks leave over: (count, kept) int64, ascending.

    Blocks of random size and place are drawn for each clip, as in V-JEPA. So that all clips
    keep equally many places, places outside the blocks are kept first and in random order, then
    those inside.
    """
    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, BLOCKS, generator=generator)

    area = uniform(*BLOCK_AREA) * rows * cols
    aspect = torch.exp(uniform(math.log(BLOCK_ASPECT[0]), math.log(BLOCK_ASPECT[1])))
    inside = torch.ones(count, BLOCKS, rows, cols, dtype=torch.bool)
    for axis, side, length in ((2, rows, (area * aspect).sqrt()),
                               (3, cols, (area / aspect).sqrt())):
        length = length.round().clamp(1, side)
        start = (uniform(0, 1) * (side - length + 1)).floor()
        at = torch.arange(side).view(1, 1, -1)
        line = (at >= start[..., None]) & (at < (start + length)[..., None])
        inside &= line.unsqueeze(3 if axis == 2 else 2)
    # Blocks are laid down until about as much is hidden as is wanted: fewer blocks when much is
    # kept. What is covered by an early block is hidden first.
    first = torch.where(inside, torch.arange(BLOCKS).view(1, -1, 1, 1), BLOCKS).amin(1)
    rank = first.flatten(1).float() + torch.rand(count, rows * cols, generator=generator)
    return rank.argsort(1, descending=True)[:, :kept].sort(1).values


def hidden_places(kept: Tensor, places: int) -> Tensor:
    """The other places: (B, places - n) int64, ascending."""
    seen = torch.zeros(len(kept), places, dtype=torch.bool).scatter_(1, kept, True)
    return seen.int().argsort(dim=1, stable=True)[:, :places - kept.shape[1]]


def tokens_of(places: Tensor, tubelets: int, total: int) -> Tensor:
    """Row-major token numbers (B, tubelets * n) of places (B, n) of a grid with `total` places."""
    time = torch.arange(tubelets, device=places.device) * total
    return (time[None, :, None] + places[:, None, :]).flatten(1)

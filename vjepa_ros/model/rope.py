# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Rotary position tables over time, height and width.

Three equal groups of the channels of a head encode tubelet, row and column of a patch; what is
left over passes unchanged (arXiv 2506.09985).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

THETA = 10000.0
PRETRAINED_GRID = 16  # patches per side that 2.1 stretches every spatial grid to


def axis_width(head_dim: int) -> int:
    """Return how many channels of a head encode one axis (always even)."""
    return 2 * ((head_dim // 3) // 2)


@lru_cache(maxsize=8)
def rope_tables(tubelets: int, rows: int, cols: int, head_dim: int, version: str = '2.0'
                ) -> tuple[Tensor, Tensor]:
    """Compute cosine and signed sine tables (N, head_dim) for `rotate` and one token grid."""
    # A single row or column has position 0; the published code divides by zero there.
    row_step, col_step = ((PRETRAINED_GRID - 1) / (count - 1)
                          if version == '2.1' and count > 1 else 1.0 for count in (rows, cols))
    # Tables outlive the call that needs them first, whatever mode and device are its defaults.
    with torch.inference_mode(False), torch.device('cpu'):
        width = axis_width(head_dim)
        grid = torch.meshgrid(torch.arange(tubelets, dtype=torch.float32),
                              torch.arange(rows) * row_step, torch.arange(cols) * col_step,
                              indexing='ij')
        rate = THETA ** (-torch.arange(width // 2, dtype=torch.float32) / (width / 2))
        angles = torch.zeros(tubelets * rows * cols, head_dim)
        for axis, positions in enumerate(grid):
            half = torch.outer(positions.flatten(), rate)  # N width/2
            # 2.0 was trained with tiled angles, which do not match the pairs they act on;
            # the matching order of 2.1 would break its weights.
            both = torch.cat((half, half), -1) if version == '2.0' else half.repeat_interleave(
                2, -1)
            angles[:, axis * width:(axis + 1) * width] = both
        sign = torch.tensor([-1.0, 1.0]).repeat(head_dim // 2)
        return angles.cos(), angles.sin() * sign


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Encode positions into queries or keys by `rope_tables` in the type of `x`.

    The two channels of each neighbouring pair turn.
    """
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(x * cos, swapped, sin)


# Token grids whose tables are kept, more than a model asks for: its CUDA graphs read them there.
MOST_KEPT = 16


class Positions:
    """Position tables in the precision a model needs, kept for the last few token grids."""

    def __init__(self, head_dim: int, version: str):
        self.head_dim = head_dim
        self.version = version
        self.kept: dict[tuple, tuple[Tensor, Tensor]] = {}  # by (grid, device, dtype)
        self._turning: tuple[Tensor, Tensor] | None = None

    def tables(self, grid: tuple[int, int, int], device: torch.device, dtype: torch.dtype
               ) -> tuple[Tensor, Tensor]:
        key = (grid, device, dtype)
        if key not in self.kept:
            if len(self.kept) >= MOST_KEPT:
                self.kept.pop(next(iter(self.kept)))
            tables = rope_tables(*grid, self.head_dim, self.version)
            with torch.inference_mode(False):
                self.kept[key] = tables[0].to(device, dtype), tables[1].to(device, dtype)
        return self.kept[key]

    def turns(self, times: Tensor) -> Tensor:
        """Return cosines and signed sines (B, T', 2 width) float32 of times (B, T') [tubelets]."""
        if self._turning is None:
            pairs = axis_width(self.head_dim) // 2
            with torch.inference_mode(False), torch.device('cpu'):
                rate = THETA ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
                self._turning = (rate.repeat_interleave(2),
                                 torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(pairs))
        rate, sign = (part.to(times) for part in self._turning)
        angles = times[..., None] * rate
        return torch.cat((angles.cos(), angles.sin() * sign), -1).float()

    def tables_at(self, turns: Tensor, grid: tuple[int, int, int], dtype: torch.dtype
                  ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (B, 1, N, head_dim) in `dtype` of a grid with its `turns`."""
        still = self.tables((1, *grid[1:]), turns.device, torch.float32)
        width = axis_width(self.head_dim)
        cos, sin = (torch.cat((turn[:, :, None].expand(-1, -1, len(table), -1),
                               table[:, width:].expand(*turn.shape[:2], -1, -1)), -1)
                    .flatten(1, 2)[:, None].to(dtype)
                    for turn, table in zip(turns.chunk(2, -1), still, strict=True))
        return cos, sin

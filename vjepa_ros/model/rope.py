# SPDX-License-Identifier: Apache-2.0
"""Rotary position tables over time, height and width.

V-JEPA 2 (arXiv 2506.09985) gives each head three equal groups of channels that encode the
tubelet index, the patch row and the patch column; what is left over passes through unchanged.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

THETA = 10000.0
PRETRAINED_GRID = 16  # patches per side that 2.1 stretches every spatial grid to


def axis_width(head_dim: int) -> int:
    """Channels of one head that encode one axis (always even)."""
    return 2 * ((head_dim // 3) // 2)


@lru_cache(maxsize=8)
def rope_tables(tubelets: int, rows: int, cols: int, head_dim: int,
                version: str = '2.0') -> tuple[Tensor, Tensor]:
    """Cosine and signed sine tables for one token grid.

    A head x of `head_dim` channels is encoded by ``x * cos + swap(x) * sin`` with `swap`
    exchanging the two channels of each neighbouring pair, see `rotate`.

    Parameters
    ----------
    tubelets, rows, cols : int
        Token grid of the real input, row major with time slowest.
    head_dim : int
        Channels of one attention head.
    version : str
        '2.0' or '2.1'; they differ in the order of the angles and the spatial positions.

    Returns
    -------
    tuple of Tensor
        `cos` and `sin`, each (tubelets * rows * cols, head_dim) float32 on the CPU.

    """
    if version not in ('2.0', '2.1'):
        raise ValueError(f"RoPE version '{version}' is unknown; choose 2.0 or 2.1")
    # Tables outlive the call that needs them first, whatever mode and device are its defaults.
    with torch.inference_mode(False), torch.device('cpu'):
        width = axis_width(head_dim)
        grid = torch.meshgrid(torch.arange(tubelets, dtype=torch.float32),
                              _spatial_positions(rows, version),
                              _spatial_positions(cols, version), indexing='ij')
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


def _spatial_positions(count: int, version: str) -> Tensor:
    positions = torch.arange(count, dtype=torch.float32)
    if version == '2.0' or count == 1:  # a single row has position 0 in either version
        return positions
    return positions * ((PRETRAINED_GRID - 1) / (count - 1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Encode positions into queries or keys.

    Parameters
    ----------
    x : Tensor
        (..., N, head_dim).
    cos, sin : Tensor
        Tables of `rope_tables`, (N, head_dim), in the type of `x`.

    """
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(x * cos, swapped, sin)


class Positions:
    """Position tables in the precision a model needs, kept for the last few token grids.

    Parameters
    ----------
    head_dim : int
        Channels of one attention head.
    version : str
        See `rope_tables`.

    Attributes
    ----------
    kept : dict
        Tables by (grid, device, dtype).

    """

    def __init__(self, head_dim: int, version: str = '2.0'):
        self.head_dim = head_dim
        self.version = version
        self.kept: dict[tuple, tuple[Tensor, Tensor]] = {}

    def tables(self, grid: tuple[int, int, int], device: torch.device, dtype: torch.dtype,
               keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Cosines and sines of a grid, (N, head_dim), or of the tokens `keep`.

        For `keep` (B, n) int64 they are (B, 1, n, head_dim), the one being all heads.
        """
        key = (grid, device, dtype)
        if key not in self.kept:
            if len(self.kept) >= 4:
                self.kept.pop(next(iter(self.kept)))
            tables = rope_tables(*grid, self.head_dim, self.version)
            with torch.inference_mode(False):
                self.kept[key] = tuple(t.to(device, dtype) for t in tables)
        cos, sin = self.kept[key]
        return (cos, sin) if keep is None else (cos[keep][:, None], sin[keep][:, None])

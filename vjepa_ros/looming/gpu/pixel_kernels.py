# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA kernels for the pixels and samples of looming: a part of `gpu.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vjepa_ros.looming.flow import SAMPLE_PX
from vjepa_ros.looming.gpu.pace_source import MOST_PACES, PACE_THREADS
from vjepa_ros.looming.gpu.sources import MOST_VALUES, RANK_THREADS

_WARPS = 4         # patches or places of a block of threads
_EACH = 128        # threads of a block where each has a pixel or a sample of its own


def spread_over(count: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Blocks, and threads of a block, for so many things."""
    return (-(-count // _EACH), 1, 1), (_EACH, 1, 1)


@dataclass(frozen=True)
class PixelKernels:
    """Compiled kernels by their names; each call of a method is one launch or a few.

    N pairs of frames; all tensors float32.
    """

    made: Mapping[str, Callable[..., Any]]

    def search(self, newer: Tensor, older: Tensor, above: Tensor | None,
               grid: tuple[int, int]) -> Tensor:
        """`Level.search` of frames (N, h, w) with patches in a grid of columns and rows."""
        pairs, h, w = newer.shape
        newer, older = newer.contiguous(), older.contiguous()
        start = newer if above is None else above.contiguous()
        count = pairs * grid[0] * grid[1]
        rough, found = newer.new_empty((2, count, 2))
        weight = newer.new_empty((count, 64))
        shape = (-(-count // _WARPS), 1, 1), (32 * _WARPS, 1, 1)
        more, resumed = [pairs, w, h, *grid], int(above is not None)
        self.made['first'](*shape, [newer, older, start, rough, rough, weight, *more, resumed])
        self.made['second'](*shape, [newer, older, start, rough, found, weight, *more, resumed])
        dense = newer.new_empty((pairs, 2, h, w))
        self.made['spread'](*spread_over(dense.numel() // 2), [found, weight, dense, *more])
        return dense

    def pace(self, flow: Tensor, px: int) -> Tensor | None:
        """What `Pace` tells of a flow (N, 2, h, w) of a pixel for each `px`: (N, 3).

        None where the flow has too many pixels.
        """
        pairs, _, h, w = flow.shape
        if w * h > MOST_PACES:
            return None
        out = flow.new_empty((pairs, 3))
        self.made['pace']((pairs, 1, 1), (PACE_THREADS, 1, 1), [flow.contiguous(), out, w, h, px])
        return out

    def choose(self, given: Tensor, pace: Tensor, frames: int) -> Tensor:
        """Of the frames given the best one to compare with, see `DeviceLooming`.

        Its number, row and age, and whether to expect a large displacement: (4,).
        """
        out = given.new_empty(4)
        self.made['choose']((1, 1, 1), (32, 1, 1), [given, pace, out, frames])
        return out

    def guess(self, newer: Tensor, grown: Tensor, shrink: Tensor, wanted: Tensor,
              reach: tuple[int, int]) -> Tensor:
        """The motion (N, 3) that `GlobalMotion` finds.

        Parameters
        ----------
        newer : (N, h, w)
        grown : (N, scales, h, w), the older images
        shrink : (scales, 3) of the pixels
        wanted : (N,) 1 or 0
        reach : px to the side and up and down that are tried
        """
        pairs, scales, h, w = grown.shape
        mx, my = reach
        scores = newer.new_empty((pairs, scales, (2 * mx + 1) * (2 * my + 1)))
        count = scores.numel()
        self.made['match']((-(-count // _WARPS), 1, 1), (32 * _WARPS, 1, 1),
                           [newer.contiguous(), grown.contiguous(), scores, count, scales, w, h,
                            mx, my])
        out = newer.new_empty((pairs, 3))
        self.made['guess']((pairs, 1, 1), (32, 1, 1),
                           [scores, shrink, wanted.contiguous(), out, scales, mx, my])
        return out

    def believe(self, found: Tensor, back: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
        """Flow (N, 2, Hs, Ws) with the motion of the whole image, and trust in it (N, Hs, Ws)."""
        pairs, _, rows, cols = found.shape
        flow, trust = found.new_empty(found.shape), found.new_empty((pairs, rows, cols))
        self.made['believe'](*spread_over(trust.numel()),
                             [found.contiguous(), back.contiguous(), guess.contiguous(), flow,
                              trust, trust.numel(), rows, cols])
        return flow, trust

    def smooth(self, frames: Tensor, reduce: int) -> Tensor:
        """`Aligner.prepared` of frames (N, h, w)."""
        pairs, h, w = frames.shape
        out = frames.new_empty((pairs, h // reduce, w // reduce))
        self.made['smooth'](*spread_over(out.numel()), [frames.contiguous(), out, out.numel(),
                                                        w // reduce, h // reduce, reduce])
        return out

    def shift(self, newer: Tensor, older: Tensor, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Older frames moved by a flow, means (N, 2, Hs, Ws) of both, and what lies inside."""
        pairs, channels, rows, cols = flow.shape
        moved, means = older.new_empty(older.shape), flow.new_empty((pairs, 2, rows, cols))
        inside = flow.new_empty((pairs, rows, cols))
        self.made['shift'](*spread_over(inside.numel()),
                           [newer.contiguous(), older.contiguous(), flow.contiguous(), moved,
                            means, inside, inside.numel(), rows, cols, channels,
                            rows * SAMPLE_PX // newer.shape[1]])
        return moved, means, inside

    def evidence(self, newer: Tensor, moved: Tensor, flow: Tensor, exposure: Tensor) -> Tensor:
        """The seven means (N, 7, Hs, Ws) of `Samples`, about the last two parts of a flow."""
        pairs, channels, rows, cols = flow.shape
        means = flow.new_empty((pairs, 7, rows, cols))
        count = pairs * rows * cols
        self.made['evidence'](*spread_over(count),
                              [newer.contiguous(), moved, flow.contiguous(),
                               exposure.contiguous(), means, count, rows, cols, channels,
                               rows * SAMPLE_PX // newer.shape[1]])
        return means

    def share(self, means: Tensor, trust: Tensor, noise: Tensor, reduce: int) -> Tensor:
        """`signal_share` times trust (N, Hs, Ws)."""
        out = trust.new_empty(trust.shape)
        self.made['share'](*spread_over(out.numel()),
                           [means, trust.contiguous(), noise, out, out.numel(), *out.shape[1:],
                            reduce])
        return out

    def table(self, means: Tensor, trust: Tensor, inside: Tensor, side: int) -> Tensor:
        """Sums (N, blocks + 1, 26) of blocks of side x side samples; the last row is empty."""
        pairs, rows, cols = trust.shape
        out = means.new_empty((pairs, rows // side * (cols // side) + 1, 26))
        count = out.shape[0] * out.shape[1]
        self.made['table'](*spread_over(count), [means, trust.contiguous(), inside.contiguous(),
                                                 out, count, rows, cols, side])
        return out

    @staticmethod
    def has_room(values: Tensor) -> bool:
        """Whether samples (N, Hs, Ws) are not too many for `exposure` and `noise`."""
        return -(-values.shape[1] // 2) * -(-values.shape[2] // 2) <= MOST_VALUES

    def exposure(self, means: Tensor, inside: Tensor) -> Tensor:
        """Gain and offset (N, 2) of means (N, 2, Hs, Ws), newer and older, where inside."""
        pairs, _, rows, cols = means.shape
        out = means.new_empty((pairs, 2))
        self.made['expose']((pairs, 1, 1), (RANK_THREADS, 1, 1),
                    [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

    def noise(self, means: Tensor, inside: Tensor) -> Tensor:
        """(N,) of `noise_energy`, from the seven means (N, 7, Hs, Ws) of samples."""
        pairs, _, rows, cols = means.shape
        out = means.new_empty(pairs)
        self.made['quarter']((pairs, 1, 1), (RANK_THREADS, 1, 1),
                     [means.contiguous(), inside.contiguous(), out, rows, cols])
        return out

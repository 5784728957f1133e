# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which older frame to compare the newest one with, and what to believe of the displacement.

`LoomingEstimator._older_frame` and the beginning of `_compare`, on a device. N pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vjepa_ros.looming.estimator import MOST_EXPANSION
from vjepa_ros.looming.flow import SAMPLE_PX
from vjepa_ros.looming.gpu.flow import look_up, pixel_grid
from vjepa_ros.looming.gpu.kernels import LoomingKernels

MOST_FRAMES = 32    # older frames among which one is chosen
# Numbers before the rows and ages of these: newest and near row, age of near [s], whether that
# is alone, the displacement [px] and the age [s] that are best and longest.
HEAD = 6


def choose(given: Tensor, pace: Tensor, kernels: LoomingKernels | None = None
           ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The best frame to compare with.

    Parameters
    ----------
    given : (HEAD + 2 MOST_FRAMES,) see there; the age of a frame that is none is inf
    pace : (1, 3) of `Pace`, between the newest and the near frame

    Returns
    -------
    tuple of Tensor
        Its number, row and age [s], and whether to expect a large displacement; (1,) each.
    """
    if kernels is not None:
        return kernels.choose(given, pace, MOST_FRAMES).split(1)
    rows, ages = given[HEAD:].chunk(2)
    typical, fastest, expansion = pace[0].clamp_min(1e-3).split(1)
    alone, goal, longest = given[3:HEAD].split(1)
    wanted = given[2] * torch.minimum(torch.minimum(goal / typical, 2 * goal / fastest),
                                      MOST_EXPANSION / expansion)
    best = (ages / torch.minimum(wanted, longest)).log().abs().argmin(0, keepdim=True)
    large = (alone > 0.5) | (fastest * ages[best] / given[2] > goal)
    return best.float(), rows[best], ages[best], large.float()


class Belief:
    """Of displacements in frames of one size."""

    def __init__(self, size: tuple[int, int], device: torch.device,
                 kernels: LoomingKernels | None = None) -> None:
        self._kernels = kernels
        w, h = (n // SAMPLE_PX for n in size)
        at = (torch.as_tensor(pixel_grid(w, h), device=device) + 0.5) * SAMPLE_PX - 0.5
        self._at = at.permute(2, 0, 1)                                                # 2 Hs Ws
        self._per_sample = torch.tensor([2 / (n - 1) for n in (w, h)], device=device)

    def __call__(self, found: Tensor, back: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
        """Displacement of all, and trust in it by the way back.

        Parameters
        ----------
        found, back : (N, 2, Hs, Ws) px newer to older and back, of the older frame as `guess`
            has it
        guess : (N, 3) scale and shift of the whole image

        Returns
        -------
        Tensor, Tensor
            (N, 2, Hs, Ws) px; (N, Hs, Ws) 0 to 1.
        """
        if self._kernels is not None:
            return self._kernels.believe(found, back, guess)
        home = (self._at + found + 0.5) / SAMPLE_PX - 0.5
        home = look_up(back, home.permute(0, 2, 3, 1) * self._per_sample - 1)
        miss = (found + home).square().sum(1).sqrt()
        scale, shift = guess[:, :1, None, None], guess[:, 1:, None, None]
        flow = (self._at + found) * scale + shift - self._at
        allowed = 1.5 + 0.05 * flow.square().sum(1).sqrt()
        return flow, 1 / (1 + (miss / allowed).square().square())

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Distributions over a positive quantity that may also be unbounded, as bins of its logarithm.

B clips, K bins between edges; one more bin, the last, stands for: beyond the last edge, or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class LogBins:
    """K bins evenly spaced in the logarithm, and one for what lies beyond.

    Attributes
    ----------
    first, last : float
        Outer edges, above 0, in the unit of the quantity.
    count : int
        K.

    """

    first: float
    last: float
    count: int

    @property
    def step(self) -> float:
        """Width of a bin in the natural logarithm."""
        return math.log(self.last / self.first) / self.count

    @property
    def edges(self) -> tuple[float, ...]:
        """The K + 1 borders, smallest first."""
        return tuple(self.first * math.exp(self.step * k) for k in range(self.count + 1))

    def index(self, values: Tensor) -> Tensor:
        """Bin of each value, the target of a classification.

        Parameters
        ----------
        values : Tensor
            At least 0; inf for none. Below the first edge they belong to the first bin, from
            the last edge on to the last.

        Returns
        -------
        Tensor
            int64 of the same shape, 0..K.

        """
        return self._place(values).long()

    def cumulative(self, probability: Tensor, values: Tensor) -> Tensor:
        """Probability of being below values, linear in their logarithm inside a bin.

        Parameters
        ----------
        probability : Tensor
            (B, K+1) of the bins.
        values : Tensor
            (B,) or (B, M), above 0. Up to the first edge the result is 0; from the last edge
            on it stays that of the last edge.

        Returns
        -------
        Tensor
            0..1, in the shape of `values`; differentiable in `probability`.

        """
        place = self._place(values)
        lower = place.floor().clamp(max=self.count - 1)
        # Rounding lets a sum of probabilities pass 1 by a little, and what is no probability is
        # refused further on.
        until = F.pad(probability[:, :-1].cumsum(-1).clamp(max=1.0), (1, 0))  # B K+1, at the edges
        columns = lower.long().view(len(probability), -1)
        below, above = until.gather(1, columns), until.gather(1, columns + 1)
        return below.lerp(above, (place - lower).view_as(below)).view_as(values)

    def expected_log(self, logits: Tensor) -> Tensor:
        """Mean of the logarithm, given that it is not beyond: (B, K+1) -> (B,)."""
        probability = logits.float()[:, :-1].softmax(-1)
        middle = torch.arange(self.count, device=logits.device) + 0.5
        return probability @ (math.log(self.first) + self.step * middle)

    def _place(self, values: Tensor) -> Tensor:
        """Values counted in bins since the first edge, 0..K."""
        return ((values.float().log() - math.log(self.first)) / self.step).clamp(0, self.count)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw random numbers for a whole batch of scenes from one seeded generator on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

Number = float | Tensor


class SceneRng:
    """Random draws for ``count`` scenes; every method returns (count, *shape) on the CPU.

    The same seed and count give the same draws on every machine, whatever device the scenes
    are moved to afterwards. Bounds may be numbers or tensors that broadcast to the result.
    """

    def __init__(self, seed: int, count: int) -> None:
        if count < 1:
            raise ValueError(f'count is {count}; at least one scene is drawn')
        self.count = count
        self.generator = torch.Generator().manual_seed(seed)

    def unit(self, *shape: int) -> Tensor:
        """Draw evenly from 0..1."""
        return torch.rand(self.count, *shape, generator=self.generator)

    def uniform(self, low: Number, high: Number, *shape: int) -> Tensor:
        """Draw evenly between two bounds."""
        return low + (high - low) * self.unit(*shape)

    def log(self, low: Number, high: Number, *shape: int) -> Tensor:
        """Draw evenly in the logarithm between two positive bounds."""
        low, high = (torch.as_tensor(v, dtype=torch.float32) for v in (low, high))
        return low * (high / low) ** self.unit(*shape)

    def normal(self, deviation: Number, *shape: int) -> Tensor:
        """Draw from a normal distribution of zero mean."""
        return deviation * torch.randn(self.count, *shape, generator=self.generator)

    def chance(self, probability: Number, *shape: int) -> Tensor:
        """Draw true with a probability."""
        return self.unit(*shape) < probability

    def sign(self, *shape: int) -> Tensor:
        """Draw -1 or 1."""
        return torch.where(self.unit(*shape) < 0.5, -1.0, 1.0)

    def pick(self, weights: Tensor, *shape: int) -> Tensor:
        """Draw an index, int64, in proportion to weights of shape (n,) or (count, ..., n)."""
        edges = weights.cumsum(-1)
        drawn = self.unit(*shape) * edges[..., -1]
        return (drawn.unsqueeze(-1) >= edges[..., :-1]).sum(-1)

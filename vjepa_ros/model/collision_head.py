# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The head of BADAS-Open: will this vehicle collide, from the features of a fine-tuned encoder.

Architecture after arXiv 2510.14876; the names of parameters equal those of the published
checkpoint. B clips, N tokens, D width.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

TEMPERATURE = 2.0  # of the published probabilities
HEADS = 8


class TokenMixer(nn.Module):
    """Self-attention over all tokens and their mean: (B, N, D) -> (B, D)."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.attention(x, x, x, need_weights=False)[0]).mean(dim=1)


class Layers(nn.Module):
    """Linear layers with GELU and layer norm between them."""

    def __init__(self, widths: list[int]):
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise(widths[:-1]):
            # The published names count a dropout, which does nothing after training.
            layers += [nn.Linear(before, after), nn.GELU(), nn.LayerNorm(after), nn.Identity()]
        self.classifier = nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(x)


class CollisionHead(nn.Module):
    """Scores of 'no collision' and 'collision'.

    It has no `set_branch_precision` and runs in float32, as `Heads` do: beside its encoder it
    costs about a fiftieth, and scores are what thresholds are set on.

    Parameters
    ----------
    dim : int
        Width of the features.
    hidden : sequence of int
        Widths of the hidden layers.
    heads : int
        Attention heads.

    """

    def __init__(self, dim: int = 1024, hidden: tuple[int, ...] = (768, 768), heads: int = HEADS):
        super().__init__()
        if dim % heads:
            raise ValueError(f'features {dim} wide cannot have {heads} heads: the width must be '
                             'a multiple of them')
        self.temporal_processor = TokenMixer(dim, heads)
        self.classifier = Layers([dim, *hidden, 2])

    def forward(self, features: Tensor) -> Tensor:
        """(B, T', Hp, Wp, D) or (B, N, D) features -> (B, 2) scores."""
        return self.classifier(self.temporal_processor(features.flatten(1, -2)))

    def probability(self, features: Tensor) -> Tensor:
        """Probability of a collision as published, (B,)."""
        return torch.softmax(self.forward(features) / TEMPERATURE, dim=-1)[:, 1]

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The V-JEPA 2 predictor: features of the tokens that an encoder did not see.

Nothing here runs it: it tells whether the predictor of a checkpoint is complete.

Architecture after arXiv 2506.09985, and arXiv 2603.14482 for version 2.1; the names of
parameters equal those of the published checkpoints. B clips, N tokens, D width of the encoder,
P of the predictor.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vjepa_ros.model.blocks import Block, EPS, ModuleList
from vjepa_ros.model.rope import Positions
from vjepa_ros.model.variants import Variant


class _MaskedPredictor(nn.Module):
    """The part that the predictors of all versions share: mask tokens and blocks."""

    def __init__(self, dim: int, width: int = 384, depth: int = 12, heads: int = 12,
                 masks: int = 1):
        super().__init__()
        if width % heads or width // heads < 6:
            raise ValueError(f'a predictor {width} wide cannot have {heads} heads: the width '
                             'must be a multiple of them, with at least 6 channels each')
        variant = Variant('predictor', width, depth, heads, 4 * width)
        self.predictor_embed: nn.Module = nn.Linear(dim, width)
        self.mask_tokens = nn.ParameterList(
            nn.Parameter(torch.zeros(1, 1, width)) for _ in range(masks))
        self.predictor_blocks = ModuleList(Block(variant) for _ in range(depth))
        self.predictor_norm = nn.LayerNorm(width, eps=EPS)
        self.predictor_proj = nn.Linear(width, dim)
        self._positions = Positions(variant.head_dim)

    def _mix(self, context: Tensor, keep: Tensor, targets: Tensor, grid: tuple[int, int, int],
             mask: int, kind: Tensor | None = None) -> Tensor:
        """Run context and mask tokens, to all of which `kind` is added, through the blocks."""
        tokens = self.mask_tokens[mask % len(self.mask_tokens)].expand(*targets.shape, -1)
        x = torch.cat((self.predictor_embed(context).float(), tokens), dim=1)
        if kind is not None:
            x = x + kind
        cos, sin = self._positions.tables(grid, x.device, self.predictor_norm.weight.dtype)
        # Attention ignores the order of tokens: their positions travel with them, for all heads.
        at = torch.cat((keep, targets), dim=1)
        for block in self.predictor_blocks:
            x = block(x, cos[at][:, None], sin[at][:, None])
        return x


class Predictor(_MaskedPredictor):
    """Predict masked tokens from the encoded context."""

    def forward(self, context: Tensor, keep: Tensor, targets: Tensor,
                grid: tuple[int, int, int], mask: int = 0) -> Tensor:
        """Predict tokens (B, m, D) from features (B, n, D) of others.

        `keep, targets`: (B, n) and (B, m) int64, numbers of the seen and of the wanted tokens in
        the grid, row major with time slowest.
        """
        x = self._mix(context, keep, targets, grid, mask)
        return self.predictor_proj(self.predictor_norm(x[:, keep.shape[1]:]))


class DensePredictor(_MaskedPredictor):
    """The predictor of version 2.1: predicts the tokens that were seen as well.

    It reads `levels` of dense features, 1 or 4. Spatial positions are those of the patches, as in
    the published way to load a predictor. The published training stretched them, which makes no
    difference at 256 pixels. The predictors of the distilled encoders B and L predict features
    of G: `out` wide.
    """

    def __init__(self, dim: int, width: int = 384, depth: int = 12, heads: int = 12,
                 masks: int = 8, levels: int = 1, out: int | None = None):
        super().__init__(dim, width, depth, heads, masks)
        out = out or levels * dim
        if levels > 1:
            self.predictor_embed = nn.Sequential(
                nn.Linear(levels * dim, dim), nn.GELU(), nn.Linear(dim, width))
        self.predictor_proj = nn.Linear(width, out)
        self.predictor_proj_context = nn.Linear(width, out)
        self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, width))
        self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, width))
        self._positions = Positions(width // heads, '2.1', stretched=False)

    def forward(self, context: Tensor, keep: Tensor, targets: Tensor,
                grid: tuple[int, int, int], mask: int = 0, image: bool = False
                ) -> tuple[Tensor, Tensor]:
        """Predict wanted and seen tokens, see `Predictor`."""
        kind = self.img_mod_embed if image else self.video_mod_embed
        x = self.predictor_norm(self._mix(context, keep, targets, grid, mask, kind))
        seen = keep.shape[1]
        return self.predictor_proj(x[:, seen:]), self.predictor_proj_context(x[:, :seen])

# SPDX-License-Identifier: Apache-2.0
"""The V-JEPA 2 predictor: features of the tokens that an encoder did not see.

Architecture after arXiv 2506.09985; the names of parameters equal those of the published
checkpoints. Needed for training only. B clips, N tokens, D width of the encoder, P of the
predictor.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vjepa_ros.model.blocks import EPS, Block, fill_random
from vjepa_ros.model.rope import Positions
from vjepa_ros.model.variants import Variant


class Predictor(nn.Module):
    """Predict masked tokens from the encoded context.

    Parameters
    ----------
    dim : int
        Width of the encoder.
    width : int
        Width of the predictor.
    depth : int
        Blocks.
    heads : int
        Attention heads; width / heads is at least 6, so that all three axes have a place.
    masks : int
        Kinds of masks, each with a learned token of its own.

    """

    def __init__(self, dim: int, width: int = 384, depth: int = 12, heads: int = 12,
                 masks: int = 1):
        super().__init__()
        if width % heads or width // heads < 6:
            raise ValueError(f'a predictor {width} wide cannot have {heads} heads: the width '
                             'must be a multiple of them, with at least 6 channels each')
        variant = Variant('predictor', width, depth, heads, 4 * width)
        self.predictor_embed = nn.Linear(dim, width)
        self.mask_tokens = nn.ParameterList(
            nn.Parameter(torch.zeros(1, 1, width)) for _ in range(masks))
        self.predictor_blocks = nn.ModuleList(Block(variant) for _ in range(depth))
        self.predictor_norm = nn.LayerNorm(width, eps=EPS)
        self.predictor_proj = nn.Linear(width, dim)
        self._positions = Positions(variant.head_dim)

    def forward(self, context: Tensor, keep: Tensor, targets: Tensor,
                grid: tuple[int, int, int], mask: int = 0) -> Tensor:
        """Predict tokens.

        Parameters
        ----------
        context : Tensor
            (B, n, D) output of ``Encoder.forward(clip, keep)``.
        keep, targets : Tensor
            (B, n) and (B, m) int64, numbers of the seen and of the wanted tokens in the grid,
            row major with time slowest.
        grid : tuple of int
            Tubelets, patch rows and columns of the whole clip.
        mask : int
            Kind of mask, which chooses the mask token.

        Returns
        -------
        Tensor
            (B, m, D), in the order of `targets`.

        """
        tokens = self.mask_tokens[mask].expand(*targets.shape, -1)
        x = torch.cat((self.predictor_embed(context).float(), tokens), dim=1)
        cos, sin = self._positions.tables(grid, x.device, self._dtype,
                                          torch.cat((keep, targets), dim=1))
        # Attention does not care about the order: the positions travel with the tokens.
        for block in self.predictor_blocks:
            x = block(x, cos, sin)
        return self.predictor_proj(self.predictor_norm(x[:, keep.shape[1]:]))

    def prepare(self, grid: tuple[int, int, int], device: torch.device) -> None:
        """Make the position tables for a grid, which torch.compile cannot trace."""
        self._positions.tables(grid, device, self._dtype)

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters as `Encoder.init_random` does; the mask tokens start at zero."""
        fill_random(self, self.predictor_blocks, torch.Generator().manual_seed(seed))
        for token in self.mask_tokens:
            token.zero_()

    @property
    def _dtype(self) -> torch.dtype:
        return self.predictor_blocks[0].attn.qkv.weight.dtype

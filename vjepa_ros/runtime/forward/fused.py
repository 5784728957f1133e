# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder with the kernels of `vjepa_ros.runtime.forward.kernels`.

The same arithmetic as `Encoder.forward`, in half precision between float32 norms and a float32
residual stream: matrix products by cuBLAS, attention by cuDNN or FlashAttention, and one kernel
for each chain of small steps between them. It allocates through PyTorch and waits for nothing,
so it can be captured in a CUDA graph.

B clips, N tokens of each, M = B N, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import Block, EPS, bias_of
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.rope import rope_tables
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH, TUBELET
from vjepa_ros.runtime.forward.base import FUSED, Normalise
from vjepa_ros.runtime.forward.kernels import Steps, build
from vjepa_ros.runtime.torch_private import addmm_gelu

GREY, UNIT = 128, 1 / 64   # (pixel - GREY) UNIT is exact in half precision, and centred


class Layer(NamedTuple):
    """Weights and biases of one block, shared with it; matrices are transposed."""

    norm1: tuple[Tensor, Tensor]
    qkv: tuple[Tensor, Tensor]
    proj: tuple[Tensor, Tensor]
    norm2: tuple[Tensor, Tensor]
    fc1: tuple[Tensor, Tensor]
    fc2: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, block: Block) -> Layer:
        """Take the weights of a block."""
        def pair(module: nn.Linear | nn.LayerNorm) -> tuple[Tensor, Tensor]:
            return module.weight.detach().t(), module.bias.detach()

        return cls(pair(block.norm1), pair(block.attn.qkv), pair(block.attn.proj),
                   pair(block.norm2), pair(block.mlp.fc1), pair(block.mlp.fc2))

    def hidden(self, y: Tensor, steps: Steps) -> Tensor:
        """Compute the hidden layer of the MLP, with its GELU, of (M, D) in half precision."""
        matrix, bias = self.fc1
        if y.dtype == torch.bfloat16:
            return addmm_gelu(bias, y, matrix)
        hidden = torch.addmm(bias, y, matrix)
        steps.gelu(hidden)
        return hidden


class FusedEncoder:
    """An encoder for uint8 clips of one shape on a CUDA device; a `Forward`.

    Parameters
    ----------
    encoder : Encoder
        On the device, its branches in float16 or bfloat16. Its weights are shared, not copied,
        except for the patch embedding.
    clip_shape : (int, int, int, int)
        T, H, W, 3.
    steps : Steps, optional
        The steps between the products; the kernels when omitted.

    Raises
    ------
    KernelsMissing
        If the kernels cannot be made here.

    """

    kind: str = FUSED
    note: str = ''

    def __init__(self, encoder: Encoder, clip_shape: tuple[int, ...],
                 steps: Steps | None = None):
        variant = encoder.variant
        weight = encoder.patch_embed.proj.weight
        self.grid = token_grid_of(clip_shape)
        self.dim, self.heads = variant.dim, variant.heads
        self.dtype, device = encoder.blocks[0].attn.qkv.weight.dtype, weight.device
        self.normalise = Normalise(device)
        self._black = torch.tensor(-GREY * UNIT)
        if steps is None:
            with torch.cuda.device(device):
                steps = build(variant.dim, variant.head_dim, self.grid, self.dtype, EPS)
        self.steps = steps
        tables = rope_tables(*self.grid, variant.head_dim, encoder.version)
        self._cos, self._sin = (t.to(device) for t in tables)
        self._embed = self._embedding(encoder)
        self._layers = [Layer.of(block) for block in encoder.blocks]
        last = encoder.norm if encoder.version == '2.0' else encoder.norms_block[-1]
        self._norm = (last.weight.detach(), last.bias.detach())

    @property
    def nbytes(self) -> int:
        """Bytes of weights besides those of the encoder."""
        return 0

    def _embedding(self, encoder: Encoder) -> tuple[Tensor, Tensor]:
        """Convert the patch embedding to the input that `_tokens` makes."""
        proj = encoder.patch_embed.proj
        device = proj.weight.device
        mean = torch.tensor(IMAGENET_MEAN, device=device, dtype=torch.float64).view(3, 1, 1, 1)
        std = torch.tensor(IMAGENET_STD, device=device, dtype=torch.float64).view(3, 1, 1, 1)
        exact = proj.weight.detach().double() / std
        shift = (exact * (GREY / 255 - mean)).flatten(1).sum(1)
        bias = bias_of(proj).detach().double() + shift
        if encoder.version != '2.0':
            bias = bias + encoder.video_mod_embed.detach().flatten().double()
        ordered = (exact / (255 * UNIT)).permute(2, 3, 4, 1, 0).flatten(0, 3)
        return ordered.to(self.dtype).contiguous(), bias.float()

    def __call__(self, pixels: Tensor) -> Tensor:
        """Compute features (B, T', Hp, Wp, D) float32 of clips (B, T, H, W, 3) uint8."""
        def attend(number: int, qkv: Tensor) -> Tensor:
            self.steps.rotate(qkv, self._cos, self._sin)
            return F.scaled_dot_product_attention(*self._split(qkv, len(pixels)))

        matrix, bias = self._embed
        return self._blocks(self._tokens(pixels) @ matrix + bias, attend, len(pixels))

    def _blocks(self, x: Tensor, attend: Callable[[int, Tensor], Tensor], clips: int) -> Tensor:
        """Apply all blocks and the last norm to tokens (M, D) float32, as the bias makes them.

        `attend` makes of the number of a block, and of queries, keys and values (M, 3 D), what is
        seen (B, heads, N, D / heads).
        """
        y = torch.empty_like(x, dtype=self.dtype)
        branch = None
        for number, layer in enumerate(self._layers):
            seen = attend(number, self._queries(number, x, branch, y))
            branch = torch.addmm(layer.proj[1], seen.transpose(1, 2).reshape(x.shape),
                                 layer.proj[0])
            branch = self._mlp(number, x, branch, y)
        out = torch.empty_like(x)
        self.steps.norm(x, branch, *self._norm, out)
        return out.view(clips, *self.grid, self.dim)

    def _split(self, qkv: Tensor, clips: int) -> tuple[Tensor, Tensor, Tensor]:
        """View queries, keys and values (M, 3 D) as (B, heads, N, D / heads) each."""
        q, k, v = qkv.view(clips, -1, 3, self.heads, self.dim // self.heads).permute(2, 0, 3, 1, 4)
        return q, k, v

    def _tokens(self, pixels: Tensor) -> Tensor:
        """Cut clips (B, T, H, W, 3) uint8 into tokens (M, 1536) of (pixel - GREY) UNIT."""
        _, rows, cols = self.grid
        # A row of a patch is 48 bytes: move it as six numbers, then convert all in one pass.
        cut = pixels.flatten(1).view(torch.int64).view(-1, TUBELET, rows, PATCH, cols, 6)
        cut = cut.permute(0, 2, 4, 1, 3, 5).flatten().view(torch.uint8)
        tokens = torch.empty(cut.shape, device=pixels.device, dtype=self.dtype)
        torch.add(self._black, cut, alpha=UNIT, out=tokens)
        return tokens.view(-1, TUBELET * PATCH * PATCH * 3)

    def _queries(self, number: int, x: Tensor, branch: Tensor | None, y: Tensor) -> Tensor:
        """Compute queries, keys and values (M, 3 D); `x` (M, D) += `branch`, writes `y`."""
        layer = self._layers[number]
        self.steps.norm(x, branch, *layer.norm1, y)
        return torch.addmm(layer.qkv[1], y, layer.qkv[0])

    def _mlp(self, number: int, x: Tensor, branch: Tensor, y: Tensor) -> Tensor:
        """Compute the output of the MLP (M, D); `x` (M, D) += `branch`, writes `y`."""
        layer = self._layers[number]
        self.steps.norm(x, branch, *layer.norm2, y)
        return torch.addmm(layer.fc2[1], self._hidden(y, layer), layer.fc2[0])

    def _hidden(self, y: Tensor, layer: Layer) -> Tensor:
        return layer.hidden(y, self.steps)


def token_grid_of(clip_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return tubelets, patch rows and columns of clips (T, H, W, 3)."""
    frames, height, width, _ = clip_shape
    return frames // TUBELET, height // PATCH, width // PATCH

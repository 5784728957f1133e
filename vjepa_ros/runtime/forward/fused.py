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

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.blocks import EPS, Block
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.rope import rope_tables
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH, TUBELET
from vjepa_ros.runtime.forward.kernel_source import GREY, UNIT
from vjepa_ros.runtime.forward.kernels import TOKEN_PIXELS, build
from vjepa_ros.runtime.forward.reference_ops import Steps


class Layer(NamedTuple):
    """Weights of one block, matrices transposed."""

    norm1: tuple[Tensor, Tensor]
    qkv: tuple[Tensor, Tensor]
    proj: tuple[Tensor, Tensor]
    norm2: tuple[Tensor, Tensor]
    fc1: tuple[Tensor, Tensor]
    fc2: tuple[Tensor, Tensor]


class FusedEncoder:
    """An encoder for uint8 clips of one shape, on a CUDA device with the kernels.

    Parameters
    ----------
    encoder : Encoder
        On the device, its branches in float16 or bfloat16. Its weights are shared, not copied,
        but for the patch embedding.
    clip_shape : (int, int, int, int)
        T, H, W, 3.
    steps : Steps, optional
        What lies between the products; the kernels when omitted.

    Raises
    ------
    KernelsMissing
        When the kernels cannot be made here.
    """

    def __init__(self, encoder: Encoder, clip_shape: tuple[int, ...],
                 steps: Steps | None = None):
        frames, height, width, _ = clip_shape
        variant = encoder.variant
        weight = encoder.patch_embed.proj.weight
        self.grid = (frames // TUBELET, height // PATCH, width // PATCH)
        self.dim, self.heads = variant.dim, variant.heads
        self.dtype, device = encoder.blocks[0].attn.qkv.weight.dtype, weight.device
        if steps is None:
            with torch.cuda.device(device):
                steps = build(variant.dim, variant.head_dim, self.grid, self.dtype, EPS)
        self.steps = steps
        tables = rope_tables(*self.grid, variant.head_dim, encoder.version)
        self._cos, self._sin = (t.to(device) for t in tables)
        self._embed = self._embedding(encoder)
        self._layers = [_layer(block) for block in encoder.blocks]
        last = encoder.norm if encoder.version == '2.0' else encoder.norms_block[-1]
        self._norm = (last.weight.detach(), last.bias.detach())

    def _embedding(self, encoder: Encoder) -> tuple[Tensor, Tensor]:
        """Patch embedding of what the kernel makes of pixels, in the order of the kernel."""
        proj = encoder.patch_embed.proj
        device = proj.weight.device
        mean = torch.tensor(IMAGENET_MEAN, device=device, dtype=torch.float64).view(3, 1, 1, 1)
        std = torch.tensor(IMAGENET_STD, device=device, dtype=torch.float64).view(3, 1, 1, 1)
        exact = proj.weight.detach().double() / std
        shift = (exact * (GREY / 255 - mean)).flatten(1).sum(1)
        bias = proj.bias.detach().double() + shift
        if encoder.version != '2.0':
            bias = bias + encoder.video_mod_embed.detach().flatten().double()
        ordered = (exact / (255 * UNIT)).permute(2, 3, 4, 1, 0).reshape(TOKEN_PIXELS, -1)
        return ordered.to(self.dtype).contiguous(), bias.float()

    def __call__(self, pixels: Tensor) -> Tensor:
        """Features (B, T', Hp, Wp, D) float32 of clips (B, T, H, W, 3) uint8, contiguous."""
        steps, clips = self.steps, pixels.shape[0]
        n = self.grid[0] * self.grid[1] * self.grid[2]
        m, d = clips * n, self.dim
        half = {'device': pixels.device, 'dtype': self.dtype}
        tokens = torch.empty(m, TOKEN_PIXELS, **half)
        steps.patches(pixels, tokens)
        matrix, bias = self._embed
        x = (tokens @ matrix).float().add_(bias)
        y = torch.empty(m, d, **half)
        branch = None
        for number, layer in enumerate(self._layers):
            qkv = self._queries(number, x, branch, y)
            steps.rotate(qkv, self._cos, self._sin)
            q, k, v = qkv.view(clips, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(m, d)
            branch = torch.addmm(layer.proj[1], seen, layer.proj[0])
            branch = self._mlp(number, x, branch, y)
        out = torch.empty(m, d, device=pixels.device)
        steps.norm(x, branch, *self._norm, out)
        return out.view(clips, *self.grid, d)

    def _queries(self, number: int, x: Tensor, branch: Tensor | None, y: Tensor) -> Tensor:
        """Queries, keys and values (M, 3 D) of a layer; `x` (M, D) += `branch`, `y` is written."""
        layer = self._layers[number]
        self.steps.norm(x, branch, *layer.norm1, y)
        return torch.addmm(layer.qkv[1], y, layer.qkv[0])

    def _mlp(self, number: int, x: Tensor, branch: Tensor, y: Tensor) -> Tensor:
        """What the MLP of a layer adds (M, D); `x` (M, D) += `branch`, `y` is written."""
        layer = self._layers[number]
        self.steps.norm(x, branch, *layer.norm2, y)
        return torch.addmm(layer.fc2[1], self._hidden(y, layer), layer.fc2[0])

    def _hidden(self, y: Tensor, layer: Layer) -> Tensor:
        """First half of the MLP with its GELU."""
        bias, matrix = layer.fc1[1], layer.fc1[0]
        if self.dtype == torch.bfloat16:
            # As a part of the product, in the form with tanh: 5e-4 off at most, where one step
            # of bf16 is 4e-3 to 8e-3.
            return torch._addmm_activation(bias, y, matrix, use_gelu=True)
        hidden = torch.addmm(bias, y, matrix)
        self.steps.gelu(hidden)
        return hidden


def _layer(block: Block) -> Layer:
    def linear(module: torch.nn.Linear) -> tuple[Tensor, Tensor]:
        return module.weight.detach().T, module.bias.detach()

    def norm(module: torch.nn.LayerNorm) -> tuple[Tensor, Tensor]:
        return module.weight.detach(), module.bias.detach()

    return Layer(norm(block.norm1), linear(block.attn.qkv), linear(block.attn.proj),
                  norm(block.norm2), linear(block.mlp.fc1), linear(block.mlp.fc2))

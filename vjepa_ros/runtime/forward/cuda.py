# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder with the CUDA kernels of `encoder.cu` between its matrix products.

PyTorch spends a kernel, and a trip through memory, on every elementary step there. Matrix products
are by cuBLAS, attention by cuDNN or FlashAttention. Nothing waits, so a CUDA graph can hold it.
B clips, N tokens of each, D width, H heads, C channels of a head.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import attention

from vjepa_ros.model.blocks import EPS, LayerMemory, Steps, bias_of
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.rope import rope_tables
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH, TUBELET
from vjepa_ros.runtime.cuda.compiler import (
    Kernel,
    KernelsMissing,
    compile_kernel,
    one_each,
    source_of,
)
from vjepa_ros.runtime.streaming import StoredLayer, Work, by_clip

NORM_THREADS = 128   # of the norm, at most: four values of a row each, and again
BLOCK = 256
WIDE = 8             # half precision values that a thread moves at once (16 bytes)
GREY, UNIT = 128, 1 / 64   # (pixel - GREY) UNIT is exact in half precision, and centred
CHOOSING = threading.Lock()     # which attention the process uses


@dataclass(frozen=True)
class Kernels:
    """The kernels of a network on a device; each call is one launch on the current stream."""

    made: Mapping[str, Kernel]
    dim: int

    def norm(self, x: Tensor, branch: Tensor | None, norm: nn.LayerNorm, out: Tensor) -> None:
        """Add `branch` (B, N, D) to `x` float32, and write its layer norm to `out`."""
        name = 'norm' if branch is None else 'add_norm'
        if out.dtype == torch.float32:
            name = 'last_norm'
        self.made[name]((x.numel() // self.dim, 1, 1), (_norm_threads(self.dim), 1, 1),
                        [x, x if branch is None else branch, norm.weight.detach(),
                         norm.bias.detach(), out])

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotate queries and keys of `qkv` (B, N, 3 D) in place by tables (N, C) float32."""
        count = qkv.numel() // 3 * 2 // WIDE
        self.made['rotate'](*one_each(count, BLOCK), [qkv, cosine, sine, count])

    def remember(self, qkv: Tensor, cosine: Tensor, sine: Tensor, kept: Tensor, slots: Tensor,
                 room: Tensor) -> None:
        """Rotate a tubelet of each clip, and put its keys and values beside earlier ones.

        `qkv`: (B, N, 3 D), queries rotate in place; `cosine, sine`: (B, N, C) float32; `kept`:
        (2, H, S, N, C); `slots`: (B, W) int64; `room`: (2, H, B W, N, C), see `CacheSlots`.
        """
        count = (qkv.numel() // 3 + room.numel()) // WIDE
        self.made['remember'](*one_each(count, BLOCK),
                              [qkv, cosine, sine, kept, slots, room, slots.numel(),
                               slots.shape[1], kept.shape[2], count])

    def gelu(self, values: Tensor) -> None:
        count = values.numel() // WIDE
        self.made['gelu'](*one_each(count, BLOCK), [values, count])


def build(dim: int, head_dim: int, grid: tuple[int, int, int], dtype: torch.dtype) -> Kernels:
    if dim % 64 or head_dim % 8:
        raise KernelsMissing(f'they need a width that is a multiple of 64 and heads of a '
                             f'multiple of 8 channels, not {dim} and {head_dim}')
    threads = _norm_threads(dim)
    known = {'D': dim, 'HEAD': head_dim, 'N': grid[0] * grid[1] * grid[2], 'THREADS': threads,
             'EACH': -(-dim // 4 // threads), 'EPS': f'{EPS}f',
             'HALF_IS_BF16': int(dtype == torch.bfloat16)}
    # The name of each kernel in its source, and what is defined for it.
    wanted = {'add_norm': ('add_norm', {'ADD': 1}), 'norm': ('add_norm', {}),
              'last_norm': ('add_norm', {'ADD': 1, 'FULL': 1}), 'rotate': ('rotate', {}),
              'remember': ('remember', {}), 'gelu': ('gelu', {})}
    return Kernels({
        key: compile_kernel(source_of('vjepa_ros.runtime.forward', 'encoder', **known, **more),
                            name) for key, (name, more) in wanted.items()}, dim)


def _norm_threads(dim: int) -> int:
    return min(NORM_THREADS, -(-dim // 128) * 32)


class KernelSteps(Steps):
    """Steps of a block by kernels; its position tables are float32."""

    def __init__(self, kernels: Kernels):
        self._kernels = kernels

    def hidden(self, layer: nn.Linear, x: Tensor) -> Tensor:
        # It has no public name.
        fused = getattr(torch, '_addmm_activation', None)
        if x.dtype == torch.bfloat16 and fused is not None:
            # In its tanh form, which is 5e-4 off at most; a step of bf16 is 4e-3 to 8e-3.
            return fused(bias_of(layer), x.flatten(0, 1), layer.weight.t(),
                         use_gelu=True).unflatten(0, x.shape[:2])
        values = layer(x)
        self._kernels.gelu(values)
        return values

    def split(self, qkv: Tensor, heads: int, cos: Tensor, sin: Tensor,
              memory: LayerMemory | None) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        if memory is None:
            self._kernels.rotate(qkv, cos, sin)
            return q, k, v
        assert isinstance(memory, StoredLayer), 'a stream remembers in slots'
        given = memory.given
        self._kernels.remember(qkv, cos, sin, memory.kept, given.slots, given.room)
        return q, *by_clip(given.room, given.slots)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
        backend = attention.SDPBackend
        if q.shape[2] == k.shape[2] or not hasattr(backend, 'CUDNN_ATTENTION'):  # before 2.5
            return F.scaled_dot_product_attention(q, k, v)
        # The attention of cuDNN is slower where queries are far fewer than keys.
        with CHOOSING, attention.sdpa_kernel([backend.FLASH_ATTENTION,
                                              backend.EFFICIENT_ATTENTION, backend.MATH]):
            return F.scaled_dot_product_attention(q, k, v)


class FusedEncoder:
    """An encoder in half precision for uint8 clips (T, H, W, 3), T 2 for `step`.

    Weights are shared, but for the patch embedding. KernelsMissing: they cannot be made here.
    """

    def __init__(self, encoder: Encoder, clip_shape: tuple[int, ...],
                 normalise: Work | None = None):
        variant, device = encoder.variant, encoder.branch_device
        self._encoder, self._normalise = encoder, normalise
        frames, height, width, _ = clip_shape
        self.grid = frames // TUBELET, height // PATCH, width // PATCH
        self.dtype = encoder.branch_dtype
        with torch.cuda.device(device):
            self._kernels = build(variant.dim, variant.head_dim, self.grid, self.dtype)
        self._steps = KernelSteps(self._kernels)
        cos, sin = rope_tables(*self.grid, variant.head_dim, encoder.version)
        self._tables = cos.to(device), sin.to(device)
        self._weight, self._bias = self._embedding(encoder)
        self._black = torch.tensor(-GREY * UNIT)
        self._norm = encoder.norm if encoder.version == '2.0' else encoder.norms_block[-1]

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
        nothing = [None] * len(self._encoder.blocks)
        return self._blocks(self._tokens(pixels), *self._tables, nothing)

    def step(self, pixels: Tensor, times: Tensor, memory: Sequence[LayerMemory]) -> Tensor:
        encoder = self._encoder
        cos, sin = encoder._positions.tables_at(times[..., :-2], self.grid, torch.float32)
        x = self._tokens(pixels[:, -TUBELET:]) + times[..., -2:] @ encoder.interval_embed[:, 0]
        if encoder.matching is not None and self._normalise is not None:
            x = x + encoder.matching(self._normalise(pixels))
        return self._blocks(x, cos[:, 0], sin[:, 0], memory)

    def _blocks(self, x: Tensor, cos: Tensor, sin: Tensor,
                memory: Sequence[LayerMemory | None]) -> Tensor:
        y, branch = torch.empty_like(x, dtype=self.dtype), None
        for block, layer in zip(self._encoder.blocks, memory, strict=True):
            self._kernels.norm(x, branch, block.norm1, y)
            branch = block.attn(y, cos, sin, None, layer, self._steps)
            self._kernels.norm(x, branch, block.norm2, y)
            branch = block.mlp(y, self._steps)
        out = torch.empty_like(x)
        self._kernels.norm(x, branch, self._norm, out)
        return out.unflatten(1, self.grid)

    def _tokens(self, pixels: Tensor) -> Tensor:
        """Embed clips (B, T, H, W, 3) uint8 as tokens (B, N, D) float32."""
        _, rows, cols = self.grid
        # A row of a patch is 48 bytes: move it as six numbers, then convert all in one pass.
        cut = pixels.flatten(1).view(torch.int64).view(-1, TUBELET, rows, PATCH, cols, 6)
        cut = cut.permute(0, 2, 4, 1, 3, 5).flatten().view(torch.uint8)
        boxes = torch.empty(cut.shape, device=pixels.device, dtype=self.dtype)
        torch.add(self._black, cut, alpha=UNIT, out=boxes)      # (pixel - GREY) UNIT
        tokens = boxes.view(-1, len(self._weight)) @ self._weight + self._bias
        return tokens.view(len(pixels), -1, tokens.shape[1])

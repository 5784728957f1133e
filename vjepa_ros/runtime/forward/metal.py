# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Rotary positions on Apple GPUs by a kernel of our own, compiled by `torch.mps.compile_shader`.

PyTorch needs five passes over queries and keys for the rotation; this is one, in place.
B clips, N tokens, H heads, D width, C channels of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import Block, LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.rope import rotate
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.forward.base import FUSED, Normalise, PlainForward

TYPES = {torch.float32: 'float', torch.float16: 'half', torch.bfloat16: 'bfloat'}

# One thread for each pair of channels of queries and keys, the first 2 D of each row of 3 D.
SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void rotate(device T* qkv, device const T* cosine, device const T* sine,
                   uint i [[thread_position_in_grid]]) {
  const uint row = i / D, channel = i % D * 2, at = row % N * HEAD + channel % HEAD;
  device T* own = qkv + ulong(row) * (3 * D) + channel;
  const float a = float(own[0]), b = float(own[1]);
  own[0] = T(a * float(cosine[at]) + b * float(sine[at]));
  own[1] = T(b * float(cosine[at + 1]) + a * float(sine[at + 1]));
}
"""


class MetalBlock(Block):
    """`Block` with that kernel.

    Parameters
    ----------
    block : Block
        Its parts are used as they are.

    """

    def __init__(self, block: Block):
        nn.Module.__init__(self)        # not its base: the parts exist already
        self.norm1, self.attn = block.norm1, block.attn
        self.norm2, self.mlp = block.norm2, block.mlp

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, allowed: Tensor | None = None,
                memory: LayerMemory | None = None) -> Tensor:
        """Apply the block, see `Block.forward`, with tables (N, C) for all tokens of a clip."""
        b, n, d = x.shape
        heads = self.attn.heads
        qkv = self.attn.qkv(self.norm1(x).to(cos.dtype))  # B N 3D
        kernel = _kernel(d, d // heads, n, qkv.dtype)
        kernel(qkv, cos, sin, threads=b * n * d)
        q, k, v = qkv.view(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4)
        if memory is not None:
            k, v = memory.extend(k, v)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.attn.proj(out.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x).to(cos.dtype))


class MetalForward(PlainForward):
    """The encoder with `MetalBlock` for its blocks, which it exchanges.

    Parameters
    ----------
    encoder : Encoder
        On the device, in its precision.
    normalise : Normalise
        On that device.
    clip_shape : tuple of int
        (T, S, S, 3) of its clips.
    most : float
        Largest relative error of the rotation.

    Raises
    ------
    KernelsMissing
        If this PyTorch cannot compile kernels for Apple GPUs, or the kernel is wrong. An error
        in its source is an error of PyTorch.

    """

    kind = FUSED

    def __init__(self, encoder: Encoder, normalise: Normalise, clip_shape: tuple[int, ...],
                 most: float):
        super().__init__(encoder, normalise)
        if not hasattr(torch.mps, 'compile_shader'):
            raise KernelsMissing(f'PyTorch {torch.__version__} does not compile kernels for MPS')
        variant, weight = encoder.variant, encoder.blocks[0].attn.qkv.weight
        grid = encoder.grid((1, 3, *clip_shape[:3]))
        tables = encoder._positions.tables(grid, weight.device, weight.dtype)
        error = rotation_error(variant.dim, variant.head_dim, *tables)
        if not error <= most:  # also when it is not a number
            raise KernelsMissing(f'the rotation differs by {error:.2g} from that of PyTorch, '
                                 f'allowed is {most:g}')
        self._before = list(encoder.blocks)
        for number, block in enumerate(self._before):
            encoder.blocks[number] = MetalBlock(block)

    def undo(self) -> None:
        """Give the encoder its own blocks back."""
        for number, block in enumerate(self._before):
            self._encoder.blocks[number] = block


def rotation_error(dim: int, head_dim: int, cos: Tensor, sin: Tensor) -> float:
    """Compute the relative error of the kernel on random queries and keys, against `rotate`.

    Features alone would not show it: with untrained weights attention is nearly uniform whatever
    the positions.

    `cos, sin`: (N, C) tables on the device.
    """
    n = len(cos)
    qkv = torch.randn(1, n, 3 * dim, generator=torch.Generator().manual_seed(0)).to(cos)
    heads = qkv.unflatten(-1, (3, -1, head_dim)).transpose(1, 3)  # 1 H 3 N C
    wanted = torch.cat((rotate(heads[:, :, :2], cos, sin), heads[:, :, 2:]), 2).float().cpu()
    _kernel(dim, head_dim, n, cos.dtype)(qkv, cos, sin, threads=n * dim)
    got = qkv.unflatten(-1, (3, -1, head_dim)).transpose(1, 3).float().cpu()
    return float((got - wanted).norm() / wanted.norm())


@lru_cache(maxsize=16)
def _kernel(dim: int, head_dim: int, tokens: int, dtype: torch.dtype) -> Callable[..., Any]:
    known = {'D': dim, 'HEAD': head_dim, 'N': tokens, 'T': TYPES[dtype]}
    given = ''.join(f'#define {name} {value}\n' for name, value in known.items())
    # Behind the library of Metal, which uses T for types of its own.
    head, _, body = SOURCE.partition('using namespace metal;\n')
    return torch.mps.compile_shader(f'{head}using namespace metal;\n{given}{body}').rotate

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
from torch import Tensor

from vjepa_ros.model.blocks import LayerMemory, Steps, extended
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.runtime.cuda.compiler import KernelsMissing

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


class MetalSteps(Steps):
    """Steps of a block with that kernel, for tables (N, C) of all tokens of a clip."""

    def split(self, qkv: Tensor, heads: int, cos: Tensor, sin: Tensor,
              memory: LayerMemory | None) -> tuple[Tensor, Tensor, Tensor]:
        b, n, wide = qkv.shape
        kernel = _kernel(wide // 3, wide // 3 // heads, n, qkv.dtype)
        kernel(qkv, cos, sin, threads=b * n * wide // 3)
        q, k, v = qkv.view(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4)
        return q, *extended(k, v, memory)


def check_rotation(encoder: Encoder, clip_shape: tuple[int, ...], most: float) -> None:
    """Compare the kernel with `rotate` on random queries and keys; KernelsMissing if wrong.

    Features would not show it: in untrained weights attention is nearly uniform at all positions.
    """
    if not hasattr(torch.mps, 'compile_shader'):
        raise KernelsMissing(f'PyTorch {torch.__version__} does not compile kernels for MPS')
    variant = encoder.variant
    cos, sin = encoder._positions.tables(encoder.grid((1, 3, *clip_shape[:3])),
                                         encoder.branch_device, encoder.branch_dtype)
    random = torch.Generator().manual_seed(0)
    qkv = torch.randn(1, len(cos), 3 * variant.dim, generator=random).to(cos)
    found = []
    for steps in (Steps(), MetalSteps()):
        parts = steps.split(qkv.clone(), variant.heads, cos, sin, None)
        found.append(torch.stack(parts).float().cpu())
    wanted, got = found
    error = float((got - wanted).norm() / wanted.norm())
    if not error <= most:  # also when it is not a number
        raise KernelsMissing(f'the rotation differs by {error:.2g} from that of PyTorch, '
                             f'allowed is {most:g}')


@lru_cache(maxsize=16)
def _kernel(dim: int, head_dim: int, tokens: int, dtype: torch.dtype) -> Callable[..., Any]:
    known = {'D': dim, 'HEAD': head_dim, 'N': tokens, 'T': TYPES[dtype]}
    given = ''.join(f'#define {name} {value}\n' for name, value in known.items())
    # Behind the library of Metal, which uses T for types of its own.
    head, _, body = SOURCE.partition('using namespace metal;\n')
    return torch.mps.compile_shader(f'{head}using namespace metal;\n{given}{body}').rotate

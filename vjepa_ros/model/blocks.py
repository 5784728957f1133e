# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The transformer block of encoders, with the parameter names of the published checkpoints.

B clips, N tokens, H heads, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TYPE_CHECKING, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.rope import rotate
from vjepa_ros.model.variants import Variant

EPS = 1e-6

Item = TypeVar('Item', bound=nn.Module)

if TYPE_CHECKING:
    class ModuleList(nn.Module, Generic[Item]):
        """`nn.ModuleList`, typed by its items."""

        def __init__(self, modules: Iterable[Item]): ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Item]: ...
        def __getitem__(self, index: int) -> Item: ...
        def __setitem__(self, index: int, module: Item) -> None: ...
else:
    ModuleList = nn.ModuleList


@dataclass
class LayerMemory:
    """Rotated keys and values of one layer: those of earlier tokens, and of those just seen."""

    past: Sequence[tuple[Tensor, Tensor]] = ()  # keys and values (B, H, M, D/H), in parts
    own: tuple[Tensor, Tensor] | None = None    # those (B, H, N, D/H) of the last pass

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep keys and values of a pass; return those of earlier tokens and these."""
        self.own = keys, values
        if not self.past:
            return keys, values
        return (torch.cat([*(part[0] for part in self.past), keys], 2),
                torch.cat([*(part[1] for part in self.past), values], 2))


class Steps:
    """What a block computes between its norms; `runtime.forward` has others for some devices."""

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return layer(x)

    def hidden(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return F.gelu(layer(x))

    def split(self, qkv: Tensor, heads: int, cos: Tensor, sin: Tensor,
              memory: LayerMemory | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys, values (B, H, N or M, D/H) of (B, N, 3 D), the former rotated."""
        qkv = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)   # 3 B H N D/H
        q, k = rotate(qkv[:2], cos, sin).to(qkv.dtype)  # autocast leaves the tables in float32
        if torch.is_grad_enabled():
            # The backward of fused attention gave NaN under torch.compile for other strides.
            q, k = q.contiguous(), k.contiguous()
        return q, *extended(k, qkv[2], memory)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
        """Compute softmax attention with scores divided by sqrt(D/H): (B, H, N, D/H)."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def extended(keys: Tensor, values: Tensor, memory: LayerMemory | None) -> tuple[Tensor, Tensor]:
    return (keys, values) if memory is None else memory.extend(keys, values)


PLAIN_STEPS = Steps()


class Attention(nn.Module):
    """Self-attention with rotary positions."""

    def __init__(self, variant: Variant):
        super().__init__()
        self.heads = variant.heads
        self.qkv = nn.Linear(variant.dim, 3 * variant.dim)
        self.proj = nn.Linear(variant.dim, variant.dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, allowed: Tensor | None = None,
                memory: LayerMemory | None = None, steps: Steps = PLAIN_STEPS) -> Tensor:
        """Attend with queries and keys rotated by tables (N, D/H): (B, N, D) -> (B, N, D)."""
        q, k, v = steps.split(steps.linear(self.qkv, x), self.heads, cos, sin, memory)
        seen = steps.attend(q, k, v, allowed)
        return steps.linear(self.proj, seen.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two linear layers around an exact GELU."""

    def __init__(self, variant: Variant):
        super().__init__()
        self.fc1 = nn.Linear(variant.dim, variant.mlp)
        self.fc2 = nn.Linear(variant.mlp, variant.dim)

    def forward(self, x: Tensor, steps: Steps = PLAIN_STEPS) -> Tensor:
        return steps.linear(self.fc2, steps.hidden(self.fc1, x))


class Block(nn.Module):
    """One pre-norm transformer block.

    Norms and the residual stream stay float32; the branches run in the type of the tables.
    """

    steps: Steps = PLAIN_STEPS  # how this device computes what lies between the norms

    def __init__(self, variant: Variant):
        super().__init__()
        self.norm1 = nn.LayerNorm(variant.dim, eps=EPS)
        self.attn = Attention(variant)
        self.norm2 = nn.LayerNorm(variant.dim, eps=EPS)
        self.mlp = Mlp(variant)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, allowed: Tensor | None = None,
                memory: LayerMemory | None = None) -> Tensor:
        """Apply the block to (B, N, D) float32; `allowed[row, column]`: row may see column."""
        y = self.norm1(x).to(cos.dtype)
        x = x + self.attn(y, cos, sin, allowed, memory, self.steps)
        return x + self.mlp(self.norm2(x).to(cos.dtype), self.steps)


def bias_of(layer: nn.Linear | nn.Conv2d | nn.Conv3d) -> Tensor:
    """Return the bias of a layer; all layers here have one."""
    assert layer.bias is not None
    return layer.bias

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Heads that read motion and danger from the features of an encoder.

Dense heads read each patch of the newest two tubelets. Clip heads pool all tokens with one
learned query, as the attentive probes of V-JEPA 2 do (arXiv 2506.09985), and the hidden layer of
the dense heads with another. All times count in frame intervals.

B clips, T' tubelets, Hp x Wp patches, D width, H attention heads.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.head_specs import HEADS, HeadOutputs
from vjepa_ros.model.variants import Variant

POOL_HEADS = 16  # for every width, as in the published probes


class CrossAttention(nn.Module):
    """Attention of a query that is the same for all clips, without output projection."""

    fixed: Tensor | None    # what `look` returns, see `Heads.fix`

    def __init__(self, dim: int):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.register_buffer('fixed', None, persistent=False)

    def look(self, query: Tensor) -> Tensor:
        """Return what each head looks for with a query (1, 1, D): (H, D)."""
        q = self.q(query).view(POOL_HEADS, -1)  # H d
        return torch.einsum('hd,hdc->hc', q, self._weights()[0]) / math.sqrt(q.shape[1])

    def forward(self, query: Tensor, x: Tensor) -> Tensor:
        """Attend from a query (1, 1, D) to tokens (B, N, D): (B, 1, D)."""
        # With one query for all clips the products can be reordered: keys and values are never
        # formed for N tokens. The bias of the keys is the same for all tokens: softmax drops it.
        look = self.look(query) if self.fixed is None else self.fixed
        # Tokens last: softmax takes twice as long along any other axis. cuBLAS is slow at the
        # product that gives them so (docs/notebook/kernels.md).
        weight = F.linear(x, look).transpose(1, 2).softmax(dim=-1)  # B H N
        seen = weight @ x  # B H D
        out = torch.einsum('bhc,hdc->bhd', seen, self._weights()[1]).flatten(1)
        return (out + self.kv.bias[out.shape[1]:])[:, None]

    def _weights(self) -> Tensor:
        return self.kv.weight.view(2, POOL_HEADS, -1, self.kv.in_features)


class CrossBlock(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.xattn = CrossAttention(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, query: Tensor, x: Tensor) -> Tensor:
        """Pool tokens (B, N, D) with a query (1, 1, D): (B, 1, D)."""
        y = query + self.xattn(query, self.norm1(x))
        return y + self.mlp(self.norm2(y))


class Pooler(nn.Module):
    """Pool all tokens (B, N, D) of clips to one vector each (B, D)."""

    def __init__(self, dim: int):
        super().__init__()
        self.query_tokens = nn.Parameter(torch.zeros(1, 1, dim))
        self.cross_attention_block = CrossBlock(dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.cross_attention_block(self.query_tokens, x)[:, 0]


class Branch:
    """Work beside other work on a device; this one does one after the other."""

    def aside(self) -> AbstractContextManager[None]:
        """Do the block beside what follows it, until `rejoin`."""
        return nullcontext()

    def rejoin(self) -> None:
        """Let what follows wait for what was done `aside`."""


IN_TURN = Branch()


class Heads(nn.Module):
    """Compute `HeadOutputs` from features `dim` wide, always in float32."""

    def __init__(self, dim: int, hidden: int | None = None):
        super().__init__()
        hidden = hidden or max(256, dim // 2)
        if dim % POOL_HEADS or hidden % POOL_HEADS:
            raise ValueError(f'features are {dim} wide and dense heads {hidden}; both must be '
                             f'multiples of {POOL_HEADS}')
        self.dim, self.hidden = dim, hidden
        self.specs = tuple(HEADS.values())
        self._dense = [spec for spec in HEADS.values() if not spec.pooled]
        self._pooled = [spec for spec in HEADS.values() if spec.pooled]
        shared = sum(spec.kind.channels for spec in self._dense)
        self.dense = nn.Sequential(
            nn.LayerNorm(2 * dim), nn.Linear(2 * dim, hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, shared))
        self.pooler, self.patch_pooler = Pooler(dim), Pooler(hidden)
        self.patch_norm = nn.LayerNorm(hidden)
        self.norm = nn.LayerNorm(dim + hidden)
        for spec in self._pooled:
            self.add_module(spec.name, nn.Linear(dim + hidden, spec.kind.channels))

    @classmethod
    def for_variant(cls, variant: Variant, seed: int = 0) -> Heads:
        """Make untrained heads for an encoder that depend on the seed alone."""
        with torch.device('meta'):  # shapes only: the start values of PyTorch are not wanted
            heads = cls(variant.dim)
        heads.to_empty(device='cpu').init_random(seed)
        return heads

    def fix(self) -> Heads:
        """Compute once what follows from the weights alone; they must not change any more."""
        with torch.no_grad(), full_precision(self.norm.weight.device):
            for pooler in (self.pooler, self.patch_pooler):
                attention = pooler.cross_attention_block.xattn
                attention.fixed = attention.look(pooler.query_tokens)
        return self

    def forward(self, features: Tensor, branch: Branch = IN_TURN) -> HeadOutputs:
        """Read features (B, T', Hp, Wp, D) of any type, T' at least 2."""
        return self.read(features, branch)[0]

    def read(self, features: Tensor, branch: Branch = IN_TURN) -> tuple[HeadOutputs, Tensor]:
        """Return the outputs and the last hidden layer of the dense heads, (B, Hp, Wp, hidden)."""
        if features.ndim != 5 or features.shape[1] < 2 or features.shape[-1] != self.dim:
            raise ValueError(f'features are {tuple(features.shape)}, but must be '
                             f"(B, T', Hp, Wp, {self.dim}) with at least 2 tubelets")
        with full_precision(features.device):
            x = features.float()
            with branch.aside():
                whole = self.pooler(x.flatten(1, 3))
            known = self.dense[:-1](torch.cat((x[:, -1], x[:, -2]), dim=-1))
            outputs: dict[str, Tensor] = {}
            with branch.aside():
                channels = [spec.kind.channels for spec in self._dense]
                for spec, raw in zip(self._dense, self.dense[-1](known).split(channels, dim=-1),
                                     strict=True):
                    outputs |= spec.kind.outputs(spec.name, raw)
            patches = self.patch_pooler(self.patch_norm(known).flatten(1, 2))
            branch.rejoin()
            pooled = self.norm(torch.cat((whole, patches), dim=-1))
            for spec in self._pooled:
                outputs |= spec.kind.outputs(spec.name, self.get_submodule(spec.name)(pooled))
            return HeadOutputs(**outputs), known

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters by the seed alone; the last layers start at `kind.start`."""
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=module.in_features ** -0.5,
                                      generator=generator)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
        for pooler in (self.pooler, self.patch_pooler):
            nn.init.trunc_normal_(pooler.query_tokens, std=0.02, generator=generator)
        starts = [(self.dense[-1], [first for spec in self._dense for first in spec.kind.start]),
                  *((self.get_submodule(spec.name), spec.kind.start) for spec in self._pooled)]
        for layer, bias in starts:
            assert isinstance(layer, nn.Linear)
            nn.init.zeros_(layer.weight)
            layer.bias.copy_(torch.tensor(bias))


def full_precision(device: torch.device) -> AbstractContextManager:
    """Compute in float32 although training has switched to half precision."""
    if device.type in ('cpu', 'cuda'):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()

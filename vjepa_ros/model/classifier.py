# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Attentive probes: classify clips from the features of a frozen encoder.

Architecture after arXiv 2506.09985; the names of parameters and the geometry are those of the
published probes: 16 heads for every width, three blocks of self-attention without positions,
then cross attention of learned queries. B clips, N tokens, Q queries, H heads, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.blocks import INIT_STD, Mlp, set_branches
from vjepa_ros.model.variants import Variant

EPS = 1e-5
HEADS = 16
BLOCKS = 3
SINGLE = 'class'  # name of the only classification of most probes


class ProbeAttention(nn.Module):
    """Self-attention without positions."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(2))


class ProbeBlock(nn.Module):
    """One pre-norm block of self-attention."""

    def __init__(self, probe: Variant, eps: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(probe.dim, eps=eps)
        self.attn = ProbeAttention(probe.dim, probe.heads)
        self.norm2 = nn.LayerNorm(probe.dim, eps=eps)
        self.mlp = Mlp(probe)

    def forward(self, x: Tensor) -> Tensor:
        # Norms and the residual stream stay float32, as in `blocks.Block`.
        dtype = self.attn.qkv.weight.dtype
        x = x + self.attn(self.norm1(x).to(dtype))
        return x + self.mlp(self.norm2(x).to(dtype))


class QueryAttention(nn.Module):
    """Attention of queries that are the same for all clips, without output projection."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)

    def forward(self, queries: Tensor, x: Tensor) -> Tensor:  # 1 Q D, B N D -> B Q D
        # The products are reordered so that keys and values are never formed for N tokens; the
        # bias of the keys is the same for all tokens, and softmax drops it.
        q = self.q(queries[0]).unflatten(-1, (self.heads, -1))  # Q H d
        key, value = self.kv.weight.view(2, self.heads, q.shape[-1], -1)  # H d D
        look = torch.einsum('qhd,hdc->qhc', q, key) / math.sqrt(q.shape[-1])
        weight = torch.einsum('bnc,qhc->bqhn', x, look).softmax(-1)
        seen = torch.einsum('bqhn,bnc->bqhc', weight, x)
        out = torch.einsum('bqhc,hdc->bqhd', seen, value).flatten(2)
        return out + self.kv.bias[out.shape[-1]:]


class QueryBlock(nn.Module):
    """Cross attention and MLP around queries."""

    def __init__(self, probe: Variant, eps: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(probe.dim, eps=eps)
        self.xattn = QueryAttention(probe.dim, probe.heads)
        self.norm2 = nn.LayerNorm(probe.dim, eps=eps)
        self.mlp = Mlp(probe)

    def forward(self, queries: Tensor, x: Tensor) -> Tensor:
        y = queries + self.xattn(queries, self.norm1(x))
        return y + self.mlp(self.norm2(y))


class AttentivePooler(nn.Module):
    """All tokens of a clip to one vector for each query: (B, N, D) -> (B, Q, D)."""

    def __init__(self, dim: int, queries: int = 1, blocks: int = BLOCKS, heads: int = HEADS,
                 eps: float = EPS):
        super().__init__()
        if dim % heads:
            raise ValueError(f'features {dim} wide cannot be probed with {heads} heads: the width '
                             'must be a multiple of them')
        probe = Variant('probe', dim, blocks, heads, 4 * dim)
        self.query_tokens = nn.Parameter(torch.zeros(1, queries, dim))
        self.cross_attention_block = QueryBlock(probe, eps)
        if blocks:
            self.blocks = nn.ModuleList(ProbeBlock(probe, eps) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in getattr(self, 'blocks', ()):
            x = block(x)
        return self.cross_attention_block(self.query_tokens, x)


class Classifier(nn.Module):
    """Class scores of clips from the features of an encoder.

    Parameters
    ----------
    dim : int
        Width of the features.
    classes : int or mapping of str to int
        Number of classes, or of each of several classifications, such as {'verb': 97,
        'noun': 300, 'action': 3568}; each has a query of its own.
    blocks, heads : int
        Blocks of self-attention, and heads of all attention.
    eps : float
        Of the layer norms. The conversion of the transformers library uses 1e-6, and the heads
        of the encoder; neither is what the published probes were trained with.

    """

    def __init__(self, dim: int, classes: int | Mapping[str, int], blocks: int = BLOCKS,
                 heads: int = HEADS, eps: float = EPS):
        super().__init__()
        counts = {SINGLE: classes} if isinstance(classes, int) else dict(classes)
        self.layers = {name: 'linear' if name == SINGLE else f'{name}_classifier'
                       for name in counts}
        self.pooler = AttentivePooler(dim, len(counts), blocks, heads, eps)
        for name, count in counts.items():
            self.add_module(self.layers[name], nn.Linear(dim, count))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Classify clips.

        Parameters
        ----------
        features : Tensor
            (B, T', Hp, Wp, D) or (B, N, D). Probes that read several layers, or several clips,
            take their tokens one after the other.

        Returns
        -------
        dict of str to Tensor
            (B, classes) logits by the name of the classification; 'class' for a single one.

        """
        pooled = self.pooler(features.flatten(1, -2))
        return {name: self.get_submodule(layer)(pooled[:, number])
                for number, (name, layer) in enumerate(self.layers.items())}

    def set_branch_precision(self, dtype: torch.dtype) -> None:
        """Run self-attention and its MLP in `dtype`.

        Norms, residual stream, queries and scores stay float32: they are one vector for each
        classification, and cost nothing.
        """
        set_branches(getattr(self.pooler, 'blocks', ()), dtype)

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters with untrained values that depend on `seed` alone."""
        generator = torch.Generator().manual_seed(seed)
        nn.init.trunc_normal_(self.pooler.query_tokens, std=INIT_STD, generator=generator)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=INIT_STD, generator=generator)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)

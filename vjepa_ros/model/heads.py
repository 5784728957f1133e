# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Heads that read motion and danger from the features of an encoder.

Dense heads look at each patch of the newest two tubelets; the clip heads pool all tokens with
one learned query, as the attentive probes of V-JEPA 2 do (arXiv 2506.09985), and what the dense
heads know of the patches with another. Nothing here knows
how much time lies between two frames: every time is counted in frame intervals, so that a clip
means the same at any rate, and seconds enter only where results are converted.

B clips, T' tubelets, Hp x Wp patches, D width, K and C bins, H attention heads.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vjepa_ros.model.bins import LogBins
from vjepa_ros.model.variants import Variant

CONTACT = LogBins(0.25, 120.0, 20)  # time until something enters the robot's volume [intervals]
CLEARANCE = LogBins(0.25, 16.0, 12)  # free way ahead of the robot [m]
CONTACT_BINS, CONTACT_EDGES = CONTACT.count, CONTACT.edges
CLEARANCE_BINS, CLEARANCE_EDGES = CLEARANCE.count, CLEARANCE.edges

POOL_HEADS = 16  # for every width, as in the published probes
EXPANSION_UNIT = 0.05  # a typical change of size per frame interval; one unit of the raw output
MIN_SCALE = 2e-4  # no patch is known better than this [per frame interval]
RARE = -2.0  # first logit of what few patches are


@dataclass(frozen=True)
class HeadOutputs:
    """What the heads say about B clips, uncalibrated.

    Attributes
    ----------
    expansion : Tensor
        (B, Hp, Wp) looming rate times frame interval, -Zdot/Z * dt [1]; positive: closing in.
    log_scale : Tensor
        (B, Hp, Wp) log of the scale of a Laplace distribution around `expansion`.
    moving : Tensor
        (B, Hp, Wp) logit: the surface moves by itself.
    course : Tensor
        (B, Hp, Wp) logit: the surface will enter the robot's volume at constant velocities.
    contact : Tensor
        (B, K+1) logits of the time until anything enters the robot's volume, over the bins
        between `CONTACT_EDGES`; the last bin is: later, or never.
    clearance : Tensor
        (B, C+1) logits of the distance to the nearest surface in the corridor straight ahead of
        the robot, moving or not, over the bins between `CLEARANCE_EDGES`; the last bin is:
        farther, or free.

    """

    expansion: Tensor
    log_scale: Tensor
    moving: Tensor
    course: Tensor
    contact: Tensor
    clearance: Tensor


class CrossAttention(nn.Module):
    """Attention of a query that is the same for all clips, without output projection."""

    def __init__(self, dim: int):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)

    def forward(self, query: Tensor, x: Tensor) -> Tensor:  # 1 1 D, B N D -> B 1 D
        # With one query for all clips the products can be reordered: keys and values are never
        # formed for N tokens. The bias of the keys is the same for all tokens: softmax drops it.
        q = self.q(query).view(POOL_HEADS, -1)  # H d
        key, value = self.kv.weight.view(2, POOL_HEADS, q.shape[1], -1)  # H d D
        look = torch.einsum('hd,hdc->hc', q, key) / math.sqrt(q.shape[1])
        weight = (x @ look.T).softmax(dim=1)  # B N H
        seen = weight.transpose(1, 2) @ x  # B H D
        out = torch.einsum('bhc,hdc->bhd', seen, value).flatten(1)
        return (out + self.kv.bias[q.numel():])[:, None]


class CrossBlock(nn.Module):
    """Cross attention and MLP around a query."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.xattn = CrossAttention(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, query: Tensor, x: Tensor) -> Tensor:
        y = query + self.xattn(query, self.norm1(x))
        return y + self.mlp(self.norm2(y))


class Pooler(nn.Module):
    """All tokens of a clip to one vector."""

    def __init__(self, dim: int):
        super().__init__()
        self.query_tokens = nn.Parameter(torch.zeros(1, 1, dim))
        self.cross_attention_block = CrossBlock(dim)

    def forward(self, x: Tensor) -> Tensor:  # B N D -> B D
        return self.cross_attention_block(self.query_tokens, x)[:, 0]


class Heads(nn.Module):
    """Features of an encoder to `HeadOutputs`, always computed in float32.

    Parameters
    ----------
    dim : int
        Width of the features, a multiple of 16.
    hidden : int, optional
        Width of the dense MLP, a multiple of 16; max(256, dim / 2) when omitted.

    """

    def __init__(self, dim: int, hidden: int | None = None):
        super().__init__()
        if dim % POOL_HEADS:
            raise ValueError(f'the width of the features is {dim}, but must be a multiple of '
                             f'{POOL_HEADS}')
        hidden = hidden or max(256, dim // 2)
        if hidden % POOL_HEADS:
            raise ValueError(f'the width of the dense heads is {hidden}, but must be a multiple '
                             f'of {POOL_HEADS}')
        self.dim, self.hidden = dim, hidden
        self.dense = nn.Sequential(
            nn.LayerNorm(2 * dim), nn.Linear(2 * dim, hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 4))
        self.pooler, self.patch_pooler = Pooler(dim), Pooler(hidden)
        self.patch_norm = nn.LayerNorm(hidden)
        self.norm = nn.LayerNorm(dim + hidden)
        self.contact = nn.Linear(dim + hidden, CONTACT_BINS + 1)
        self.clearance = nn.Linear(dim + hidden, CLEARANCE_BINS + 1)

    @classmethod
    def for_variant(cls, variant: Variant, seed: int = 0) -> Heads:
        """Untrained heads for an encoder, which depend on the seed alone."""
        with torch.device('meta'):  # shapes only: the start values of PyTorch are not wanted
            heads = cls(variant.dim)
        heads.to_empty(device='cpu').init_random(seed)
        return heads

    def forward(self, features: Tensor) -> HeadOutputs:
        """Read features (B, T', Hp, Wp, D) of any type, T' at least 2."""
        return self.read(features)[0]

    def read(self, features: Tensor) -> tuple[HeadOutputs, Tensor]:
        """As `forward`, and what the dense heads know of each patch, (B, Hp, Wp, hidden)."""
        if features.ndim != 5 or features.shape[1] < 2 or features.shape[-1] != self.dim:
            raise ValueError(f'features are {tuple(features.shape)}, but must be '
                             f"(B, T', Hp, Wp, {self.dim}) with at least 2 tubelets")
        with full_precision(features.device):
            x = features.float()
            known = self.dense[:-1](torch.cat((x[:, -1], x[:, -2]), dim=-1))  # B Hp Wp hidden
            expansion, spread, moving, course = self.dense[-1](known).unbind(-1)
            # exp(spread) + MIN_SCALE, without leaving the logarithm.
            log_scale = torch.logaddexp(spread, spread.new_full((), math.log(MIN_SCALE)))
            pooled = self.norm(torch.cat((
                self.pooler(x.flatten(1, 3)),
                self.patch_pooler(self.patch_norm(known).flatten(1, 2))), dim=-1))
            outputs = HeadOutputs(EXPANSION_UNIT * expansion, log_scale, moving, course,
                                  self.contact(pooled), self.clearance(pooled))
            return outputs, known

    @torch.no_grad()
    def init_random(self, seed: int) -> None:
        """Fill all parameters with untrained values that depend on `seed` alone.

        The last layers start at zero: nothing expands, give or take 5 % per interval, little
        moves or is on a course, and all contact times and clearances are equally likely. The
        global random state is neither used nor changed.
        """
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
        for last in (self.dense[-1], self.contact, self.clearance):
            nn.init.zeros_(last.weight)
        self.dense[-1].bias.copy_(torch.tensor([0.0, math.log(EXPANSION_UNIT), RARE, RARE]))


def contact_bin(intervals: Tensor) -> Tensor:
    """Bin of a time to contact over frame interval (inf: never), see `LogBins.index`."""
    return CONTACT.index(intervals)


def contact_cdf(logits: Tensor, intervals: Tensor) -> Tensor:
    """Probability of contact within times over frame interval, see `LogBins.cumulative`."""
    return CONTACT.cumulative(logits.float().softmax(-1), intervals)


def expected_log_contact(logits: Tensor) -> Tensor:
    """Mean of ln(time to contact / frame interval), given that there is contact: (B,)."""
    return CONTACT.expected_log(logits)


def clearance_bin(metres: Tensor) -> Tensor:
    """Bin of a clearance [m] (inf: free), see `LogBins.index`."""
    return CLEARANCE.index(metres)


def clearance_cdf(logits: Tensor, metres: Tensor) -> Tensor:
    """Probability of less clearance than distances [m], see `LogBins.cumulative`."""
    return CLEARANCE.cumulative(logits.float().softmax(-1), metres)


def full_precision(device: torch.device) -> AbstractContextManager:
    """Float32 also where training has switched to half precision."""
    if device.type in ('cpu', 'cuda'):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()

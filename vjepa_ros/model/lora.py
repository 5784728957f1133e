# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Low-rank adapters: train a small change of a frozen encoder (arXiv 2106.09685)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vjepa_ros.model.checkpoint.files import differences
from vjepa_ros.model.encoder import Encoder

PARTS = ('attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2')


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus the product of two thin matrices, at first zero.

    Parameters
    ----------
    base : nn.Linear
        The layer, frozen from then on.
    rank : int
        Width between the two matrices.

    """

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.to(base.weight.device)

    @property
    def weight(self) -> Tensor:
        """Weight of the frozen layer."""
        return self.base.weight

    @property
    def bias(self) -> Tensor | None:
        """Bias of the frozen layer."""
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., K) to (..., L)."""
        low = F.linear(x, self.down.to(x.dtype))
        return self.base(x) + F.linear(low, self.up.to(x.dtype))


def add_adapters(encoder: Encoder, rank: int, seed: int = 0,
                 parts: tuple[str, ...] = PARTS) -> list[nn.Parameter]:
    """Freeze an encoder and put adapters around linear layers of all its blocks."""
    if rank < 1 or not parts or set(parts) - set(PARTS):
        raise ValueError(f'adapters of rank {rank} on {", ".join(parts) or "nothing"}: the rank '
                         f'must be at least 1, the layers out of {", ".join(PARTS)}')
    if dict(_adapters(encoder)):
        raise ValueError('the encoder has adapters already; merge them first')
    generator = torch.Generator().manual_seed(seed)
    encoder.requires_grad_(False)
    trained = []
    for block in encoder.blocks:
        for part in parts:
            owner, name = part.split('.')
            base = getattr(getattr(block, owner), name)
            adapted = AdaptedLinear(base, rank)
            start = torch.randn(rank, base.in_features, generator=generator)
            adapted.down.data.copy_(start / math.sqrt(base.in_features))
            setattr(getattr(block, owner), name, adapted)
            trained += [adapted.down, adapted.up]
    return trained


def adapter_state(encoder: Encoder) -> dict[str, Tensor]:
    """Return the trained matrices, named by layer: `blocks.0.attn.qkv.down`, `.up`."""
    return {f'{name}.{side}': getattr(layer, side).detach()
            for name, layer in _adapters(encoder) for side in ('down', 'up')}


def merge_adapters(encoder: Encoder) -> None:
    """Add the adapters to the weights of their layers and remove them."""
    state = adapter_state(encoder)
    for name, layer in list(_adapters(encoder)):
        owner, _, last = name.rpartition('.')
        setattr(encoder.get_submodule(owner), last, layer.base)
    merge_state(encoder, state)


@torch.no_grad()
def merge_state(encoder: Encoder, state: Mapping[str, Tensor]) -> None:
    """Add the result of `adapter_state` to the weights of an encoder without adapters."""
    layers = {key.rpartition('.')[0] for key in state}
    linear = {name: module for name, module in encoder.named_modules()
              if isinstance(module, nn.Linear)}
    ranks = {name: state[f'{name}.down'].shape[0] for name in layers & linear.keys()
             if f'{name}.down' in state}
    want = {f'{name}.{side}': torch.empty(shape, device='meta')
            for name, rank in ranks.items()
            for side, shape in (('down', (rank, linear[name].in_features)),
                                ('up', (linear[name].out_features, rank)))}
    problem = differences(want, state)
    if problem:
        raise ValueError(f'adapters do not fit the encoder: {problem}')
    for name in ranks:
        weight = linear[name].weight
        change = state[f'{name}.up'].float() @ state[f'{name}.down'].float()
        weight.add_(change.to(weight))


def _adapters(encoder: Encoder) -> Iterator[tuple[str, AdaptedLinear]]:
    return ((name, module) for name, module in encoder.named_modules()
            if isinstance(module, AdaptedLinear))

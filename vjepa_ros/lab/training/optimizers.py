# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Optimise: AdamW or Muon, moving average of the weights, target encoder, precision.

Muon is momentum whose steps are made orthogonal, for the matrices of transformer blocks, after
K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), with the step
size of arXiv 2502.16982, which lets it share a learning rate with AdamW.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.network import Network

QUINTIC = (3.4445, -4.7750, 2.0315)  # brings singular values from 0..1 close to 1
ITERATIONS = 5
RMS = 0.2  # of a step over the learning rate, as AdamW's


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum with decoupled weight decay.

    Parameters
    ----------
    params : iterable of nn.Parameter or of dict
        Matrices, or groups of them. A group may hold ``parts``: for each matrix how many of the
        same size stand in it one below the other, such as 3 for the fused projections to query,
        key and value, each of which is then made orthogonal by itself; without it 1.
    lr : float
        Learning rate.
    momentum : float
        0..1.
    weight_decay : float
        Per unit of the learning rate.
    """

    def __init__(self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
                 lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {'lr': lr, 'momentum': momentum, 'weight_decay': weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add matrices, with their ``parts`` (ValueError where these do not fit)."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if any(p.ndim != 2 for p in group['params']):
            raise ValueError('Muon is for matrices alone')
        group['parts'] = list(group.get('parts', [1] * len(group['params'])))
        if len(group['parts']) != len(group['params']):
            raise ValueError(f'{len(group["parts"])} numbers of parts for '
                             f'{len(group["params"])} matrices')
        for p, parts in zip(group['params'], group['parts'], strict=True):
            if parts < 1 or p.shape[0] % parts:
                raise ValueError(f'a matrix of {p.shape[0]} rows cannot be {parts} of one size')

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; ``parts`` stay those of the network, whatever was saved."""
        parts = [group['parts'] for group in self.param_groups]
        super().load_state_dict(dict(state_dict))
        for group, kept in zip(self.param_groups, parts, strict=True):
            group['parts'] = kept

    @torch.no_grad()
    # No closure is evaluated, so none is accepted.
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, closure: None = None) -> None:
        """Change all parameters that have a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for p, parts in zip(group['params'], group['parts'], strict=True):
                if p.grad is not None:
                    alike.setdefault((parts, *p.shape), []).append(p)
            for (parts, *_), params in alike.items():
                self._step(params, parts, group)

    def _step(self, params: list[nn.Parameter], parts: int, group: dict[str, Any]) -> None:
        ahead = []
        for p in params:
            if not self.state[p]:
                self.state[p]['momentum'] = torch.zeros_like(p)
            gradient = p.grad if p.grad is not None else torch.zeros_like(p)
            kept = self.state[p]['momentum'].lerp_(gradient, 1 - group['momentum'])
            ahead.append(torch.lerp(gradient, kept, group['momentum']))
        rows, columns = params[0].shape
        steps = torch.stack(ahead).view(-1, rows // parts, columns)
        steps = orthogonal(steps).view(-1, rows, columns).to(params[0].dtype)
        size = RMS * max(rows // parts, columns) ** 0.5
        for p, step in zip(params, steps, strict=True):
            p.mul_(1 - group['lr'] * group['weight_decay']).add_(step, alpha=-group['lr'] * size)


def orthogonal(matrices: Tensor) -> Tensor:
    """Bring the singular values of matrices (N, rows, columns) near to 1.

    A fixed number of Newton-Schulz iterations: the values end up between about 0.7 and 1.2.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    half = torch.bfloat16 if matrices.is_cuda else torch.float32
    x = (matrices.transpose(1, 2) if tall else matrices).to(half)
    x = x / x.float().flatten(1).norm(dim=1)[:, None, None].clamp(min=1e-7).to(half)
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


class Together:
    """Several optimisers that act as one."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self._parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return the groups of all of them."""
        return [group for part in self._parts for group in part.param_groups]

    def step(self) -> None:
        """Step with each."""
        for part in self._parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """State of all of them."""
        return {str(number): part.state_dict() for number, part in enumerate(self._parts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        for number, part in enumerate(self._parts):
            part.load_state_dict(state[str(number)])


class Average:
    """Exponential moving average of the trained parameters of a module.

    Parameters
    ----------
    module : nn.Module
        The average starts at its present values; frozen parameters are left alone.

    Attributes
    ----------
    values : dict of str to Tensor
        The average by name of the parameter.
    """

    def __init__(self, module: nn.Module):
        self._trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.values = {n: p.detach().clone() for n, p in self._trained.items()}

    def update(self, kept: float) -> None:
        """Move the average towards the parameters; `kept` 0..1 is the share of the old one."""
        get_ema_multi_avg_fn(kept)(list(self.values.values()), list(self._trained.values()), 0)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the module, in place, inside a with block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._trained.items():
            before = parameter.detach().clone()
            parameter.copy_(self.values[name])
            self.values[name].copy_(before)

    def share(self, module: nn.Module, prefix: str) -> None:
        """Make parameters of another module be this average, from now on and without a copy."""
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(False)
            if prefix + name in self.values:
                parameter.data = self.values[prefix + name]

    def load(self, values: dict[str, Tensor]) -> None:
        """Copy saved values, in place."""
        if values.keys() != self.values.keys():
            raise ValueError('the saved average belongs to another network')
        for name, value in values.items():
            self.values[name].copy_(value)


FUSED = {'qkv.weight': 3, '.kv.weight': 2}   # end of a name: matrices of one size in one parameter


def make_optimizer(network: nn.Module, config: TrainConfig) -> torch.optim.AdamW | Together:
    """Make AdamW, or Muon for the matrices of the blocks and AdamW for the rest.

    Weights of matrices decay, the rest does not.
    """
    trained = [p for p in network.parameters() if p.requires_grad]
    inner: dict[str, nn.Parameter] = {}
    if config.optimizer == 'muon':
        inner = {name: p for name, p in network.named_parameters()
                 if 'blocks.' in name and p.requires_grad and p.ndim == 2}
    chosen = {id(p) for p in inner.values()}
    outer = [p for p in trained if id(p) not in chosen]
    groups = [{'params': [p for p in outer if p.ndim > 1], 'weight_decay': config.weight_decay},
              {'params': [p for p in outer if p.ndim <= 1], 'weight_decay': 0.0}]
    adamw = torch.optim.AdamW([g for g in groups if g['params']], lr=config.lr,
                              betas=(0.9, 0.98), fused=True)
    if not inner:
        return adamw
    matrices = {'params': list(inner.values()), 'parts': list(map(matrices_in, inner))}
    return Together(adamw, Muon([matrices], config.lr, weight_decay=config.weight_decay))


def matrices_in(name: str) -> int:
    """Count the matrices of one size that a parameter of this name stacks."""
    return next((count for end, count in FUSED.items() if name.endswith(end)), 1)


def target_encoder(network: Network, average: Average) -> Network:
    """Return a network for features alone whose encoder is the average of the trained one."""
    encoder = type(network.encoder)(network.encoder.variant, network.encoder.version)
    encoder.load_state_dict(network.encoder.state_dict())
    average.share(encoder.to(next(network.parameters()).device), 'encoder.')
    return Network(encoder.eval(), network.heads)


def autocast_type(precision: str, device: torch.device) -> torch.dtype:
    """Choose the type of the matrix products in training.

    `auto` is bf16 where it is fast: on GPUs that have it, and on CPUs with AVX512-BF16 or AMX.
    """
    if precision != 'auto':
        return torch.bfloat16 if precision == 'bf16' else torch.float32
    if device.type == 'cuda':
        fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        # PyTorch says "supported" also where it only emulates bf16; these query the processor.
        fast = any(getattr(torch.cpu, name, bool)()
                   for name in ('_is_avx512_bf16_supported', '_is_amx_tile_supported'))
    return torch.bfloat16 if fast else torch.float32

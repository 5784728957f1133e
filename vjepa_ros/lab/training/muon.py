# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Muon: momentum whose steps are made orthogonal, for the matrices of transformer blocks.

After K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), with the
step size of arXiv 2502.16982, which lets it share a learning rate with AdamW. Matrices of one
shape are handled at once: a small network has dozens of them, and one after the other they would
take longer than the rest of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

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
        """Go on from `state_dict`; ``parts`` stay those of the network, whatever was saved."""
        parts = [group['parts'] for group in self.param_groups]
        super().load_state_dict(dict(state_dict))
        for group, kept in zip(self.param_groups, parts, strict=True):
            group['parts'] = kept

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Change all parameters that have a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for p, parts in zip(group['params'], group['parts'], strict=True):
                if p.grad is not None:
                    alike.setdefault((parts, *p.shape), []).append(p)
            for (parts, *_), params in alike.items():
                self._step(params, parts, group)

    def _step(self, params: list[nn.Parameter], parts: int, group: dict[str, Any]) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p]['momentum'] = torch.zeros_like(p)
        gradients = [p.grad for p in params]
        kept = [self.state[p]['momentum'] for p in params]
        torch._foreach_lerp_(kept, gradients, 1 - group['momentum'])
        ahead = torch._foreach_lerp(gradients, kept, group['momentum'])
        rows, columns = params[0].shape
        steps = torch.stack(ahead).view(-1, rows // parts, columns)
        steps = orthogonal(steps).view(-1, rows, columns)
        size = RMS * max(rows // parts, columns) ** 0.5
        torch._foreach_mul_(params, 1 - group['lr'] * group['weight_decay'])
        torch._foreach_add_(params, list(steps.to(params[0].dtype).unbind()),
                            alpha=-group['lr'] * size)


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (N, rows, columns) with their singular values brought near to 1.

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
        """Groups of all of them."""
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
        """Go on from `state_dict`."""
        for number, part in enumerate(self._parts):
            part.load_state_dict(state[str(number)])

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Search for the actions of least energy by the cross-entropy method.

Samples are drawn around a mean, the best of them decide the next mean and spread, and so on, as
V-JEPA 2-AC was published to plan (arXiv 2506.09985, section 3.2). The search itself runs on the
CPU in float32, so that the same noise gives the same samples whatever computes energies.

T steps, S samples, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.planning.action_space import ActionSpace
from vjepa_ros.planning.deadline import PlanStopped

# Actions told to the model (S, T, 7) and states before them (S, T, 7) to energies (S,), float32.
Energies = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class SearchConfig:
    """The numbers of a search; the defaults are those of the published planner.

    Attributes
    ----------
    samples : int
        Plans that are tried in an iteration.
    elites : int
        The best of them, which decide the next mean and spread.
    iterations : int
        How often.
    steps : int
        Actions of a plan.
    momentum_mean, momentum_std : float
        Part of the old mean and spread in the new ones, 0 to below 1.

    """

    samples: int = 400
    elites: int = 10
    iterations: int = 10
    steps: int = 2
    momentum_mean: float = 0.15
    momentum_std: float = 0.15

    def __post_init__(self):
        for name in ('iterations', 'steps'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name} is {getattr(self, name)}, but must be at least 1')
        if not 2 <= self.elites <= self.samples:
            raise ValueError(f'elites is {self.elites}, but must be from 2 to the number of '
                             f'samples, {self.samples}')
        for name in ('momentum_mean', 'momentum_std'):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f'{name} is {getattr(self, name)}, but must be from 0 to below 1')

    def noise(self, actions: int, seed: int) -> Tensor:
        """Standard normal noise of a search, (iterations, T, S, actions), the same everywhere."""
        shape = (self.iterations, self.steps, self.samples, actions)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


PUBLISHED_SEARCH = SearchConfig()


@dataclass(frozen=True)
class Found:
    """What a search has found.

    Attributes
    ----------
    actions : Tensor
        (T, A): the actions to take; None when not even one iteration came to its end.
    mean, spread : Tensor
        (T, A) of the samples that would come next.
    samples : Tensor
        (S, T, A) of the last iteration that came to its end.
    energies : Tensor
        (iterations done, S).
    first : Tensor
        (S, T, A) samples of the first iteration.
    stopped : str
        Why there are fewer iterations than wanted: 'cancelled', 'budget', or ''.

    """

    actions: Tensor | None
    mean: Tensor
    spread: Tensor
    samples: Tensor
    energies: Tensor
    first: Tensor
    stopped: str

    @property
    def iterations(self) -> int:
        """How many came to their end."""
        return len(self.energies)


def search(space: ActionSpace, state: Tensor, energies: Energies, config: SearchConfig,
           noise: Tensor, begin: Callable[[], None] = lambda: None) -> Found:
    """Search for the plan of least energy.

    Parameters
    ----------
    space : ActionSpace
        What is searched.
    state : Tensor
        (7,) before the first action.
    energies : callable
        Energies of plans, see `Energies`. May raise `PlanStopped`.
    config : SearchConfig
        Its numbers.
    noise : Tensor
        (iterations, T, S, A), see `SearchConfig.noise`.
    begin : callable
        Called before each iteration; may raise `PlanStopped`.

    Returns
    -------
    Found
        Of the iterations that came to their end; what a stopped one had computed is dropped.

    """
    wanted = (config.iterations, config.steps, config.samples, len(space.names))
    if noise.shape != wanted:
        raise ValueError(f'noise is {tuple(noise.shape)}, but must be {wanted}')
    mean = torch.zeros(config.steps, len(space.names))
    spread = space.spread.expand(config.steps, -1)
    nothing = torch.empty(0, config.steps, len(space.names))
    first = samples = nothing
    seen: list[Tensor] = []
    stopped = ''
    for own in noise:
        try:
            begin()
            drawn = space.clip(own * spread[:, None] + mean[:, None])  # T S A
            found = energies(*unroll(space, drawn.transpose(0, 1), state))
        except PlanStopped as stop:
            stopped = stop.reason
            break
        if not torch.isfinite(found).all():
            raise FloatingPointError('the world model gives energies that are not finite; set '
                                     '`precision: fp32`')
        seen.append(found)
        samples = drawn.transpose(0, 1)
        first = samples if len(seen) == 1 else first
        best = drawn[:, found.topk(config.elites, largest=False).indices]  # T elites A
        keep, hold = config.momentum_mean, config.momentum_std
        mean = best.mean(dim=1) * (1.0 - keep) + mean * keep
        spread = best.std(dim=1) * (1.0 - hold) + spread * hold
    energy = torch.stack(seen) if seen else torch.empty(0, config.samples)
    return Found(space.finish(mean) if seen else None, mean, spread, samples, energy, first,
                 stopped)


def unroll(space: ActionSpace, plans: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """What the model is told of plans, and the states before each step.

    Parameters
    ----------
    space : ActionSpace
        Of the plans.
    plans : Tensor
        (S, T, A).
    state : Tensor
        (7,) before the first step.

    Returns
    -------
    tuple of Tensor
        Both (S, T, 7) float32.

    """
    states = state.double().expand(len(plans), -1)
    told, before = [], []
    for step in range(plans.shape[1]):
        told.append(space.to_model(plans[:, step], states))
        before.append(states)
        states = space.advance(states, told[-1])
    return torch.stack(told, dim=1).float(), torch.stack(before, dim=1).float()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Search for the actions of least energy by the cross-entropy method, within a time budget.

Samples are drawn around a mean, the best of them give the next mean and spread, and so on: the
published planner of V-JEPA 2-AC (arXiv 2506.09985, section 3.2). The search runs on the CPU in
float32, so that equal noise gives equal samples on every device.

T steps, S samples, A numbers of an action.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.planning.action_space import ActionSpace

# From actions in the terms of the model (S, T, 7) and states before them (S, T, 7) to energies
# (S,), float32.
Energies = Callable[[Tensor, Tensor], Tensor]
CANCELLED, BUDGET = 'cancelled', 'budget'


class PlanStopped(Exception):
    """A plan ends early.

    Attributes
    ----------
    reason : str
        `CANCELLED` or `BUDGET`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Deadline:
    """The time budget of one plan, checked before every piece of work.

    Pieces of a kind take about the same time: one starts only when the longest of its kind so far
    would still fit.

    Parameters
    ----------
    budget_s : float
        Time from now [s]; inf for none.
    cancelled : threading.Event, optional
        Set from another thread to end the plan.
    clock : callable
        Steady time [s].
    """

    def __init__(self, budget_s: float = math.inf, cancelled: threading.Event | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._end = self._started + budget_s
        self._cancelled = cancelled
        self._reserved_s = 0.0
        self._open: dict[str, float] = {}
        self._longest: dict[str, float] = {}

    def start(self, kind: str) -> None:
        """Start a piece of work, and end the last one of its kind.

        Raises
        ------
        PlanStopped
            When the plan was cancelled, or the piece would not end in time.
        """
        self.end(kind)
        if self._cancelled is not None and self._cancelled.is_set():
            raise PlanStopped(CANCELLED)
        now = self._clock()
        if now + self._longest.get(kind, 0.0) + self._reserved_s > self._end:
            raise PlanStopped(BUDGET)
        self._open[kind] = now

    def end(self, kind: str) -> None:
        """End the current piece of a kind, if any."""
        if kind in self._open:
            took = self._clock() - self._open.pop(kind)
            self._longest[kind] = max(took, self._longest.get(kind, 0.0))

    def longest_s(self, kind: str) -> float:
        """Return the duration of the longest piece of a kind [s]; 0 before the first."""
        return self._longest.get(kind, 0.0)

    def reserve(self, seconds: float) -> None:
        """Reserve time for later work [s]; 0 releases it."""
        self._reserved_s = seconds

    @property
    def spent_s(self) -> float:
        """Time since the start [s]."""
        return self._clock() - self._started


@dataclass(frozen=True)
class SearchConfig:
    """Settings of a search; the defaults are those of the published planner.

    Attributes
    ----------
    samples : int
        Plans of an iteration.
    elites : int
        Number of the best plans, which give the next mean and spread.
    iterations : int
        Number of iterations.
    steps : int
        Actions of a plan.
    momentum_mean, momentum_std : float
        Fraction of the old mean and spread in the new ones, 0 to below 1.
    """

    samples: int = 400
    elites: int = 10
    iterations: int = 10
    steps: int = 2
    momentum_mean: float = 0.15
    momentum_std: float = 0.15

    def __post_init__(self) -> None:
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
        """Return standard normal noise (iterations, T, S, actions), equal on every device."""
        shape = (self.iterations, self.steps, self.samples, actions)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


PUBLISHED_SEARCH = SearchConfig()


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes
    ----------
    actions : Tensor
        The actions to take (T, A); None without a completed iteration.
    samples : Tensor
        Samples of the last completed iteration (S, T, A).
    energies : Tensor
        Energies of all completed iterations (iterations, S).
    first : Tensor
        Samples of the first iteration (S, T, A).
    stopped : str
        Why the search ended early: 'cancelled', 'budget', or ''.
    """

    actions: Tensor | None
    samples: Tensor
    energies: Tensor
    first: Tensor
    stopped: str

    @property
    def iterations(self) -> int:
        """Return the number of completed iterations."""
        return len(self.energies)


def search(space: ActionSpace, state: Tensor, energies: Energies, config: SearchConfig,
           noise: Tensor, begin: Callable[[], None] = lambda: None) -> Found:
    """Search for the plan of least energy.

    Parameters
    ----------
    space : ActionSpace
        The space of actions.
    state : Tensor
        State (7,) before the first action.
    energies : callable
        Computes energies of plans, see `Energies`; may raise `PlanStopped`.
    config : SearchConfig
        Settings.
    noise : Tensor
        (iterations, T, S, A), see `SearchConfig.noise`.
    begin : callable
        Called before each iteration; may raise `PlanStopped`.

    Returns
    -------
    Found
        Result of the completed iterations.

    Raises
    ------
    ValueError
        For noise of another shape.
    FloatingPointError
        When energies are not finite.
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
    return Found(space.finish(mean) if seen else None, samples, energy, first, stopped)


def unroll(space: ActionSpace, plans: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return plans in the terms of the model, and the states before each step.

    Parameters
    ----------
    space : ActionSpace
        Space of the plans.
    plans : Tensor
        (S, T, A).
    state : Tensor
        State (7,) before the first step.

    Returns
    -------
    tuple of Tensor
        Changes of the pose, and states before them, both (S, T, 7) float32.
    """
    states = state.double().expand(len(plans), -1)
    changes, before = [], []
    for step in range(plans.shape[1]):
        changes.append(space.to_model(plans[:, step], states))
        before.append(states)
        states = space.advance(states, changes[-1])
    return torch.stack(changes, dim=1).float(), torch.stack(before, dim=1).float()

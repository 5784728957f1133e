# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Plan actions towards a goal picture with an action-conditioned world model.

The planner of V-JEPA 2-AC (arXiv 2506.09985): encode the newest picture and the goal, predict the
outcome of many plans, and search for the plan whose outcome is most like the goal. It refuses a
plan when the energies do not separate plans. The model is that of the paper, for an arm
(`world_model`), or the bundled one for a base (`base_world`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.planning.action_space import ActionSpace
from vjepa_ros.planning.base_world import Clip
from vjepa_ros.planning.energy_test import (
    Change,
    Gap,
    GapConfig,
    USUAL_GAP,
    gap_of,
    noisy,
    unchanged,
)
from vjepa_ros.planning.search import (
    BUDGET,
    CANCELLED,
    Deadline,
    Found,
    PUBLISHED_SEARCH,
    PlanStopped,
    SearchConfig,
    search,
    unroll,
)
from vjepa_ros.runtime.device import DeviceChoice


@dataclass(frozen=True)
class Plan:
    """A plan, or why it was refused. T steps, S samples, A numbers of an action.

    Attributes
    ----------
    refusal : str
        Why `actions` should not be taken; '' when they may.
    trained : bool
        False when a network has random weights, so that the plan is meaningless.
    names : tuple of str
        Names of the A numbers of an action.
    actions : ndarray
        The best plan (T, A), of which the first row is to be taken now; None without one. Also set
        when the gap is noise.
    pose_changes : ndarray
        The same in the terms of the model (T, 7): changes of the pose.
    samples, energies : ndarray
        Plans of the last completed iteration (S, T, A), and their energies (S,).
    history : ndarray
        Energies of all completed iterations (iterations, S).
    iterations, wanted : int
        Number of completed and of requested iterations.
    stopped : str
        Why they differ: 'cancelled', 'budget' or ''.
    gap : Gap, optional
        How much better the plan is than random ones; None when not measured.
    energy_now : float
        Energy of the newest picture itself, which falls towards the goal; NaN when not encoded.
    seconds : dict of str to float
        Durations of encode, search, gap and total [s].
    arrived : bool
        Whether the goal is reached; the actions are zero then.
    """

    refusal: str
    trained: bool
    names: tuple[str, ...]
    actions: np.ndarray | None
    pose_changes: np.ndarray | None
    samples: np.ndarray
    energies: np.ndarray
    history: np.ndarray
    iterations: int
    wanted: int
    stopped: str
    gap: Gap | None
    energy_now: float = math.nan
    seconds: dict[str, float] = field(default_factory=dict)
    arrived: bool = False

    @property
    def ranks(self) -> np.ndarray:
        """Ranks (S,) int64, 0 for the sample of least energy."""
        ranks = np.empty(len(self.energies), np.int64)
        ranks[np.argsort(self.energies, kind='stable')] = np.arange(len(self.energies))
        return ranks

    def __str__(self) -> str:
        text = '' if self.trained else 'UNTRAINED (random weights): '
        text += f'refused: {self.refusal}' if self.refusal else 'plan found'
        if self.refusal and not self.iterations:
            return text
        if self.arrived:
            return f'{text} that stays: the goal is reached'
        if self.actions is not None:
            first = ', '.join(f'{name} {value:.4g}' for name, value in
                              zip(self.names, self.actions[0], strict=True))
            text += f'; first action {first}; least energy '
            text += f'{self.energies.min():.5g}, now {self.energy_now:.5g}'
        if self.gap is not None:
            text += f'; {self.gap}'
        stop = f' (stopped: {self.stopped})' if self.stopped else ''
        return (f'{text}; {self.iterations} of {self.wanted} iterations{stop} in '
                f'{self.seconds.get("total", math.nan):.3g} s')


class World(Protocol):
    """What `Planner` asks of a world model: `WorldModel`, `BaseWorld`."""

    choice: DeviceChoice
    trained: bool

    @property
    def steps(self) -> int:
        """Greatest number of steps of a plan."""
        ...

    def fit(self, picture: Any) -> Any:
        """Return the input of the encoder, for the newest picture or clip, or for a goal."""
        ...

    def encode(self, views: Sequence[Any], change: Change = unchanged) -> Sequence[Any]:
        """Return features of such inputs, whose pixels are changed before."""
        ...

    def difference(self, context: Any, goal: Any) -> float:
        """Return how different the features of the newest picture and of the goal are."""
        ...

    def arrived(self, seen: Any, goal: Any) -> bool:
        """Return whether the newest picture was taken where the goal was."""
        ...

    def energies(self, context: Any, goal: Any, actions: Tensor, states: Tensor,
                 begin: Callable[[], None] = ...) -> Tensor:
        """Return the energies (S,) of plans; `begin` is called before each part and may raise."""
        ...

    def warm(self, plans: Sequence[int], steps: int) -> None:
        """Prepare passes of so many plans each."""
        ...

    def about(self) -> dict[str, object]:
        """Return what diagnostics say of the model: execution, model, image_size, weights."""
        ...

    def memory_bytes(self) -> int:
        """Return the bytes that the model holds."""
        ...

    def close(self) -> None:
        """Release the networks."""
        ...


class Planner:
    """Plans towards a goal. One plan at a time; `cancel` events may be set from any thread.

    Parameters
    ----------
    world : World
        Owned by the caller.
    space : ActionSpace
        The space of actions.
    config : SearchConfig
        Settings of the search.
    gap : GapConfig
        Settings of the test against noise.
    clock : callable
        Steady time [s].

    Raises
    ------
    ValueError
        When a plan has more steps than the world model was made for.
    """

    def __init__(self, world: World, space: ActionSpace,
                 config: SearchConfig = PUBLISHED_SEARCH, gap: GapConfig = USUAL_GAP,
                 clock: Callable[[], float] = time.monotonic) -> None:
        if config.steps > world.steps:
            raise ValueError(f'steps is {config.steps}, but the world model was made for '
                             f'{world.steps}')
        self.world, self.space, self.config, self.gap = world, space, config, gap
        self._clock = clock
        self._goal: Any = None
        self._goal_features: Any = None

    def warm(self) -> None:
        """Prepare passes of the size of a plan, so that the first plan is not slow."""
        self.world.warm((self.config.samples, 1 + self.gap.plans), self.config.steps)

    def set_goal(self, rgb: np.ndarray | None) -> None:
        """Set the goal, a picture (H, W, 3) uint8 RGB; None removes it."""
        self._goal = None if rgb is None else self.world.fit(_picture(rgb))
        self._goal_features = None

    def encode_goal(self) -> Any:
        """Encode the goal once, before the next plan needs it.

        Raises
        ------
        ValueError
            Without a goal.
        """
        if self._goal is None:
            raise ValueError('there is no goal')
        if self._goal_features is None:
            (self._goal_features,) = self.world.encode([self._goal])
        return self._goal_features

    def plan(self, seen: np.ndarray | Clip, state: np.ndarray, *, budget_s: float = math.inf,
             cancel: threading.Event | None = None, seed: int = 0,
             noise: Tensor | None = None) -> Plan:
        """Search for the best plan from the newest picture.

        Parameters
        ----------
        seen : ndarray or Clip
            The newest picture (H, W, 3) uint8 RGB; for a `BaseWorld` the clip that ends in it.
        state : ndarray
            What plans start from: pose and gripper (7,) of an arm, see `action_space`; for a
            `BaseWorld` the `View` of its camera.
        budget_s : float
            Time for everything [s]. No work starts that would not end in time, judged by the
            longest of its kind so far. The result is then that of the completed iterations;
            without one, or without time to measure the gap, the plan is refused.
        cancel : threading.Event, optional
            Set it to end the plan at its next step; it is refused then.
        seed : int
            Seed of the noise: equal pictures, states and seeds give equal plans where the device
            is deterministic.
        noise : Tensor, optional
            Noise (iterations, T, S, A) instead, see `SearchConfig.noise`.

        Returns
        -------
        Plan
            With `refusal` set when it should not be acted on.

        Raises
        ------
        ValueError
            For a picture or state of another shape, or a state that is not finite.
        """
        deadline = Deadline(budget_s, cancel, self._clock)
        start = np.asarray(state, np.float64)
        if start.shape != (self.space.numbers,) or not np.isfinite(start).all():
            raise ValueError(f'the state is {start.tolist()}, but must be {self.space.numbers} '
                             'finite numbers')
        goal_view = self._goal
        if goal_view is None:
            return self.refused('there is no goal; give a picture of it first')
        view, seconds = self.world.fit(_picture(seen)), {}
        given = torch.from_numpy(start)
        try:
            deadline.start('encode')
            (context,) = self.world.encode([view])
            if self._goal_features is None:
                deadline.start('encode')
            goal = self.encode_goal()
            deadline.end('encode')
        except PlanStopped as stop:
            return self.refused(_incomplete(stop.reason), stop.reason)
        now = self.world.difference(context, goal)
        seconds['encode'] = deadline.spent_s
        if self.world.arrived(view, goal_view):
            still = np.zeros((self.config.steps, len(self.space.names)), np.float32)
            return replace(self.refused(''), actions=still, pose_changes=still, energy_now=now,
                           seconds={**seconds, 'total': deadline.spent_s}, arrived=True)
        if noise is None:
            noise = self.config.noise(len(self.space.names), seed)
        energies = partial(self.world.energies, context, goal,
                           begin=lambda: deadline.start('step'))
        found = search(self.space, given, energies, self.config, noise,
                       lambda: self._start_iteration(deadline))
        deadline.end('iteration')
        seconds['search'] = deadline.spent_s - sum(seconds.values())
        gap, refusal = None, ''
        if found.actions is None or found.stopped == CANCELLED:
            refusal = _incomplete(found.stopped)
        elif self.gap.repetitions:
            plans = torch.cat((found.actions[None], found.first[:self.gap.plans]))
            gap, refusal = self._tested((view, goal_view), plans, given, seed, deadline)
            seconds['gap'] = deadline.spent_s - sum(seconds.values())
        seconds['total'] = deadline.spent_s
        return self._result(refusal, found, given, gap, now, seconds)

    def _start_iteration(self, deadline: Deadline) -> None:
        """Start an iteration if it and the measurement of the gap fit into the time."""
        deadline.end('iteration')
        last, test = deadline.longest_s('iteration'), self.gap
        if last:  # the first iteration starts in any case
            plans = test.repetitions * (1 + test.plans)
            deadline.reserve(2 * test.repetitions * deadline.longest_s('encode')
                             + last * plans / self.config.samples)
        deadline.start('iteration')

    def _tested(self, pictures: tuple[Any, Any], plans: Tensor, state: Tensor, seed: int,
                deadline: Deadline) -> tuple[Gap | None, str]:
        """Return the gap, see `_measure_gap`, and why a plan is refused for it, or ''."""
        try:
            gap = self._measure_gap(pictures, plans, state, seed, deadline)
        except PlanStopped as stop:
            return None, ('no time was left for the test against noise; raise the time budget'
                          if stop.reason == BUDGET else _incomplete(stop.reason))
        return gap, '' if gap.clear else f'the energies do not separate plans: {gap}'

    def _measure_gap(self, pictures: tuple[Any, Any], plans: Tensor, state: Tensor,
                     seed: int, deadline: Deadline) -> Gap:
        """Measure the gap between a plan and random ones.

        Parameters
        ----------
        pictures
            The newest one and the goal, as the encoder sees them.
        plans
            (1 + plans, T, A), the plan found first.
        state
            State (7,) before the first action.
        seed
            Seed of the noise on the pictures.
        deadline
            Of the plan.
        """
        deadline.reserve(0.0)
        random = np.random.default_rng(seed)
        changes, before = unroll(self.space, plans, state)
        rows = []
        for _ in range(self.gap.repetitions):
            deadline.start('repetition')
            context, goal = self.world.encode(
                pictures, lambda pixels: noisy(pixels, self.gap.pixel_noise, random))
            rows.append(self.world.energies(context, goal, changes, before).numpy())
        deadline.end('repetition')
        return gap_of(np.stack(rows), self.gap.least)

    def refused(self, refusal: str, stopped: str = '') -> Plan:
        """Return a plan that is refused for a reason before it was searched."""
        empty = np.empty((0, self.config.steps, len(self.space.names)), np.float32)
        return Plan(refusal, self.world.trained, self.space.names, None, None, empty,
                    np.empty(0, np.float32), np.empty((0, self.config.samples), np.float32), 0,
                    self.config.iterations, stopped, None)

    def _result(self, refusal: str, found: Found, state: Tensor, gap: Gap | None,
                now: float, seconds: dict[str, float]) -> Plan:
        actions = changes = None
        if found.actions is not None:
            actions = found.actions.numpy()
            changes = unroll(self.space, found.actions[None], state)[0][0].numpy()
        history = found.energies.numpy()
        last = history[-1] if len(history) else np.empty(0, np.float32)
        return Plan(refusal, self.world.trained, self.space.names, actions, changes,
                    found.samples.numpy(), last, history, found.iterations,
                    self.config.iterations, found.stopped, gap, now, seconds)


def _picture(seen: np.ndarray | Clip) -> np.ndarray | Clip:
    if not isinstance(seen, Clip) and (seen.ndim != 3 or seen.shape[2] != 3):
        raise ValueError(f'a picture is {seen.shape}, but must be (H, W, 3)')
    return seen


def _incomplete(reason: str) -> str:
    if reason == CANCELLED:
        return 'it was cancelled'
    return 'the time budget ended before the first iteration did; raise it, or lower the samples'

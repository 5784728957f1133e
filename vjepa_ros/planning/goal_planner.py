# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Plan actions towards a goal picture with an action-conditioned world model.

The planner of V-JEPA 2-AC (arXiv 2506.09985): encode the newest picture and the goal, predict the
outcome of many plans, and search for the plan whose outcome is most like the goal. It refuses a
plan when the energies do not separate plans.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.resize import View
from vjepa_ros.planning.action_space import ActionSpace
from vjepa_ros.planning.energy_test import Gap, GapConfig, USUAL_GAP, gap_of, noisy
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
from vjepa_ros.planning.world_model import WorldModel
from vjepa_ros.runtime.device import SessionError

STATE = 7                 # numbers of a state, see `action_space`


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
    flops : int
        Floating-point operations of the completed work, see `world_model.Shapes`.
    energy_now : float
        Energy of the newest picture itself, which falls towards the goal; NaN when not encoded.
    seconds : dict of str to float
        Durations of encode, search, gap and total [s].
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
    flops: int
    energy_now: float = math.nan
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ranks(self) -> np.ndarray:
        """Ranks (S,) int64, 0 for the sample of least energy."""
        ranks = np.empty(len(self.energies), np.int64)
        ranks[np.argsort(self.energies, kind='stable')] = np.arange(len(self.energies))
        return ranks

    def __str__(self) -> str:
        text = '' if self.trained else 'UNTRAINED (random weights): '
        text += f'refused: {self.refusal}' if self.refusal else 'plan found'
        if self.actions is not None:
            first = ', '.join(f'{name} {value:.4g}' for name, value in
                              zip(self.names, self.actions[0], strict=True))
            text += f'; first action {first}; least energy '
            text += f'{self.energies.min():.5g}, now {self.energy_now:.5g}'
        if self.gap is not None:
            text += f'; {self.gap}'
        stop = f' (stopped: {self.stopped})' if self.stopped else ''
        return (f'{text}; {self.iterations} of {self.wanted} iterations{stop}, '
                f'{self.flops / 1e12:.3g} TFLOP in {self.seconds.get("total", math.nan):.3g} s')


class Planner:
    """Plans towards a goal. One plan at a time; `cancel` events may be set from any thread.

    Parameters
    ----------
    world : WorldModel
        Owned by the caller.
    space : ActionSpace
        The space of actions.
    config : SearchConfig
        Settings of the search.
    gap : GapConfig
        Settings of the test against noise.
    resize_mode : str
        How a picture is fitted to the encoder, see `vjepa_ros.clip.resize`. V-JEPA 2-AC was
        trained with 'crop', the centre.
    clock : callable
        Steady time [s].

    Raises
    ------
    ValueError
        When a plan has more steps than the world model was made for.
    """

    def __init__(self, world: WorldModel, space: ActionSpace,
                 config: SearchConfig = PUBLISHED_SEARCH, gap: GapConfig = USUAL_GAP,
                 resize_mode: str = 'crop', clock: Callable[[], float] = time.monotonic) -> None:
        if config.steps > world.config.steps:
            raise ValueError(f'steps is {config.steps}, but the world model was made for '
                             f'{world.config.steps}')
        self.world, self.space, self.config, self.gap = world, space, config, gap
        self.resize_mode = resize_mode
        self._clock = clock
        self._goal: np.ndarray | None = None
        self._goal_features: Tensor | None = None

    def warm(self) -> None:
        """On CUDA, run passes of the size of a plan, so that the first plan is not slow.

        Libraries select and build kernels for each shape, and the memory may not suffice for so
        many plans at once.

        Raises
        ------
        SessionError
            When energies are not finite.
        """
        if self.world.choice.device.type != 'cuda':
            return
        side = self.world.config.image_size
        (grey,) = self.world.encode([np.full((side, side, 3), 128, np.uint8)])
        for plans in (self.config.samples, 1 + self.gap.plans):
            still = torch.zeros(plans, self.config.steps, STATE)
            if not torch.isfinite(self.world.energies(grey, grey, still, still)).all():
                raise SessionError(f'the world model gives values that are not finite on '
                                   f'{self.world.choice.device} in '
                                   f'{self.world.choice.precision}; set `precision: fp32`')

    @property
    def has_goal(self) -> bool:
        """Whether there is a goal."""
        return self._goal is not None

    def set_goal(self, rgb: np.ndarray | None) -> None:
        """Set the goal, a picture (H, W, 3) uint8 RGB; None removes it."""
        self._goal = None if rgb is None else self._view(rgb)
        self._goal_features = None

    def encode_goal(self) -> Tensor:
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

    def plan(self, rgb: np.ndarray, state: np.ndarray, *, budget_s: float = math.inf,
             cancel: threading.Event | None = None, seed: int = 0,
             noise: Tensor | None = None) -> Plan:
        """Search for the best plan from the newest picture.

        Parameters
        ----------
        rgb : ndarray
            The newest picture (H, W, 3) uint8 RGB.
        state : ndarray
            Pose and gripper (7,), see `action_space`.
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
        if start.shape != (STATE,) or not np.isfinite(start).all():
            raise ValueError(f'the state is {start.tolist()}, but must be {STATE} finite numbers')
        goal_view = self._goal
        if goal_view is None:
            return self._refused('there is no goal; give a picture of it first')
        view, seconds = self._view(rgb), {}
        given = torch.from_numpy(start)
        encoded = 1 if self._goal_features is not None else 2
        try:
            deadline.start('encode')
            (context,) = self.world.encode([view])
            if self._goal_features is None:
                deadline.start('encode')
            goal = self.encode_goal()
            deadline.end('encode')
        except PlanStopped as stop:
            return self._refused(_incomplete(stop.reason), stop.reason)
        now = float((context - goal).abs().mean())
        seconds['encode'] = deadline.spent_s
        if noise is None:
            noise = self.config.noise(len(self.space.names), seed)
        energies = partial(self.world.energies, context, goal,
                           begin=lambda: deadline.start('step'))
        found = search(self.space, given, energies, self.config, noise,
                       lambda: self._start_iteration(deadline))
        deadline.end('iteration')
        seconds['search'] = deadline.spent_s - sum(seconds.values())
        gap, refusal, judged = None, '', 0
        if found.actions is None or found.stopped == CANCELLED:
            refusal = _incomplete(found.stopped)
        elif self.gap.repetitions:
            plans = torch.cat((found.actions[None], found.first[:self.gap.plans]))
            try:
                gap = self._measure_gap((view, goal_view), plans, given, seed, deadline)
                judged = self.gap.repetitions * len(plans)
                if not gap.clear:
                    refusal = f'the energies do not separate plans: {gap}'
            except PlanStopped as stop:
                refusal = ('no time was left for the test against noise; raise the time budget'
                           if stop.reason == BUDGET else _incomplete(stop.reason))
            seconds['gap'] = deadline.spent_s - sum(seconds.values())
        seconds['total'] = deadline.spent_s
        pictures = encoded + (2 * self.gap.repetitions if judged else 0)
        rollouts = found.iterations * self.config.samples + judged
        flops = (pictures * self.world.shapes.encode_flops()
                 + rollouts * self.world.shapes.rollout_flops(self.config.steps))
        return self._result(refusal, found, given, gap, flops, now, seconds)

    def _start_iteration(self, deadline: Deadline) -> None:
        """Start an iteration if it and the measurement of the gap fit into the time."""
        deadline.end('iteration')
        last, test = deadline.longest_s('iteration'), self.gap
        if last:  # the first iteration starts in any case
            plans = test.repetitions * (1 + test.plans)
            deadline.reserve(2 * test.repetitions * deadline.longest_s('encode')
                             + last * plans / self.config.samples)
        deadline.start('iteration')

    def _measure_gap(self, pictures: tuple[np.ndarray, np.ndarray], plans: Tensor, state: Tensor,
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
                [noisy(view, self.gap.pixel_noise, random) for view in pictures])
            rows.append(self.world.energies(context, goal, changes, before).numpy())
        deadline.end('repetition')
        return gap_of(np.stack(rows), self.gap.least)

    def _view(self, rgb: np.ndarray) -> np.ndarray:
        """Return the input of the encoder (S, S, 3) of a picture."""
        if rgb.ndim != 3 or rgb.shape[2] != 3:
            raise ValueError(f'a picture is {rgb.shape}, but must be (H, W, 3)')
        size = (rgb.shape[1], rgb.shape[0])
        side = self.world.config.image_size
        return View(mode=self.resize_mode, source_size=size, image_size=side).apply(rgb)

    def _refused(self, refusal: str, stopped: str = '') -> Plan:
        empty = np.empty((0, self.config.steps, len(self.space.names)), np.float32)
        return Plan(refusal, self.world.trained, self.space.names, None, None, empty,
                    np.empty(0, np.float32), np.empty((0, self.config.samples), np.float32), 0,
                    self.config.iterations, stopped, None, 0)

    def _result(self, refusal: str, found: Found, state: Tensor, gap: Gap | None, flops: int,
                now: float, seconds: dict[str, float]) -> Plan:
        actions = changes = None
        if found.actions is not None:
            actions = found.actions.numpy()
            changes = unroll(self.space, found.actions[None], state)[0][0].numpy()
        history = found.energies.numpy()
        last = history[-1] if len(history) else np.empty(0, np.float32)
        return Plan(refusal, self.world.trained, self.space.names, actions, changes,
                    found.samples.numpy(), last, history, found.iterations,
                    self.config.iterations, found.stopped, gap, flops, now, seconds)


def _incomplete(reason: str) -> str:
    if reason == CANCELLED:
        return 'it was cancelled'
    return 'the time budget ended before the first iteration did; raise it, or lower the samples'

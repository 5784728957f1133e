# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Plan actions towards a picture of the goal with an action-conditioned world model.

The planner of V-JEPA 2-AC (arXiv 2506.09985): encode the newest picture and the goal, imagine
what many plans lead to, and search for the plan whose end looks most like the goal. It says when
the energies do not tell plans apart.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.resize import View
from vjepa_ros.planning.action_space import ActionSpace
from vjepa_ros.planning.deadline import BUDGET, CANCELLED, PlanStopped, Watch
from vjepa_ros.planning.energy_test import USUAL_GAP, Gap, GapConfig, gap_of, noisy
from vjepa_ros.planning.plan import Plan
from vjepa_ros.planning.search import PUBLISHED_SEARCH, Found, SearchConfig, search, unroll
from vjepa_ros.planning.world_model import WorldModel
from vjepa_ros.runtime.device import SessionError

STATE = 7


class Planner:
    """Plans towards a goal. One plan at a time; `cancel` events may be set from any thread.

    Parameters
    ----------
    world : WorldModel
        Owned by the caller.
    space : ActionSpace
        What is searched.
    config : SearchConfig
        How.
    gap : GapConfig
        How it is found out whether the result is more than noise.
    resize_mode : str
        How a picture becomes the input of the encoder, see `vjepa_ros.clip.view`. 'crop', the
        centre, is how V-JEPA 2-AC was trained.
    clock : callable
        Steady time [s].

    Raises
    ------
    ValueError
        When the world model was made for fewer steps than a plan has.

    """

    def __init__(self, world: WorldModel, space: ActionSpace,
                 config: SearchConfig = PUBLISHED_SEARCH, gap: GapConfig = USUAL_GAP,
                 resize_mode: str = 'crop', clock: Callable[[], float] = time.monotonic):
        if config.steps > world.config.steps:
            raise ValueError(f'steps is {config.steps}, but the world model was made for '
                             f'{world.config.steps}')
        self.world, self.space, self.config, self.gap = world, space, config, gap
        self.resize_mode = resize_mode
        self._clock = clock
        self._goal: np.ndarray | None = None
        self._goal_features: Tensor | None = None

    def warm(self) -> None:
        """On CUDA run passes as large as those of a plan, so that the first one is not slow.

        Libraries choose and build kernels for each shape there, and memory may turn out to be
        too small for so many plans at once. Elsewhere there is nothing to gain.
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
        """Take a picture (H, W, 3) uint8 RGB as the goal; None takes it away."""
        self._goal = None if rgb is None else self._view(rgb)
        self._goal_features = None

    def encode_goal(self) -> None:
        """Encode the goal now, so that the next plan need not."""
        if self._goal is not None and self._goal_features is None:
            (self._goal_features,) = self.world.encode([self._goal])

    def plan(self, rgb: np.ndarray, state: np.ndarray, *, budget_s: float = math.inf,
             cancel: threading.Event | None = None, seed: int = 0,
             noise: Tensor | None = None) -> Plan:
        """Search for the best plan from the newest picture.

        Parameters
        ----------
        rgb : ndarray
            (H, W, 3) uint8 RGB, the newest picture.
        state : ndarray
            (7,) pose and gripper, see `action_space`.
        budget_s : float
            Time for everything [s]. No work begins that would not end in time, judged by the
            longest of its kind so far. What is returned then is the result of the iterations
            that came to their end; when none did, or no time was left to measure the gap, the
            plan is refused.
        cancel : threading.Event, optional
            Set it to end the plan at its next step; it is refused then.
        seed : int
            Of the noise: equal pictures, states and seeds give equal plans where the device
            computes the same twice.
        noise : Tensor, optional
            (iterations, T, S, A) to take instead, see `SearchConfig.noise`.

        Raises
        ------
        ValueError
            For a picture or state of another shape, or a state that is not finite.

        """
        watch = Watch(budget_s, cancel, self._clock)
        start = np.asarray(state, np.float64)
        if start.shape != (STATE,) or not np.isfinite(start).all():
            raise ValueError(f'the state is {start.tolist()}, but must be {STATE} finite numbers')
        if self._goal is None:
            return self._nothing('there is no goal; give a picture of it first')
        picture, seconds = self._view(rgb), {}
        given = torch.from_numpy(start)
        encoded = 1 if self._goal_features is not None else 2
        try:
            watch.piece('encode')
            (context,) = self.world.encode([picture])
            if self._goal_features is None:
                watch.piece('encode')
                self.encode_goal()
            watch.end('encode')
        except PlanStopped as stop:
            return self._nothing(_incomplete(stop.reason), stop.reason)
        now = float((context - self._goal_features).abs().mean())
        seconds['encode'] = watch.spent_s
        if noise is None:
            noise = self.config.noise(len(self.space.names), seed)
        found = search(self.space, given, partial(
            self.world.energies, context, self._goal_features,
            begin=lambda: watch.piece('step')), self.config, noise,
            lambda: self._next(watch))
        watch.end('iteration')
        seconds['search'] = watch.spent_s - sum(seconds.values())
        gap, refusal, judged = None, '', 0
        if found.actions is None or found.stopped == CANCELLED:
            refusal = _incomplete(found.stopped)
        elif self.gap.repetitions:
            try:
                gap, judged = self._judge(picture, given, found, seed, watch)
                if not gap.clear:
                    refusal = f'the energies do not tell plans apart: {gap}'
            except PlanStopped as stop:
                refusal = ('no time was left to find out whether the plan is more than noise; '
                           'raise the time budget' if stop.reason == BUDGET
                           else _incomplete(stop.reason))
            seconds['gap'] = watch.spent_s - sum(seconds.values())
        seconds['total'] = watch.spent_s
        pictures = encoded + (2 * self.gap.repetitions if judged else 0)
        rollouts = found.iterations * self.config.samples + judged
        flops = (pictures * self.world.shapes.encode_flops()
                 + rollouts * self.world.shapes.rollout_flops(self.config.steps))
        return self._result(refusal, found, given, gap, flops, now, seconds)

    def _next(self, watch: Watch) -> None:
        """Begin an iteration, if it and the measurement of the gap fit into the time."""
        watch.end('iteration')
        last, judge = watch.longest_s('iteration'), self.gap
        if last:  # the first iteration begins in any case
            plans = judge.repetitions * (1 + judge.plans)
            watch.reserve(2 * judge.repetitions * watch.longest_s('encode')
                          + last * plans / self.config.samples)
        watch.piece('iteration')

    def _judge(self, picture: np.ndarray, state: Tensor, found: Found, seed: int,
               watch: Watch) -> tuple[Gap, int]:
        """The gap, and how many plans were judged for it."""
        watch.reserve(0.0)
        random = np.random.default_rng(seed)
        plans = torch.cat((found.actions[None], found.first[:self.gap.plans]))
        told, before = unroll(self.space, plans, state)
        rows = []
        for _ in range(self.gap.repetitions):
            watch.piece('repetition')
            views = [noisy(view, self.gap.pixel_noise, random) for view in (picture, self._goal)]
            rows.append(self.world.energies(*self.world.encode(views), told, before).numpy())
        watch.end('repetition')
        return gap_of(np.stack(rows), self.gap.least), len(rows) * len(plans)

    def _view(self, rgb: np.ndarray) -> np.ndarray:
        """What the encoder sees of a picture."""
        if rgb.ndim != 3 or rgb.shape[2] != 3:
            raise ValueError(f'a picture is {rgb.shape}, but must be (H, W, 3)')
        size = (rgb.shape[1], rgb.shape[0])
        side = self.world.config.image_size
        return View(mode=self.resize_mode, source_size=size, image_size=side).apply(rgb)

    def _nothing(self, refusal: str, stopped: str = '') -> Plan:
        empty = np.empty((0, self.config.steps, len(self.space.names)), np.float32)
        return Plan(refusal, self.world.trained, self.space.names, None, None, empty,
                    np.empty(0, np.float32), np.empty((0, self.config.samples), np.float32), 0,
                    self.config.iterations, stopped, None, 0)

    def _result(self, refusal: str, found: Found, state: Tensor, gap: Gap | None, flops: int,
                now: float, seconds: dict[str, float]) -> Plan:
        actions = told = None
        if found.actions is not None:
            actions = found.actions.numpy()
            told = unroll(self.space, found.actions[None], state)[0][0].numpy()
        history = found.energies.numpy()
        last = history[-1] if len(history) else np.empty(0, np.float32)
        return Plan(refusal, self.world.trained, self.space.names, actions, told,
                    found.samples.numpy(), last, history, found.iterations,
                    self.config.iterations, found.stopped, gap, flops, now, seconds)


def _incomplete(reason: str) -> str:
    if reason == CANCELLED:
        return 'it was cancelled'
    return 'the time budget ended before the first iteration did; raise it, or lower the samples'

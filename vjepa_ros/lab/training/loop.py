# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train step by step: data, losses, optimiser, progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vjepa_ros.lab.training.config import Budget, TrainConfig, momentum, rate_factor
from vjepa_ros.lab.training.feeds import Feed, Order
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.training.optimizers import (
    Average,
    autocast_type,
    make_optimizer,
    target_encoder,
)
from vjepa_ros.lab.training.parallel import Team
from vjepa_ros.lab.training.state import RunState

AHEAD = 2            # steps that may be queued on an accelerator before the host waits


class Meter:
    """Adds up losses and times; only `losses` and `leave_out` wait for the device."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == 'cuda'
        self._queued: list[torch.cuda.Event] = []
        self.lr, self.order = 0.0, Order(0, 0, 1.0)
        self.restart()

    def restart(self) -> None:
        """Begin a new stretch."""
        self.since = time.monotonic()
        self.steps = self.clips = 0
        self._sums: dict[str, Tensor] = {}
        self._data_s = 0.0
        self._began = self.since
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def leave_out(self) -> None:
        """Do not count the time so far, such as that of compiling."""
        if self._cuda:
            torch.cuda.synchronize()
        self.since = time.monotonic()
        self.clips = 0
        self._data_s = 0.0
        self._marks = []

    def begin(self) -> None:
        """Begin a step."""
        self._began = time.monotonic()
        if self._cuda:
            self._begun = torch.cuda.Event(enable_timing=True)
            self._begun.record()

    def made(self) -> None:
        """Note that the batch of the step is made, or queued on the device."""
        self._data_s += time.monotonic() - self._began
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append((self._begun, event))

    def end(self, losses: dict[str, Tensor], clips: int, lr: float, order: Order) -> None:
        """End a step."""
        for name, value in losses.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self.steps += 1
        self.clips += clips
        self.lr, self.order = lr, order
        if self._cuda:
            event = torch.cuda.Event()
            event.record()
            self._queued.append(event)
            if len(self._queued) > AHEAD:
                self._queued.pop(0).synchronize()

    def losses(self) -> dict[str, float]:
        """Return the means of the losses (waits for the device)."""
        if not self._sums:
            return {}
        values = (torch.stack(list(self._sums.values())) / self.steps).tolist()
        return dict(zip(self._sums, values, strict=True))

    def times(self) -> tuple[float, float]:
        """Return the seconds of the stretch, and the part of them that making batches took."""
        seconds = time.monotonic() - self.since
        data_s = self._data_s
        if self._cuda:
            data_s = sum(a.elapsed_time(b) for a, b in self._marks) / 1e3
        return seconds, min(1.0, data_s / max(seconds, 1e-9))


log = logging.getLogger(__name__)


class TrainingError(RuntimeError):
    """Training cannot continue."""


@dataclass(frozen=True)
class Report:
    """Progress of a run."""

    # step, clips: done so far
    step: int
    clips: int
    progress: float  # part of the run, 0..1
    seconds: float  # spent on training so far
    losses: dict[str, float]  # means since the report before
    rate: float  # clips per second since the report before
    data_share: float  # part of that time that went into making batches, 0..1
    lr: float  # learning rate
    # size, kept: image size and share of places kept at this moment
    size: int
    kept: float


class Trainer:
    """Trains a network, and holds the state of the run.

    Parameters
    ----------
    config : TrainConfig
        Of the run.
    network : Network
        On the device of `team`.
    team : Team
        Processes of the run.

    Attributes
    ----------
    average : Average
        Of the trained parameters.
    budget : Budget
        How much is done.
    step : int
        Steps done.
    history : list of dict
        Reports so far.
    """

    def __init__(self, config: TrainConfig, network: Network, team: Team):
        self.config, self.network, self.team = config, network, team
        self.average = Average(network)
        self.budget = Budget(config.clips, config.seconds)
        self.step = 0
        self.history: list[dict[str, Any]] = []
        self._optimizer = make_optimizer(network, config)
        self._trained = [p for p in network.parameters() if p.requires_grad]
        self._precision = autocast_type(config.precision, team.device)
        self._target: Network | None = None
        if config.objective != 'supervised':
            self._target = target_encoder(network, self.average)
        if config.compile:
            # Block by block: all blocks share one compilation of a tenth of the time.
            for block in network.encoder.blocks:
                block.compile(dynamic=False)
        self._runner: nn.Module = network
        if team.size > 1:
            self._runner = DistributedDataParallel(
                network, device_ids=[team.device] if team.device.type == 'cuda' else None)

    def run(self, feed: Feed, report: Callable[[Report], None], pause: Callable[[], None],
            late: Callable[[], bool]) -> bool:
        """Train until the run is complete or this call has to end."""
        self.network.train()
        meter = Meter(self.team.device)
        begun, before = time.monotonic(), self.budget.seconds_done
        first = True
        while True:
            now = time.monotonic()
            spent, over, due = self.team.agree(
                before + (now - begun), late(),
                now - meter.since >= self.config.progress_s)
            if not first:
                self.budget.seconds_done = spent
            finished = self.budget.spent or bool(over)
            if meter.steps and (due or finished):
                self._tell(meter, report)
                pause()
                begun += time.monotonic() - now
                meter.restart()
            if finished:
                return self.budget.spent
            self._advance(feed, meter)
            if first:
                # The first step compiles and allocates; its time is not training.
                meter.leave_out()
                begun, first = time.monotonic(), False

    def _advance(self, feed: Feed, meter: Meter) -> None:
        progress = self.budget.progress
        order = Order(self.step, int(self.config.sizes.at(progress)),
                      self.config.kept.at(progress))
        lr = self.config.lr * rate_factor(progress, self.config.warmup)
        for group in self._optimizer.param_groups:
            group['lr'] = lr
        meter.begin()
        batch = feed.batch(order)
        meter.made()
        losses = self._learn(batch)
        self.average.update(momentum(self.step, self.config.average))
        self.step += 1
        self.budget.clips_done += len(batch) * self.team.size
        meter.end(losses, len(batch) * self.team.size, lr, order)

    def _learn(self, batch: Batch) -> dict[str, Tensor]:
        with self.autocast():
            target = None
            if self._target is not None:
                with torch.no_grad():
                    target = self._target.features(batch.all_places())
            losses = self._runner(batch, target)
            total = reduce(torch.add, losses.values())
        total.backward()
        torch.nn.utils.clip_grad_norm_(self._trained, self.config.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return losses

    def autocast(self) -> AbstractContextManager:
        """Apply the precision of training."""
        if self._precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.team.device.type, self._precision)

    def _tell(self, meter: Meter, report: Callable[[Report], None]) -> None:
        losses = meter.losses()
        bad = [name for name, value in losses.items() if value != value or abs(value) > 1e12]
        if bad:
            raise TrainingError(
                f'the losses {", ".join(bad)} are not numbers at step {self.step}: continue from '
                'the last checkpoint with a lower lr, or with precision fp32')
        seconds, data_share = meter.times()
        told = Report(self.step, self.budget.clips_done, self.budget.progress,
                      self.budget.seconds_done, losses, meter.clips / max(seconds, 1e-9),
                      data_share, meter.lr, meter.order.size, meter.order.kept)
        self.history.append({'kind': 'train', **vars(told)})
        if self.team.leads:
            report(told)

    def state(self, calls: list[dict[str, Any]]) -> RunState:
        """Return everything that continuing needs."""
        trained = {n: p.detach() for n, p in self.network.named_parameters() if p.requires_grad}
        return RunState(self.config.as_dict(), trained, self.average.values,
                        self._optimizer.state_dict(), self.step, self.budget.clips_done,
                        self.budget.seconds_done, self.history, calls)

    def restore(self, state: RunState) -> None:
        """Continue from a saved state."""
        trained = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        if trained.keys() != state.network.keys():
            raise TrainingError('the saved state belongs to another network')
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(state.network[name])
        self.average.load(state.average)
        self._optimizer.load_state_dict(state.optimizer)
        self.step = state.step
        self.budget.clips_done, self.budget.seconds_done = state.clips, state.seconds
        self.history = state.history

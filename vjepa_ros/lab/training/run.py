# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Carry out the stages of a recipe, in one call or several, from their keys to their files."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.export import Outcome, TrainedRun, draw_curves, finish, save
from vjepa_ros.lab.training.feeds import Draw, Feed, WorldFeed, split
from vjepa_ros.lab.training.loop import (
    DistributedContext,
    StateError,
    Trainer,
    distributed,
    read_state,
    write_state,
)
from vjepa_ros.lab.training.network import Batch, build
from vjepa_ros.lab.training.recordings import MixedFeed, RecordingFeed, load_recording
from vjepa_ros.lab.training.validation import answer, figures, headline
from vjepa_ros.lab.world.clips import BANK_SEED, ClipWorld, VALIDATION_SEED, derive
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.runtime.device import device_name

UNFINISHED = 'unfinished.safetensors'     # weights so far, not calibrated
log = logging.getLogger(__name__)


def train(stages: Sequence[TrainConfig], command: str = '',
          stopped: Callable[[], bool] = lambda: False) -> Outcome | None:
    """Train all stages, or continue where the call before ended.

    The outcome of the last stage; None where this call ended before.
    """
    outcome = None
    with distributed(stages[0].device) as here:
        torch.set_float32_matmul_precision('high')
        for config in stages:
            folder = Path(config.out)
            state = read_state(folder)
            changed = [] if state is None else TrainConfig(
                **state.config).differences(config)
            if changed:
                raise StateError(f"the run in '{folder}' has other settings "
                                 f'({"; ".join(changed)}): repeat its settings to continue it, '
                                 'or choose another folder')
            outcome = Outcome.read(folder)
            here.agree(0)      # no process writes before all have read
            if outcome is not None:
                log.info("'%s' is complete already", folder)
                continue
            with ExitStack() as stack:
                run = Run(config, here, command, stack)
                outcome = run.go(state, stopped)
            here.agree(0)      # the first process has written
            if outcome is None:
                return None
    return outcome


class Run:
    """One call of a stage: the parts of training put together."""

    def __init__(self, config: TrainConfig, here: DistributedContext, command: str,
                 stack: ExitStack):
        self.config, self.here, self.command = config, here, command
        self.folder = Path(config.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._began = self._written = time.monotonic()
        self._started = datetime.now(timezone.utc).isoformat(timespec='seconds')
        network, self.report = build(config)
        self.trainer = Trainer(config, network.to(here.device), here)
        self._feed = self._make_feed(stack)
        self._calls: list[dict[str, Any]] = []
        self._judging: list[ClipWorld] = []
        self._validation: list[Batch] = []

    def go(self, state: Any, late: Callable[[], bool]) -> Outcome | None:
        """Train; None where the stage is not complete yet."""
        if state is not None:
            self.trainer.restore(state)
            self._calls = state.calls
        before = self.trainer.seconds
        complete = self.trainer.run(self._feed, self._pause, late)
        trained = self.trainer.seconds - before
        log.info('this call trained for %.0f s; start-up, validation and writing took %.0f s so '
                 'far', trained, time.monotonic() - self._began - trained)
        if self.here.rank == 0:
            self._write()
            if complete:
                finish(self.folder, self._trained(), self._judges())
                (self.folder / UNFINISHED).unlink()
        self.here.agree(0)
        return Outcome.read(self.folder) if complete else None

    def _make_worlds(self, bank: TextureBank | None, compiled: bool) -> list[ClipWorld]:
        return [ClipWorld(self.config.image_size, self.config.num_frames, self.here.device,
                          bank=bank, config=world, compile=compiled)
                for world in self.config.worlds]

    def _judges(self) -> list[ClipWorld]:
        """Return the worlds of calibration and figures, whose textures training never sees."""
        # Not compiled: the few clips are drawn sooner than another shape is compiled.
        self._judging = self._judging or self._make_worlds(None, False)
        return self._judging

    def _make_feed(self, stack: ExitStack) -> Feed:
        config, here = self.config, self.here
        if config.batch % here.size:
            raise ValueError(f'batch {config.batch} cannot be shared out among {here.size} '
                             'processes: choose a multiple of their number')
        draw = Draw(config.seed, here.rank, here.device,
                    (self.trainer.network.encoder.window, config.tubelets))
        recorded, world = -(-config.from_recordings // here.size), None
        if config.from_recordings < config.batch:
            worlds = self._make_worlds(paint(config), config.compile_world)
            world = stack.enter_context(WorldFeed(
                worlds, config.batch // here.size - recorded, draw, config.workers, config.reuse))
            if not config.recordings:
                return world
        loaded = [load_recording(r, config) for r in config.recordings]
        recordings = RecordingFeed(loaded, config.num_frames, config.label_horizon)
        log.info('%d labelled clips in %d recordings', len(recordings), len(loaded))
        return MixedFeed(world, recordings, recorded, draw)

    def _pause(self) -> None:
        """Validate and write a checkpoint between two stretches of training, when due."""
        if self.here.rank:
            return
        config, trainer = self.config, self.trainer
        part = int(trainer.progress * config.validations)
        last = max((h['part'] for h in trainer.history if h['kind'] == 'validation'), default=0)
        if config.validation_clips and part > last:
            self._validate(part)
        if time.monotonic() - self._written >= config.checkpoint_s:
            self._write()

    def _validate(self, part: int) -> None:
        trainer = self.trainer
        self._validation = self._validation or list(
            split(self._judges(), VALIDATION_SEED, self.config.validation_clips))
        with trainer.autocast():
            values = headline(figures(answer(trainer.averaged, self._validation)))
        trainer.history.append({'kind': 'validation', 'part': part, 'clips': trainer.clips,
                                'figures': values})
        log.info('after %s clips: %s', f'{trainer.clips:,}',
                 ', '.join(f'{k} {v:.3f}' for k, v in values.items()))

    def _write(self) -> None:
        run = self._trained()
        write_state(self.folder, run.state)
        save(self.folder / UNFINISHED, run)      # small enough to be carried elsewhere
        draw_curves(self.folder / 'curves.png', self.trainer.history, self.config.out)
        self._written = time.monotonic()

    def _trained(self) -> TrainedRun:
        call = {'started': self._started, 'seconds': time.monotonic() - self._began,
                'step': self.trainer.step,
                'hardware': f'{self.here.size} x {_hardware(self.here.device)}',
                'software': f'Python {platform.python_version()}, PyTorch {torch.__version__}'}
        return TrainedRun(self.config, self.trainer.averaged, self.report,
                          self.trainer.state([*self._calls, call]), self.command)


def paint(config: TrainConfig) -> TextureBank:
    """Make the textures of training, never with the seed of those that judge."""
    seed = derive(config.seed, 'textures') + BANK_SEED + 1
    if config.photos:
        return TextureBank.from_folder(config.photos, seed, config.textures, config.textures)
    return TextureBank.procedural(seed, config.textures)


def _hardware(device: torch.device) -> str:
    if device.type == 'cuda':
        return torch.cuda.get_device_name(device)
    return device_name(device).replace('cpu', platform.processor() or platform.machine(), 1)

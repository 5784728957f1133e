# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Carry out the stages of a recipe, in one call or several, from their keys to their files."""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vjepa_ros.lab.report.measurement import write_json
from vjepa_ros.lab.training.card import describe, draw_curves, model_card
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import Draw, WorldFeed, split
from vjepa_ros.lab.training.loop import (
    DistributedContext,
    RunState,
    StateError,
    Trainer,
    distributed,
    read_state,
    write_state,
)
from vjepa_ros.lab.training.network import Batch, Network, build
from vjepa_ros.lab.training.recordings import RecordingFeed, load_recording, mixed
from vjepa_ros.lab.training.validation import answer, calibrate, figures, headline
from vjepa_ros.lab.world.clips import (
    BANK_SEED,
    CALIBRATION_SEED,
    ClipWorld,
    HELD_OUT_SEED,
    VALIDATION_SEED,
    derive,
)
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.checkpoint.load import save_bundle
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.runtime.device import device_name

UNFINISHED = 'unfinished.safetensors'     # weights so far, not calibrated
METRICS = 'metrics.json'                  # written last: with it a stage is complete
log = logging.getLogger(__name__)


def train(stages: Sequence[TrainConfig], command: str = '',
          stopped: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
    """Train all stages, or go on where the call before ended; what the last one has measured.

    None where this call ended before.
    """
    metrics = None
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
            metrics = read_metrics(folder)
            here.agree(0)      # no process writes before all have read
            if metrics is not None:
                log.info("'%s' is complete already", folder)
                continue
            with ExitStack() as stack:
                complete = Run(config, here, command, state, stack).go(stopped)
            here.agree(0)      # the first process has written
            if not complete:
                return None
            metrics = read_metrics(folder)
    return metrics


def read_metrics(folder: Path) -> dict[str, Any] | None:
    """Read what a stage has measured; None when it is not complete."""
    path = folder / METRICS
    return json.loads(path.read_text(encoding='utf-8')) if path.is_file() else None


class Run:
    """One call of a stage, which goes on from a state: the parts of training put together."""

    def __init__(self, config: TrainConfig, here: DistributedContext, command: str,
                 state: RunState | None, stack: ExitStack):
        self.config, self.here, self.command = config, here, command
        self.folder = Path(config.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._began = self._written = time.monotonic()
        self._started = datetime.now(timezone.utc).isoformat(timespec='seconds')
        network, self.report = build(config)
        # Heads for a file of another program are saved alone.
        self._whole = not config.heads_only or bool(self.report.tensors_sha256)
        self.trainer = Trainer(config, network.to(here.device), here)
        self._calls: list[dict[str, Any]] = []
        if state is not None:
            self.trainer.restore(state)
            self._calls = state.calls
        self._batch_of = self._feed(stack)
        self._judging: list[ClipWorld] = []
        self._validation: list[Batch] = []

    def go(self, late: Callable[[], bool]) -> bool:
        """Train, and return whether the stage is complete."""
        before = self.trainer.seconds
        complete = self.trainer.run(self._batch_of, self._pause, late)
        trained = self.trainer.seconds - before
        log.info('this call trained for %.0f s; start-up, validation and writing took %.0f s so '
                 'far', trained, time.monotonic() - self._began - trained)
        if self.here.rank == 0:
            self._write()
            if complete:
                self._finish()
                (self.folder / UNFINISHED).unlink()
        return complete

    def _worlds(self, bank: TextureBank | None, compiled: bool) -> list[ClipWorld]:
        return [ClipWorld(self.config.image_size, self.config.num_frames, self.here.device,
                          bank=bank, config=world, compile=compiled)
                for world in self.config.worlds]

    def _judges(self) -> list[ClipWorld]:
        """Return the worlds of calibration and figures, whose textures training never sees."""
        # Not compiled: the few clips are drawn sooner than another shape is compiled.
        self._judging = self._judging or self._worlds(None, False)
        return self._judging

    def _feed(self, stack: ExitStack) -> Callable[[int], Batch]:
        config, here = self.config, self.here
        if config.batch % here.size:
            raise ValueError(f'batch {config.batch} cannot be shared out among {here.size} '
                             'processes: choose a multiple of their number')
        draw = Draw(config.seed, here.rank, here.device,
                    (self.trainer.network.encoder.window, config.tubelets))
        recorded, world = -(-config.from_recordings // here.size), None
        if config.from_recordings < config.batch:
            world = stack.enter_context(WorldFeed(
                self._worlds(paint(config), config.compile_world),
                config.batch // here.size - recorded, draw, config.workers, config.reuse))
            if not config.recordings:
                return world.batch
        loaded = [load_recording(r, config) for r in config.recordings]
        recordings = RecordingFeed(loaded, config.num_frames, config.label_horizon)
        log.info('%d labelled clips in %d recordings', len(recordings), len(loaded))
        return partial(mixed, world, recordings, recorded, draw)

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
        write_state(self.folder, self._state())
        self._save(self.folder / UNFINISHED)      # small enough to be carried elsewhere
        draw_curves(self.folder / 'curves.png', self.trainer.history, self.config.out)
        self._written = time.monotonic()

    def _state(self) -> RunState:
        device = self.here.device
        name = torch.cuda.get_device_name(device) if device.type == 'cuda' else device_name(
            device).replace('cpu', platform.processor() or platform.machine(), 1)
        call = {'started': self._started, 'seconds': time.monotonic() - self._began,
                'step': self.trainer.step, 'hardware': f'{self.here.size} x {name}',
                'software': f'Python {platform.python_version()}, PyTorch {torch.__version__}'}
        return self.trainer.state([*self._calls, call])

    def _finish(self) -> None:
        """Calibrate, judge and write."""
        config, network, worlds = self.config, self.trainer.averaged, self._judges()
        if config.start_share:
            start = build(config)[0].to(self.here.device)
            with torch.no_grad():
                for mine, first in zip(network.parameters(), start.parameters(), strict=True):
                    mine.lerp_(first, config.start_share)
        round_to_half(network)
        calibration = Calibration()
        if config.calibration_clips:
            log.info('calibrating on %d clips', config.calibration_clips)
            calibration = calibrate(
                answer(network, split(worlds, CALIBRATION_SEED, config.calibration_clips)))
        weights = self.folder / f'{config.model_size}{"" if self._whole else "-heads"}.safetensors'
        # Judging takes minutes; a machine that is lost meanwhile takes nothing but the figures.
        self._save(weights, calibration)
        held_out: dict[str, dict[str, Any]] = {}
        for world in worlds if config.held_out_clips else ():
            log.info('judging %d clips of the %s world', config.held_out_clips, world.config.name)
            if world.config.training:      # judged as by `vjepa-ros evaluate`
                world = ClipWorld(world.size, world.num_frames, world.device, world.bank,
                                  replace(world.config, training=False))
            answers = answer(network, split((world,), HELD_OUT_SEED, config.held_out_clips))
            held_out[world.config.name] = {
                **figures(answers, calibration),
                'calibration_error_before': figures(answers)['expected_calibration_error']}
        meta = self._save(weights, calibration, {'held_out': held_out})
        weights.with_suffix('.md').write_text(
            model_card(meta, weights.name, weights.stat().st_size / 1e6), encoding='utf-8')
        write_json(self.folder / METRICS, {
            'weights': weights.name, 'held_out': held_out, 'calibration': calibration.to_json(),
            'training': meta.training, 'settings': asdict(config),
            'history': self.trainer.history})

    def _save(self, path: Path, calibration: Calibration | None = None,
              metrics: dict[str, Any] | None = None) -> BundleMeta:
        """Write what was trained; return the description as it stands in the file."""
        network = self.trainer.averaged
        meta = describe(self.config, network.encoder, self.report, self._state(), self.command,
                        calibration or Calibration(), metrics or {})
        return save_bundle(path, meta, heads=network.heads.state_dict(),
                           encoder=network.encoder.state_dict() if self._whole else None)


@torch.no_grad()
def round_to_half(network: Network) -> None:
    """Round trained weights as the file does, so that the saved weights are evaluated."""
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.copy_(parameter.half().float())


def paint(config: TrainConfig) -> TextureBank:
    """Make the textures of training, never with the seed of those that judge."""
    return TextureBank.procedural(derive(config.seed, 'textures') + BANK_SEED + 1, config.textures)

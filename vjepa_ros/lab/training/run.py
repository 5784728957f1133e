# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Carry out training runs from options to files, in one call or several; compare objectives."""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import torch

from vjepa_ros.lab.training.config import OBJECTIVES, TrainConfig, differences
from vjepa_ros.lab.training.curves import draw_curves
from vjepa_ros.lab.training.export_run import (
    Outcome,
    TrainedRun,
    describe,
    finish,
    noted,
    save_weights,
    world_batches,
)
from vjepa_ros.lab.training.feeds import CachedFeed, Draw, Feed, WorldFeed
from vjepa_ros.lab.training.loop import Report, Trainer
from vjepa_ros.lab.training.model_card import number
from vjepa_ros.lab.training.network import Network, build
from vjepa_ros.lab.training.parallel import Team, team
from vjepa_ros.lab.training.recordings import MixedFeed, RecordingFeed, load_recording
from vjepa_ros.lab.training.state import (
    RunState,
    StateError,
    has_state,
    read_state,
    saved_config,
    write_state,
)
from vjepa_ros.lab.training.validation import answer, figures, headline
from vjepa_ros.lab.world.clips import BANK_SEED, ClipWorld
from vjepa_ros.lab.world.seeds import VALIDATION_SEED, derive
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.runtime.device import device_name

UNFINISHED = 'unfinished.safetensors'     # weights so far, not calibrated
log = logging.getLogger(__name__)


class Listener(Protocol):
    """Receives the progress of a run."""

    def progress(self, report: Report) -> None:
        """Report progress of training."""

    def judged(self, clips: int, values: dict[str, float]) -> None:
        """Report the figures of the validation clips after so many clips of training."""

    def working(self, what: str, done: int, total: int) -> None:
        """Report progress of other work."""


@dataclass(frozen=True)
class RunResult:
    """How a call ended."""

    complete: bool  # whether the run is done; otherwise it can be continued
    # step, clips: done so far
    step: int
    clips: int
    outcome: Outcome | None = None  # files of a complete run, on the process that leads


def train(config: TrainConfig, listener: Listener, *, resume: bool = False, command: str = '',
          stopped: Callable[[], bool] = lambda: False) -> RunResult:
    """Train, or continue training."""
    began = time.monotonic()
    folder = Path(config.out)
    with team(config.device) as here, ExitStack() as stack:
        torch.set_float32_matmul_precision('high')
        state = None
        if has_state(folder):
            if not resume:
                raise StateError(f"'{folder}' holds a run already: continue it (--resume), or "
                                 'choose another folder')
            state = read_state(folder)
            changed = differences(saved_config(state), config)
            if changed:
                raise StateError(f"the run in '{folder}' has other options "
                                 f'({"; ".join(changed)}): repeat its options to continue it')
        here.wait()      # no process writes before all have checked
        return _Run(config, listener, here, command, stack, began, stopped).go(state)


class _Run:
    """One call: the parts of training put together, for an encoder and its heads."""

    _validation: list[Any] | None = None

    def __init__(self, config: TrainConfig, listener: Listener, here: Team, command: str,
                 stack: ExitStack, began: float, stopped: Callable[[], bool]):
        self.config, self.listener, self.team, self.command = config, listener, here, command
        self.folder = Path(config.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._began, self._stopped = began, stopped
        self._started = datetime.now(timezone.utc).isoformat(timespec='seconds')
        self._bank: TextureBank | None = None
        self._judging: list[ClipWorld] = []
        self.trainer = Trainer(config, self._build(), here)
        self._feed = self._make_feed(stack)
        self._calls: list[dict[str, Any]] = []
        self._written = time.monotonic()

    def go(self, state: Any) -> RunResult:
        if state is not None:
            self.trainer.restore(state)
            self._calls = state.calls
        budget = self.trainer.budget
        before = budget.seconds_done
        complete = self.trainer.run(self._feed, self.listener.progress, self._pause,
                                    lambda: self._stopped() or self._late())
        trained = budget.seconds_done - before
        log.info('this call trained for %.0f s; start-up, validation and writing took %.0f s so '
                 'far', trained, time.monotonic() - self._began - trained)
        outcome = None
        if self.team.leads:
            self._write()
            if complete:
                with self.trainer.average.applied():
                    outcome = self._finish()
                (self.folder / UNFINISHED).unlink()
        self.team.wait()
        return RunResult(complete, self.trainer.step, self.trainer.budget.clips_done, outcome)

    def _late(self) -> bool:
        limit = self.config.stop_after
        return limit > 0 and time.monotonic() - self._began >= limit

    def _world(self, size: int) -> list[ClipWorld]:
        """Return the worlds that training sees."""
        if self._bank is None:
            self._bank = self._paint()
        return self._make_worlds(size, self._bank, self.config.compile_world)

    def _judge(self) -> list[ClipWorld]:
        """Return the worlds of calibration and figures, whose textures training never sees."""
        if not self._judging:
            # Not compiled: the few clips are drawn sooner than another shape is compiled.
            self._judging = self._make_worlds(self.config.image_size, None, False)
        return self._judging

    def _make_worlds(self, size: int, bank: TextureBank | None, compiled: bool
                     ) -> list[ClipWorld]:
        return [ClipWorld(size, self.config.num_frames, self.team.device, bank=bank,
                          config=world, compile=compiled) for world in self.config.worlds]

    def _paint(self) -> TextureBank:
        config = self.config
        # Never the seed of the default textures, which are for judging.
        seed = derive(config.seed, 'textures') + BANK_SEED + 1
        if config.photos:
            return TextureBank.from_folder(config.photos, seed, config.textures, config.textures)
        return TextureBank.procedural(seed, config.textures)

    def _pause(self) -> None:
        """Validate and write a checkpoint between two stretches of training, when due."""
        if not self.team.leads:
            return
        config, trainer = self.config, self.trainer
        part = int(trainer.budget.progress * config.validations)
        last = max((h['part'] for h in trainer.history if h['kind'] == 'validation'), default=0)
        if config.validation_clips and part > last:
            self._validate(part)
        if time.monotonic() - self._written >= config.checkpoint_s:
            self._write()

    def _validate(self, part: int) -> None:
        trainer = self.trainer
        with trainer.average.applied():
            values = self._figures()
        trainer.history.append({
            'kind': 'validation', 'part': part, 'step': trainer.step,
            'clips': trainer.budget.clips_done, 'seconds': trainer.budget.seconds_done,
            'figures': values})
        self.listener.judged(trainer.budget.clips_done, values)

    def _write(self) -> None:
        write_state(self.folder, self._state())
        with self.trainer.average.applied():
            self._keep()
        draw_curves(self.folder / 'curves.png', self.trainer.history,
                    f'{self.config.model_size}, {self.config.objective}')
        self._written = time.monotonic()

    def _call(self) -> dict[str, Any]:
        size = self.team.size
        return {'started': self._started, 'seconds': time.monotonic() - self._began,
                'step': self.trainer.step,
                'hardware': f'{size} x {_hardware(self.team.device)}',
                'software': f'Python {platform.python_version()}, PyTorch {torch.__version__}'}

    def _state(self) -> RunState:
        return self.trainer.state([*self._calls, self._call()])

    def _build(self) -> Network:
        """Return what is trained."""
        self.network, self.report = build(self.config)
        return self.network.to(self.team.device)

    def _make_feed(self, stack: ExitStack) -> Feed:
        config, here = self.config, self.team
        draw = Draw(config.seed, here.rank, here.device, config.objective != 'supervised',
                    (self.network.encoder.window, config.tubelets))
        world = None
        if config.from_recordings < config.batch:
            world = stack.enter_context(WorldFeed(
                self._world, config.batch - config.from_recordings, draw, config.workers,
                config.reuse))
        if world is None or config.recordings:
            loaded = [load_recording(r, config) for r in config.recordings]
            recordings = RecordingFeed(loaded, config.num_frames, config.label_horizon)
            log.info('%d labelled clips in %d recordings', len(recordings), len(loaded))
            return MixedFeed(world, recordings, config.from_recordings, draw)
        if config.cached_clips:
            return CachedFeed(world, self.network, config.cached_clips, config.image_size,
                              config.batch, draw, self._encoding)
        return world

    def _encoding(self, done: int, total: int) -> None:
        if self.team.leads:
            self.listener.working('encoding', done, total)

    def _figures(self) -> dict[str, float]:
        """Judge the validation clips."""
        if self._validation is None:
            makers = world_batches(self._judge(), VALIDATION_SEED,
                                   self.config.validation_clips)
            self._validation = list(noted(makers, self.listener.working, 'rendering'))
        with self.trainer.autocast():
            return headline(figures(answer(self.network, self._validation)))

    def _keep(self) -> None:
        """Write the present weights, small enough to be carried elsewhere."""
        meta = describe(self._trained(), Calibration(), {})
        save_weights(self.folder / UNFINISHED, self.config, self.network, meta)

    def _finish(self) -> Outcome:
        return finish(self.folder, self._trained(), self._judge(), self.listener.working)

    def _trained(self) -> TrainedRun:
        return TrainedRun(self.config, self.network, self.report, self._state(), self.command)


def _hardware(device: torch.device) -> str:
    name = device_name(device)
    if device.type == 'cuda':
        return torch.cuda.get_device_name(device)
    return name.replace('cpu', platform.processor() or platform.machine(), 1)


# Share of places the encoder sees, by objective: JEPA needs something to predict; together with
# labels the heads should in the end have seen whole clips.
TOKENS_KEPT = {'supervised': '1.0', 'jepa': '0.25', 'both': '0.5:0.8,1.0:0.2'}


def ablate(config: TrainConfig, listener: Listener, *, resume: bool = False, command: str = '',
           stopped: Callable[[], bool] = lambda: False) -> dict[str, dict[str, Any]] | None:
    """Run all objectives one after the other."""
    results: dict[str, dict[str, Any]] = {}
    for objective in OBJECTIVES:
        own = replace(config, out=str(Path(config.out) / objective), objective=objective,
                      tokens_kept=TOKENS_KEPT[objective])
        log.info('objective %s', objective)
        result = train(own, listener, resume=resume, command=command, stopped=stopped)
        if result.outcome is None:
            return None
        results[objective] = {'clips': result.clips, 'steps': result.step,
                              **headline([*result.outcome.figures.values()][-1])}
    folder = Path(config.out)
    (folder / 'ablation.json').write_text(json.dumps(results, indent=1) + '\n', encoding='utf-8')
    (folder / 'ablation.md').write_text(table(results), encoding='utf-8')
    return results


def table(results: dict[str, dict[str, Any]]) -> str:
    """Format the figures as Markdown, one row per objective."""
    names = list(next(iter(results.values())))
    lines = ['| objective | ' + ' | '.join(names) + ' |', '|' + '---|' * (len(names) + 1)]
    for objective, values in results.items():
        cells = [f'{v:,}' if isinstance(v, int) else number(v) for v in values.values()]
        lines.append(f'| {objective} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'

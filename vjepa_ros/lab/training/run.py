# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Carry out the stages of a recipe, from their keys to weights, model card and curves."""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from vjepa_ros.lab.report.measurement import write_json
from vjepa_ros.lab.report.page import markdown_table, number
from vjepa_ros.lab.training import feeds, loop
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.network import Batch, build
from vjepa_ros.lab.training.validation import answer, calibrate, figures, headline
from vjepa_ros.lab.world import clips
from vjepa_ros.lab.world.clips import ClipWorld, derive
from vjepa_ros.lab.world.scenes.scene import ROBOT
from vjepa_ros.lab.world.scenes.scene_spec import INTERVAL_S
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.checkpoint.load import WeightsReport, save_bundle
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.variants import TUBELET
from vjepa_ros.runtime.device import device_name

UNFINISHED = 'unfinished.safetensors'     # weights so far, not calibrated
METRICS = 'metrics.json'                  # written last: with it a stage is complete
log = logging.getLogger(__name__)
LIMITS = (
    'Trained on rendered scenes: real cameras, textures and motions differ. Judge it on your own '
    'recordings (`vjepa-ros evaluate`) before anything depends on it.',
    'Not a safety function.',
    'Says nothing about distances, and nothing about what lies outside the picture.',
    'The volume of the robot it was trained for is given above; another robot needs training '
    'anew for the course and the time to contact.',
    'Outside the number of frames, the size and the intervals above it is not to be believed; '
    'the level is then UNKNOWN, and the log says why.',
)


def train(stages: Sequence[TrainConfig], command: str = '',
          stopped: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
    """Train all stages, or continue; return what the last one measured, None if not complete."""
    metrics = None
    with loop.distributed(stages[0].device) as here:
        torch.set_float32_matmul_precision('high')
        for config in stages:
            folder = Path(config.out)
            state = loop.read_state(folder)
            changed = [] if state is None else TrainConfig(
                **state.config).differences(config)
            if changed:
                raise loop.StateError(f"the run in '{folder}' has other settings "
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
    path = folder / METRICS
    return json.loads(path.read_text(encoding='utf-8')) if path.is_file() else None


class Run:
    """One call of a stage, which goes on from a state: the parts of training put together."""

    def __init__(self, config: TrainConfig, here: loop.DistributedContext, command: str,
                 state: loop.RunState | None, stack: ExitStack):
        self.config, self.here, self.command = config, here, command
        self.folder = Path(config.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._began = self._written = time.monotonic()
        self._started = datetime.now(timezone.utc).isoformat(timespec='seconds')
        network, self.report = build(config)
        # Heads for a file of another program are saved alone.
        self._whole = not config.heads_only or bool(self.report.tensors_sha256)
        self.trainer = loop.Trainer(config, network.to(here.device), here)
        self._calls: list[dict[str, Any]] = []
        if state is not None:
            self.trainer.restore(state)
            self._calls = state.calls
        self._batch_of = self._feed(stack)

    def go(self, late: Callable[[], bool]) -> bool:
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
                          bank=bank, config=world, compile=compiled,
                          stream=self.config.window > 0)
                for world in self.config.worlds]

    @cached_property
    def _judges(self) -> list[ClipWorld]:
        """The worlds of calibration and figures, whose textures training never sees."""
        # Not compiled: the few clips are drawn sooner than another shape is compiled.
        return self._worlds(None, False)

    @cached_property
    def _validation(self) -> list[Batch]:
        return list(feeds.split(self._judges, clips.VALIDATION_SEED, self.config.validation_clips))

    def _feed(self, stack: ExitStack) -> Callable[[int], Batch]:
        config, here = self.config, self.here
        if config.batch % here.size:
            raise ValueError(f'batch {config.batch} cannot be shared out among {here.size} '
                             'processes: choose a multiple of their number')
        draw = feeds.Draw(config.seed, here.rank, here.device,
                    (self.trainer.network.encoder.window, config.tubelets))
        recorded, world = -(-config.from_recordings // here.size), None
        if config.from_recordings < config.batch:
            world = stack.enter_context(feeds.WorldFeed(
                self._worlds(paint(config), config.compile_world),
                config.batch // here.size - recorded, draw, config.workers, config.reuse))
            if not config.recordings:
                return world.batch
        loaded = [feeds.load_recording(r, config) for r in config.recordings]
        recordings = feeds.RecordingFeed(loaded, config.num_frames, config.label_horizon)
        log.info('%d labelled clips in %d recordings', len(recordings), len(loaded))
        return partial(feeds.mixed, world, recordings, recorded, draw)

    def _pause(self) -> None:
        if self.here.rank:
            return
        config, trainer = self.config, self.trainer
        part = int(trainer.progress * config.validations)
        last = max((h['part'] for h in trainer.history if h['kind'] == 'validation'), default=0)
        if config.validation_clips and part > last:
            with trainer.autocast():
                values = headline(figures(answer(trainer.averaged, self._validation)))
            trainer.history.append({'kind': 'validation', 'part': part, 'clips': trainer.clips,
                                    'figures': values})
            log.info('after %s clips: %s', f'{trainer.clips:,}',
                     ', '.join(f'{k} {v:.3f}' for k, v in values.items()))
        if time.monotonic() - self._written >= config.checkpoint_s:
            self._write()

    def _write(self) -> None:
        loop.write_state(self.folder, self._state())
        self._save(self.folder / UNFINISHED)      # small enough to be carried elsewhere
        draw_curves(self.folder / 'curves.png', self.trainer.history, self.config.out)
        self._written = time.monotonic()

    def _state(self) -> loop.RunState:
        device = self.here.device
        name = torch.cuda.get_device_name(device) if device.type == 'cuda' else device_name(
            device).replace('cpu', platform.processor() or platform.machine(), 1)
        call = {'started': self._started, 'seconds': time.monotonic() - self._began,
                'step': self.trainer.step, 'hardware': f'{self.here.size} x {name}',
                'software': f'Python {platform.python_version()}, PyTorch {torch.__version__}'}
        return self.trainer.state([*self._calls, call])

    def _finish(self) -> None:
        config, network, worlds = self.config, self.trainer.averaged, self._judges
        if config.start_share:
            start = build(config)[0].to(self.here.device)
            with torch.no_grad():
                for mine, first in zip(network.parameters(), start.parameters(), strict=True):
                    mine.lerp_(first, config.start_share)
        with torch.no_grad():      # as the file does, so that the saved weights are evaluated
            for parameter in filter(lambda p: p.requires_grad, network.parameters()):
                parameter.copy_(parameter.half().float())
        calibration = Calibration()
        if config.calibration_clips:
            log.info('calibrating on %d clips', config.calibration_clips)
            calibration = calibrate(answer(network, feeds.split(
                worlds, clips.CALIBRATION_SEED, config.calibration_clips)))
        weights = self.folder / f'{config.model_size}{"" if self._whole else "-heads"}.safetensors'
        # Judging takes minutes; a machine that is lost meanwhile takes nothing but the figures.
        self._save(weights, calibration)
        held_out: dict[str, dict[str, Any]] = {}
        for world in worlds if config.held_out_clips else ():
            log.info('judging %d clips of the %s world', config.held_out_clips, world.config.name)
            if world.config.training:      # judged as by `vjepa-ros evaluate`
                world = ClipWorld(world.size, world.num_frames, world.device, world.bank,
                                  replace(world.config, training=False))
            answers = answer(network, feeds.split((world,), clips.HELD_OUT_SEED,
                                                  config.held_out_clips))
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


def paint(config: TrainConfig) -> TextureBank:
    """Make the textures of training, never with the seed of those that judge."""
    return TextureBank.procedural(derive(config.seed, 'textures') + clips.BANK_SEED + 1,
                                  config.textures)


def describe(config: TrainConfig, encoder: Encoder, report: WeightsReport, state: loop.RunState,
             command: str, calibration: Calibration, metrics: dict[str, Any]) -> BundleMeta:
    """Describe trained weights as their file does; the report says where the encoder came from."""
    names = ' and '.join(one.name for one in config.worlds)
    data = (f'rendered scenes of `vjepa_ros.lab.world`, {names} world, {config.textures} '
            'painted textures')
    if config.recordings:
        names = ', '.join(f'`{Path(r).name}`' for r in config.recordings)
        share = config.from_recordings / config.batch
        data = f'{data}; recordings ({names}, {share:.0%} of each batch)' \
            if share < 1 else f'recordings ({names})'
    trained_on = {
        'data': data, 'start': report.sha256, 'seed': config.seed, 'clips': state.clips,
        'steps': state.step, 'seconds': state.seconds, 'command': command,
        'encoder_frozen': config.heads_only,
        'hardware': sorted({call['hardware'] for call in state.calls}),
        'software': ', '.join(sorted({call['software'] for call in state.calls}))}
    return BundleMeta(
        variant=config.model_size, version=encoder.version, window=encoder.window,
        num_frames=TUBELET * encoder.window or config.num_frames, image_size=config.image_size,
        resize_mode=config.resize_mode, interval_s=INTERVAL_S,
        robot={'half_width': ROBOT.half_width, 'height': ROBOT.height},
        calibration=calibration, backbone_sha256=report.sha256, training=trained_on,
        metrics=metrics, other_modes=('letterbox',) if any(w.rough for w in config.worlds) else ())


def model_card(meta: BundleMeta, file_name: str, megabytes: float) -> str:
    """Return the card as Markdown: origin, figures and limits of a weights file."""
    t = meta.training
    parts = 'encoder and heads' if meta.has_encoder else 'heads for a frozen encoder'
    times = f'{meta.interval_s[0]:.3f} to {meta.interval_s[1]:.3f} s apart'
    facts = {
        'data': t['data'],
        'clips': f'{meta.num_frames} frames of {meta.image_size} x {meta.image_size} px, ' + (
            f'the newest two {times}' if meta.window else
            f'{times}, each frame shown {" or ".join(map(str, meta.holds))} times'),
        'camera image to square': ', '.join(
            f'`{mode}`' for mode in (meta.resize_mode, *meta.other_modes)),
        'robot': f'half width {meta.robot["half_width"]:g} m, height {meta.robot["height"]:g} m',
        'start': f'sha256 `{t["start"]}`' if t['start'] else 'random weights',
        'clips seen': f'{t["clips"]:,} in {t["steps"]:,} steps',
        'encoder of the heads': f'sha256 `{meta.backbone_sha256}`', 'seed': t['seed'],
        'command': f'`{t["command"]}`', 'training time': f'{t["seconds"] / 60:.1f} minutes',
        'hardware': '; '.join(t['hardware']), 'software': t['software']}
    return '\n'.join([
        f'# {file_name}', '',
        f'V-JEPA 2 {meta.version} `{meta.variant}`, {parts}, {megabytes:.1f} MB, '
        f'licence {meta.licence}.', '', '## What it was trained on', '',
        markdown_table(('', ''), facts.items(), numbers=False), '## How good it is', '',
        *_figures(meta.metrics), '', '## Limits', '', *(f'- {limit}' for limit in LIMITS), ''])


def _figures(metrics: Mapping[str, Any]) -> list[str]:
    worlds = metrics.get('held_out')
    if not worlds:
        return ['Not measured.']
    lines = ['Rendered clips with scenes and textures that training never saw, weights rounded '
             'to float16 as in the file.']
    for world, held_out in worlds.items():
        columns = [held_out[name] for name in (
            'collision_auc', 'average_precision', 'expected_calibration_error_by_horizon')]
        single = (
            ('looming per patch, R2 (1/s)', held_out['looming_r2']),
            ('looming per patch, R2 (per frame interval)', held_out['expansion_r2']),
            ('looming where nothing closes (1/s)', held_out['looming_when_still_per_s']),
            ('independent motion per patch, AUC', held_out['moving_auc']),
            ('calibration error of the hazard, all horizons',
             held_out['expected_calibration_error']),
            ('the same before calibration', held_out['calibration_error_before']),
            *((f'way blocked within {m} m, AUC', v) for m, v in held_out['clearance_auc'].items()),
            ('calibration error of the clearance', held_out['clearance_calibration_error']),
            ('median relative error of the time to contact',
             held_out['ttc_median_relative_error']))
        lines += ['', f'### {world.capitalize()} world, {held_out["clips"]:,} clips', '']
        lines += [markdown_table(
            ('contact within', 'AUC', 'average precision', 'calibration error'),
            [(f'{key} s', *(number(column[key]) for column in columns)) for key in columns[0]]),
            markdown_table(('figure', 'value'), [(n, number(v)) for n, v in single])]
    return lines


def draw_curves(path: Path, history: Sequence[dict[str, Any]], title: str) -> None:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    figure = Figure(figsize=(11, 4.6), layout='constrained')
    figure.suptitle(title)
    for axes, kind, key in zip(figure.subplots(1, 2), ('train', 'validation'),
                               ('losses', 'figures'), strict=True):
        rows = [one for one in history if one['kind'] == kind]
        axes.set_prop_cycle(color=[colormaps['tab20'](n) for n in range(20)])
        for name in rows[0][key] if rows else ():
            axes.plot([row['clips'] / 1000 for row in rows], [row[key][name] for row in rows],
                      marker='.', label=name)
        axes.set(title=key, xlabel='thousand clips')
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)

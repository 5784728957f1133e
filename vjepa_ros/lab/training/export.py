# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn a trained network into files: calibrated, judged on held-out clips, and described."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import split
from vjepa_ros.lab.training.loop import RunState
from vjepa_ros.lab.training.network import Network, build
from vjepa_ros.lab.training.validation import answer, calibrate, figures
from vjepa_ros.lab.world.clips import CALIBRATION_SEED, ClipWorld, HELD_OUT_SEED
from vjepa_ros.lab.world.rendering.truth import ROBOT
from vjepa_ros.lab.world.scenes.scene_spec import INTERVAL_S
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.checkpoint.load import WeightsReport, save_bundle
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.variants import TUBELET

METRICS = 'metrics.json'      # written last: with it a stage is complete
LIMITS = (
    'Trained on rendered scenes: real cameras, textures and motions differ. Judge it on your own '
    'recordings (`vjepa-ros evaluate`) before anything depends on it.',
    'Not a safety function. Let the geometric estimate guard it (`looming.method: fused`).',
    'Says nothing about distances, and nothing about what lies outside the picture.',
    'The volume of the robot it was trained for is given above; another robot needs training '
    'anew for the course and the time to contact.',
    'Outside the number of frames, the size and the intervals above it is not to be believed; '
    'the perception then falls back to geometry and says so.',
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a complete stage left behind."""

    weights: Path
    figures: dict[str, Any]  # by world, on held-out clips; {} when there were none

    @classmethod
    def read(cls, folder: Path) -> Outcome | None:
        """Read what is in the folder of a stage; None when it is not complete."""
        if not (folder / METRICS).is_file():
            return None
        found = json.loads((folder / METRICS).read_text(encoding='utf-8'))
        return cls(folder / found['weights'], found['held_out'])


@dataclass(frozen=True)
class TrainedRun:
    """A trained network and how it was made."""

    config: TrainConfig  # keys of the stage
    network: Network  # with the averaged weights
    report: WeightsReport  # where the encoder came from
    state: RunState  # history and length of the run
    command: str  # as typed, for the card

    @property
    def whole(self) -> bool:
        """Whether encoder and heads are saved: not heads for a file of another program."""
        return not self.config.heads_only or bool(self.report.tensors_sha256)


def finish(folder: Path, run: TrainedRun, worlds: Sequence[ClipWorld]) -> None:
    """Calibrate, judge and write."""
    config, network = run.config, run.network
    if config.start_share:
        start = build(config)[0].to(worlds[0].device)
        with torch.no_grad():
            for mine, first in zip(network.parameters(), start.parameters(), strict=True):
                mine.lerp_(first, config.start_share)
    round_to_half(network)
    calibration = Calibration()
    if config.calibration_clips:
        log.info('calibrating on %d clips', config.calibration_clips)
        calibration = calibrate(
            answer(network, split(worlds, CALIBRATION_SEED, config.calibration_clips)))
    weights = folder / f'{config.model_size}{"" if run.whole else "-heads"}.safetensors'
    # Judging takes minutes; a machine that is lost meanwhile takes nothing but the figures.
    save(weights, run, calibration)
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
    meta = save(weights, run, calibration, {'held_out': held_out})
    weights.with_suffix('.md').write_text(
        model_card(meta, weights.name, weights.stat().st_size / 1e6), encoding='utf-8')
    (folder / METRICS).write_text(json.dumps(
        {'weights': weights.name, 'held_out': held_out, 'calibration': calibration.to_json(),
         'training': meta.training, 'settings': asdict(config), 'history': run.state.history},
        indent=1) + '\n', encoding='utf-8')


def save(path: Path, run: TrainedRun, calibration: Calibration | None = None,
         metrics: dict[str, Any] | None = None) -> BundleMeta:
    """Write what was trained; return the description as it stands in the file."""
    return save_bundle(path, describe(run, calibration or Calibration(), metrics or {}),
                       encoder=run.network.encoder.state_dict() if run.whole else None,
                       heads=run.network.heads.state_dict())


def describe(run: TrainedRun, calibration: Calibration, metrics: dict[str, Any]) -> BundleMeta:
    """Describe the weights as their file does."""
    config, state = run.config, run.state
    names = ' and '.join(one.name for one in config.worlds)
    data = (f'rendered scenes of `vjepa_ros.lab.world`, {names} world, {config.textures} '
            'painted textures')
    if config.photos:
        data += f' and {config.textures} crops of photographs'
    if config.recordings:
        names = ', '.join(f'`{Path(r).name}`' for r in config.recordings)
        share = config.from_recordings / config.batch
        data = f'{data}; recordings ({names}, {share:.0%} of each batch)' \
            if share < 1 else f'recordings ({names})'
    trained_on = {
        'data': data, 'start': run.report.sha256, 'seed': config.seed, 'clips': state.clips,
        'steps': state.step, 'seconds': state.seconds, 'command': run.command,
        'encoder_frozen': config.heads_only,
        'hardware': sorted({call['hardware'] for call in state.calls}),
        'software': ', '.join(sorted({call['software'] for call in state.calls}))}
    encoder = run.network.encoder
    return BundleMeta(
        variant=config.model_size, version=encoder.version, window=encoder.window,
        num_frames=TUBELET * encoder.window or config.num_frames, image_size=config.image_size,
        resize_mode=config.resize_mode, interval_s=INTERVAL_S,
        robot={'half_width': ROBOT.half_width, 'height': ROBOT.height},
        calibration=calibration, backbone_sha256=run.report.sha256, training=trained_on,
        metrics=metrics, other_modes=('letterbox',) if any(w.rough for w in config.worlds) else ())


@torch.no_grad()
def round_to_half(network: Network) -> None:
    """Round trained weights as the file does, so that the saved weights are evaluated."""
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.copy_(parameter.half().float())


# -- for people -----------------------------------------------------------------------------------

def model_card(meta: BundleMeta, file_name: str, megabytes: float) -> str:
    """Return the card as Markdown: origin, figures and limits of a weights file."""
    t = meta.training
    parts = 'encoder and heads' if meta.has_encoder else 'heads for a frozen encoder'
    facts = {
        'data': t['data'],
        'clips': f'{meta.num_frames} frames of {meta.image_size} x {meta.image_size} px, '
                 f'{meta.interval_s[0]:.3f} to {meta.interval_s[1]:.3f} s apart, each frame '
                 f'shown {" or ".join(map(str, meta.holds))} times',
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
        *_table(('', ''), facts.items()), '', '## How good it is', '', *_figures(meta.metrics),
        '', '## Limits', '', *(f'- {limit}' for limit in LIMITS), ''])


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
        lines += ['', f'### {world.capitalize()} world, {held_out["clips"]:,} clips', '', *_table(
            ('contact within', 'AUC', 'average precision', 'calibration error'),
            [(f'{key} s', *(number(column[key]) for column in columns)) for key in columns[0]]),
            '', *_table(('figure', 'value'), [(n, number(v)) for n, v in single])]
    return lines


def number(value: float | None) -> str:
    """Format with three decimals; a dash for an unknown value."""
    return '–' if value is None or value != value else f'{value:.3f}'


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    return ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head),
            *('| ' + ' | '.join(map(str, row)) + ' |' for row in rows)]


def draw_curves(path: Path, history: Sequence[dict[str, Any]], title: str) -> None:
    """Draw losses, figures of the validations, and speed and learning rate of a run.

    Without matplotlib, as on a machine that only trains, nothing is drawn.
    """
    try:
        kind = importlib.import_module('matplotlib.figure').Figure
    except ImportError as error:
        log.info('no curves are drawn: %s', error)
        return
    train = [h for h in history if h['kind'] == 'train']
    judged = [h for h in history if h['kind'] == 'validation']
    if not train:
        return
    figure = kind(figsize=(15, 4.6), layout='constrained')
    figure.suptitle(title)
    left, middle, right = figure.subplots(1, 3)
    clips = [h['clips'] / 1000 for h in train]
    for name in train[0]['losses']:
        values = [h['losses'][name] for h in train]
        if any(values):      # else nothing is known about it in this run
            left.plot(clips, values, label=name)
    for name in judged[0]['figures'] if judged else ():
        middle.plot([h['clips'] / 1000 for h in judged], [h['figures'][name] for h in judged],
                    marker='o', label=name)
    right.plot(clips, [h['rate'] for h in train], label='clips per second')
    right.twinx().plot(clips, [h['lr'] for h in train], color='tab:red')
    for axes, what in ((left, 'loss'), (middle, 'validation, weights averaged'),
                       (right, 'speed, and learning rate in red')):
        axes.set_title(what)
        axes.set_xlabel('thousand clips')
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)

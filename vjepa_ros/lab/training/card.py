# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe trained weights: in their file, on a card, and with curves of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vjepa_ros.lab.report.page import markdown_table, number
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.loop import RunState
from vjepa_ros.lab.world.scenes.scene import ROBOT
from vjepa_ros.lab.world.scenes.scene_spec import INTERVAL_S
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.checkpoint.load import WeightsReport
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.variants import TUBELET

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


def describe(config: TrainConfig, encoder: Encoder, report: WeightsReport, state: RunState,
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
    """Draw the losses and the figures of the validations of a run."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(11, 4.6), layout='constrained')
    figure.suptitle(title)
    for axes, kind, key in zip(figure.subplots(1, 2), ('train', 'validation'),
                               ('losses', 'figures'), strict=True):
        rows = [one for one in history if one['kind'] == kind]
        for name in rows[0][key] if rows else ():
            axes.plot([row['clips'] / 1000 for row in rows], [row[key][name] for row in rows],
                      marker='.', label=name)
        axes.set(title=key, xlabel='thousand clips')
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)

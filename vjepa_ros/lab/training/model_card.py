# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the model card: what a weights file was made of, how good it is, and where it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjepa_ros.model.checkpoint.metadata import BundleMeta

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


def model_card(meta: BundleMeta, file_name: str, megabytes: float) -> str:
    """Return the card as Markdown.

    `megabytes`: size of that file [10^6 bytes].
    """
    t, m = meta.training, meta.metrics
    parts = 'encoder and heads' if meta.has_encoder else 'heads for a frozen encoder'
    lines = [
        f'# {file_name}', '',
        f'V-JEPA 2 {meta.version} `{meta.variant}`, {parts}, {megabytes:.1f} MB, '
        f'licence {meta.licence}.', '',
        '## What it was trained on', '',
        *_table(('', ''), (
            ('data', t['data']),
            ('clips', f'{meta.num_frames} frames of {meta.image_size} x {meta.image_size} px, '
                      f'{meta.interval_s[0]:.3f} to {meta.interval_s[1]:.3f} s apart, each frame '
                      f'shown {" or ".join(map(str, meta.holds))} times'),
            ('camera image to square', ', '.join(
                f'`{mode}`' for mode in (meta.resize_mode, *meta.other_modes))),
            ('robot', f'half width {meta.robot["half_width"]:g} m, height '
                      f'{meta.robot["height"]:g} m'),
            ('objective', t['objective']),
            ('clips seen', f'{t["clips"]:,} in {t["steps"]:,} steps'),
            ('encoder of the heads', f'sha256 `{meta.backbone_sha256}`'),
            ('seed', t['seed']),
            ('command', f'`{t["command"]}`'),
            ('training time', f'{t["seconds"] / 60:.1f} minutes'),
            ('hardware', '; '.join(t['hardware'])),
            ('software', t['software']))),
        '', '## How good it is', '', *_figures(m), '', '## Limits', '',
        *(f'- {limit}' for limit in LIMITS), '']
    return '\n'.join(lines)


def _figures(metrics: Mapping[str, Any]) -> list[str]:
    worlds = metrics.get('held_out')
    if not worlds:
        return ['Not measured.']
    lines = ['Rendered clips with scenes and textures that training never saw, weights rounded '
             'to float16 as in the file.', '']
    for world, held_out in worlds.items():
        lines += [f'### {world.capitalize()} world, {held_out["clips"]:,} clips', '',
                  *_of_world(held_out), '']
    return lines[:-1]


def _of_world(held_out: Mapping[str, Any]) -> list[str]:
    auc, precision = held_out['collision_auc'], held_out['average_precision']
    by_horizon = held_out['expected_calibration_error_by_horizon']
    rows = [(f'{key} s', number(auc[key]), number(precision[key]), number(by_horizon[key]))
            for key in auc]
    single = (
        ('looming per patch, R2 (1/s)', held_out['looming_r2']),
        ('looming per patch, R2 (per frame interval)', held_out['expansion_r2']),
        ('looming where nothing closes (1/s)', held_out['looming_when_still_per_s']),
        ('independent motion per patch, AUC', held_out['moving_auc']),
        ('calibration error of the hazard, all horizons', held_out['expected_calibration_error']),
        ('the same before calibration', held_out['calibration_error_before']),
        *((f'way blocked within {m} m, AUC', v) for m, v in held_out['clearance_auc'].items()),
        ('calibration error of the clearance', held_out['clearance_calibration_error']),
        ('median relative error of the time to contact',
         held_out['ttc_median_relative_error']))
    return [*_table(('contact within', 'AUC', 'average precision', 'calibration error'), rows),
            '', *_table(('figure', 'value'), [(n, number(v)) for n, v in single])]


def number(value: float | None) -> str:
    """Format with three decimals; a dash for an unknown value."""
    return '–' if value is None or value != value else f'{value:.3f}'


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    return ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head),
            *('| ' + ' | '.join(map(str, row)) + ' |' for row in rows)]

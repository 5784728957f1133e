# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay out the figures of an evaluation as tables, and print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from vjepa_ros.lab.evaluation.clips import HORIZONS_S, horizon_key
from vjepa_ros.lab.evaluation.figures import BASELINES

NONE = '–'


@dataclass(frozen=True)
class Grid:
    """One table: title, heads, rows of text with their name first, and a note."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ''


def number(value: float | None, digits: int = 3) -> str:
    """Format a figure, with a dash for none."""
    return NONE if value is None else f'{value:.{digits}f}'


def percent(value: float | None) -> str:
    """Format a share as percentage, with a dash for none."""
    return NONE if value is None else f'{100 * value:.0f} %'


def count(value: float | None) -> str:
    """Format a count, with a dash for none."""
    return NONE if value is None else str(int(value))


METHOD_COLUMNS = (   # group of sequences, head of the column, figure, its format
    ('collision', 'AUC', 'collision_auc', number),
    ('collision', 'AP', 'average_precision', number),
    ('collision', 'lead s', 'mean_time_to_collision_s', lambda v: number(v, 1)),
    ('collision', 'frames', 'frames_labelled', count),
    ('collision', 'AUC same frames', 'collision_auc_common_frames', number),
    ('nothing_imminent', 'FA/min', 'false_alarms_per_minute', lambda v: number(v, 1)),
    ('closing', 'TTC', 'ttc_median_relative_error', percent),
    ('closing', 'known', 'ttc_coverage', percent),
    ('still', 'still', 'looming_when_still_per_s', lambda v: number(v, 4)),
)
LEGEND = (
    'frames: assessed of all. AUC, AP: area under the ROC curve and average precision of the '
    'probability of collision against the label of each frame. ECE: expected calibration error. '
    'lead s: mean time from the first alarm within a labelled danger to its end, at a threshold '
    'at which 5 % of the frames without danger alarm, missed dangers counted as 0 (detected/all). '
    'TTC: median relative error of the time to contact while something closes. loom: mean '
    'error of the looming rate [1/s]. still: mean looming where nothing comes nearer [1/s]. '
    'FA/min: stretches at WARNING or above where nothing is imminent, per minute. unkn: share '
    'of assessments with level UNKNOWN. AUC same frames: over the frames that all methods and '
    'baselines scored, because some of them need more frames before the first one.')


def grids(report: Mapping[str, Any]) -> list[Grid]:
    """Return every table that the report has figures for."""
    tables = []
    if report['sequences']:
        tables += [sequence_grid(report), method_grid(report)]
    if report['world']:
        tables.append(world_grid(report['world']))
    return tables


def sequence_grid(report: Mapping[str, Any]) -> Grid:
    """Return one row per sequence and one pooled, of the reported method."""
    rows = [(name, *_sequence_cells(f)) for name, f in report['sequences'].items()]
    rows.append(('pooled', *_sequence_cells(report['pooled'])))
    return Grid(f'Sequences, method {report["configuration"]["method"]}',
                ('sequence', 'frames', 'AUC', 'AP', 'ECE', 'lead s', 'TTC', 'loom', 'still',
                 'FA/min', 'unkn'), tuple(rows))


def _sequence_cells(f: Mapping[str, Any]) -> tuple[str, ...]:
    lead = NONE if f['mean_time_to_collision_s'] is None else (
        f'{f["mean_time_to_collision_s"]:.1f} ({f["dangers_detected"]}/{f["dangers"]})')
    return (f'{f["frames_scored"]}/{f["frames"]}', number(f['collision_auc']),
            number(f['average_precision']), number(f['expected_calibration_error']), lead,
            percent(f['ttc_median_relative_error']), number(f['looming_mae_per_s']),
            number(f['looming_when_still_per_s'], 4), number(f['false_alarms_per_minute'], 1),
            percent(f['unknown_fraction']))


def method_grid(report: Mapping[str, Any]) -> Grid:
    """Return one row per method and baseline, over the groups of sequences."""
    columns = [c for c in METHOD_COLUMNS if c[0] in report['groups']]
    rows = tuple((name.replace('_', ' '),
                  *(shape(report['baselines'][name]['groups'][group].get(key))
                    for group, _, key, shape in columns)) for name in BASELINES)
    titles = '; '.join(f'{group.replace("_", " ")}: {" + ".join(members["sequences"])}'
                       for group, members in report['groups'].items())
    return Grid('Methods and baselines', ('method', *(head for _, head, _, _ in columns)), rows,
                f'Over groups of sequences: {titles}.')


def world_grid(world: Mapping[str, Any]) -> Grid:
    """Return the figures of the rendered clips, with one column per method."""
    methods = list(world['methods'])
    columns = [world['methods'][name] for name in methods]
    keys = [horizon_key(h) for h in HORIZONS_S]
    rows = [('clips', *(count(f['clips']) for f in columns))]
    rows += [(f'collision AUC within {k} s',
             *(number(f['collision_auc'][k]) for f in columns)) for k in keys]
    rows += [(label, *(shape(f[key]) for f in columns)) for label, key, shape in (
        ('expected calibration error of the hazard', 'expected_calibration_error', number),
        ('looming R2 per patch (in 1/s)', 'looming_r2', number),
        ('looming R2 per patch (relative change per frame)', 'expansion_r2', number),
        ('patches with known looming', 'looming_known', percent),
        ('looming R2 on those (in 1/s)', 'looming_r2_known', number),
        ('looming where nothing closes (1/s)', 'looming_when_still_per_s',
         lambda v: number(v, 4)),
        ('independent motion AUC per patch', 'moving_auc', number),
        ('median relative error of time to contact', 'ttc_median_relative_error', percent),
        ('mean time to collision at 5 % false alarms (s)', 'mean_time_to_collision_s',
         lambda v: number(v, 2)))]
    return Grid(f'World, {world["clips"]} held-out clips',
                ('figure', *(name.replace('_', ' ') for name in methods)), tuple(rows),
                'heads: what the heads say, with nothing left out; its time to contact is a mean '
                'given that there is contact. Unknown counts as a looming of 0, ranks lowest, and '
                'is left out of the calibration error.')


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print all tables."""
    for grid in grids(report):
        table = Table(*grid.heads, title=grid.title, title_justify='left', box=None,
                      padding=(0, 1, 0, 0), pad_edge=False)
        for column in table.columns[1:]:
            column.justify = 'right'
            column.no_wrap = True
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
        if grid.note:
            console.print(grid.note, style='dim', markup=False, highlight=False, soft_wrap=True)



def reasons(report: Mapping[str, Any]) -> Sequence[str]:
    """Return why methods or baselines are missing."""
    return [f'{name}: {whole["reason"]}' for name, whole in report['baselines'].items()
            if whole.get('reason')]

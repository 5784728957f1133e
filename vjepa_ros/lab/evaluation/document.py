# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write an evaluation as tables in the terminal, or into a Markdown document with plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.lab.evaluation.metrics import HORIZONS_S, TURNING_DEG_S, reliability, runs
from vjepa_ros.lab.evaluation.recording_replay import Played
from vjepa_ros.lab.evaluation.world import HEADS, PUBLISHED, WorldRun
from vjepa_ros.lab.report.page import (
    GRID,
    drawn,
    fill,
    legend,
    markdown_table,
    number,
    over_time,
    percent,
    plain,
)
from vjepa_ros.perception.types import Level

LEGEND = (
    'frames: assessed of all. AUC, AP: area under the ROC curve and average precision of the '
    'probability of collision against the label of each frame. ECE: expected calibration error. '
    'lead s: mean time from the first alarm within a labelled danger to its end, at a threshold '
    'at which 5 % of the frames without danger alarm, missed dangers counted as 0 (detected/all). '
    'TTC: median relative error of the time to contact while something closes, known: part with '
    'an estimate. loom: mean error of the looming rate [1/s]. still: mean looming where nothing '
    'comes nearer [1/s]. FA/min: stretches at WARNING or above where nothing is imminent, per '
    'minute. unkn: share of assessments with level UNKNOWN. heads: what the heads say, with '
    'nothing left out; its time to contact is a mean given that there is contact. On rendered '
    'clips unknown counts as a looming of 0, ranks lowest, and is left out of the calibration '
    'error.')
LOOMING_NOTE = (
    'Truth: speed along the optical axis over depth, of patches with depth in at least half of '
    'their cells. R2: unknown counts as 0. R2 kn, corr: R2 and Pearson correlation where the '
    'looming is known. error: mean absolute error [1/s], beside that of always 0. known: share of '
    'patches. /stated: root mean square of the error over that of the stated standard errors, '
    'where known; 1 is honest. <30, 30-60, >60: R2 while the camera turns by so many degrees a '
    'second.')
RAIL_NOTE = (
    'A rendered camera steps towards a plane. error: median relative error of the time to '
    'contact, from 30 to 8 frames before contact at the optical axis. slope: of the time to '
    'contact, in frames per frame (least squares; truth -1); pooled: the median.')
BLOCK = 'accuracy'
MARKS = f'<!-- {BLOCK}:begin -->\n<!-- {BLOCK}:end -->\n'
COLORS = {PUBLISHED: '#0b6bcb', HEADS: '#7c2d12'}
WORLD_TITLES = {'world': 'World', 'rough': 'Rough world'}    # by their key in the report


@dataclass(frozen=True)
class Grid:
    """One table: rows of text with their name first, and a note."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ''


def grids(report: Mapping[str, Any]) -> list[Grid]:
    found = [looming_grid(report['looming'])] if report['looming'] else []
    found += [rail_grid(report['rail'])] if report['rail'] else []
    if report['sequences']:
        rows = {**report['sequences'], 'pooled': report['pooled']}
        found.append(Grid(
            'Sequences',
            ('sequence', 'frames', 'AUC', 'AP', 'ECE', 'lead s', 'TTC', 'loom', 'still', 'FA/min',
             'unkn'), [(name, *_sequence_cells(f)) for name, f in rows.items()],
            _each_alone(report['groups'].get('collision'))))
        if report['groups']:
            found.append(group_grid(report))
    return found + [world_grid(report[name], title) for name, title in WORLD_TITLES.items()
                    if report[name]]


def looming_grid(looming: Mapping[str, Any]) -> Grid:
    rows = []
    for name, f in looming.items():
        values = [number(f[key], 2) for key in (
            'looming_r2', 'looming_r2_known', 'correlation_known', 'looming_mae_per_s',
            'mae_of_zero_per_s')]
        rows.append((name, *values, percent(f['looming_known']),
                     number(f['error_over_stated'], 2),
                     *(number(r2, 2) for r2 in f['looming_r2_by_turning_deg_s'].values())))
    slow, fast = TURNING_DEG_S
    return Grid('Real cameras, looming of each patch', (
        'sequence', 'R2', 'R2 kn', 'corr', 'error', 'of 0', 'known', '/stated',
        f'<{slow}', f'{slow}-{fast}', f'>{fast}'), rows, LOOMING_NOTE)


def rail_grid(rails: Mapping[str, Any]) -> Grid:
    return Grid('Rail', ('plane, step, slant', 'error', 'slope'), [
        (name, percent(f['ttc_median_relative_error']), number(f['slope_per_frame'], 2))
        for name, f in rails.items()], RAIL_NOTE)


def _each_alone(group: Mapping[str, Any] | None) -> str:
    """Say how well each probability ranks alone, of which the score is the greater one."""
    if group is None or group['collision_if_ahead_auc'] is None:
        return ''
    return (f'AUC over {" + ".join(group["sequences"])}: '
            f'{number(group["collision_auc"])}; of collision_probability alone '
            f'{number(group["collision_probability_auc"])}, of collision_if_ahead alone '
            f'{number(group["collision_if_ahead_auc"])}.')


def _sequence_cells(f: Mapping[str, Any]) -> tuple[str, ...]:
    lead = number(f['mean_time_to_collision_s'], 1)
    if f['mean_time_to_collision_s'] is not None:
        lead += f' ({f["dangers_detected"]}/{f["dangers"]})'
    return (f'{f["frames_scored"]}/{f["frames"]}', number(f['collision_auc']),
            number(f['average_precision']), number(f['expected_calibration_error']), lead,
            percent(f['ttc_median_relative_error']), number(f['looming_mae_per_s']),
            number(f['looming_when_still_per_s'], 4), number(f['false_alarms_per_minute'], 1),
            percent(f['unknown_fraction']))


def group_grid(report: Mapping[str, Any]) -> Grid:
    groups = report['groups']
    columns = [(groups[group], head, key, shape) for group, head, key, shape in (
        ('collision', 'AUC', 'collision_auc', number),
        ('collision', 'AP', 'average_precision', number),
        ('collision', 'lead s', 'mean_time_to_collision_s', lambda v: number(v, 1)),
        ('nothing_imminent', 'FA/min', 'false_alarms_per_minute', lambda v: number(v, 1)),
        ('closing', 'TTC', 'ttc_median_relative_error', percent),
        ('closing', 'known', 'ttc_coverage', percent),
        ('still', 'still', 'looming_when_still_per_s', lambda v: number(v, 4)),
    ) if group in groups]
    titles = '; '.join(f'{group.replace("_", " ")}: {" + ".join(members["sequences"])}'
                       for group, members in groups.items())
    return Grid('Groups of sequences', tuple(head for _, head, _, _ in columns), [
        tuple(shape(found[key]) for found, _, key, shape in columns)], f'{titles}.')


def world_grid(world: Mapping[str, Any], title: str) -> Grid:
    """Return the figures of the rendered clips, as published and by the heads."""
    columns = [world[name] for name in COLORS]
    rows = [(f'collision AUC within {key} s', *(number(f['collision_auc'][key]) for f in columns))
            for key in ('0.5', '1', '3')]
    rows += [(label, *(shape(f[key]) for f in columns)) for label, key, shape in (
        ('expected calibration error of the hazard', 'expected_calibration_error', number),
        ('looming R2 per patch (in 1/s)', 'looming_r2', number),
        ('patches with known looming', 'looming_known', percent),
        ('looming R2 on those (in 1/s)', 'looming_r2_known', number),
        ('looming where nothing closes (1/s)', 'looming_when_still_per_s',
         lambda v: number(v, 4)),
        ('independent motion AUC per patch', 'moving_auc', number),
        ('median relative error of time to contact', 'ttc_median_relative_error', percent),
        ('mean time to collision at 5 % false alarms (s)', 'mean_time_to_collision_s',
         lambda v: number(v, 2)))]
    return Grid(f'{title}, {world["clips"]} held-out clips', ('figure', *COLORS), rows)


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print all tables, and what has to be told of them."""
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
    for name, figures in report['sequences'].items():
        if figures['heads_problem']:
            console.print(f'{name}: {figures["heads_problem"]}', highlight=False, markup=False,
                          soft_wrap=True)


def alarms_of(played: Played) -> str:
    stamps, outcome = played.stamps(), played.outcome
    found = [f'{stamps[a]:.1f} to {stamps[b - 1]:.1f} s '
             f'({Level(int(outcome.level[a:b].max())).name.lower()})'
             for a, b in runs(outcome.alarm)]
    return f'alarms {", ".join(found)}' if found else 'no alarm'


def write(document: Path, report: Mapping[str, Any], played: Sequence[Played],
          worlds: Mapping[str, WorldRun]) -> None:
    """Replace the block between the marks of a document; plots go into a folder beside it."""
    text = document.read_text(encoding='utf-8') if document.exists() else MARKS
    folder = document.with_suffix('')
    folder.mkdir(exist_ok=True)
    known = report['configuration']
    block = [f'| | |\n|---|---|\n| Command | `{known["command"]}`, {known["minutes"]} minutes |\n'
             f'| Date, machine | {known["date"]}, {known["machine"]} |\n'
             f'| Model | {known["model"]}, one configuration for all recordings (the defaults) '
             '|\n',
             *(f'### {grid.title}\n\n{markdown_table(grid.heads, grid.rows)}'
               + (f'\n{grid.note}\n' if grid.note else '') for grid in grids(report)),
             f'{LEGEND}\n', '### Plots\n']
    for name, world in worlds.items():
        (folder / f'{name}_reliability.png').write_bytes(reliability_plot(world))
        block.append(f'{WORLD_TITLES[name]}: reliability of the hazard over all horizons. '
                     f'![reliability]({folder.name}/{name}_reliability.png)\n')
    for each in played:
        name = each.item.name
        (folder / f'{name}.png').write_bytes(timeline(each))
        block.append(f'`{name}`: {alarms_of(each)}. '
                     f'![{name} over time]({folder.name}/{name}.png)\n')
    document.write_text(fill(text, BLOCK, '\n'.join(block)), encoding='utf-8')


def timeline(played: Played) -> bytes:
    """Draw the collision score over time, with labels and levels, as PNG."""
    time, outcome = played.stamps(), played.outcome
    figure, axes = over_time(time[outcome.scored], outcome.level[outcome.scored], 2.7)
    ends = np.append(time[1:], time[-1] + 0.1)
    for count, (first, past) in enumerate(runs(played.truth.collision == 1)):
        axes.axvspan(time[first], ends[past - 1], color='#fecaca', linewidth=0,
                     label='' if count else 'labelled: collision imminent')
    axes.plot(time, np.where(outcome.scored, outcome.score, np.nan), color=COLORS[PUBLISHED],
              linewidth=2.0, marker='.', label='score', markersize=4 if time.size < 80 else 0)
    axes.set(ylim=(-0.03, 1.03), ylabel='collision score, 0 to 1')
    legend(axes)
    return drawn(figure, 'png')


def reliability_plot(world: WorldRun) -> bytes:
    """Draw observed over predicted frequency; the area of a dot shows its count."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(5.4, 4.6), layout='constrained')
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GRID, linewidth=1.5)
    happened = world.truth.contact_time[:, None] <= np.array(HORIZONS_S)
    for name, outcome in world.outcomes.items():
        bins = reliability(outcome.hazard, happened)
        axes.plot(bins.predicted, bins.observed, color=COLORS[name], linewidth=1.2)
        axes.scatter(bins.predicted, bins.observed, color=COLORS[name], alpha=0.6,
                     s=12 + 60 * np.sqrt(bins.count / max(1, bins.count.sum())),
                     label=f'{name}, error {bins.error:.3f}')
    axes.set(xlabel='predicted probability', ylabel='observed frequency', xlim=(-0.02, 1.02),
             ylim=(-0.02, 1.02))
    plain(axes)
    axes.legend(loc='lower right', frameon=False)
    return drawn(figure, 'png')

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay an evaluation out as tables for the terminal, and as one HTML page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.lab.evaluation.clips import HORIZONS_S, horizon_key
from vjepa_ros.lab.evaluation.figures import BASELINES
from vjepa_ros.lab.evaluation.metrics import Reliability, reliability
from vjepa_ros.lab.evaluation.pictures import Picture
from vjepa_ros.lab.evaluation.plots import labelled, reliability_plot, roc, timeline
from vjepa_ros.lab.evaluation.recording_replay import METHODS, Played
from vjepa_ros.lab.evaluation.world import WorldRun
from vjepa_ros.lab.report.page import STYLE

NONE = '–'


@dataclass(frozen=True)
class Grid:
    """One table: title, heads, rows of text (the first column names the row), and a note."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ''


def number(value: float | None, digits: int = 3) -> str:
    """A figure as text, a dash for none."""
    return NONE if value is None else f'{value:.{digits}f}'


def percent(value: float | None) -> str:
    """A part as text, a dash for none."""
    return NONE if value is None else f'{100 * value:.0f} %'


def count(value: float | None) -> str:
    """A number of things, a dash for none."""
    return NONE if value is None else str(int(value))


METHOD_COLUMNS = (   # group of sequences, head of the column, figure, how it is written
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
    """Every table that the report has figures for."""
    tables = []
    if report['sequences']:
        tables += [sequence_grid(report), method_grid(report)]
    if report['world']:
        tables.append(world_grid(report['world']))
    return tables


def sequence_grid(report: Mapping[str, Any]) -> Grid:
    """One row per sequence and one pooled, of the reported method."""
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
    """One row per method and baseline, over the groups of sequences."""
    columns = [c for c in METHOD_COLUMNS if c[0] in report['groups']]
    rows = tuple((name.replace('_', ' '),
                  *(shape(report['baselines'][name]['groups'][group].get(key))
                    for group, _, key, shape in columns)) for name in BASELINES)
    titles = '; '.join(f'{group.replace("_", " ")}: {" + ".join(members["sequences"])}'
                       for group, members in report['groups'].items())
    return Grid('Methods and baselines', ('method', *(head for _, head, _, _ in columns)), rows,
                f'Over groups of sequences: {titles}.')


def world_grid(world: Mapping[str, Any]) -> Grid:
    """Rows of figures, one column per method, of the rendered clips."""
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


def markdown(grid: Grid) -> str:
    """A table of a document."""
    lines = ['| ' + ' | '.join(grid.heads) + ' |',
             '|---|' + '---:|' * (len(grid.heads) - 1)]
    lines += ['| ' + ' | '.join(row) + ' |' for row in grid.rows]
    return '\n'.join(lines) + '\n' + (f'\n{grid.note}\n' if grid.note else '')


def html(grid: Grid, escape: Any) -> str:
    """A table of a web page; `escape` makes text safe."""
    head = ''.join(f'<th{_num(i)}>{escape(h)}</th>' for i, h in enumerate(grid.heads))
    body = ''.join('<tr>' + ''.join(f'<td{_num(i)}>{escape(c)}</td>' for i, c in enumerate(row))
                   + '</tr>' for row in grid.rows)
    note = f'<p class="soft">{escape(grid.note)}</p>' if grid.note else ''
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>{note}'


def _num(column: int) -> str:
    return ' class="num"' if column else ''


def reasons(report: Mapping[str, Any]) -> Sequence[str]:
    """Why methods or baselines are missing, as sentences."""
    return [f'{name}: {whole["reason"]}' for name, whole in report['baselines'].items()
            if whole.get('reason')]


TITLE = 'vjepa_ros: how accurate it is'


def curves(report: Mapping[str, Any], played: Sequence[Played]) -> dict[str, Any]:
    """Scores and labels of every method and baseline over the sequences with both labels."""
    members = report['groups'].get('collision', {}).get('sequences', [])
    found = {name: labelled(played, members, name) for name in BASELINES}
    return {name: pair for name, pair in found.items() if pair is not None}


def calibration(report: Mapping[str, Any], played: Sequence[Played]) -> dict[str, Reliability]:
    """Reliability of the methods that give probabilities, over the same sequences."""
    return {name: reliability(*pair) for name, pair in curves(report, played).items()
            if name in METHODS}


def world_calibration(run: WorldRun) -> dict[str, Reliability]:
    """Reliability of the hazard of every method over all horizons."""
    happened = run.truth.contact_time[:, None] <= np.array(HORIZONS_S)
    return {name: reliability(outcome.hazard, happened)
            for name, outcome in run.outcomes.items() if outcome.is_probability}


def render(report: Mapping[str, Any], played: Sequence[Played],
           pictures: Mapping[str, Sequence[Picture]], world: WorldRun | None) -> str:
    """The whole page.

    Parameters
    ----------
    report
        As given by `vjepa_ros.lab.evaluation.figures.assemble`.
    played
        The recordings.
    pictures
        By name of the sequence; ``world`` for the rendered clips.
    world
        The rendered clips, None without any.
    """
    reported = report['configuration']['method']
    body = [_header(report), _notes(report)]
    body += [f'<section><h2>{escape(grid.title)}</h2>{html(grid, escape)}</section>'
             for grid in grids(report)]
    body.append(f'<section><p class="soft">{escape(LEGEND)}</p></section>')
    body.append(_curves(report, played))
    if world is not None:
        body.append(_world(world, pictures.get('world', ())))
    body += [_sequence(p, report['sequences'][p.item.name], reported,
                       pictures.get(p.item.name, ())) for p in played]
    body.append(_configuration(report['configuration']))
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<title>{TITLE}</title><style>{STYLE}</style></head>\n<body><main>\n'
            + '\n'.join(part for part in body if part)
            + '\n<footer>This page is self-contained: no network is needed to read it.</footer>'
            '\n</main></body></html>\n')


def _header(report: Mapping[str, Any]) -> str:
    known = report['configuration']
    facts = ''.join(f'<div><b>{name}</b>{escape(str(known[key]))}</div>' for key, name in (
        ('date', 'Date'), ('machine', 'Machine'), ('method', 'Method'), ('version', 'Version')))
    return (f'<header><h1>{TITLE}</h1><div class="facts">{facts}</div>'
            f'<code class="cmd">{escape(known["command"])}</code></header>')


def _notes(report: Mapping[str, Any]) -> str:
    notes = [*report['configuration']['notes'], *reasons(report),
             'This software is not a certified safety device.']
    items = ''.join(f'<li>{escape(note)}</li>' for note in notes)
    return f'<section class="notes"><h2>Read this first</h2><ul>{items}</ul></section>'


def _curves(report: Mapping[str, Any], played: Sequence[Played]) -> str:
    pairs = curves(report, played)
    if not pairs:
        return ''
    names = escape(' + '.join(report['groups']['collision']['sequences']))
    return ('<div class="pair">'
            f'<section class="plot"><h2>ROC curves</h2><p class="soft">{names}, every labelled '
            'frame; beside the names the area under the curve.</p>'
            f'<img alt="ROC curves" src="{_uri(roc(pairs), "svg+xml")}"></section>'
            f'<section class="plot"><h2>Reliability</h2><p class="soft">{names}. A dot on the '
            'diagonal says what happens.</p><img alt="reliability diagram" '
            f'src="{_uri(reliability_plot(calibration(report, played)), "svg+xml")}"></section>'
            '</div><br>')


def _sequence(played: Played, figures: Mapping[str, Any], reported: str,
              pictures: Sequence[Picture]) -> str:
    return (f'<section class="plot"><h2>{escape(played.item.name)}</h2>'
            f'<p class="soft">{escape(summary(played, figures))}</p>'
            f'<img alt="scores over time" src="{_uri(timeline(played, reported), "svg+xml")}">'
            f'{_shown(pictures)}</section>')


def _world(world: WorldRun, pictures: Sequence[Picture]) -> str:
    plot = reliability_plot(world_calibration(world))
    return ('<section><h2>Rendered clips</h2><p class="soft">Reliability of the hazard over all '
            'horizons, and the clips that were judged worst.</p><img alt="reliability diagram of '
            f'the hazard" style="max-width:100%" src="{_uri(plot, "svg+xml")}">'
            f'{_shown(pictures)}</section>')


def _shown(pictures: Sequence[Picture]) -> str:
    figures = ''.join(
        f'<figure><img loading="lazy" alt="{escape(p.caption)}" src="{_uri(p.jpeg, "jpeg")}">'
        f'<figcaption>{_mark(p.failure)}{escape(p.caption)}</figcaption></figure>'
        for p in pictures)
    return f'<div class="frames">{figures}</div>'


def summary(played: Played, figures: Mapping[str, Any]) -> str:
    """One paragraph on a sequence: what is known of it, when there were alarms."""
    words = [f'{figures["frames"]} frames, {figures["frames_scored"]} of them assessed.']
    if not figures['frames_scored']:
        words.append('It is shorter than one clip of the model.')
    if figures.get('heads_problem'):
        words.append('The learned heads did not hold in '
                     f'{figures["methods_used"].get("geometric", 0)} of them: '
                     f'{figures["heads_problem"]}.')
    alarms = figures['alarms']
    words.append('No alarm.' if not alarms else 'Alarms (warning or above): ' + ', '.join(
        f'{a["from_s"]:.1f} to {a["to_s"]:.1f} s ({a["level"]})' for a in alarms) + '.')
    for approach in figures.get('approaches', ()):
        warned = approach['warned_s']
        words.append(
            f'Nearest at {approach["nearest_s"]:.1f} s after coming nearer since '
            f'{approach["from_s"]:.1f} s at up to {approach["fastest_looming_per_s"]:.2f} /s: '
            + ('no warning before it.' if warned is None else f'warned at {warned:.1f} s.'))
    wrong = figures.get('alarms_without_approach', ())
    if wrong:
        words.append('Alarms while it did not come nearer: ' + ', '.join(
            f'{a["from_s"]:.1f} to {a["to_s"]:.1f} s' for a in wrong) + '.')
    return ' '.join(words)


def _configuration(known: Mapping[str, Any]) -> str:
    rows = ''.join(f'<tr><td>{escape(str(k))}</td><td><code>{escape(str(v))}</code></td></tr>'
                   for k, v in known.items() if k not in ('notes', 'command'))
    return ('<section><h2>Configuration</h2><div class="wide"><table>'
            f'<tr><th>what</th><th>value</th></tr>{rows}</table></div></section>')


def _mark(failure: str) -> str:
    if not failure:
        return ''
    return f'<span class="chip" style="background:#b91c1c;color:#fff">{escape(failure)}</span>'


def _uri(data: bytes, kind: str) -> str:
    return f'data:image/{kind};base64,' + base64.b64encode(data).decode()

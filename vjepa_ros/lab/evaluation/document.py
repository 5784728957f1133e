# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write an evaluation as tables in the terminal, as one HTML page, or into a Markdown document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.lab.evaluation.clips import HORIZONS_S, horizon_key
from vjepa_ros.lab.evaluation.figures import BASELINES
from vjepa_ros.lab.evaluation.metrics import reliability
from vjepa_ros.lab.evaluation.pictures import Picture
from vjepa_ros.lab.evaluation.plots import labelled, reliability_plot, roc, timeline
from vjepa_ros.lab.evaluation.recording_replay import METHODS, Played
from vjepa_ros.lab.evaluation.world import WorldRun
from vjepa_ros.lab.report.measurement import fill
from vjepa_ros.lab.report.page import data_uri, html_page, html_table, jpeg_bytes

NONE = '–'
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
TITLE = 'vjepa_ros: how accurate it is'
BLOCK = 'accuracy'
SHEET_WIDTH, QUALITY = 800, 75


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


WORLD_TITLES = {'world': 'World', 'rough': 'Rough world'}    # by their key in the report


def grids(report: Mapping[str, Any]) -> list[Grid]:
    """Return every table that the report has figures for."""
    tables = []
    if report['sequences']:
        tables += [sequence_grid(report), method_grid(report)]
    tables += [world_grid(report[name], title) for name, title in WORLD_TITLES.items()
               if report[name]]
    return tables


def sequence_grid(report: Mapping[str, Any]) -> Grid:
    """Return one row per sequence and one pooled, of the reported method."""
    rows = [(name, *_sequence_cells(f)) for name, f in report['sequences'].items()]
    rows.append(('pooled', *_sequence_cells(report['pooled'])))
    return Grid(f'Sequences, method {report["configuration"]["method"]}',
                ('sequence', 'frames', 'AUC', 'AP', 'ECE', 'lead s', 'TTC', 'loom', 'still',
                 'FA/min', 'unkn'), tuple(rows), _each_alone(report))


def _each_alone(report: Mapping[str, Any]) -> str:
    """Say how well each probability ranks alone, of which the score is the greater one."""
    group = report['groups'].get('collision')
    if group is None or group['collision_if_ahead_auc'] is None:
        return ''
    return (f'AUC over {" + ".join(group["sequences"])}: '
            f'{number(group["collision_auc"])}; of collision_probability alone '
            f'{number(group["collision_probability_auc"])}, of collision_if_ahead alone '
            f'{number(group["collision_if_ahead_auc"])}.')


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


def world_grid(world: Mapping[str, Any], title: str) -> Grid:
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
    return Grid(f'{title}, {world["clips"]} held-out clips',
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
    return [f'{name}: {part["reason"]}' for name, part in report['baselines'].items()
            if part.get('reason')]


@dataclass(frozen=True)
class Section:
    """Plots of the evaluation with text and pictures."""

    # name, title, text: name of its files, title, and text
    name: str
    title: str
    text: str
    # By name of the file: what it shows, and a function that draws it as 'svg' or 'png'
    plots: Mapping[str, tuple[str, Callable[[str], bytes]]]
    # Pictures, of which a document shows the failures in so many columns
    pictures: Sequence[Picture] = ()
    columns: int = 2


def sections(report: Mapping[str, Any], played: Sequence[Played],
             pictures: Mapping[str, Sequence[Picture]],
             worlds: Mapping[str, WorldRun]) -> list[Section]:
    """Return the sections after the tables: curves, rendered clips, and each recording."""
    found = []
    members = report['groups'].get('collision', {}).get('sequences', [])
    curves = {name: pair for name in BASELINES
              if (pair := labelled(played, members, name)) is not None}
    if curves:
        bins = {name: reliability(*pair) for name, pair in curves.items() if name in METHODS}
        found.append(Section('', 'ROC curves and reliability', f'{" + ".join(members)}, every '
                             'labelled frame; beside the names of the ROC curves the area under '
                             'the curve.', {
                                 'roc': ('ROC curves', partial(roc, curves)),
                                 'reliability': ('reliability',
                                                 partial(reliability_plot, bins))}))
    for name, world in worlds.items():
        happened = world.truth.contact_time[:, None] <= np.array(HORIZONS_S)
        bins = {method: reliability(outcome.hazard, happened)
                for method, outcome in world.outcomes.items() if outcome.is_probability}
        found.append(Section(
            name, f'Rendered clips: {WORLD_TITLES[name].lower()}', 'Reliability of the hazard '
            'over all horizons; below, the clips that were judged worst.',
            {f'{name}_reliability': ('reliability', partial(reliability_plot, bins))},
            pictures.get(name, ()), 4))
    for each in played:
        name = each.item.name
        found.append(Section(name, name, summary(each, report['sequences'][name]),
                             {name: (f'{name} over time', partial(
                                 timeline, each, report['configuration']['method']))},
                             pictures.get(name, ())))
    return found


def summary(played: Played, figures: Mapping[str, Any]) -> str:
    """Describe a sequence in one paragraph: what is known of it, and its alarms."""
    words = [f'{figures["frames"]} frames, {figures["frames_scored"]} of them assessed.']
    if not figures['frames_scored']:
        words.append('It is shorter than one clip of the model.')
    if figures.get('heads_problem'):
        words.append('The learned heads were not valid in '
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


# -- HTML -----------------------------------------------------------------------------------------

def page(report: Mapping[str, Any], parts: Sequence[Section]) -> str:
    """Return the whole HTML page, which needs no other file."""
    known = report['configuration']
    facts = ''.join(f'<div><b>{name}</b>{escape(str(known[key]))}</div>' for key, name in (
        ('date', 'Date'), ('machine', 'Machine'), ('method', 'Method'), ('version', 'Version')))
    notes = ''.join(f'<li>{escape(note)}</li>' for note in (
        *known['notes'], *reasons(report), 'This software is not a certified safety device.'))
    body = [f'<header><h1>{TITLE}</h1><div class="facts">{facts}</div>'
            f'<code class="cmd">{escape(known["command"])}</code></header>',
            f'<section class="notes"><h2>Read this first</h2><ul>{notes}</ul></section>',
            *(f'<section><h2>{escape(grid.title)}</h2>{html_table(grid.heads, grid.rows)}'
              f'<p class="soft">{escape(grid.note)}</p></section>' for grid in grids(report)),
            f'<section><p class="soft">{escape(LEGEND)}</p></section>',
            *map(_html_section, parts),
            '<section><h2>Configuration</h2>' + html_table(
                ('what', 'value'), [(k, f'{v}') for k, v in known.items()
                                    if k not in ('notes', 'command')], numbers=False)
            + '</section>']
    return html_page(TITLE, body)


def _html_section(section: Section) -> str:
    plots = ''.join(f'<img alt="{escape(alt)}" src="{data_uri(draw("svg"), "svg+xml")}">'
                    for alt, draw in section.plots.values())
    wide = ' class="pair"' if len(section.plots) > 1 else ''
    figures = ''.join(
        f'<figure><img loading="lazy" alt="{escape(p.caption)}" src="{data_uri(p.jpeg, "jpeg")}">'
        f'<figcaption>{_html_failure(p.failure)}{escape(p.caption)}</figcaption></figure>'
        for p in section.pictures)
    return (f'<section class="plot"><h2>{escape(section.title)}</h2>'
            f'<p class="soft">{escape(section.text)}</p><div{wide}>{plots}</div>'
            f'<div class="frames">{figures}</div></section>')


def _html_failure(failure: str) -> str:
    style = 'background:#b91c1c;color:#fff'
    return f'<span class="chip" style="{style}">{escape(failure)}</span>' if failure else ''


# -- Markdown -------------------------------------------------------------------------------------

def write(document: Path, report: Mapping[str, Any], parts: Sequence[Section]) -> None:
    """Replace the block between the marks of a document, and the pictures that it shows."""
    text = document.read_text(encoding='utf-8')
    fill(text, BLOCK, '')       # raises before anything is written
    folder = document.with_suffix('')
    folder.mkdir(exist_ok=True)
    old = text.partition(f'<!-- {BLOCK}:begin -->')[2].partition(f'<!-- {BLOCK}:end -->')[0]
    # All else in the folder is of others: it may be the recording itself.
    for name in re.findall(rf'\]\({re.escape(folder.name)}/([^/\n]+?\.(?:png|jpg))\)', old):
        (folder / name).unlink(missing_ok=True)
    known = report['configuration']
    block = [f'| | |\n|---|---|\n| Command | `{known["command"]}`, {known["minutes"]} minutes |\n'
             f'| Date, machine | {known["date"]}, {known["machine"]} |\n'
             f'| Model | {known["model"]} |\n| Method | {known["method"]}, one configuration for '
             'all recordings (the defaults) |\n',
             ''.join(f'- {note}\n' for note in (*known['notes'], *reasons(report))),
             *(f'### {grid.title}\n\n{_markdown_table(grid)}' for grid in grids(report)),
             f'{LEGEND}\n', *(_markdown_section(part, folder) for part in parts)]
    document.write_text(fill(text, BLOCK, '\n'.join(block)), encoding='utf-8')


def _markdown_table(grid: Grid) -> str:
    lines = ['| ' + ' | '.join(grid.heads) + ' |',
             '|---|' + '---:|' * (len(grid.heads) - 1)]
    lines += ['| ' + ' | '.join(row) + ' |' for row in grid.rows]
    return '\n'.join(lines) + '\n' + (f'\n{grid.note}\n' if grid.note else '')


def _markdown_section(section: Section, folder: Path) -> str:
    for name, (_, draw) in section.plots.items():
        (folder / f'{name}.png').write_bytes(draw('png'))
    shown = ' '.join(f'![{alt}]({folder.name}/{name}.png)'
                     for name, (alt, _) in section.plots.items()) + '\n'
    if not section.name:
        return shown
    title = section.title if section.name in WORLD_TITLES else f'`{section.title}`'
    text = f'### {title}\n\n{section.text}\n\n{shown}'
    wrong = [p for p in section.pictures if p.failure]
    if not wrong:
        return text
    file = folder / f'{section.name}_failures.jpg'
    file.write_bytes(sheet(wrong, section.columns))
    listing = ''.join(f'{i}. {p.failure}: {p.caption}\n' for i, p in enumerate(wrong, 1))
    return (f'{text}\nFailures, row by row:\n\n{listing}\n'
            f'![failures in {section.name}]({folder.name}/{file.name})\n')


def sheet(pictures: Sequence[Picture], columns: int) -> bytes:
    """Return pictures as one JPEG, row by row, each whole in its tile."""
    width = SHEET_WIDTH // columns
    tiles = []
    for picture in pictures:
        image = cv2.imdecode(np.frombuffer(picture.jpeg, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise ValueError(f'the picture of {picture.caption} is not a JPEG')
        height = max(1, round(image.shape[0] * width / image.shape[1]))
        tiles.append(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))
    rows = []
    for first in range(0, len(tiles), columns):
        row = tiles[first:first + columns]
        canvas = np.full((max(t.shape[0] for t in row), width * columns, 3), 255, np.uint8)
        for place, tile in enumerate(row):
            canvas[:tile.shape[0], place * width:(place + 1) * width] = tile
        rows.append(canvas)
    return jpeg_bytes(np.vstack(rows), QUALITY)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay out an evaluation as one HTML page that needs nothing but a browser."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from vjepa_ros.lab.evaluation.clips import HORIZONS_S
from vjepa_ros.lab.evaluation.figures import BASELINES
from vjepa_ros.lab.evaluation.metrics import Reliability, reliability
from vjepa_ros.lab.evaluation.pictures import Picture
from vjepa_ros.lab.evaluation.plots import labelled, reliability_plot, roc, timeline
from vjepa_ros.lab.evaluation.recording_replay import METHODS, Played
from vjepa_ros.lab.evaluation.table import LEGEND, grids, html, reasons
from vjepa_ros.lab.evaluation.world import WorldRun
from vjepa_ros.lab.report.page import STYLE

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

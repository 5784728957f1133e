# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run did: one self-contained web page, a summary file and a video."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.evaluation.metrics import mean, median_relative_error
from vjepa_ros.lab.report.live_view import Status
from vjepa_ros.lab.report.measurement import json_safe, write_json
from vjepa_ros.lab.report.page import (
    LEVELS,
    chip,
    data_uri,
    drawn,
    html_page,
    html_table,
    html_tiles,
    legend,
    number,
    over_time,
    percent,
)
from vjepa_ros.perception.types import Assessment, Level

log = logging.getLogger(__name__)

FPS_RANGE = (1.0, 30.0)
MAX_STILL_S = 5.0          # longest time that a picture is shown
JUDGED_TTC = (0.3, 6.0)    # true times to contact [s] at which estimates are judged
TTC_RANGE = (0.2, 20.0)    # that are drawn [s]; larger ones at the upper edge
STILLS, THUMBNAIL_WIDTH = 9, 720
ABOUT_TTC = (
    'Estimated and, where it is known, true; logarithmic. A gap in the estimate means unknown; '
    'triangles at the upper edge mean that nothing on course comes nearer (infinite) or more '
    f'than {TTC_RANGE[1]:.0f} s.')
ABOUT_SCORES = (
    'Motion: share of the view that moves by itself (without learned heads: that changes). '
    'Obstacle: share that comes nearer. Collision: probability of a contact within the horizon, '
    'as things move now. Collision if ahead: the same if the robot drove ahead; it can be high '
    'where nothing comes nearer.')


def write_outputs(out_dir: Path, status: Status, pictures: Sequence[tuple[int, Path]],
                  facts: dict[str, Any]) -> list[str]:
    """Write page, summary and video of a run into a folder; return lines that describe it.

    `pictures`: stamp [ns] and JPEG file of each overlay, oldest first; some show no result.
    `facts`: command, configuration, and what else a reader should know (notes).
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    facts = {'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'), **facts}
    results, video = list(status.results), out_dir / 'overlay.mp4'
    video.unlink(missing_ok=True)       # of an earlier run
    if pictures:
        try:
            _write_video(video, pictures)
        except OSError as error:
            log.warning('%s', error)
    files = [out_dir / 'report.html', *[video] * video.exists(), out_dir / 'summary.json']
    index = {a.stamp_ns: at for at, a in enumerate(results)}
    # Chosen before they are decoded, because a run has many pictures.
    stills = pick_stills(results, [(index[stamp], path) for stamp, path in pictures
                                   if stamp in index])
    summary = summarise(status, facts)
    write_json(files[-1], summary)
    files[0].write_text(_page(status, facts, summary, stills, video), encoding='utf-8')
    kind = 'trained' if status.trained else 'UNTRAINED, random weights'
    return [', '.join(f'{value} {name}' for value, name in _figures(summary)),
            f'model {status.model} on {status.device} ({kind})',
            f'open {files[0]}', *(f'     {path}' for path in files[1:])]


def summarise(status: Status, facts: dict[str, Any]) -> dict[str, Any]:
    """Compute the numbers of a run, ready for JSON.

    ``ttc_median_relative_error`` is the median of ``|estimate - truth| / truth`` over the
    results whose true time to contact is 0.3 to 6 s and whose estimate is known; an error counts
    as 1000 % at most. ``ttc_coverage`` is the share with an estimate.
    """
    latency = _known(_column(status, 'latency_ms'))
    estimate, truth = _column(status, 'time_to_contact'), _truth(status)
    judged = (truth >= JUDGED_TTC[0]) & (truth <= JUDGED_TTC[1])
    return json_safe({
        'assessments_out': len(status.results),
        'latency_ms': {'median': np.median(latency) if latency.size else None,
                       'p95': np.percentile(latency, 95) if latency.size else None},
        'ttc_median_relative_error': median_relative_error(estimate[judged], truth[judged]),
        'ttc_coverage': mean(~np.isnan(estimate[judged])),
        'ttc_judged': int(judged.sum()),
        'level_changes': int((np.diff(_column(status, 'level')) != 0).sum()),
        'frames_in': status.frames_in, 'device': status.device, 'model': status.model,
        'trained': status.trained, 'source': status.source,
        **{name: facts[name] for name in ('date', 'command', 'configuration')},
    })


def _column(status: Status, name: str) -> np.ndarray:
    """Return a field of all results as numbers."""
    return np.array([getattr(a, name) for a in status.results], float)


def _truth(status: Status) -> np.ndarray:
    """Return the true time to contact of each result [s]; NaN unknown."""
    return np.array([status.truth.get(a.stamp_ns, math.nan) for a in status.results], float)


def _known(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _figures(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of a run as text, each with its name."""
    latency = summary['latency_ms']
    found = [(str(summary['frames_in']), 'frames in'),
             (str(summary['assessments_out']), 'assessments out'),
             (f'{number(latency["median"], 0)} ms', 'median latency'),
             (f'{number(latency["p95"], 0)} ms', 'latency, 95th percentile')]
    if summary['ttc_coverage'] is not None:
        found += [(percent(summary['ttc_median_relative_error']),
                   'median error of the time to contact'),
                  (percent(summary['ttc_coverage']), 'of true contacts had an estimate')]
    return [*found, (str(summary['level_changes']), 'changes of level')]


def pick_stills(results: Sequence[Assessment], pictures: Sequence[tuple[int, Path]]
                ) -> list[tuple[int, Path]]:
    """Return the picture of the most urgent result of each part of the run, with its index."""
    def urgency(picture: tuple[int, Path]) -> tuple[int, float]:
        a = results[picture[0]]
        return (-1 if a.level == Level.UNKNOWN else int(a.level),
                -math.inf if math.isnan(a.time_to_contact) else -a.time_to_contact)

    parts = np.array_split(np.arange(len(pictures)), STILLS)
    return [max((pictures[at] for at in part), key=urgency) for part in parts if part.size]


def _page(status: Status, facts: dict[str, Any], summary: dict[str, Any],
          stills: Sequence[tuple[int, Path]], video: Path) -> str:
    badge = ('yes', 'TRAINED') if status.trained else ('no', 'UNTRAINED')
    shown = ''.join(f'<div><b>{name}</b>{escape(value)}</div>' for name, value in (
        ('Source', status.source), ('Model', status.model), ('Device', status.device),
        ('Date', facts['date'])))
    title = escape(status.title)
    body = [f'<header><div class="head"><h1>{title}</h1><div class="badge {badge[0]}">{badge[1]}'
            f'</div></div><div class="facts">{shown}</div><code class="cmd">'
            f'{escape(facts["command"])}</code></header>',
            html_tiles(_figures(summary)), _notes(status, facts, summary)]
    level = _column(status, 'level').astype(int)
    levels = ''.join(chip(one) for one in LEVELS if (level == one).any())
    time_s = (_column(status, 'stamp_ns') - status.results[0].stamp_ns) / 1e9
    body += [_plot('Time to contact', f'{ABOUT_TTC} Level: {levels}',
                   _ttc_plot(status, time_s, level)),
             _plot('Scores', f'{ABOUT_SCORES} Level: {levels}',
                   _score_plot(status, time_s, level))]
    if stills:
        body.append(_stills(status, stills, video))
    settings = html_table(('parameter', 'value'), [
        (name, str(value)) for name, value in facts['configuration'].items()], False)
    body.append(f'<div class="pair">{_stage_table(status)}<section><h2>Configuration</h2>'
                f'{settings}</section></div>')
    return html_page(title, body)


def _notes(status: Status, facts: dict[str, Any], summary: dict[str, Any]) -> str:
    notes = []
    if not status.trained:
        notes.append('The encoder ran with random weights. Motion score and features react to '
                     'change, but are not learned. Contact and level are unknown.')
    if summary['ttc_coverage'] is None:
        notes.append('This source has no true time to contact between 0.3 and 6 s, so the '
                     'estimates are shown but not judged.')
    if len(status.results) < status.count:
        notes.append(f'Report and video show the newest {len(status.results)} results.')
    notes += [*facts['notes'], 'This software is not a certified safety device.']
    items = ''.join(f'<li>{escape(note)}</li>' for note in notes)
    return f'<section class="notes"><h2>Read this first</h2><ul>{items}</ul></section>'


def _plot(heading: str, caption: str, svg: bytes) -> str:
    return (f'<section class="plot"><h2>{heading}</h2><p class="soft">{caption}</p>'
            f'<div class="wide"><img alt="{heading} over time" '
            f'src="{data_uri(svg, "svg+xml")}"></div></section>')


def _ttc_plot(status: Status, time_s: np.ndarray, level: np.ndarray) -> bytes:
    figure, axes = over_time(time_s, level, 3.4)
    low, high = TTC_RANGE
    true, estimate = _truth(status), _column(status, 'time_to_contact')
    if not np.isnan(true).all():
        # An infinite truth interrupts the line.
        axes.plot(time_s, np.where(true <= high, true, np.nan), '--', color='#111820',
                  linewidth=2.2, label='true')
    axes.plot(time_s, np.where(estimate <= high, np.maximum(estimate, low), np.nan),
              color='#0b6bcb', marker='o', markersize=3, label='estimated')
    over = estimate > high
    if over.any():
        axes.plot(time_s[over], np.full(over.sum(), high), '^', color='#0b6bcb', alpha=0.55,
                  clip_on=False, label=f'none, or over {high:.0f} s')
    axes.set(yscale='log', ylim=TTC_RANGE, ylabel='time to contact [s]')
    ticks = [0.2, 0.5, 1, 2, 5, 10, 20]
    axes.set_yticks(ticks, [f'{t:g}' for t in ticks])
    axes.minorticks_off()
    legend(axes)
    return drawn(figure, 'svg')


def _score_plot(status: Status, time_s: np.ndarray, level: np.ndarray) -> bytes:
    figure, axes = over_time(time_s, level, 2.7)
    for name, color, label in (('motion_score', '#3b82f6', 'motion'),
                               ('obstacle_score', '#d99a00', 'obstacle'),
                               ('collision_probability', '#d62828', 'collision'),
                               ('collision_if_ahead', '#9d4edd', 'collision if ahead')):
        values = _column(status, name)
        if np.isfinite(values).any():
            axes.plot(time_s, values, color=color, linewidth=1.7, label=label)
    axes.set(ylim=(-0.02, 1.02), ylabel='score or probability')
    legend(axes)
    return drawn(figure, 'svg')


def _stills(status: Status, stills: Sequence[tuple[int, Path]], video: Path) -> str:
    figures = []
    for index, path in stills:
        a = status.results[index]
        seconds = f'{(a.stamp_ns - status.results[0].stamp_ns) / 1e9:.1f} s'
        words = [seconds, f'TTC {_seconds(a.time_to_contact)}']
        if a.stamp_ns in status.truth:
            words.append(f'true {_seconds(status.truth[a.stamp_ns])}')
        figures.append(
            f'<figure><img loading="lazy" alt="overlay at {seconds}" '
            f'src="{data_uri(_thumbnail(_load(path)), "jpeg")}">'
            f'<figcaption>{chip(a.level)}{" &middot; ".join(words)}</figcaption></figure>')
    link = (f' The whole run: <a href="{video.name}">{video.name}</a> in the same folder.'
            if video.exists() else '')
    return ('<section><h2>What the camera saw</h2><p class="soft">Blue: moving by itself (without '
            'learned heads: all change). Yellow to red: coming nearer. Dots: looming unknown. '
            'Boxes carry the time to contact; those in the colour of the level are on '
            f'course.{link}</p>'
            f'<div class="frames">{"".join(figures)}</div></section>')


def _stage_table(status: Status) -> str:
    names = dict.fromkeys(name for a in status.results for name in a.timings)
    rows = [(name, np.array([a.timings[name] for a in status.results if name in a.timings]))
            for name in names]
    if (latency := _known(_column(status, 'latency_ms'))).size:
        rows.append(('total latency', latency))
    return '<section><h2>Stages</h2>' + html_table(
        ('stage', 'median ms', '95 % ms'),
        [(name, f'{np.median(values):.1f}', f'{np.percentile(values, 95):.1f}')
         for name, values in rows]) + '</section>'


def _load(path: Path) -> np.ndarray:
    """Read a picture as BGR."""
    return np.asarray(cv2.imread(str(path)))


def _thumbnail(bgr: np.ndarray) -> bytes:
    height, width = bgr.shape[:2]
    if width > THUMBNAIL_WIDTH:
        size = THUMBNAIL_WIDTH, max(1, round(height * THUMBNAIL_WIDTH / width))
        bgr = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()


def _seconds(value: float) -> str:
    if math.isnan(value):
        return 'unknown'
    return 'none' if math.isinf(value) else f'{value:.1f} s'


def film(stamps_ns: Sequence[int]) -> tuple[np.ndarray, float]:
    """Return which pictures a video shows that plays in the time of stamps, and its rate."""
    gaps = np.clip(np.diff(np.array(stamps_ns, np.int64)) / 1e9, 0, MAX_STILL_S)
    known = gaps[gaps > 0]
    fps = float(np.clip(1 / np.median(known), *FPS_RANGE)) if known.size else FPS_RANGE[0]
    times = np.append(0, np.cumsum(gaps))
    # A little early is on time, because stamps of a camera are not perfectly even.
    due = np.arange(math.ceil(times[-1] * fps - 0.25) + 1) + 0.25
    return np.searchsorted(times * fps, due, side='right') - 1, fps


def _write_video(path: Path, pictures: Sequence[tuple[int, Path]]) -> None:
    """Write a video of pictures with stamps [ns]; OSError where OpenCV cannot."""
    shape = _load(pictures[-1][1]).shape
    # Video codecs store colour at half resolution and need even sides.
    size = max(2, shape[1] // 2 * 2), max(2, shape[0] // 2 * 2)
    shown, fps = film([stamp for stamp, _ in pictures])
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'mp4v'), fps, size)
    if not writer.isOpened():
        raise OSError(f'OpenCV {cv2.__version__} cannot write {path} (codec mp4v)')
    for at in shown:
        image = _load(pictures[at][1])
        if image.shape == shape:
            writer.write(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    writer.release()

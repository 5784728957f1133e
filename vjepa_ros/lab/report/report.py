# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run did: one self-contained web page, a summary file and a video."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np

from vjepa_ros.lab.evaluation.metrics import mean, median_relative_error
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

log = logging.getLogger(__name__)

T = TypeVar('T')
FPS_RANGE = (1.0, 30.0)
MAX_STILL_S = 5.0          # longest time that a picture is shown
JUDGED_TTC = (0.3, 6.0)    # true times to contact [s] at which estimates are judged
TTC_RANGE = (0.2, 20.0)    # that are drawn [s]; larger ones at the upper edge
THUMBNAIL_WIDTH = 720
ABOUT_TTC = (
    'Estimated and, where it is known, true; logarithmic. A gap in the estimate means unknown; '
    'triangles at the upper edge mean that nothing on course comes nearer (infinite) or more '
    f'than {TTC_RANGE[1]:.0f} s.')
ABOUT_SCORES = (
    'Motion: share of the view that moves by itself (without learned heads: that changes). '
    'Obstacle: share that comes nearer. Collision: probability of a contact within the horizon, '
    'as things move now. Collision if ahead: the same if the robot drove ahead; it can be high '
    'where nothing comes nearer.')


class Series:
    """Columns of the records of `write_report` as float arrays; what is missing is NaN."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.records = records
        stamps = np.array([r['stamp_ns'] for r in records], np.int64)
        self.time = (stamps - stamps[0]) / 1e9 if len(stamps) else np.zeros(0)
        self.level = np.array([int(r['level']) for r in records], int)

    def column(self, name: str) -> np.ndarray:
        """Return one value per record."""
        values = (r.get(name) for r in self.records)
        return np.array([np.nan if v is None else float(v) for v in values], float)

    def stages(self) -> dict[str, np.ndarray]:
        """Return milliseconds per stage, as far as records have them."""
        timings = [r.get('timings') or {} for r in self.records]
        return {name: np.array([float(one[name]) for one in timings if name in one])
                for name in dict.fromkeys(name for one in timings for name in one)}


def write_outputs(out_dir: Path, records: Sequence[dict[str, Any]],
                  pictures: Sequence[tuple[int, Path]], meta: dict[str, Any]
                  ) -> tuple[dict[str, Any], list[Path]]:
    """Write page, summary and video into a folder.

    `pictures`: stamp [ns] and JPEG file of each overlay, oldest first; some have no record.
    """
    video = out_dir / 'overlay.mp4'
    video.unlink(missing_ok=True)       # of an earlier run
    files = []
    if pictures:
        try:
            _write_video(video, pictures)
            files.append(video)
            meta = {**meta, 'video': video.name}
        except OSError as error:
            log.warning('%s', error)
    index = {record['stamp_ns']: at for at, record in enumerate(records)}
    # Chosen before they are decoded, because a run has many pictures.
    chosen = pick_frames(records, [(index[stamp], path) for stamp, path in pictures
                                   if stamp in index])
    stills = [(at, image) for at, path in chosen if (image := load(path)) is not None]
    return write_report(out_dir, records, stills, meta), files


def summary_lines(summary: dict[str, Any], out_dir: Path, others: Sequence[Path]) -> list[str]:
    """Describe a run in two lines, and name its files."""
    files = [out_dir / 'report.html', *others, out_dir / 'summary.json']
    kind = 'trained' if summary['trained'] else 'UNTRAINED, random weights'
    return [', '.join(f'{value} {name}' for value, name in figures(summary)),
            f'model {summary["model"]} on {summary["device"]} ({kind})',
            'open ' + str(files[0]), *('     ' + str(path) for path in files[1:])]


def figures(summary: dict[str, Any]) -> list[tuple[str, str]]:
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


def load(path: Path) -> np.ndarray | None:
    """Read a picture as BGR, None for a damaged file."""
    return cv2.imread(str(path))


def write_report(out_dir: Path, records: Sequence[dict[str, Any]],
                 frames: Sequence[tuple[int, np.ndarray]], meta: dict[str, Any]) -> dict[str, Any]:
    """Write ``report.html`` and ``summary.json`` into a folder, which is made if needed.

    `records`: one per assessment, oldest first: stamp_ns, level (0..3 or 255), flags,
    motion_score, obstacle_score, collision_probability, collision_if_ahead, time_to_contact [s],
    looming_rate [1/s], bearing [rad], true_ttc [s], true_looming [1/s], latency_ms and timings
    (milliseconds by stage). `meta` needs frames_in, device, model and trained.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    summary = summarise(records, meta)
    write_json(out_dir / 'summary.json', summary)
    page = _page(records, pick_frames(records, frames), meta, summary)
    (out_dir / 'report.html').write_text(page, encoding='utf-8')
    return summary


def summarise(records: Sequence[dict[str, Any]], meta: dict[str, Any]) -> dict[str, Any]:
    """Compute the numbers of a run, ready for JSON; parameters as in `write_report`.

    ``ttc_median_relative_error`` is the median of ``|estimate - truth| / truth`` over the
    records whose true time to contact is 0.3 to 6 s and whose estimate is known; an error counts
    as 1000 % at most. ``ttc_coverage`` is the share with an estimate.
    """
    series = Series(records)
    latency = series.column('latency_ms')
    latency = latency[np.isfinite(latency)]
    estimate, truth = series.column('time_to_contact'), series.column('true_ttc')
    judged = (truth >= JUDGED_TTC[0]) & (truth <= JUDGED_TTC[1])
    kept = ('frames_in', 'device', 'model', 'trained', 'source', 'date', 'command',
            'configuration')
    return json_safe({
        'assessments_out': len(records),
        'latency_ms': {'median': float(np.median(latency)) if latency.size else None,
                       'p95': float(np.percentile(latency, 95)) if latency.size else None},
        'ttc_median_relative_error': median_relative_error(estimate[judged], truth[judged]),
        'ttc_coverage': mean(~np.isnan(estimate[judged])),
        'ttc_judged': int(judged.sum()),
        'level_changes': int((np.diff(series.level) != 0).sum()),
        **{key: meta[key] for key in kept if key in meta},
    })


def pick_frames(records: Sequence[dict[str, Any]], frames: Sequence[tuple[int, T]],
                count: int = 9) -> list[tuple[int, T]]:
    """Return at most `count` frames in order: the most urgent one of each part of the run."""
    frames = sorted(frames, key=lambda item: item[0])

    def urgency(frame: tuple[int, T]) -> tuple[int, float]:
        record = records[frame[0]]
        level, ttc = int(record['level']), record.get('time_to_contact')
        return (level if level < 255 else -1,
                -math.inf if ttc is None or math.isnan(ttc) else -float(ttc))

    parts = np.array_split(np.arange(len(frames)), count)
    return [max((frames[at] for at in part), key=urgency) for part in parts if part.size]


def _page(records: Sequence[dict[str, Any]], frames: Sequence[tuple[int, np.ndarray]],
          meta: dict[str, Any], summary: dict[str, Any]) -> str:
    series = Series(records)
    title = escape(str(meta.get('title', 'V-JEPA 2 obstacle detection: run report')))
    body = [_header(title, meta), html_tiles(figures(summary)), _notes(records, meta, summary)]
    if records:
        levels = ''.join(chip(level) for level in LEVELS if (series.level == level).any())
        body += [_plot('Time to contact', f'{ABOUT_TTC} Level: {levels}', _ttc_plot(series)),
                 _plot('Scores', f'{ABOUT_SCORES} Level: {levels}', _score_plot(series))]
    if frames:
        body.append(_frames(series, frames, meta))
    settings = html_table(('parameter', 'value'), [
        (str(key), str(value)) for key, value in (meta.get('configuration') or {}).items()], False)
    body.append(f'<div class="pair">{_stage_table(series)}<section><h2>Configuration</h2>'
                f'{settings}</section></div>')
    return html_page(title, body)


def _header(title: str, meta: dict[str, Any]) -> str:
    badge = ('yes', 'TRAINED') if meta['trained'] else ('no', 'UNTRAINED')
    facts = ''.join(f'<div><b>{name}</b>{escape(str(meta[key]))}</div>' for key, name in (
        ('source', 'Source'), ('model', 'Model'), ('device', 'Device'), ('date', 'Date'))
        if meta.get(key))
    command = f'<code class="cmd">{escape(str(meta["command"]))}</code>' if meta.get(
        'command') else ''
    return (f'<header><div class="head"><h1>{title}</h1>'
            f'<div class="badge {badge[0]}">{badge[1]}</div></div>'
            f'<div class="facts">{facts}</div>{command}</header>')


def _notes(records: Sequence[dict[str, Any]], meta: dict[str, Any],
           summary: dict[str, Any]) -> str:
    notes = []
    if not meta['trained']:
        notes.append('The encoder ran with random weights. Motion score and features react to '
                     'change, but are not learned. Time to contact, looming and level are '
                     'geometric and need no weights.')
    if not records:
        notes.append('This run has no assessment.')
    elif summary['ttc_coverage'] is None:
        notes.append('This source has no true time to contact between 0.3 and 6 s, so the '
                     'estimates are shown but not judged.')
    notes += [str(note) for note in meta.get('notes', ())]
    notes.append('This software is not a certified safety device.')
    items = ''.join(f'<li>{escape(note)}</li>' for note in notes)
    return f'<section class="notes"><h2>Read this first</h2><ul>{items}</ul></section>'


def _plot(heading: str, caption: str, svg: bytes) -> str:
    return (f'<section class="plot"><h2>{heading}</h2><p class="soft">{caption}</p>'
            f'<div class="wide"><img alt="{heading} over time" '
            f'src="{data_uri(svg, "svg+xml")}"></div></section>')


def _ttc_plot(series: Series) -> bytes:
    figure, axes = over_time(series.time, series.level, 3.4)
    low, high = TTC_RANGE
    true, estimate = series.column('true_ttc'), series.column('time_to_contact')
    if not np.isnan(true).all():
        # An infinite truth interrupts the line.
        axes.plot(series.time, np.where(true <= high, true, np.nan), '--', color='#111820',
                  linewidth=2.2, label='true')
    axes.plot(series.time, np.where(estimate <= high, np.maximum(estimate, low), np.nan),
              color='#0b6bcb', marker='o', markersize=3, label='estimated')
    over = estimate > high
    if over.any():
        axes.plot(series.time[over], np.full(over.sum(), high), '^', color='#0b6bcb', alpha=0.55,
                  clip_on=False, label=f'none, or over {high:.0f} s')
    axes.set(yscale='log', ylim=TTC_RANGE, ylabel='time to contact [s]')
    ticks = [0.2, 0.5, 1, 2, 5, 10, 20]
    axes.set_yticks(ticks, [f'{t:g}' for t in ticks])
    axes.minorticks_off()
    legend(axes)
    return drawn(figure, 'svg')


def _score_plot(series: Series) -> bytes:
    figure, axes = over_time(series.time, series.level, 2.7)
    for name, color, label in (('motion_score', '#3b82f6', 'motion'),
                               ('obstacle_score', '#d99a00', 'obstacle'),
                               ('collision_probability', '#d62828', 'collision'),
                               ('collision_if_ahead', '#9d4edd', 'collision if ahead')):
        values = series.column(name)
        if np.isfinite(values).any():
            axes.plot(series.time, values, color=color, linewidth=1.7, label=label)
    axes.set(ylim=(-0.02, 1.02), ylabel='score or probability')
    legend(axes)
    return drawn(figure, 'svg')


def _frames(series: Series, frames: Sequence[tuple[int, np.ndarray]],
            meta: dict[str, Any]) -> str:
    figures = []
    for index, image in frames:
        record = series.records[index]
        words = [f'{series.time[index]:.1f} s', f'TTC {_ttc(record.get("time_to_contact"))}']
        if (truth := record.get('true_ttc')) is not None and not math.isnan(truth):
            words.append(f'true {_ttc(truth)}')
        figures.append(
            f'<figure><img loading="lazy" alt="overlay at {words[0]}" '
            f'src="{data_uri(_thumbnail(image), "jpeg")}">'
            f'<figcaption>{chip(int(record["level"]))}{" &middot; ".join(words)}</figcaption>'
            '</figure>')
    video = meta.get('video')
    link = (f' The whole run: <a href="{escape(str(video), quote=True)}">{escape(str(video))}</a>'
            ' in the same folder.' if video else '')
    return ('<section><h2>What the camera saw</h2><p class="soft">Blue: moving by itself (without '
            'learned heads: all change). Yellow to red: coming nearer. Dots: looming unknown. '
            'Boxes carry the time to contact; those in the colour of the level are on '
            f'course.{link}</p>'
            f'<div class="frames">{"".join(figures)}</div></section>')


def _stage_table(series: Series) -> str:
    rows = list(series.stages().items())
    total = series.column('latency_ms')
    if (known := total[np.isfinite(total)]).size:
        rows.append(('total latency', known))
    return '<section><h2>Stages</h2>' + html_table(
        ('stage', 'median ms', '95 % ms'),
        [(name, f'{np.median(values):.1f}', f'{np.percentile(values, 95):.1f}')
         for name, values in rows]) + '</section>'


def _thumbnail(bgr: np.ndarray) -> bytes:
    height, width = bgr.shape[:2]
    if width > THUMBNAIL_WIDTH:
        size = THUMBNAIL_WIDTH, max(1, round(height * THUMBNAIL_WIDTH / width))
        bgr = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()


def _ttc(value: float | None) -> str:
    if value is None or math.isnan(value):
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
    # The first pictures have another shape when no frame has arrived yet.
    shape = next((i.shape for _, p in reversed(pictures) if (i := load(p)) is not None), (2, 2))
    # Video codecs store colour at half resolution and need even sides.
    size = max(2, shape[1] // 2 * 2), max(2, shape[0] // 2 * 2)
    shown, fps = film([stamp for stamp, _ in pictures])
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'mp4v'), fps, size)
    if not writer.isOpened():
        raise OSError(f'OpenCV {cv2.__version__} cannot write {path} (codec mp4v)')
    for at in shown:
        image = load(pictures[at][1])
        if image is not None and image.shape == shape:
            writer.write(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    writer.release()

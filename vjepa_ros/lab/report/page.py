# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay out a run report as one self-contained HTML page."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.report.plots import LEVELS, Series, TTC_RANGE, all_plots

THUMBNAIL_WIDTH = 720
PLOTS = {
    'ttc': ('Time to contact', f'Estimated and, where it is known, true; logarithmic. A gap in '
            'the estimate means unknown; triangles at the upper edge mean that nothing on course '
            f'comes nearer (infinite) or more than {TTC_RANGE[1]:.0f} s.'),
    'looming': ('Looming rate', 'Closing speed over distance; the time to contact is its inverse. '
                'Rare outliers are clipped at the edge of the plot.'),
    'scores': ('Scores', 'Motion: share of the view that moves by itself (without learned heads: '
               'that changes). Obstacle: share that comes nearer. Collision: probability of a '
               'contact within the horizon, as things move now. Collision if ahead: the same if '
               'the robot drove ahead; it can be high where nothing comes nearer.'),
    'latency': ('Latency', 'Where the time goes, stage by stage. The black line is the age of the '
                'image when its assessment arrived; the gap is transport and waiting.'),
}
STYLE = """
*{box-sizing:border-box}
body{margin:0;background:#eef1f5;color:#1c2430;line-height:1.5;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px}
header,section{background:#fff;border-radius:14px;padding:20px 24px;margin-bottom:16px;
box-shadow:0 1px 3px rgba(20,30,45,.09)}
.head{display:flex;gap:16px;justify-content:space-between;align-items:flex-start}
h1{font-size:1.65rem;line-height:1.2;margin:0 0 4px}
h2{font-size:1.12rem;margin:0 0 2px}
p{margin:4px 0}
.soft{color:#5c6b7c;font-size:.93rem}
.badge{font-weight:800;letter-spacing:.06em;padding:10px 18px;border-radius:10px;color:#fff;
white-space:nowrap;font-size:1.15rem}
.no{background:#c2410c}.yes{background:#15803d}
.facts{display:flex;flex-wrap:wrap;gap:4px 26px;margin:14px 0 0}
.facts div{min-width:0}
.facts b{display:block;font-size:.74rem;font-weight:600;letter-spacing:.05em;color:#5c6b7c;
text-transform:uppercase}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.88rem;
overflow-wrap:anywhere}
.cmd{display:block;margin-top:14px;background:#f3f5f8;border-radius:8px;padding:9px 12px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:12px;
margin-bottom:16px}
.tile{background:#fff;border-radius:14px;padding:14px 18px;
box-shadow:0 1px 3px rgba(20,30,45,.09)}
.tile b{display:block;white-space:nowrap;font-size:1.4rem;line-height:1.25;
font-variant-numeric:tabular-nums}
.tile span{font-size:.85rem;color:#5c6b7c}
.notes{border-left:5px solid #c2410c}
.notes ul{margin:6px 0 0;padding-left:20px}
.plot img{display:block;width:100%;height:auto;margin-top:8px}
.frames{display:grid;grid-template-columns:repeat(auto-fill,minmax(310px,1fr));gap:16px;
margin-top:12px}
figure{margin:0}
figure img{display:block;width:100%;height:auto;border-radius:8px}
figcaption{font-size:.86rem;color:#3b4757;margin-top:5px}
.chip{display:inline-block;font-size:.74rem;font-weight:700;border-radius:5px;padding:1px 7px;
margin-right:6px;vertical-align:1px}
.wide{overflow-x:auto}.wide img{min-width:640px}
table{border-collapse:collapse;width:100%;font-size:.92rem;margin-top:8px}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid #e8ecf1;
overflow-wrap:anywhere}
th{color:#5c6b7c;font-weight:600}
.num{text-align:right;font-variant-numeric:tabular-nums}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:16px}
.pair section{margin-bottom:0}
footer{color:#5c6b7c;font-size:.85rem;text-align:center;padding:8px 0 20px}
@media(max-width:760px){main{padding:10px}header,section{padding:16px;border-radius:10px}
.head{flex-direction:column-reverse}.pair{grid-template-columns:1fr}
.tiles{grid-template-columns:1fr 1fr}.frames{grid-template-columns:1fr}}
"""


def html_page(title: str, body: Sequence[str]) -> str:
    """Return a whole page of sections; the title must be escaped."""
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n'
            + '\n'.join(body)
            + '\n<footer>This page is self-contained: no network is needed to read it.</footer>'
            '\n</main></body></html>\n')


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True) -> str:
    """Return a table of plain text; with `numbers`, all columns but the first are numbers."""
    def row(tag: str, cells: Sequence[str]) -> str:
        return '<tr>' + ''.join(
            f'<{tag}{" class=num" if numbers and i else ""}>{escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)) + '</tr>'

    return ('<div class="wide"><table>' + row('th', heads)
            + ''.join(row('td', cells) for cells in rows) + '</table></div>')


def data_uri(data: bytes, kind: str) -> str:
    """Return an image of some kind, such as 'jpeg', as the address of an `img`."""
    return f'data:image/{kind};base64,' + base64.b64encode(data).decode()


def jpeg_bytes(bgr: np.ndarray, quality: int = 85) -> bytes:
    """Encode a BGR uint8 image as JPEG (ValueError for what cannot be encoded)."""
    done, data = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise ValueError(f'cannot encode a {bgr.shape} {bgr.dtype} image as jpeg')
    return data.tobytes()


def render_page(records: Sequence[dict[str, Any]], frames: Sequence[tuple[int, np.ndarray]],
                meta: dict[str, Any], summary: dict[str, Any]) -> str:
    """Return the whole page of a run."""
    series = Series(records)
    title = escape(str(meta.get('title', 'V-JEPA 2 obstacle detection: run report')))
    body = [_header(title, meta), _tiles(series, summary), _notes(records, meta, summary)]
    if records:
        body.append(_plots(series))
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


def _tiles(series: Series, summary: dict[str, Any]) -> str:
    latency, error = summary['latency_ms'], summary['ttc_median_relative_error']
    tiles = [(str(summary['frames_in']), 'frames in'),
             (str(summary['assessments_out']), 'assessments out'),
             (_ms(latency['median']), 'median latency'),
             (_ms(latency['p95']), 'latency, 95th percentile')]
    if summary['ttc_coverage'] is not None:
        tiles += [(_percent(error), 'median error of time to contact'),
                  (_percent(summary['ttc_coverage']), 'of true contacts had an estimate')]
    tiles.append((str(summary['level_changes']), 'changes of level'))
    if len(series.time):
        tiles.append((f'{series.time[-1]:.0f} s', 'from first to last result'))
    cells = ''.join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>'
                    for value, name in tiles)
    return f'<div class="tiles">{cells}</div>'


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


def _plots(series: Series) -> str:
    levels = 'Level: ' + ''.join(chip(level) for level in LEVELS if (series.level == level).any())
    sections = []
    for name, svg in all_plots(series).items():
        heading, caption = PLOTS[name]
        caption += f' {levels}' if name in ('ttc', 'scores') else ''
        sections.append(
            f'<section class="plot"><h2>{heading}</h2><p class="soft">{caption}</p>'
            f'<div class="wide"><img alt="{heading} over time" '
            f'src="{data_uri(svg.encode(), "svg+xml")}"></div></section>')
    return '\n'.join(sections)


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
            f'src="{data_uri(jpeg_bytes(_thumbnail(image)), "jpeg")}">'
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
    rows = [(name, values) for name, values in series.stages().items()]
    total = series.column('latency_ms')
    if (known := total[np.isfinite(total)]).size:
        rows.append(('total latency', known))
    return '<section><h2>Stages</h2>' + html_table(
        ('stage', 'median ms', '95 % ms'),
        [(name, f'{np.median(values):.1f}', f'{np.percentile(values, 95):.1f}')
         for name, values in rows]) + '</section>'


def chip(level: int) -> str:
    """Return the name of a level on its colour."""
    name, color = LEVELS.get(level, LEVELS[255])
    ink = '#1c2430' if name in ('CLEAR', 'CAUTION', 'WARNING') else '#fff'
    return f'<span class="chip" style="background:{color};color:{ink}">{name}</span>'


def _thumbnail(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    if width <= THUMBNAIL_WIDTH:
        return image
    size = THUMBNAIL_WIDTH, max(1, round(height * THUMBNAIL_WIDTH / width))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _ttc(value: float | None) -> str:
    if value is None or math.isnan(value):
        return 'unknown'
    return 'none' if math.isinf(value) else f'{value:.1f} s'


def _ms(value: float | str | None) -> str:
    return '&ndash;' if value is None else f'{float(value):.0f} ms'


def _percent(value: float | str | None) -> str:
    if value is None:
        return '&ndash;'
    return '&infin;' if value == 'inf' else f'{100 * float(value):.0f} %'

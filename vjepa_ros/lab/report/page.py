# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parts of reports: HTML, Markdown, and plots over time with a band of levels."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = {0: ('CLEAR', '#4caf50'), 1: ('CAUTION', '#ffd600'), 2: ('WARNING', '#ff8c00'),
          3: ('DANGER', '#e53030'), 255: ('UNKNOWN', '#846ab4')}
INK, SOFT, GRID = '#1c2430', '#5c6b7c', '#e3e8ee'
WIDTH, TEXT = 11.0, 10.0    # of a figure [inch], and of its text [pt]
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


def html_tiles(tiles: Iterable[tuple[str, str]]) -> str:
    """Return figures, each a value with its name, which may contain markup."""
    return '<div class="tiles">' + ''.join(
        f'<div class="tile"><b>{value}</b><span>{name}</span></div>'
        for value, name in tiles) + '</div>'


def chip(level: int) -> str:
    """Return the name of a level on its colour."""
    name, color = LEVELS.get(level, LEVELS[255])
    ink = '#1c2430' if name in ('CLEAR', 'CAUTION', 'WARNING') else '#fff'
    return f'<span class="chip" style="background:{color};color:{ink}">{name}</span>'


def fill(text: str, name: str, content: str) -> str:
    """Put `content` between ``<!-- name:begin -->`` and ``<!-- name:end -->`` of a text."""
    begin, end = f'<!-- {name}:begin -->\n', f'<!-- {name}:end -->'
    before, found, rest = text.partition(begin)
    _, ends, after = rest.partition(end)
    if not found or not ends:
        raise ValueError(f'the document has no block between {begin.strip()} and {end}')
    return before + begin + content + end + after


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]],
                   numbers: bool = True) -> str:
    """Return a table; with `numbers`, all columns but the first are numbers."""
    ruler = '---:' if numbers else '---'
    lines = [heads, ['---', *[ruler] * (len(heads) - 1)], *rows]
    return '\n'.join('| ' + ' | '.join(map(str, line)) + ' |' for line in lines) + '\n'


def number(value: float | None, digits: int = 3) -> str:
    """Format a figure, with a dash for none."""
    return '–' if value is None else f'{value:.{digits}f}'


def percent(value: float | None) -> str:
    """Format a share as percentage, with a dash for none."""
    return '–' if value is None else f'{100 * value:.0f} %'


# -- plots ----------------------------------------------------------------------------------------

def over_time(time_s: np.ndarray, level: np.ndarray, tall: float) -> tuple[Figure, Axes]:
    """Return a figure whose axes (height [inch]) have a band of levels (N,) below them."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(WIDTH, tall + 0.4), layout='constrained')
    axes, strip = figure.subplots(2, 1, sharex=True, gridspec_kw={'height_ratios': [tall, 0.22]})
    usual = float(np.median(np.diff(time_s))) if len(time_s) > 1 else 0.1
    # The band is open where nothing came for long.
    length = np.minimum(np.diff(time_s, append=time_s[-1:] + usual), 3 * usual)
    for value, (_, color) in LEVELS.items():
        here = level == value
        strip.broken_barh([*zip(time_s[here], length[here], strict=True)], (0, 1), linewidth=0,
                          color=color, antialiased=False, rasterized=True)
    strip.set(ylim=(0, 1), yticks=[], xlabel='seconds')
    strip.set_ylabel('level', rotation=0, ha='right', va='center')
    for spine in strip.spines.values():
        spine.set_visible(False)
    plain(axes)
    axes.margins(x=0)
    return figure, axes


def plain(axes: Axes) -> None:
    """Draw a pale grid and frame behind the data, open above and on the right."""
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT)
    axes.spines[['top', 'right']].set_visible(False)
    axes.spines[['left', 'bottom']].set_color('#b8c2cd')


def legend(axes: Axes) -> None:
    """Name the lines of axes above them, when there are some."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc='lower left', bbox_to_anchor=(0, 1.0), ncol=5,
                    borderaxespad=0.2, labelcolor=INK, fontsize=TEXT)


def drawn(figure: Figure, kind: str) -> bytes:
    """Return a figure as 'svg' or 'png'; the same data give the same file."""
    import matplotlib
    out = io.BytesIO()
    meta = {'Date': None} if kind == 'svg' else {'Software': None}
    with matplotlib.rc_context({'svg.hashsalt': 'report', 'font.size': TEXT}):
        figure.savefig(out, format=kind, metadata=meta, dpi=80)
    return out.getvalue()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw the plots of a run report as SVG text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID, FRAME = '#1c2430', '#5c6b7c', '#e3e8ee', '#b8c2cd'
TTC_RANGE = (0.2, 20.0)    # seconds; larger values and inf are drawn at the upper edge
ESTIMATE, TRUTH = '#0b6bcb', '#111820'
LEVELS = {0: ('CLEAR', '#4caf50'), 1: ('CAUTION', '#ffd600'), 2: ('WARNING', '#ff8c00'),
          3: ('DANGER', '#e53030'), 255: ('UNKNOWN', '#846ab4')}
STAGES = ('transport', 'wait', 'decode', 'preprocess', 'gather', 'upload', 'encode', 'download',
          'motion', 'heads', 'looming', 'assess', 'overlay', 'publish')
WITHIN = {'submit', 'await'}    # contain stages of the model, which must not count twice
WIDTH, HEIGHT, TEXT = 11.0, 2.7, 10.0    # of one panel [inch], and of its text [pt]


def open_axes(axes: Axes) -> None:
    """Draw the grid behind the data, and no frame above and on the right."""
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)


def soften(figure: Figure, size: float) -> None:
    """Draw frames, numbers and names of all axes paler than the data; `size` of text [pt]."""
    for axes in figure.axes:
        axes.tick_params(colors=SOFT, labelsize=size * 0.92)
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set_color(SOFT)
        for spine in axes.spines.values():
            spine.set_color(FRAME)


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
        """Return milliseconds per stage, in the order of a frame; missing is 0."""
        names = {name for r in self.records for name in r.get('timings') or {}} - WITHIN
        order = [n for n in STAGES if n in names] + sorted(names - set(STAGES))
        return {n: np.nan_to_num([float((r.get('timings') or {}).get(n, 0.0))
                                  for r in self.records]) for n in order}


def all_plots(series: Series) -> dict[str, str]:
    """Draw the time to contact and the scores of the records."""
    return {'ttc': _ttc(series), 'scores': _scores(series)}


def _figure(series: Series, tall: float) -> tuple[Figure, Axes]:
    """Return a figure whose axes have a band of levels below them."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(WIDTH, HEIGHT * tall + 0.35), layout='constrained')
    axes, strip = figure.subplots(2, 1, sharex=True, gridspec_kw={
        'height_ratios': [HEIGHT * tall, 0.22]})
    _level_band(strip, series)
    axes.grid(True, color=GRID, linewidth=0.8)
    open_axes(axes)
    axes.margins(x=0)
    return figure, axes


def _svg(figure: Figure) -> str:
    import matplotlib
    out = io.StringIO()
    # Fixed ids and no date: the same records give the same file.
    with matplotlib.rc_context({'svg.hashsalt': 'report', 'font.size': TEXT}):
        soften(figure, TEXT)
        for axes in figure.axes:
            for text in (axes.xaxis.label, axes.yaxis.label):
                text.set_fontsize(TEXT)
        figure.savefig(out, format='svg', metadata={'Date': None})
    text = out.getvalue()
    return text[text.index('<svg'):]


def _legend(axes: Axes, handles: list[Artist] | None = None) -> None:
    axes.legend(handles=handles or axes.get_legend_handles_labels()[0], frameon=False,
                loc='lower left', bbox_to_anchor=(0, 1.0), borderaxespad=0.2, labelcolor=INK,
                ncol=4, handlelength=1.4, fontsize=TEXT * 0.95, columnspacing=1.1)


def _runs(series: Series) -> list[tuple[int, float, float]]:
    """Return stretches of equal level as (level, start, length); a gap ends a stretch."""
    if not len(series.time):
        return []
    step = np.diff(series.time)
    usual = float(np.median(step)) if len(step) else 0.1
    ends = series.time + np.append(np.minimum(step, 3 * usual), usual)
    runs: list[tuple[int, float, float]] = []
    for level, start, end in zip(series.level, series.time, ends, strict=True):
        if runs and runs[-1][0] == level and start - sum(runs[-1][1:]) < 1e-6:
            runs[-1] = (level, runs[-1][1], end - runs[-1][1])
        else:
            runs.append((int(level), float(start), float(end - start)))
    return runs


def _level_band(axes: Axes, series: Series) -> None:
    for level, start, length in _runs(series):
        color = LEVELS.get(level, LEVELS[255])[1]
        axes.broken_barh([(start, length)], (0, 1), color=color, linewidth=0)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_ylabel('level', rotation=0, ha='right', va='center')
    axes.set_xlabel('seconds')
    for spine in axes.spines.values():
        spine.set_visible(False)


def _ttc(series: Series) -> str:
    from matplotlib.lines import Line2D
    figure, axes = _figure(series, tall=1.25)
    low, high = TTC_RANGE
    handles = []
    true, estimate = series.column('true_ttc'), series.column('time_to_contact')
    if not np.isnan(true).all():
        # An infinite truth interrupts the line.
        shown = np.where(np.isfinite(true) & (true <= high), true, np.nan)
        handles += axes.plot(series.time, shown, color=TRUTH, linewidth=2.2, alpha=0.85,
                             label='true', dashes=(4, 1.6))
    inside = np.where(estimate <= high, np.maximum(estimate, low), np.nan)
    handles += axes.plot(series.time, inside, color=ESTIMATE, linewidth=1.3, marker='o',
                         markersize=3.0, markeredgewidth=0, label='estimated')
    over = estimate > high
    if over.any():
        axes.plot(series.time[over], np.full(over.sum(), high), color=ESTIMATE, marker='^',
                  markersize=4.5, linestyle='none', alpha=0.55, clip_on=False)
        handles.append(Line2D([], [], color=ESTIMATE, marker='^', linestyle='none', alpha=0.55,
                              label=f'none, or over {high:.0f} s'))
    axes.set_yscale('log')
    axes.set_ylim(low, high)
    ticks = [0.2, 0.5, 1, 2, 5, 10, 20]
    axes.set_yticks(ticks, [f'{t:g}' for t in ticks])
    axes.minorticks_off()
    axes.set_ylabel('time to contact [s]')
    _legend(axes, handles)
    return _svg(figure)


def _scores(series: Series) -> str:
    figure, axes = _figure(series, tall=1.0)
    for name, color, label in (('motion_score', '#3b82f6', 'motion'),
                               ('obstacle_score', '#d99a00', 'obstacle'),
                               ('collision_probability', '#d62828', 'collision'),
                               ('collision_if_ahead', '#9d4edd', 'collision if ahead')):
        values = series.column(name)
        if np.isfinite(values).any():
            axes.plot(series.time, values, color=color, linewidth=1.7, label=label)
    axes.set_ylim(-0.02, 1.02)
    axes.set_ylabel('score or probability')
    if axes.lines:
        _legend(axes)
    return _svg(figure)

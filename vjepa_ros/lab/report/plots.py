# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw what is common to the plots of reports: axes over time with a band of levels."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from vjepa_ros.lab.report.page import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = '#1c2430', '#5c6b7c', '#e3e8ee'
WIDTH, TEXT = 11.0, 10.0    # of a figure [inch], and of its text [pt]


def over_time(time_s: np.ndarray, level: np.ndarray, tall: float) -> tuple[Figure, Axes]:
    """Return a figure whose axes (height [inch]) have a band of levels (N,) below them."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(WIDTH, tall + 0.4), layout='constrained')
    axes, strip = figure.subplots(2, 1, sharex=True, gridspec_kw={'height_ratios': [tall, 0.22]})
    for value, begin, length in stretches(time_s, level):
        strip.broken_barh([(begin, length)], (0, 1), linewidth=0,
                          color=LEVELS.get(value, LEVELS[255])[1])
    strip.set(ylim=(0, 1), yticks=[], xlabel='seconds')
    strip.set_ylabel('level', rotation=0, ha='right', va='center')
    for spine in strip.spines.values():
        spine.set_visible(False)
    plain(axes)
    axes.margins(x=0)
    return figure, axes


def stretches(time_s: np.ndarray, level: np.ndarray) -> list[tuple[int, float, float]]:
    """Return stretches of one level as (level, begin, length); a gap ends a stretch."""
    if not time_s.size:
        return []
    step = np.diff(time_s)
    usual = float(np.median(step)) if step.size else 0.1
    ends = time_s + np.append(np.minimum(step, 3 * usual), usual)
    new = (np.diff(level) != 0) | (step > 3 * usual)
    first, last = np.append(True, new), np.append(new, True)
    return list(zip(level[first].tolist(), time_s[first].tolist(),
                    (ends[last] - time_s[first]).tolist(), strict=True))


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

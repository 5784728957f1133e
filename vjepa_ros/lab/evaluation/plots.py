# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw the plots of an evaluation: scores over time, and reliability."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from vjepa_ros.lab.evaluation.clips import HORIZONS_S
from vjepa_ros.lab.evaluation.metrics import reliability
from vjepa_ros.lab.evaluation.recording_replay import METHODS, Played
from vjepa_ros.lab.evaluation.sequence import runs
from vjepa_ros.lab.evaluation.world import WorldRun
from vjepa_ros.lab.report.plots import GRID, INK, LEVELS, open_axes, soften

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {'fused': '#0b6bcb', 'geometric': '#d97706', 'learned': '#15803d', 'heads': '#7c2d12'}
DANGER = '#fecaca'
SIZE = 10.0      # of text
PNG_DPI = 80.0


def timeline(played: Played, reported: str) -> bytes:
    """Draw the collision score of every method over time, with labels and levels, as PNG."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    figure = Figure(figsize=(11.0, 3.1), layout='constrained')
    axes, strip = figure.subplots(2, 1, sharex=True, gridspec_kw={'height_ratios': [2.7, 0.2]})
    time, danger = played.stamps(), played.truth.collision == 1
    ends = np.append(time[1:], 2 * time[-1] - time[-2]) if time.size > 1 else time + 0.1
    handles = []
    for first, past in runs(danger):
        axes.axvspan(time[first], ends[past - 1], color=DANGER, linewidth=0)
    if danger.any():
        handles.append(Patch(color=DANGER, label='labelled: collision imminent'))
    for method in (m for m in METHODS if m in played.outcomes):
        outcome, main = played.outcomes[method], method == reported
        handles += axes.plot(time, np.where(outcome.scored, outcome.score, np.nan),
                             color=COLORS[method], linewidth=2.0 if main else 1.1,
                             alpha=1.0 if main else 0.8, marker='.',
                             markersize=4 if time.size < 80 else 0, label=method)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel('collision score, 0 to 1')
    _plain(axes)
    outcome = played.outcomes[reported]
    for i in np.flatnonzero(outcome.scored):
        strip.broken_barh([(time[i], ends[i] - time[i])], (0, 1), linewidth=0,
                          color=LEVELS.get(int(outcome.level[i]), LEVELS[255])[1])
    strip.set(ylim=(0, 1), yticks=[], xlim=(time[0], ends[-1]), xlabel='seconds')
    strip.set_ylabel('level', rotation=0, ha='right', va='center')
    for spine in strip.spines.values():
        spine.set_visible(False)
    axes.legend(handles=handles, loc='lower left', bbox_to_anchor=(0, 1.0), ncol=5,
                frameon=False, labelcolor=INK, fontsize=SIZE * 0.95, borderaxespad=0.2)
    return _saved(figure)


def reliability_plot(world: WorldRun) -> bytes:
    """Draw observed over predicted frequency by method; the area of a dot shows its count."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(5.4, 4.6), layout='constrained')
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GRID, linewidth=1.5)
    happened = world.truth.contact_time[:, None] <= np.array(HORIZONS_S)
    for name, outcome in world.outcomes.items():
        bins = reliability(outcome.hazard, happened)
        filled = bins.count > 0
        if filled.any():
            area = 12 + 60 * np.sqrt(bins.count[filled] / bins.count.sum())
            axes.plot(bins.predicted[filled], bins.observed[filled], color=COLORS[name],
                      linewidth=1.2)
            axes.scatter(bins.predicted[filled], bins.observed[filled], s=area, alpha=0.6,
                         color=COLORS[name], linewidths=0, label=f'{name}, error {bins.error:.3f}')
    axes.set(xlabel='predicted probability', ylabel='observed frequency', xlim=(-0.02, 1.02),
             ylim=(-0.02, 1.02))
    _plain(axes)
    axes.legend(loc='lower right', frameon=False, fontsize=SIZE * 0.9, labelcolor=INK)
    return _saved(figure)


def _plain(axes: Axes) -> None:
    axes.grid(True, color=GRID, linewidth=0.8)
    open_axes(axes)


def _saved(figure: Figure) -> bytes:
    out = io.BytesIO()
    soften(figure, SIZE)
    # No software version: the same figures give the same file.
    figure.savefig(out, format='png', metadata={'Software': None}, dpi=PNG_DPI)
    return out.getvalue()

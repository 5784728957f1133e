# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw the plots of an evaluation: scores over time, ROC curves and reliability."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vjepa_ros.lab.evaluation.alarms import nearness, runs
from vjepa_ros.lab.evaluation.metrics import Reliability, roc_auc, roc_curve
from vjepa_ros.lab.evaluation.recording_replay import METHODS, Played
from vjepa_ros.lab.report.plots import GRID, INK, LEVELS, open_axes, soften

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {'fused': '#0b6bcb', 'geometric': '#d97706', 'learned': '#15803d', 'heads': '#7c2d12',
          'flow': '#be185d',
          'brightness': '#94a3b8', 'frame_difference': '#475569'}
DANGER, DARK = '#fecaca', '#111820'
SIZE = 10.0      # of text
PNG_DPI = 80.0


def timeline(played: Played, reported: str, kind: str = 'svg') -> bytes:
    """Draw the collision probability of every method over time, with labels and levels.

    `kind` is ``svg`` or ``png``, here and below.
    """
    from matplotlib.patches import Patch
    figure = _figure(11.0, 3.1)
    axes, strip = figure.subplots(2, 1, sharex=True, gridspec_kw={'height_ratios': [2.7, 0.2]})
    time = played.stamps()
    ends = np.append(time[1:], 2 * time[-1] - time[-2]) if time.size > 1 else time + 0.1
    handles = []
    for first, past in runs(played.truth.collision == 1):
        axes.axvspan(time[first], ends[past - 1], color=DANGER, linewidth=0)
    if (played.truth.collision == 1).any():
        handles.append(Patch(color=DANGER, label='labelled: collision imminent'))
    for method in (m for m in METHODS if m in played.outcomes):
        outcome = played.outcomes[method]
        main = method == reported
        handles += axes.plot(time, np.where(outcome.scored, outcome.score, np.nan),
                             color=COLORS[method], linewidth=2.0 if main else 1.1,
                             alpha=1.0 if main else 0.8, marker='.',
                             markersize=4 if time.size < 80 else 0, label=method)
    if 'dark' in played.signals:
        near, _ = nearness(time, played.signals['dark'])
        handles += axes.plot(time, near / near.max(), color=DARK, linewidth=1.3, dashes=(4, 1.6),
                             label='size of the dark object (largest = 1)')
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel('collision score, 0 to 1')
    _plain(axes)
    _levels(strip, played, reported, ends)
    axes.legend(handles=handles, loc='lower left', bbox_to_anchor=(0, 1.0), ncol=5,
                frameon=False, labelcolor=INK, fontsize=SIZE * 0.95, borderaxespad=0.2)
    return _saved(figure, kind)


def _levels(axes: Axes, played: Played, reported: str, ends: np.ndarray) -> None:
    outcome, time = played.outcomes[reported], played.stamps()
    for i in np.flatnonzero(outcome.scored):
        axes.broken_barh([(time[i], ends[i] - time[i])], (0, 1), linewidth=0,
                         color=LEVELS.get(int(outcome.levels[i]), LEVELS[255])[1])
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.tick_params(top=False)
    axes.set_xlim(time[0], ends[-1])
    axes.set_ylabel('level', rotation=0, ha='right', va='center')
    axes.set_xlabel('seconds')
    for spine in axes.spines.values():
        spine.set_visible(False)


def roc(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], kind: str = 'svg') -> bytes:
    """Draw the ROC curves of methods by name: (scores, labels)."""
    figure = _figure(5.4, 4.6)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GRID, linewidth=1.5)
    for name, (score, label) in curves.items():
        x, y = roc_curve(score, label)
        axes.plot(x, y, color=COLORS.get(name, INK), linewidth=1.8,
                  label=f'{name.replace("_", " ")} {roc_auc(score, label):.2f}')
    axes.set_xlabel('share of frames without danger that alarm')
    axes.set_ylabel('share of frames with danger that alarm')
    _square(axes)
    axes.legend(loc='lower right', frameon=False, fontsize=SIZE * 0.9, labelcolor=INK)
    return _saved(figure, kind)


def reliability_plot(found: Mapping[str, Reliability], kind: str = 'svg') -> bytes:
    """Draw observed over predicted frequency by method; the area of a dot shows its count."""
    figure = _figure(5.4, 4.6)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GRID, linewidth=1.5)
    for name, bins in found.items():
        filled = bins.count > 0
        if not filled.any():
            continue
        area = 12 + 60 * np.sqrt(bins.count[filled] / bins.count.sum())
        axes.plot(bins.predicted[filled], bins.observed[filled], color=COLORS.get(name, INK),
                  linewidth=1.2)
        axes.scatter(bins.predicted[filled], bins.observed[filled], s=area, alpha=0.6,
                     color=COLORS.get(name, INK), linewidths=0,
                     label=f'{name.replace("_", " ")}, error {bins.error:.3f}')
    axes.set_xlabel('predicted probability')
    axes.set_ylabel('observed frequency')
    _square(axes)
    axes.legend(loc='lower right', frameon=False, fontsize=SIZE * 0.9, labelcolor=INK)
    return _saved(figure, kind)


def labelled(played: Sequence[Played], members: Sequence[str],
             method: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return scores and labels of a method over sequences, None without both classes."""
    chosen = [p for p in played if p.item.name in members and method in p.outcomes]
    masks = [p.outcomes[method].scored & ~np.isnan(p.truth.collision) for p in chosen]
    if not masks:
        return None
    score = np.concatenate([p.outcomes[method].score[m]
                            for p, m in zip(chosen, masks, strict=True)])
    label = np.concatenate([p.truth.collision[m] == 1
                            for p, m in zip(chosen, masks, strict=True)])
    return (score, label) if label.any() and not label.all() else None


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout='constrained')


def _plain(axes: Axes) -> None:
    axes.grid(True, color=GRID, linewidth=0.8)
    open_axes(axes)


def _square(axes: Axes) -> None:
    _plain(axes)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _saved(figure: Figure, kind: str) -> bytes:
    import matplotlib
    out = io.BytesIO()
    soften(figure, SIZE)
    # Fixed ids and no date: the same figures give the same file.
    metadata = {'Date': None} if kind == 'svg' else {'Software': None}
    with matplotlib.rc_context({'svg.hashsalt': 'evaluate'}):
        figure.savefig(out, format=kind, metadata=metadata, dpi=PNG_DPI)
    data = out.getvalue()
    return data[data.index(b'<svg'):] if kind == 'svg' else data

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw how a run went."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SMOOTH = 0.9       # part of the old value in the drawn running mean
log = logging.getLogger(__name__)


def draw_curves(path: Path, history: Sequence[dict[str, Any]], title: str) -> None:
    """Write a picture with the losses, the figures of the validations, and speed and rate.

    Without matplotlib, as on a machine that only trains, nothing is drawn.
    """
    try:
        kind = importlib.import_module('matplotlib.figure').Figure
    except ImportError as error:
        log.info('no curves are drawn: %s', error)
        return
    figure = kind(figsize=(15, 4.6), layout='constrained')
    figure.suptitle(title)
    left, middle, right = figure.subplots(1, 3)
    train = [h for h in history if h['kind'] == 'train']
    judged = [h for h in history if h['kind'] == 'validation']
    clips = [h['clips'] / 1000 for h in train]
    for name in train[0]['losses'] if train else ():
        values = [h['losses'].get(name, math.nan) for h in train]
        if not any(values):      # nothing is known about it in this run
            continue
        line, = left.plot(clips, _smoothed(values), label=name)
        left.plot(clips, values, alpha=0.2, color=line.get_color())
    _dress(left, 'loss', 'thousand clips')
    for name in judged[0]['figures'] if judged else ():
        if name != 'ttc_error':
            middle.plot([h['clips'] / 1000 for h in judged],
                        [h['figures'][name] for h in judged], marker='o', label=name)
    middle.set_ylim(-0.05, 1.05)
    _dress(middle, 'validation, weights averaged', 'thousand clips')
    right.plot(clips, [h['rate'] for h in train], label='clips per second')
    _dress(right, 'speed', 'thousand clips')
    rate = right.twinx()
    rate.plot(clips, [h['lr'] for h in train], color='tab:red', label='learning rate')
    rate.set_ylabel('learning rate', color='tab:red')
    figure.savefig(path, dpi=90)


def _dress(axes: Any, title: str, below: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(below)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=8)


def _smoothed(values: Sequence[float]) -> list[float]:
    """Return the running mean, NaN left out."""
    out, mean, weight = [], 0.0, 0.0
    for value in values:
        if math.isfinite(value):
            mean = SMOOTH * mean + (1 - SMOOTH) * value
            weight = SMOOTH * weight + (1 - SMOOTH)
        out.append(mean / weight if weight else math.nan)
    return out

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw the times of several models, with their baselines."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

from vjepa_ros.lab.report.plot_style import GRID, INK, SOFT, open_axes

SERIES = (('encode', '#0b6bcb'), ('end to end', '#15803d'), ('floor', '#94a3b8'),
          ('Hugging Face, compiled', '#d97706'), ('Hugging Face, eager', '#9333ea'))
WIDTH, DPI = 0.8, 110.0


def series(result: Mapping[str, Any]) -> dict[str, float]:
    """Medians [ms] of one result by the names of `SERIES`; what was not measured is left out."""
    found = {'encode': result['encode_ms'], 'end to end': result.get('end_to_end_ms', {}),
             **{label: result['baselines'].get(key, {}) for label, key in
                (('floor', 'floor'), ('Hugging Face, compiled', 'hf_compiled'),
                 ('Hugging Face, eager', 'hf_eager'))}}
    return {name: value['median'] for name, value in found.items() if 'median' in value}


def number(value: float) -> str:
    """A time with three digits; '' for NaN."""
    if math.isnan(value):
        return ''
    return f'{value:.0f}' if value >= 100 else f'{value:.3g}'


def draw(results: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Bars of the medians on a logarithmic axis, as PNG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter
    values = {name: series(result) for name, result in results.items()}
    used = [(name, color) for name, color in SERIES if any(name in v for v in values.values())]
    figure = Figure(figsize=(max(6.0, 1.9 * len(values)), 4.6), layout='constrained')
    axes = figure.subplots()
    step = WIDTH / len(used)
    for index, (name, color) in enumerate(used):
        places = [n + (index - (len(used) - 1) / 2) * step for n in range(len(values))]
        shown = [v.get(name, float('nan')) for v in values.values()]
        bars = axes.bar(places, shown, step * 0.92, color=color, label=name)
        axes.bar_label(bars, [number(v) for v in shown], fontsize=7, color=INK, padding=1)
    axes.set_yscale('log')
    least = min(value for each in values.values() for value in each.values())
    axes.set_ylim(10 ** math.floor(math.log10(least)))      # bars of one decade or more
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f'{value:g}'))
    labels = []
    for name, result in results.items():
        c = result['configuration']
        labels.append(f'{name}\n{c["num_frames"]} frames, {c["image_size"]} px\n'
                      f'{c["cameras"]} x {c["tokens"]} tokens')
    axes.set_xticks(range(len(values)), labels, fontsize=8, color=INK)
    axes.set_ylabel('median [ms]', color=INK)
    first = next(iter(results.values()))
    precisions = sorted({r['configuration']['precision'] for r in results.values()})
    axes.set_title(f'{first["hardware"].get("gpu", first["hardware"]["cpu"])}, '
                   f'{", ".join(precisions)}, {first["date"]}', fontsize=10, color=INK, loc='left')
    axes.grid(axis='y', color=GRID, linewidth=0.7)
    open_axes(axes)
    axes.tick_params(colors=SOFT)
    axes.legend(frameon=False, fontsize=8, ncols=len(used), loc='upper left',
                bbox_to_anchor=(0, -0.16))
    out = io.BytesIO()
    figure.savefig(out, format='png', dpi=DPI)
    return out.getvalue()

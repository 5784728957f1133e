# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show the figures of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

NAMES = {'hf_eager': 'Hugging Face, eager', 'hf_compiled': 'Hugging Face, compiled',
         'floor': 'floor: products and attention alone'}


def title(result: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    c = result['configuration']
    parts = [f'{c["model_size"]} {c["model_version"]}',
             f'{c["num_frames"]} frames of {c["image_size"]} px',
             f'{c["cameras"]} camera{"s" if c["cameras"] > 1 else ""}', c['device_name'],
             c['precision'], c['execution'] or 'eager', f'weights {c["weights"].split()[0]}']
    return ', '.join(parts)


def make_table(result: Mapping[str, Any]) -> Table:
    """One result as a table for people."""
    table = Table(title=title(result), title_justify='left')
    table.add_column('time in ms')
    for name in ('median', 'p95', 'p99', 'min', 'runs', 'ratio'):
        table.add_column(name, justify='right')
    rows = [('encode', 'encode_ms'), ('encode, whole call', 'encode_call_ms'),
            ('end to end', 'end_to_end_ms'), ('beyond encode', 'beyond_encode_ms')]
    for label, key in rows:
        if key in result:
            table.add_row(label, *_figures(result[key]), '')
    for name, found in result['baselines'].items():
        if 'median' in found:
            ratio = result['ratios'][name]
            said = f'ours is {ratio:.2f} x' if name == 'floor' else f'{ratio:.2f} x ours'
            table.add_row(NAMES[name], *_figures(found), said)
        elif 'error' in found:
            table.add_row(NAMES[name], *[''] * 5, 'failed')
    memory = result['memory_bytes']
    table.caption = ', '.join(f'{name.replace("_", " ")} {value / 2**20:.0f} MiB'
                              for name, value in memory.items())
    table.caption += f'; loaded in {result["start"]["load_s"]:.1f} s'
    table.caption_justify = 'left'
    return table


def make_summary(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Several results, one row each: times in ms, baselines as ratios."""
    table = Table(caption=', '.join(sorted({r['configuration']['device_name']
                                            for r in results.values()})), caption_justify='left')
    table.add_column('row', overflow='fold')
    table.add_column('input', overflow='fold')
    for name in ('encode', 'p95', 'end to end', 'floor', 'HF', 'HF comp.', 'MiB'):
        table.add_column(name, justify='right', no_wrap=name not in ('end to end', 'HF comp.'))
    for name, result in results.items():
        ratios = result['ratios']
        values: Sequence[float | None] = (
            result['encode_ms']['median'], result['encode_ms']['p95'],
            result.get('end_to_end_ms', {}).get('median'), ratios.get('floor'),
            ratios.get('hf_eager'), ratios.get('hf_compiled'))
        table.add_row(name, _input(result), *('' if v is None else _short(v) for v in values),
                      f'{result["memory_bytes"]["engine"] / 2**20:.0f}')
    return table


def _input(result: Mapping[str, Any]) -> str:
    c = result['configuration']
    return f'{c["cameras"]}x{c["num_frames"]}x{c["image_size"]} px {c["precision"]}'


def _short(value: float) -> str:
    return f'{value:.2f}' if value < 100 else f'{value:.0f}'


def _figures(found: Mapping[str, Any]) -> list[str]:
    return [*(f'{found[key]:.3f}' for key in ('median', 'p95', 'p99', 'min')), str(found['runs'])]

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the figures of the numerics study as markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

LOW = ('bf16', 'fp16')
PARTS = ('branches', 'branches, norms', 'branches, residual', 'all', 'norms', 'residual')


def markdown(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Tables of all networks.

    Parameters
    ----------
    about
        Keys `date`, `cpu`, `logical_cores`, `threads`, `torch`, `command`, `clip`.
    rows
        Dictionaries of `vjepa_ros.tools.numerics_study.measure`.

    """
    plain = [row for row in rows if not row['stress']]
    stressed = [row for row in rows if row['stress']]
    seconds = sum(row['seconds'] for row in rows)
    text = (f'| | |\n|---|---|\n| Command | `{about["command"]}`, {seconds / 60:.0f} minutes |\n'
            f'| Date, machine | {about["date"]}, {about["threads"]} of {about["logical_cores"]} '
            f'cores of {about["cpu"]}, PyTorch {about["torch"]} |\n'
            f'| Input | random video, {about["clip"]} pixels: {rows[0]["tokens"]} tokens |\n')
    for title, chosen in (('', plain), (', with loud channels', stressed)):
        if not chosen:
            continue
        text += f'\n### Float32{title}\n\n' + _float32(chosen)
        for low in LOW:
            text += f'\n### Features, {low}{title}: rms (largest), in %\n\n'
            text += _by_part(chosen, low, lambda d: f'{_percent(d["features"])} '
                                                    f'({_percent(d["largest"])})')
            text += f'\n### Residual stream after the last block, {low}{title}: rms in %\n\n'
            text += _by_part(chosen, low, lambda d: _percent(d['stream'][-1]))
    return text + '\n' + _overflows(rows) + '\n'


def _float32(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ['| network | features, rms | features, largest | stream, rms | largest value in the '
             'stream |', '|---|---:|---:|---:|---:|']
    for row in rows:
        d = row['recipes']['fp32']
        lines.append(f'| {_name(row)} | {d["features"]:.1e} | {d["largest"]:.1e} '
                     f'| {d["stream"][-1]:.1e} | {row["loudest"]:.0f} |')
    return '\n'.join(lines) + '\n'


def _by_part(rows: Sequence[Mapping[str, Any]], low: str,
             show: Callable[[Mapping[str, Any]], str]) -> str:
    lines = ['| network | branches (**the session**) | + norms | + residual | everything '
             '| norms only | residual only |', '|---|' + '---:|' * len(PARTS)]
    for row in rows:
        cells = [show(row['recipes'][f'{low} {part}']) for part in PARTS]
        lines.append(f'| {_name(row)} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def _overflows(rows: Sequence[Mapping[str, Any]]) -> str:
    found = [f'{_name(row)}{" with loud channels" if row["stress"] else ""}, {name}: '
             f'{d["not_finite"]}' for row in rows for name, d in row['recipes'].items()
             if d['not_finite']]
    return ('Values that overflowed or are not a number: '
            + ('; '.join(found) if found else 'none, in no network and no recipe') + '.')


def _name(row: Mapping[str, Any]) -> str:
    return row['model'].replace(':', ' ')


def _percent(value: float) -> str:
    return f'{100 * value:.3g}'

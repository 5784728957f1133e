# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compare devices of one machine: the same model on each, in milliseconds, frames and a factor."""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from vjepa_ros.cli.benchmark.suite import medians, run_row
from vjepa_ros.lab.report.measurement import command, write_json
from vjepa_ros.runtime.device import WANTED

REMEDY = re.compile('; set --device to [^\n]*')    # of another command
MEASURES = {'encode': 'encoder alone, a clip', 'stream encode': 'encoder alone, a stream',
            'end to end': 'image to assessment'}


def devices_of(text: str) -> list[str]:
    """Read the devices to compare, such as cpu,cuda (ValueError for others or less than two)."""
    names = [name for name in text.split(',') if name]
    wrong = [name for name in names if name == 'auto' or not WANTED.fullmatch(name)]
    if wrong or len(set(names)) != len(names) or len(names) < 2:
        raise ValueError(f"argument --compare: '{text}' must name two or more of cpu, mps, cuda "
                         'and cuda:N, each once, with commas between')
    return names


def run(args: argparse.Namespace, words: Sequence[str], console: Console) -> int:
    """Measure each device in its own process, print and write the figures; 0 when all ran."""
    names = devices_of(args.compare)
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as kept:
        for name in track(names, 'measuring', console=console, transient=True):
            file = Path(kept) / f'{name.replace(":", "_")}.json'
            problem = run_row(['--device', name, *words], file, Path(kept))
            if problem:
                failed[name] = REMEDY.sub('; leave it out of --compare', problem)
            else:
                results[name] = json.loads(file.read_text(encoding='utf-8'))
    for name, problem in failed.items():
        console.print(f'{name}: NOT MEASURED\n{problem}', style='red', highlight=False,
                      markup=False)
    if results:
        rows = compare(results)
        console.print(make_table(rows))
        file = args.out / f'compare_{"_".join(names).replace(":", "")}.json'
        write_json(file, {'command': command('benchmark', ['--compare', args.compare, *words]),
                          'compared': rows, 'devices': results})
        console.print(f'written: {file}' + ('' if failed else (
            ' (it names the kind of your machine, nothing about you; please send it in)')),
            highlight=False, soft_wrap=True)
    return 1 if failed else 0


def compare(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return milliseconds, frames per second and the factor for each measure and device."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for measure in MEASURES:
        base = math.nan
        for device, result in results.items():
            streamed = result.get('stream_encode_ms', {}).get('median', math.nan)
            ms = {'stream encode': streamed, **medians(result)}.get(measure, math.nan)
            if math.isnan(ms):
                continue
            base = ms if math.isnan(base) else base
            cameras = result['configuration'].get('cameras', 1)
            found.setdefault(measure, {})[device] = {
                'ms': ms, 'fps': 1e3 * cameras / ms, 'factor': base / ms}
    return found


def make_table(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Return the comparison as a table."""
    table = Table(title='the same model on each device', title_justify='left')
    for name in ('measure', 'device', 'ms', 'FPS', 'factor'):
        table.add_column(name, justify='left' if name in ('measure', 'device') else 'right')
    for measure, devices in rows.items():
        for device, each in devices.items():
            table.add_row(MEASURES[measure], device, f'{each["ms"]:.2f}', f'{each["fps"]:.1f}',
                          f'{each["factor"]:.2f}')
    return table

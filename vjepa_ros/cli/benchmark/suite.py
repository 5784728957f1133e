# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure several configurations of a model, each in its own process.

So each row starts cold, and a row that fails does not affect the others. All rows share a folder
for compiled code, which is empty at first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import vjepa_ros
from vjepa_ros.cli.benchmark.clock import make_table
from vjepa_ros.lab.report.plots import GRID, open_axes
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, VARIANTS

# For one row; a busy CPU takes long.
ROW_LIMIT_S = {'cuda': 200.0, 'other': 900.0}
SHAPE = '--num-frames 16 --image-size 256 --source 1280x720'
LARGE, GIANT = f'--model-size large {SHAPE}', f'--model-size giant {SHAPE}'
GPU = '--device cuda --precision bf16 --seconds 4'
ALL = '--baseline floor --baseline hf'
CPU_TINY = f'--device cpu --seconds 15 --iterations 80 {ALL}'
CPU_LARGE = ('--model-size large --num-frames 8 --image-size 256 --device cpu --seconds 30 '
             f'--iterations 8 {ALL}')
# Options of `vjepa-ros benchmark` by name of the row, which also names its file.
SUITES: dict[str, dict[str, str]] = {
    'h200': {
        # First, because its cold start needs an empty folder of compiled code.
        'large_compile': f'{LARGE} {GPU} --compile on {ALL} --iterations 300 --saved-weights',
        'large_graph': f'{LARGE} {GPU} --compile off {ALL} --iterations 300 --saved-weights',
        'large_cached': f'{LARGE} {GPU} --compile on --encode-only --iterations 50 '
                        '--saved-weights',
        'large_cameras4': f'{LARGE} {GPU} --cameras 4 --baseline floor',
        'large_fp8': f'{LARGE} --device cuda --precision fp8 --seconds 4 --baseline floor '
                     '--iterations 300 --encode-only',
        'giant': f'{GIANT} {GPU} --baseline floor',
        'tiny': f'{GPU} --source 1280x720 --baseline floor'},
    'cpu': {
        'tiny': CPU_TINY,
        'tiny_fp32': '--device cpu --precision fp32 --seconds 10 --iterations 60 '
                     '--baseline floor',
        'large8': CPU_LARGE},
    # The same on a CPU with VNNI and without instructions for bf16, where `auto` is fp32.
    'vnni': {
        'tiny': CPU_TINY, 'tiny_int8': f'{CPU_TINY} --precision int8',
        'large8': CPU_LARGE, 'large8_int8': f'{CPU_LARGE} --precision int8'},
    # Of machines that nobody here has: send the files in.
    'jetson': {
        'tiny_fp16': '--device cuda --precision fp16 --seconds 10',
        'tiny_bf16': '--device cuda --precision bf16 --seconds 10',
        'tiny_cameras4': '--device cuda --precision fp16 --cameras 4 --seconds 10',
        'tiny_cpu': '--device cpu --seconds 10',
        'large_fp16': f'{LARGE} --device cuda --precision fp16 --seconds 20'},
    'apple': {
        'tiny_fp32': '--device mps --precision fp32 --seconds 10',
        'tiny_fp16': '--device mps --precision fp16 --seconds 10',
        'tiny_cpu': '--device cpu --seconds 10',
        'large_fp16': f'{LARGE} --device mps --precision fp16 --seconds 20'}}
SERIES = {'encode': '#0b6bcb', 'end to end': '#15803d', 'floor': '#94a3b8',
          'hf compiled': '#d97706', 'hf eager': '#9333ea'}


def run(args: argparse.Namespace, words: Sequence[str], console: Console) -> int:
    """Measure a suite, or a sweep with the options `words`; 0 when every row was measured."""
    prefix = f'{args.suite}_' if args.suite else 'sweep_'
    rows = suite_rows(args.suite, args.rows) if args.suite else sweep_rows(args.sizes, words)
    args.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    failed = []
    with tempfile.TemporaryDirectory() as kept:
        for name in track(rows, 'measuring', console=console, transient=True):
            before, file = time.perf_counter(), args.out / f'{prefix}{name}.json'
            file.unlink(missing_ok=True)    # of an earlier run
            problem = run_row(rows[name], file, Path(kept))
            if problem:
                failed.append(name)
            if file.is_file():
                results[name] = json.loads(file.read_text(encoding='utf-8'))
            said = f'FAILED\n{problem}' if problem else 'measured'
            console.print(f'{name}: {said} ({time.perf_counter() - before:.0f} s)',
                          style='red' if problem else '', highlight=False, markup=False)
    if results:
        console.print(make_table('median in ms', {n: medians(r) for n, r in results.items()},
                                 tuple(SERIES), head='row'))
        if args.sweep:
            plot = args.plot or args.out / 'benchmark.png'
            plot.parent.mkdir(parents=True, exist_ok=True)
            draw(results, plot)
            console.print(f'written: {plot}', highlight=False, soft_wrap=True)
    console.print(f'{len(rows) - len(failed)} of {len(rows)} rows measured, in {args.out}',
                  highlight=False, soft_wrap=True)
    if failed:
        console.print(f'FAILED: {", ".join(failed)}', style='bold red', highlight=False)
    return 1 if failed else 0


def suite_rows(suite: str, only: str) -> dict[str, list[str]]:
    """Return the options of the rows of a suite (ValueError for an unknown row)."""
    return {name: SUITES[suite][name].split() for name in _chosen(only, SUITES[suite], 'row')}


def sweep_rows(only: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Return the options of a row for each size: its usual shape, then `words`, which win.

    Raises ValueError for an unknown size.
    """
    rows = {}
    for size in _chosen(only, VARIANTS, 'size'):
        frames, side = (NUM_FRAMES, IMAGE_SIZE) if size in ('tiny', 'small') else (16, 256)
        rows[size] = ['--model-size', size, '--num-frames', str(frames), '--image-size',
                      str(side), *(word for word in words if word != '--sweep')]
        if size == 'gigantic':      # exists in version 2.1 only
            rows[size] += ['--model-version', '2.1']
    return rows


def _chosen(only: str, known: Iterable[str], what: str) -> list[str]:
    names = [name for name in only.split(',') if name] or list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{what} '{name}' is unknown; choose from {', '.join(known)}")
    return names


def run_row(words: Sequence[str], file: Path, kept: Path) -> str:
    """Measure one row in a process; return what went wrong, or ''."""
    root = Path(vjepa_ros.__file__).parents[1]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get('PYTHONPATH'))))
    environ = {**os.environ, 'PYTHONPATH': path, 'COLUMNS': '150',
               'TORCHINDUCTOR_CACHE_DIR': str(kept / 'inductor'),
               'TRITON_CACHE_DIR': str(kept / 'triton')}
    command = [sys.executable, '-m', 'vjepa_ros', 'benchmark', *words, '--json', str(file)]
    limit = ROW_LIMIT_S['cuda' if 'cuda' in words else 'other']
    # Not a pipe, because background compilation may outlive the row and keep a pipe open.
    with tempfile.TemporaryFile('w+', encoding='utf-8', errors='replace') as said:
        row = subprocess.Popen(command, env=environ, stdout=said, stderr=said,
                               start_new_session=True)
        try:
            code = row.wait(limit)
        except subprocess.TimeoutExpired:
            return f'not finished after {limit:.0f} s'
        finally:
            _end(row)
        if code == 0:
            return ''
        said.seek(0)
        return '\n'.join(said.read().strip().splitlines()[-12:])


def _end(row: subprocess.Popen[bytes]) -> None:
    """End a row and its child processes."""
    if hasattr(os, 'killpg'):
        with suppress(ProcessLookupError, PermissionError):     # gone already
            os.killpg(row.pid, signal.SIGKILL)
    else:
        row.kill()
    row.wait()


def medians(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the medians [ms] of a result that were measured, by the names of `SERIES`."""
    base = result['baselines']
    found = {'encode': result['encode_ms'], 'end to end': result.get('end_to_end_ms', {}),
             **{name: base.get(name.replace(' ', '_'), {}) for name in SERIES if name in (
                 'floor', 'hf compiled', 'hf eager')}}
    return {name: value['median'] for name, value in found.items() if 'median' in value}


def draw(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the medians as bars on a logarithmic axis, as PNG."""
    from matplotlib.figure import Figure
    values = {name: medians(result) for name, result in results.items()}
    used = [name for name in SERIES if any(name in v for v in values.values())]
    figure = Figure(figsize=(max(6.0, 1.9 * len(values)), 4.6), layout='constrained')
    axes = figure.subplots()
    step = 0.8 / len(used)
    for index, name in enumerate(used):
        places = [n + (index - (len(used) - 1) / 2) * step for n in range(len(values))]
        shown = [v.get(name, math.nan) for v in values.values()]
        bars = axes.bar(places, shown, step * 0.92, color=SERIES[name], label=name)
        axes.bar_label(bars, ['' if math.isnan(v) else f'{v:.3g}' for v in shown], fontsize=7)
    axes.set_yscale('log')
    axes.set_xticks(range(len(values)), list(values))
    axes.set_ylabel('median [ms]')
    one = next(iter(results.values()))
    axes.set_title(f'{one["hardware"].get("gpu", one["hardware"]["cpu"])}, {one["date"]}',
                   loc='left')
    axes.grid(axis='y', color=GRID, linewidth=0.7)
    open_axes(axes)
    axes.legend(frameon=False, ncol=len(used), loc='upper left', bbox_to_anchor=(0, -0.08))
    figure.savefig(path)

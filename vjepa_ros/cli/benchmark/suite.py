# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure several configurations, each in a process of its own.

A process of its own gives each row a start from nothing, and leaves the others alone when it
fails. Compiled code is kept in one folder for the whole suite, which is empty at the beginning.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import vjepa_ros
from vjepa_ros.cli.benchmark.case import Case, case_of
from vjepa_ros.cli.benchmark.report.plot import draw
from vjepa_ros.cli.benchmark.report.table import make_summary
from vjepa_ros.model.variants import VARIANTS

# Of one row: a GPU is lent for minutes, a busy CPU takes long.
ROW_LIMIT_S = {'cuda': 200.0, 'other': 900.0}
LARGE = '--model-size large --num-frames 16 --image-size 256 --source 1280x720'
GIANT = '--model-size giant --num-frames 16 --image-size 256 --source 1280x720'
GPU = '--device cuda --precision bf16 --seconds 4'
ALL = '--baseline floor --baseline hf'
# Name of the row, which is that of its file, and the words of `vjepa-ros benchmark`.
SUITES: dict[str, dict[str, str]] = {
    'h200': {
        # First, while the folder of compiled code is empty: its start is a first start.
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
        'tiny': '--device cpu --seconds 15 --iterations 80 --baseline floor --baseline hf',
        'tiny_fp32': '--device cpu --precision fp32 --seconds 10 --iterations 60 '
                     '--baseline floor',
        'large8': '--model-size large --num-frames 8 --image-size 256 --device cpu --seconds 30 '
                  '--iterations 8 --baseline floor --baseline hf'},
    # The same on a CPU with VNNI and without instructions for bf16, where `auto` is fp32.
    'vnni': {
        'tiny': '--device cpu --seconds 15 --iterations 80 --baseline floor --baseline hf',
        'tiny_int8': '--device cpu --precision int8 --seconds 15 --iterations 80 '
                     '--baseline floor --baseline hf',
        'large8': '--model-size large --num-frames 8 --image-size 256 --device cpu --seconds 30 '
                  '--iterations 8 --baseline floor --baseline hf',
        'large8_int8': '--model-size large --num-frames 8 --image-size 256 --device cpu '
                       '--precision int8 --seconds 30 --iterations 8 --baseline floor '
                       '--baseline hf'}}
USUAL = {'tiny': (8, 192), 'small': (8, 192)}     # frames and size of a sweep; others 16, 256


def main(args: argparse.Namespace, console: Console) -> int:
    """Measure a suite or a sweep; 0 when all went well.

    Raises
    ------
    ValueError
        For a row or a size that does not exist.
    """
    prefix = f'{args.suite}_' if args.suite else 'sweep_'
    rows = suite_rows(args.suite, args.rows) if args.suite else sweep_rows(args)
    args.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    columns = (TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    with tempfile.TemporaryDirectory() as kept, \
            Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task('', total=len(rows))
        for name, words in rows.items():
            progress.update(task, description=name)
            before, file = time.perf_counter(), args.out / f'{prefix}{name}.json'
            file.unlink(missing_ok=True)    # an old file is not the result of this run
            problem = run_row(words, file, Path(kept))
            if problem:
                failed[name] = problem
            if file.is_file():
                results[name] = json.loads(file.read_text(encoding='utf-8'))
            said = f'FAILED\n{problem}' if problem else _short(results[name])
            console.print(f'{name}: {said} ({time.perf_counter() - before:.0f} s)',
                          style='red' if problem else '', highlight=False, markup=False)
            progress.advance(task)
    if results:
        console.print(make_summary(results))
        if args.sweep:
            plot = args.plot or args.out / 'benchmark.png'
            plot.parent.mkdir(parents=True, exist_ok=True)
            plot.write_bytes(draw(results))
            console.print(f'written: {plot}', highlight=False, soft_wrap=True)
    console.print(f'{len(rows) - len(failed)} of {len(rows)} rows measured, in {args.out}',
                  highlight=False, soft_wrap=True)
    if failed:
        console.print(f'FAILED: {", ".join(failed)}', style='bold red', highlight=False)
    return 1 if failed else 0


def suite_rows(suite: str, only: str) -> dict[str, list[str]]:
    """Words of the rows of a suite."""
    rows = SUITES[suite]
    return {name: rows[name].split() for name in _chosen(only, rows, 'row')}


def sweep_rows(args: argparse.Namespace) -> dict[str, list[str]]:
    """Words of one row for each size."""
    rows, asked = {}, case_of(args)
    for size in _chosen(args.sizes, VARIANTS, 'size'):
        frames, side = USUAL.get(size, (16, 256))
        case = replace(
            asked, model_size=size,
            # Exists in version 2.1 only.
            model_version='2.1' if size == 'gigantic' else asked.model_version,
            num_frames=frames if asked.num_frames == Case.num_frames else asked.num_frames,
            image_size=side if asked.image_size == Case.image_size else asked.image_size)
        words = [*case.words(), '--iterations', str(args.iterations), '--seconds',
                 str(args.seconds)]
        for name in args.baseline:
            words += ['--baseline', name]
        rows[size] = words + (['--encode-only'] if args.encode_only else [])
    return rows


def _chosen(only: str, known: Mapping[str, object], what: str) -> list[str]:
    names = [name for name in only.split(',') if name] or list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{what} '{name}' is unknown; choose from {', '.join(known)}")
    return names


def run_row(words: Sequence[str], file: Path, kept: Path) -> str:
    """Measure one row in a process; what went wrong, '' when nothing did."""
    root = Path(vjepa_ros.__file__).parents[1]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get('PYTHONPATH'))))
    environ = {**os.environ, 'PYTHONPATH': path, 'COLUMNS': '150',
               'TORCHINDUCTOR_CACHE_DIR': str(kept / 'inductor'),
               'TRITON_CACHE_DIR': str(kept / 'triton')}
    command = [sys.executable, '-m', 'vjepa_ros', 'benchmark', *words, '--json', str(file)]
    limit = ROW_LIMIT_S['cuda' if 'cuda' in words else 'other']
    # A file, not a pipe: what compiles in the background may outlive the row and hold a pipe open.
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
    """End a row and everything that it started."""
    if hasattr(os, 'killpg'):
        with suppress(ProcessLookupError, PermissionError):     # all gone already
            os.killpg(row.pid, signal.SIGKILL)
    else:
        row.kill()
    row.wait()


def _short(result: Mapping[str, Any]) -> str:
    parts = [f'encode {result["encode_ms"]["median"]:.2f} ms']
    if 'end_to_end_ms' in result:
        parts.append(f'end to end {result["end_to_end_ms"]["median"]:.2f} ms')
    parts += [f'{name} {value:.2f}' for name, value in result['ratios'].items()]
    return ', '.join(parts)

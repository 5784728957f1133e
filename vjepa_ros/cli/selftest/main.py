# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that models compute the right numbers on this machine, in every way they can run.

Every precision and execution path of the device is compared with the plain network in float32 on
the CPU. Exit code 1 means that something is wrong; the problems are listed. --page writes what
holds and what could not be tested, --json all results; about you they have only the kind of your
machine. Please send them in for untested hardware.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from vjepa_ros.cli.console import plain_lines, print_error, save
from vjepa_ros.cli.selftest.cases import FULL, Model, USUAL, find_paths, weights_of
from vjepa_ros.cli.selftest.operators import Operators, coverage, fallback_problem
from vjepa_ros.cli.selftest.page import make_page, not_reached
from vjepa_ros.cli.selftest.parity import (
    Outcome,
    as_json,
    compare_detectors,
    make_reference,
    try_path,
)
from vjepa_ros.lab.report.measurement import accelerator, command, hardware, versions, write_json
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name


def run(device: str = 'auto', full: bool = False, compiled: str = 'auto',
        advance: Any = lambda text, done, total: None) -> dict[str, Any]:
    """Test a device; the result is ready for JSON, and its ``ok`` tells whether all is right."""
    choice = choose_device(device, True, 'auto')
    device = str(choice.device)
    paths, left_out = find_paths(device, compiled)
    left_out |= not_reached(device, full)
    models = FULL if full else USUAL
    total, done = len(models) * len(paths) + 2, 0
    outcomes: list[Outcome] = []
    for model in models:
        advance(f'{model.name}: reference on the CPU', done, total)
        with TemporaryDirectory() as folder:
            filled = replace(model, weights=weights_of(model, Path(folder)))
            reference = make_reference(filled)
            for path in paths:
                advance(f'{model.name}, {path.name}', done, total)
                outcomes.append(try_path(filled, path, device, reference))
                done += 1
    advance('operators', done, total)
    operators = {p: _operators(models[0], choice.device, dtype)
                 for p, dtype in _dtypes(paths).items()}
    advance('from image to assessment', done + 1, total)
    detector = compare_detectors(device)
    advance('', total, total)
    problems = [*_problems(outcomes, operators), *filter(None, [fallback_problem(choice.device)])]
    if not detector.ok:
        problems.append(f'image to assessment: {_wrong(detector)}')
    return {
        'ok': not problems, 'problems': problems, 'date': date.today().isoformat(),
        'hardware': {**hardware(), **accelerator(choice.device)}, 'versions': versions(),
        'torch_threads': torch.get_num_threads(), 'device': device_name(choice.device),
        'chosen': {'precision': choice.precision, 'because': choice.reason},
        'paths': as_json(outcomes), 'left_out': left_out,
        'detector': as_json([detector])[0],
        'operators': {name: {'ran': dict(sorted(found.ran.items())), 'missing': found.missing,
                             'problem': found.problem} for name, found in operators.items()}}


def _operators(model: Model, device: torch.device, dtype: torch.dtype) -> Operators:
    try:
        return coverage(model, device, dtype)
    # Such as lack of memory, which the self-test reports beside its other results.
    except (RuntimeError, MemoryError) as error:
        return Operators(problem=f'{type(error).__name__}: {error}'.strip()[:600])


def not_done(device: str, error: DeviceError) -> dict[str, Any]:
    """Return the result for a device that is unavailable, ready for JSON."""
    return {'ok': False, 'problems': [str(error)], 'date': date.today().isoformat(),
            'hardware': hardware(), 'versions': versions(), 'device': device}


def _dtypes(paths: Sequence[Any]) -> dict[str, torch.dtype]:
    known = {'fp32': torch.float32, 'fp16': torch.float16, 'bf16': torch.bfloat16}
    return {p.precision: known[p.precision] for p in paths if p.precision in known}


def _problems(outcomes: Sequence[Outcome], operators: dict[str, Operators]) -> list[str]:
    found = [f'{o.model}, {o.path}: {_wrong(o)}' for o in outcomes if not o.ok]
    found += [f'operators in {precision}: {each.problem}'
              for precision, each in operators.items() if each.problem]
    found += [f'operator {name} does not run here in {precision}: {why}'
              for precision, each in operators.items() for name, why in each.missing.items()]
    return found


def _wrong(outcome: Outcome) -> str:
    return outcome.problem or '; '.join(
        f'the error of {c.name} is {c.value:.3g}, more than {c.limit:.3g}'
        for c in outcome.checks if not c.ok) or 'nothing was compared'


def make_table(result: dict[str, Any]) -> Table:
    """Return errors and times of all paths as a table."""
    table = Table(title=f'{result["device"]}, PyTorch {result["versions"]["torch"]}',
                  title_justify='left', caption_justify='left',
                  caption='errors: rms relative to float32 on the CPU, and largest allowed')
    table.add_column('model', overflow='fold')
    table.add_column('path', overflow='fold')
    for name in ('error', 'allowed', 'encode ms', 'load s', ''):
        table.add_column(name, justify='right', no_wrap=True)
    for each in result['paths']:
        check = each['checks'].get('features', {})
        table.add_row(each['model'], _ways(each), *map(_number, (
            check.get('error'), check.get('limit'), each['encode_ms'], each['load_s'])),
            '[green]ok' if each['ok'] else '[bold red]FAILED')
    return table


def _ways(each: dict[str, Any]) -> str:
    return each['path'] + (f' ({each["execution"]})' if each['execution'] else '')


def _number(value: float | None) -> str:
    return '' if value is None else f'{value:.3g}'


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: test, print the table, write the file; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog='vjepa-ros selftest', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='auto', metavar='NAME',
                        help='auto, cpu, cuda, cuda:N or mps (default: auto)')
    parser.add_argument('--full', action='store_true',
                        help='also test sizes up to huge, with random weights; takes minutes and '
                        'about 8 GB of memory')
    parser.add_argument('--compile', choices=('auto', 'on', 'off'), default='auto',
                        help='whether to test torch.compile, which takes a minute or more; auto: '
                        'on CUDA (default: auto)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    parser.add_argument('--page', type=Path, metavar='FILE.md',
                        help='write one page: what holds, what could not be tested')
    args = parser.parse_args(argv)
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    words, line = sys.argv[2:] if argv is None else argv, plain_lines(console)
    columns = (TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task('')

            def advance(text: str, done: int, total: int) -> None:
                progress.update(task, description=text, completed=done, total=total)
                line(text and f'{text} ({done} of {total} done)')

            result = run(args.device, args.full, args.compile, advance)
    except DeviceError as error:
        print_error(f'SELF-TEST NOT DONE: {error}', console, args)
        _write(args, words, not_done(args.device, error), console)
        return 1
    console.print(make_table(result))
    for name, why in result['left_out'].items():
        console.print(f'not tested: {name}: {why}', highlight=False, markup=False)
    counts = {name: len(found['ran']) for name, found in result['operators'].items()}
    console.print('operators: ' + ', '.join(f'{n} different ones in {p}'
                                            for p, n in counts.items()), highlight=False)
    if result['ok']:
        console.print('[bold green]SELF-TEST PASSED[/]: every path is within its limit of '
                      'float32', highlight=False)
    else:
        console.print(Panel('\n'.join(result['problems']).replace('[', r'\['),
                            title='SELF-TEST FAILED: do not trust this machine with these '
                            'settings', style='bold red'), highlight=False)
    return _write(args, words, result, console) or int(not result['ok'])


def _write(args: argparse.Namespace, words: Sequence[str], result: dict[str, Any],
           console: Console) -> int:
    result = {'command': command('selftest', words), **result}
    return (save('--json', args.json, partial(write_json, result=result), console)
            | save('--page', args.page, lambda path: path.write_text(
                make_page(result), encoding='utf-8'), console))

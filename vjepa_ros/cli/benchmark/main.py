# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the speed of a model, alone and from image to assessment, against baselines.

encode: device time of normalising and encoding clips that are on the device already. call: the
same on the clock of the host, with upload and download. end to end: host image in, assessment
out. Sizes without weights run with random ones, on which speed does not depend.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vjepa_ros.cli.argparse_ranges import check_above_zero, check_ranges
from vjepa_ros.cli.benchmark import huggingface
from vjepa_ros.cli.benchmark import run as benchmark_run
from vjepa_ros.cli.benchmark import suite as benchmark_suite
from vjepa_ros.cli.benchmark.case import OPTIONS, add_options, case_of, command
from vjepa_ros.cli.benchmark.report.table import make_table
from vjepa_ros.cli.progress import plain_lines
from vjepa_ros.lab.report.json_file import write_json
from vjepa_ros.model.checkpoint.load import WeightsError
from vjepa_ros.runtime.device import DeviceError
from vjepa_ros.runtime.session import SessionError

NAMES = {'ours': 'encode', 'end_to_end': 'end to end', 'floor': 'floor',
         'hf_eager': 'Hugging Face eager', 'hf_compiled': 'Hugging Face compiled'}
SUITE_OPTIONS = {'suite', 'rows', 'out'}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros benchmark', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument('--baseline', action='append', default=[],
                        choices=benchmark_run.BASELINES,
                        help='measure this too: hf, the transformers library, eager and (on CUDA '
                        'alone) compiled; floor, the matrix products and attention alone; may be '
                        'given several times')
    parser.add_argument('--iterations', type=int, default=100, metavar='N',
                        help='runs of each contender (default: 100)')
    parser.add_argument('--seconds', type=float, default=10.0, metavar='S',
                        help='stop each contender after this time, but not before 3 runs '
                        '(default: 10)')
    parser.add_argument('--encode-only', action='store_true',
                        help='leave out the way from image to assessment')
    parser.add_argument('--json', type=Path, metavar='FILE',
                        help='write the figures; of a sweep or suite, --out takes a file for '
                        'each row')
    many = parser.add_mutually_exclusive_group()
    many.add_argument('--sweep', action='store_true',
                      help='measure all sizes, with their usual frames and image size unless '
                      'others are given, each in a process of its own')
    parser.add_argument('--sizes', default='', metavar='A,B',
                        help='sweep: only these sizes')
    parser.add_argument('--plot', type=Path, metavar='FILE',
                        help='sweep: PNG to write (default: benchmark.png in --out)')
    many.add_argument('--suite', choices=tuple(benchmark_suite.SUITES),
                      help='measure a list of configurations, each in a process of its own')
    parser.add_argument('--rows', default='', metavar='A,B',
                        help='suite: only these rows')
    parser.add_argument('--out', type=Path, default=Path('benchmark_output'), metavar='FOLDER',
                        help='sweep and suite: folder of the JSON files (default: '
                        'benchmark_output)')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: measure, print the table, write the file; 1 when a part failed."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    check_ranges(parser, args, {'iterations': (1, math.inf)})
    check_above_zero(parser, args, 'seconds')
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)  # the table is what is wanted
    _check_together(parser, args)
    if args.suite or args.sweep:
        try:
            return benchmark_suite.main(args, console)
        except ValueError as error:
            parser.error(str(error))
    if 'hf' in args.baseline and huggingface.problem():
        console.print(huggingface.problem(), style='red', highlight=False)
        return 1
    try:
        result = _measured(args, console)
    except (ValueError, DeviceError, SessionError, WeightsError) as error:
        console.print(f'cannot measure: {error}', style='red', highlight=False, markup=False)
        return 1
    result = {'command': command('benchmark', words), **result}
    console.print(make_table(result))
    if args.json:
        write_json(args.json, result)
        console.print(f'written: {args.json}', highlight=False, soft_wrap=True)
    failed = benchmark_run.failures(result)
    for line in failed:
        console.print(f'NOT MEASURED {line}', style='red', highlight=False, markup=False)
    return 1 if failed else 0


def _check_together(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program for options that the others leave without any effect."""
    given = {name for name, value in vars(args).items() if value != parser.get_default(name)}
    if args.suite:
        what, idle = '--suite, whose rows have their own options', given - SUITE_OPTIONS
    elif args.sweep:
        what, idle = '--sweep', given & {'json', 'rows', 'model_size'}
    else:
        what, idle = 'neither --sweep nor --suite', given & {'sizes', 'plot', 'rows', 'out'}
    if idle:
        names = ', '.join(OPTIONS.get(name, '--' + name.replace('_', '-'))
                          for name in sorted(idle))
        files = '; --out FOLDER takes a JSON file for each row' if 'json' in idle else ''
        parser.error(f'{names} has no effect with {what}{files}')


def _measured(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    columns = (TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        phase = progress.add_task('starting', total=None)
        tasks: dict[str, Any] = {}
        line = plain_lines(console)

        def say(text: str) -> None:
            progress.update(phase, description=text)
            line(text)

        def advance(name: str, done: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(NAMES[name], total=args.iterations)
            progress.update(tasks[name], completed=done)

        return benchmark_run.run(case_of(args), args.baseline, args.iterations, args.seconds,
                                 not args.encode_only, say, advance)



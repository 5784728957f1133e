# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The command `vjepa-ros benchmark`: measures one subject, prints a table and writes JSON.

A subject is a module with ``add_options(parser)``, ``measure(args, console)``, which returns a
dictionary for JSON, ``make_table(result)``, ``PROBLEMS``, the errors that explain why it cannot be
measured, and optionally ``check(parser, args)``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vjepa_ros.cli.console import print_error
from vjepa_ros.cli.demo_processes import end_like_ctrl_c, ros_problem
from vjepa_ros.lab.report.measurement import (
    accelerator,
    command,
    hardware,
    versions,
    without,
    write_json,
)

SUBJECTS = {
    'model': 'a model, alone and from image to assessment, against baselines (the default)',
    'node': 'what the node adds over DDS to its model',
    'guard': 'how fast the collision guard reacts',
    'plan': 'the action-conditioned planner',
    'world': 'rendering of scenes with their truth'}
OVER_DDS = ('node', 'guard')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when something could not be measured, 130 after Ctrl-C."""
    words = list(sys.argv[2:] if argv is None else argv)
    name = words.pop(0) if words and not words[0].startswith('-') else 'model'
    parser = make_parser(name)
    args = parser.parse_args(words)
    subject = _module(name)
    getattr(subject, 'check', lambda *args: None)(parser, args)
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    if name == 'model' and (args.suite or args.sweep):
        from vjepa_ros.cli.benchmark.suite import run
        return run(args, without(words, ('--sizes', '--out', '--plot')), console)
    if name == 'model' and args.compare:
        from vjepa_ros.cli.benchmark.compare import run
        return run(args, without(words, ('--compare', '--out')), console)
    if name in OVER_DDS:
        if ros_problem():
            return print_error(f'cannot measure: {ros_problem()}', console)
        end_like_ctrl_c()
    try:
        found = subject.measure(args, console)
        result = {**_record(name, words, found), **found}
        if args.json:
            write_json(args.json, result)
    except (*subject.PROBLEMS, OSError) as error:
        return print_error(f'cannot measure: {error}', console, args)
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    console.print(subject.make_table(result))
    if args.json:
        console.print(f'written: {args.json}', highlight=False, soft_wrap=True)
    failed = {name: each['error'] for name, each in found.get('baselines', {}).items()
              if 'error' in each}
    for baseline, error in failed.items():
        print_error(f'NOT MEASURED {baseline}: {error}', console, args)
    return 1 if failed else 0


def make_parser(name: str = 'model') -> argparse.ArgumentParser:
    """Return the command line of a subject; an unknown subject ends the program."""
    wide = max(map(len, SUBJECTS))
    parser = argparse.ArgumentParser(
        prog='vjepa-ros benchmark' + ('' if name == 'model' else f' {name}'),
        usage='vjepa-ros benchmark [SUBJECT] [options]',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='subjects, each with its own --help:\n' + '\n'.join(
            f'  {key:<{wide}}  {what}' for key, what in SUBJECTS.items()))
    if name not in SUBJECTS:
        parser.error(f"argument SUBJECT: '{name}' is not one of {', '.join(SUBJECTS)}")
    subject = _module(name)
    parser.description = subject.__doc__
    subject.add_options(parser)
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def _module(name: str) -> Any:
    return import_module(f'vjepa_ros.cli.benchmark.{name}')


def _record(name: str, words: Sequence[str], found: dict[str, Any]) -> dict[str, Any]:
    """Return what ran, when, and on which hardware."""
    device = torch.device(found['configuration'].get('device', 'cpu'))
    return {'command': command('benchmark' if name == 'model' else f'benchmark {name}', words),
            'date': date.today().isoformat(),
            'hardware': {**hardware(), **accelerator(device)}, 'versions': versions(),
            'torch_threads': torch.get_num_threads()}

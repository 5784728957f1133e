# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The command `vjepa-ros benchmark`: measures one subject, prints a table and writes JSON."""

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
    # Each is a module with add_options(parser), check(parser, args), measure(args, console) ->
    # dict, make_table(result) and PROBLEMS, the errors that say why it cannot be measured.
    'model': 'a model, alone and from image to assessment, against baselines (the default)',
    'node': 'what the node adds over DDS to its model',
    'guard': 'how fast the collision guard reacts',
    'plan': 'the action-conditioned planner',
    'world': 'rendering of scenes with their truth'}
OVER_DDS = ('node', 'guard')


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; 1 when something could not be measured, 130 after Ctrl-C."""
    words = list(sys.argv[2:] if argv is None else argv)
    name = words.pop(0) if words and not words[0].startswith('-') else 'model'
    parser = make_parser(name)
    args = parser.parse_args(words)
    subject = _module(name)
    subject.check(parser, args)
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)  # the table is what is wanted
    if name == 'model' and (args.suite or args.sweep):
        from vjepa_ros.cli.benchmark.suite import run
        return run(args, without(words, ('--sizes', '--out', '--plot')), console)
    if name in OVER_DDS:
        if ros_problem():
            console.print(f'cannot measure: {ros_problem()}', style='red', highlight=False)
            return 1
        end_like_ctrl_c()
    try:
        found = subject.measure(args, console)
        result = {**_record(name, words, found), **found}
        if args.json:
            write_json(args.json, result)
    except (*subject.PROBLEMS, OSError) as error:
        console.print(f'cannot measure: {error}', style='red', highlight=False, markup=False,
                      soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    console.print(subject.make_table(result))
    if args.json:
        console.print(f'written: {args.json}', highlight=False, soft_wrap=True)
    failed = {name: each['error'] for name, each in found.get('baselines', {}).items()
              if 'error' in each}
    for baseline, error in failed.items():
        console.print(f'NOT MEASURED {baseline}: {error}', style='red', highlight=False,
                      markup=False)
    return 1 if failed else 0


def make_parser(name: str = 'model') -> argparse.ArgumentParser:
    """The command line of one subject; ends the program for one that does not exist."""
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
    """What was run, when, and on what."""
    device = torch.device(found['configuration'].get('device', 'cpu'))
    return {'command': command('benchmark' if name == 'model' else f'benchmark {name}', words),
            'date': date.today().isoformat(),
            'hardware': {**hardware(), **accelerator(device)}, 'versions': versions(),
            'torch_threads': torch.get_num_threads()}

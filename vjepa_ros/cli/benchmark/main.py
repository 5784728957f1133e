# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The command `vjepa-ros benchmark`: measures a model, prints a table and writes JSON."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vjepa_ros.cli.benchmark import model
from vjepa_ros.cli.console import print_error
from vjepa_ros.lab.report.measurement import (
    accelerator,
    command,
    hardware,
    versions,
    without,
    write_json,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when something could not be measured, 130 after Ctrl-C."""
    words = list(sys.argv[2:] if argv is None else argv)
    parser = make_parser()
    args = parser.parse_args(words)
    model.check(parser, args)
    console = Console()
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    if args.suite or args.sweep:
        from vjepa_ros.cli.benchmark.suite import run
        return run(args, without(words, ('--sizes', '--out', '--plot')), console)
    if args.compare:
        from vjepa_ros.cli.benchmark.compare import run
        return run(args, without(words, ('--compare', '--out')), console)
    try:
        found = model.measure(args, console)
        result = {**_record(words, found), **found}
        if args.json:
            write_json(args.json, result)
    except (*model.PROBLEMS, OSError) as error:
        return print_error(f'cannot measure: {error}', console, args)
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    console.print(model.make_table(result))
    if args.json:
        console.print(f'written: {args.json}', highlight=False, soft_wrap=True)
    failed = {name: each['error'] for name, each in found.get('baselines', {}).items()
              if 'error' in each}
    for baseline, error in failed.items():
        print_error(f'NOT MEASURED {baseline}: {error}', console, args)
    return 1 if failed else 0


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros benchmark', description=model.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    model.add_options(parser)
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')
    return parser


def _record(words: Sequence[str], found: dict[str, Any]) -> dict[str, Any]:
    """Return what ran, when, and on which hardware."""
    device = torch.device(found['configuration'].get('device', 'cpu'))
    return {'command': command('benchmark', words),
            'date': date.today().isoformat(),
            'hardware': {**hardware(), **accelerator(device)}, 'versions': versions(),
            'torch_threads': torch.get_num_threads()}

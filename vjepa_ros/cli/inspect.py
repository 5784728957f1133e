# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show the networks of a checkpoint, what is missing, and the clips it was made for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from vjepa_ros.cli.console import CHECKPOINT, print_error
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.load import Contents, PartReport, examine

SHOWN = 5  # unneeded parameters to name; wrong ones are all named


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when every network in the checkpoint is complete, else 1."""
    parser = argparse.ArgumentParser(prog='vjepa-ros inspect', description=__doc__)
    parser.add_argument('checkpoint', help=CHECKPOINT)
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    args = parser.parse_args(argv)
    try:
        found = examine(args.checkpoint)
    except WeightsError as error:
        return print_error(error, args=args)
    if args.json:
        sys.stdout.write(json.dumps(asdict(found), indent=2) + '\n')
    else:
        Console().print(view(found))
    return 0 if any(part.complete for part in found.parts) and all(
        part.complete for part in found.parts) else 1


def view(found: Contents) -> Group:
    """Return the report as tables."""
    about = Table.grid(padding=(0, 2))
    facts = {'path': found.path, 'size': f'{found.size / 1e6:,.1f} MB', 'sha256': found.sha256,
             'made for': str(found.profile)}
    if found.encoder:
        facts['runs'] = ('whole clips' if not found.window else
                         f'streams: block-causal, window of {found.window} tubelets')
    facts['also there'] = ', '.join(found.others) or 'nothing'
    for name, value in facts.items():
        about.add_row(f'[dim]{name}[/dim]', escape(value))
    parts = Table(expand=False)
    for title in ('part', 'network', 'names of', 'holds', 'complete'):
        parts.add_column(title)
    for part in found.parts:
        name = f'{part.name} (default)' if part.name == found.encoder else part.name
        network = ' '.join(filter(None, (part.kind, part.variant, part.version)))
        parts.add_row(escape(name), network, part.layout,
                      f'{part.keys} tensors, {part.parameters / 1e6:,.1f} M {part.dtype}',
                      '[green]yes[/green]' if part.complete else '[red]no[/red]')
    problems = [text for part in found.parts for text in _problems(part)]
    return Group(Panel(about, title='checkpoint', title_align='left', expand=False), parts,
                 *problems)


def _problems(part: PartReport) -> list[str]:
    wrong = (('missing', part.missing), ('unexpected', part.unexpected),
             ('wrong shape', part.mismatched))
    texts = [f'[red]{part.name}: {len(names)} {what}: {escape(", ".join(names))}[/red]'
             for what, names in wrong if names]
    if part.problem:
        texts.append(f'[red]{part.name}: {escape(part.problem)}[/red]')
    if part.wrapper:
        texts.append(f"[dim]{part.name}: its names begin with '{escape(part.wrapper)}', which is "
                     'left out[/dim]')
    if part.ignored:
        texts.append(f'[dim]{part.name}: {len(part.ignored)} not needed: '
                     f'{escape(", ".join(part.ignored[:SHOWN]))}'
                     f'{", …" if len(part.ignored) > SHOWN else ""}[/dim]')
    return texts

# SPDX-License-Identifier: Apache-2.0
"""Say what is in a checkpoint: networks, sizes, what is missing, and the clips it is made for."""

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

from vjepa_ros.model.contents import Contents, PartReport, examine
from vjepa_ros.model.files import WeightsError

SHOWN = 5  # names of parameters of one kind


def main(argv: Sequence[str]) -> int:
    """Run the tool; 0 when every network in the checkpoint is complete, 1 otherwise.

    Parameters
    ----------
    argv
        Words after the name of the command.
    """
    parser = argparse.ArgumentParser(prog='vjepa-ros inspect', description=__doc__)
    parser.add_argument('checkpoint', help='.safetensors, .pt or .pth file, or a folder of '
                        'Hugging Face')
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    args = parser.parse_args(argv)
    try:
        found = examine(args.checkpoint)
    except WeightsError as error:
        Console(stderr=True).print(f'[red]{escape(str(error))}[/red]', soft_wrap=True)
        return 1
    if args.json:
        sys.stdout.write(json.dumps(asdict(found), indent=2) + '\n')
    else:
        Console().print(view(found))
    return 0 if any(part.complete for part in found.parts) and all(
        part.complete for part in found.parts) else 1


def view(found: Contents) -> Group:
    """The report as a person reads it."""
    about = Table.grid(padding=(0, 2))
    for name, value in (('path', found.path), ('size', f'{found.size / 1e6:,.1f} MB'),
                        ('sha256', found.sha256), ('made for', str(found.profile)),
                        ('also there', ', '.join(found.others) or 'nothing')):
        about.add_row(f'[dim]{name}[/dim]', escape(value))
    parts = Table(expand=False)
    for title in ('part', 'network', 'size', 'version', 'names of', 'tensors', 'numbers', 'type'):
        parts.add_column(title)
    parts.add_column('complete')
    for part in found.parts:
        name = f'{part.name} (default)' if part.name == found.encoder else part.name
        parts.add_row(escape(name), part.kind, part.variant or '-', part.version or '-',
                      part.layout, str(part.keys), f'{part.parameters / 1e6:,.1f} M', part.dtype,
                      '[green]yes[/green]' if part.complete else '[red]no[/red]')
    problems = [text for part in found.parts for text in _problems(part)]
    return Group(Panel(about, title='checkpoint', title_align='left', expand=False), parts,
                 *problems)


def _problems(part: PartReport) -> list[str]:
    lists = [(colour, what, names) for colour, what, names in (
        ('red', 'missing', part.missing), ('red', 'unexpected', part.unexpected),
        ('red', 'wrong shape', part.mismatched), ('dim', 'not needed', part.ignored)) if names]
    texts = [f'[{colour}]{part.name}: {len(names)} {what}: {escape(", ".join(names[:SHOWN]))}'
             f'{", …" if len(names) > SHOWN else ""}[/{colour}]' for colour, what, names in lists]
    return [*texts, f'[red]{part.name}: {escape(part.problem)}[/red]'] if part.problem else texts

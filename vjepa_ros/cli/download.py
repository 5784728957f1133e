# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fetch published weights: of Meta by the names below, or of the Hugging Face hub.

Meta publishes no checksums: the one that is shown is of what arrived.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from vjepa_ros.cli.console import refuse
from vjepa_ros.model.checkpoint.download import BASE_URL, PUBLISHED, download, size_of
from vjepa_ros.model.checkpoint.files import WeightsError, file_sha256
from vjepa_ros.model.checkpoint.hub import located


def main(argv: Sequence[str]) -> int:
    """Run the tool; 0 when the weights are there.

    Parameters
    ----------
    argv
        Words after the name of the command.
    """
    wide = max(map(len, PUBLISHED))
    parser = argparse.ArgumentParser(
        prog='vjepa-ros download', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='names:\n' + '\n'.join(f'  {name:<{wide}}  {file}: {what}'
                                      for name, (file, what) in PUBLISHED.items()))
    parser.add_argument('name', nargs='?', help='one of the names below, or one of the Hugging '
                        'Face hub such as facebook/vjepa2-vitl-fpc64-256, which goes to its cache')
    parser.add_argument('--sizes', action='store_true',
                        help='ask the server for the sizes of all files below instead')
    parser.add_argument('--folder', type=Path, default=Path(), help='where to put it (default: '
                        'the current folder)')
    args = parser.parse_args(argv)
    if not args.name and not args.sizes:
        parser.error('give the NAME of what to fetch, or --sizes')
    try:
        if args.sizes:
            return _list_sizes()
        path = _get(args.name, args.folder)
    except WeightsError as error:
        return refuse(error)
    console = Console()
    console.print(f'weights: {escape(str(path))}', soft_wrap=True)
    if path.is_file():
        console.print(f'sha256:  {file_sha256(path)}', soft_wrap=True)
    console.print(f'next:    vjepa-ros inspect {escape(shlex.quote(str(path)))}', soft_wrap=True)
    return 0


def _list_sizes() -> int:
    console = Console()
    for name, (file, what) in PUBLISHED.items():
        console.print(f'{size_of(BASE_URL + file) / 1e9:8.2f} GB  {name}: {what}', soft_wrap=True,
                      highlight=False)
    return 0


def _get(name: str, folder: Path) -> Path:
    if '/' in name:
        path = located(name, 'name')
        if not path.exists():
            raise WeightsError(f"'{name}' is no name of the Hugging Face hub, which are "
                               'OWNER/NAME')
        return path
    if name not in PUBLISHED:
        raise WeightsError(f"'{name}' is not published; names are {', '.join(PUBLISHED)}")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(name, total=None)
        return download(BASE_URL + PUBLISHED[name][0], folder,
                        lambda there, total: shown.update(task, completed=there, total=total))

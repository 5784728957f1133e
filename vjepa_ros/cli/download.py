# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fetch published weights: Meta's by the names below, or from the Hugging Face hub.

Meta publishes no checksums; the one shown is of the file that arrived.
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

from vjepa_ros.cli.console import print_error
from vjepa_ros.model.checkpoint.download import BASE_URL, PUBLISHED, download, located
from vjepa_ros.model.checkpoint.files import WeightsError, file_sha256


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when the weights are on disk."""
    wide = max(map(len, PUBLISHED))
    parser = argparse.ArgumentParser(
        prog='vjepa-ros download', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='names:\n' + '\n'.join(f'  {name:<{wide}}  {file}: {what}'
                                      for name, (file, what) in PUBLISHED.items()))
    parser.add_argument('name', help='one of the names below, or a name of the Hugging '
                        'Face hub such as facebook/vjepa2-vitl-fpc64-256, which goes to its cache')
    parser.add_argument('--folder', type=Path, default=Path(), help='where to put the file '
                        '(default: the current folder)')
    args = parser.parse_args(argv)
    try:
        path = _get(args.name, args.folder)
    except WeightsError as error:
        return print_error(error, args=args)
    console = Console()
    console.print(f'weights: {escape(str(path))}', soft_wrap=True)
    if path.is_file():
        console.print(f'sha256:  {file_sha256(path)}', soft_wrap=True)
    console.print(f'next:    vjepa-ros inspect {escape(shlex.quote(str(path)))}', soft_wrap=True)
    return 0


def _get(name: str, folder: Path) -> Path:
    if '/' in name:
        path = located(name, 'checkpoint')
        if not path.exists():
            raise WeightsError(f"'{name}' is not a name of the Hugging Face hub, "
                               'which has the form OWNER/NAME')
        return path
    if name not in PUBLISHED:
        raise WeightsError(f"'{name}' is not published; names are {', '.join(PUBLISHED)}")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(name, total=None)
        return download(BASE_URL + PUBLISHED[name][0], folder,
                        lambda there, total: shown.update(task, completed=there, total=total))

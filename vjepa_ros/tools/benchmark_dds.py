# SPDX-License-Identifier: Apache-2.0
"""What benchmarks of nodes over DDS share: their limits, and how one is run and told."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from vjepa_ros.tools.benchmark_case import command
from vjepa_ros.tools.json_file import write_json
from vjepa_ros.tools.trio import end_like_ctrl_c, ros_problem


def check_ranges(parser: argparse.ArgumentParser, args: argparse.Namespace,
                 ranges: Mapping[str, tuple[float, float]]) -> None:
    """End the program where a number is not from the least to the largest that is given."""
    for name, (low, high) in ranges.items():
        value = getattr(args, name)
        if not low <= value <= high:
            parser.error(f'argument --{name.replace("_", "-")}: {value:g} is out of range: '
                         f'{low:g} to {high:g}')


def run_benchmark(tool: str, words: Sequence[str], file: Path | None,
                  measure: Callable[[Console, Path], Mapping[str, Any]],
                  make_table: Callable[[Mapping[str, Any]], Table],
                  problems: tuple[type[Exception], ...]) -> int:
    """
    Measure, print the table, write the file.

    Parameters
    ----------
    tool, words
        The command line, for the record.
    file
        File for the figures, None for none.
    measure
        Gives the figures from a console and a folder that is removed afterwards.
    make_table
        Shows them.
    problems
        Errors that say why it could not be measured.

    Returns
    -------
    int
        Exit code: 1 when it could not be measured, 130 after Ctrl-C.
    """
    console = Console()
    if ros_problem():
        console.print(f'cannot measure: {ros_problem()}', style='red', highlight=False)
        return 1
    end_like_ctrl_c()
    work = Path(tempfile.mkdtemp(prefix=f'vjepa_ros_{tool.replace("-", "_")}_'))
    try:
        result = {'command': command(tool, words), **measure(console, work)}
        if file:
            write_json(file, result)
    except problems as error:
        console.print(f'cannot measure: {error}', style='red', markup=False, highlight=False,
                      soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    console.print(make_table(result))
    if file:
        console.print(f'written: {file}', highlight=False, soft_wrap=True)
    return 0

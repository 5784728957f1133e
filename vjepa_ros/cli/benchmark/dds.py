# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How a benchmark of nodes over DDS is run and told."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.benchmark.case import command
from vjepa_ros.cli.demo_processes import end_like_ctrl_c, ros_problem
from vjepa_ros.lab.report.json_file import write_json


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

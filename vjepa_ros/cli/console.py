# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Print errors and the present step of a command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

WHAT = 'checkpoint: .safetensors, .pt or .pth file, folder of Hugging Face, or name on its hub'


def refuse(error: Exception) -> int:
    """Say on the error stream in one line why a tool ends; its exit code."""
    Console(stderr=True).print(f'[red]{escape(str(error))}[/red]', soft_wrap=True)
    return 1


def plain_lines(console: Console) -> Callable[[str], None]:
    """Writes each text as a line with the seconds since now; silent in a terminal."""
    before = time.perf_counter()

    def say(text: str) -> None:
        if text and not console.is_terminal:
            console.print(f'{time.perf_counter() - before:6.1f} s  {text}', highlight=False,
                          markup=False, soft_wrap=True)

    return say


@contextmanager
def steps(console: Console) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows a step: beside a spinner in a terminal, else as a line."""
    line = plain_lines(console)
    with console.status('starting') as status:
        def say(text: str) -> None:
            status.update(text)
            line(text)

        yield say

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Print errors and the current step of a command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

CHECKPOINT = 'checkpoint: .safetensors, .pt or .pth file, Hugging Face folder, or name on its hub'


def print_error(text: object, console: Console | None = None) -> int:
    """Print why a command ends, on standard error by default, and return its exit code."""
    (console or Console(stderr=True)).print(str(text), style='red', markup=False,
                                            highlight=False, soft_wrap=True)
    return 1


def plain_lines(console: Console) -> Callable[[str], None]:
    """Return a function that prints a text with the seconds since now, but not in a terminal."""
    before = time.perf_counter()

    def say(text: str) -> None:
        if text and not console.is_terminal:
            console.print(f'{time.perf_counter() - before:6.1f} s  {text}', highlight=False,
                          markup=False, soft_wrap=True)

    return say


@contextmanager
def steps(console: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a step, beside a spinner in a terminal and else as a line."""
    line = plain_lines(console)
    with console.status('starting') as status:
        def say(text: str) -> None:
            status.update(text)
            line(text)

        yield say

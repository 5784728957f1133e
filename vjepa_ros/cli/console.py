# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the commands share: types of numbers with a range, errors, and the current step."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


def whole(low: int = 1, high: float = math.inf) -> Callable[[str], int]:
    """Return an argparse type for integers from `low` to `high`."""
    def read(text: str) -> int:
        value = int(text)
        _check(value, low, high)
        return value

    read.__name__ = 'int'       # argparse names the type where the text is not a number
    return read


def real(low: float, high: float) -> Callable[[str], float]:
    """Return an argparse type for numbers from `low` to `high`."""
    def read(text: str) -> float:
        value = float(text)
        _check(value, low, high)
        return value

    read.__name__ = 'float'
    return read


def positive(text: str) -> float:
    """Read a finite number above 0, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'{value:g} is out of range: more than 0')
    return value


def _check(value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        allowed = f'at least {low:g}' if high == math.inf else f'{low:g} to {high:g}'
        raise argparse.ArgumentTypeError(f'{value:g} is out of range: {allowed}')


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

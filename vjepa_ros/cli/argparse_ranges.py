# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Types for numbers on a command line that refuse values out of range."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Limits of the numbers on a command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping


def check_ranges(parser: argparse.ArgumentParser, args: argparse.Namespace,
                 ranges: Mapping[str, tuple[float, float]]) -> None:
    """
    End the program, with the limits, where a number is out of range.

    Parameters
    ----------
    parser, args
        The command line; an argument that is None was not given.
    ranges
        Least and largest value by name; a largest of infinity is none.
    """
    for name, (low, high) in ranges.items():
        value = getattr(args, name)
        if value is not None and not low <= value <= high:
            allowed = f'at least {low:g}' if high == math.inf else f'{low:g} to {high:g}'
            parser.error(f'argument --{name.replace("_", "-")}: {value:g} is out of range: '
                         f'{allowed}')


def check_above_zero(parser: argparse.ArgumentParser, args: argparse.Namespace, name: str) -> None:
    """End the program where a number is not finite and above 0."""
    value = getattr(args, name)
    if not 0 < value < math.inf:
        parser.error(f'argument --{name.replace("_", "-")}: {value} is out of range: more than 0')

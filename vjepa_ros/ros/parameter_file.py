# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read parameter files and ``-p`` words, without ROS: for nodes, launch files and tools.

rcl types a value by its own rules and refuses a whole file for one list. A node therefore gets
each file as this module reads it (`readable`). Where the meaning is clear it differs: a text
parameter takes what is written, such as `off` or `1234`, a double an integer, a list with a text
in it is a list of texts, and a node or group may be empty.
"""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import yaml

from vjepa_ros.parameter import CAMERAS, Param

Rows = Callable[[str], 'Param | None']     # the row of a parameter, if it is known
Blocks = dict[str, dict[str, Any]]         # values by name, by the node that they are for

PARAMETERS = 'ros__parameters'
TEXT = 'tag:yaml.org,2002:str'
NODE = re.compile(r'/?((\*\*?|[A-Za-z_]\w*)/)*(\*\*?|[A-Za-z_]\w*)', re.ASCII)
WORD = re.compile(r'(?:([^:=]*):)?([^:=]+):=(.*)', re.DOTALL)
# What launch files read: the rows of the nodes would load PyTorch.
TEXTS, TEXT_ROW = re.compile(r'cameras?|sources|message|.+\.topic'), Param('', str, '', '')


def unknown(name: str) -> None:
    """Rows of no node: values have the types that rcl gives them."""


def read_file(file: Path, rows: Rows = unknown) -> Blocks:
    """Read a parameter file."""
    about, found = f'parameter file {str(file)!r}', Blocks()
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ValueError(f'{about} cannot be read: {error.strerror}; give the path of a YAML '
                         'file') from error
    reader = _Reader(about, rows)
    for document in reader.documents(text):
        if not isinstance(document, yaml.MappingNode):
            reader.refuse(document, f'this is no parameter file: write NODE: or /**:, below it '
                          f'{PARAMETERS}:, below that NAME: VALUE')
        reader.nodes(document, '', found)
    return found


def read_word(word: str, rows: Rows = unknown) -> tuple[str, str, Any]:
    """Read what stands behind ``-p``: the node or '', the name of the parameter, its value."""
    parts = WORD.fullmatch(word)
    if parts is None:
        raise ValueError(f'-p {word!r} must be NAME:=VALUE, such as max_rate:=15.0')
    node, name, value = parts.groups('')
    reader = _Reader(f'-p {word!r}', rows)
    documents = reader.documents(value)
    if not documents:
        raise ValueError(f"-p {word!r}: parameter '{name}' has no value; for an empty text write "
                         f'{name}:="\'\'"')
    if len(documents) > 1:
        reader.refuse(documents[1], 'must be one value')
    return node, name, reader.value(documents[0], name)


def values_of(blocks: Blocks, node: str, namespace: str | None = None) -> dict[str, Any] | None:
    """Return the parameters of one node, as rclpy chooses them; None when no block is for it."""
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
    return {name: value for each in chosen for name, value in blocks[each].items()} \
        if chosen else None


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
                blocks = {node: {PARAMETERS: values} for node, values in found[value].items()
                          if values}
                # JSON is YAML, too.
                Path(written[place]).write_text(json.dumps(blocks, ensure_ascii=False),
                                                encoding='utf-8')
            elif of_ros and flag in ('-p', '--param'):
                node, name, given = read_word(value, rows)
                text = json.dumps(given, ensure_ascii=False)
                written[place] = f'{node}{":" * bool(node)}{name}:={text}'
        yield written, found


def _absolute(name: str) -> str:
    return f'/{name.lstrip("/")}'


class _Loader(yaml.BaseLoader):
    DEFAULT_SCALAR_TAG = ''      # of what has no tag in the file


class _Reader:
    """Turns the nodes of a YAML text into values; errors name the place."""

    def __init__(self, about: str, rows: Rows) -> None:
        self._about, self._rows = about, rows

    def documents(self, text: bytes | str) -> list[yaml.Node]:
        """Return the root of each document that has one."""
        try:
            for token in yaml.scan(text, Loader=_Loader):
                if isinstance(token, yaml.AliasToken):
                    self.refuse(token, f'ROS knows no aliases (*{token.value}): write it out')
                if isinstance(token, yaml.ScalarToken):
                    token.value.encode()     # escaped surrogates are no text
            return [*filter(None, yaml.compose_all(text, Loader=_Loader))]
        except (yaml.YAMLError, RecursionError, UnicodeError) as error:
            what = getattr(error, 'problem', None) or ' '.join(str(error).split())
            raise ValueError(f'{self._at(getattr(error, "problem_mark", None))}: this is not '
                             f'YAML: {what}; quote a text that has special characters') from error

    def _at(self, mark: yaml.Mark | None) -> str:
        return self._about if mark is None or self._about.startswith('-p') else (
            f'{self._about}, line {mark.line + 1}')

    def refuse(self, node: yaml.Node | yaml.Token, problem: str) -> NoReturn:
        raise ValueError(f'{self._at(node.start_mark)}: {problem}')

    def _pairs(self, node: yaml.Node, what: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield names and values of a mapping, nothing where nothing is; refuse the rest."""
        if isinstance(node, yaml.ScalarNode) and not node.value:
            return
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, f'{what}: write NAME: VALUE on indented lines of their own')
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.value:
                self.refuse(key, 'a name must be one word')
            yield key.value, value

    def nodes(self, node: yaml.Node, within: str, found: Blocks) -> None:
        """Read what is below a node or namespace."""
        for name, value in self._pairs(node, f"'{within}' must be a node, with {PARAMETERS} below "
                                             'it'):
            if name.startswith(PARAMETERS):
                if not NODE.fullmatch(within):
                    self.refuse(value, f"'{within}' is no name of a node: letters, digits, _ and "
                                '/ make one, and * or ** stand for any')
                self._parameters(value, '', found.setdefault(within, {}),
                                 f'{PARAMETERS} of {within} is no list of parameters')
            else:
                slash = '/' * bool(within and not within.endswith('/'))
                self.nodes(value, f'{within}{slash}{name}', found)

    def _parameters(self, node: yaml.Node, before: str, found: dict[str, Any], what: str) -> None:
        for key, value in self._pairs(node, what):
            name = f'{before}{key}'
            if isinstance(value, yaml.MappingNode):
                self._parameters(value, f'{name}.', found, what)
            else:
                found[name] = self.value(value, name)

    def value(self, node: yaml.Node, name: str) -> Any:
        """Return the value of a parameter."""
        row, listed = self._rows(name), isinstance(node, yaml.SequenceNode)
        items: list[Any] = node.value if listed else [node]
        for item in items:
            if not isinstance(item, yaml.ScalarNode):
                self.refuse(node, f"parameter '{name}' must be one value or a list of values")
            if not item.value and item.style not in ("'", '"'):
                self.refuse(item, f"parameter '{name}' has no value; for an empty text write ''")
        texts = [item.value for item in items]
        if row is not None and row.kind in (str, tuple[str, ...]):
            return texts if listed else texts[0]
        number = row is not None and row.kind in (float, tuple[float, ...])
        values = [item.value if item.style in ("'", '"') or item.tag == TEXT
                  else typed(item.value, number) for item in items]
        kinds = sorted({type(value).__name__ for value in values})
        if 'str' in kinds and len(kinds) > 1:
            return texts
        if len(kinds) > 1:
            self.refuse(node, f"parameter '{name}' is {values}, a list of {' and '.join(kinds)}: "
                        'write all of its values alike, such as [1.0, 2.0]')
        return values if listed else values[0]


def typed(text: str, number: bool = False) -> bool | int | float | str:
    """Return the value of a word without quotes; `number`: of a parameter of type double."""
    with suppress(ValueError):
        if number:
            return float(text)
    with suppress(ValueError, yaml.YAMLError):
        value = yaml.safe_load(text)
        if isinstance(value, bool | int | float):
            return value
    return text


# -- what launch files read ----------------------------------------------------------------------

def sources_for(cameras: Sequence[str], node: str, argument: str, file: Path,
                of_package: bool, namespace: str | None = None) -> list[str]:
    """Return the parameter `sources` for the cameras of the perception node."""
    # A single camera is taken with the file of the package, by which it looks forward. Only a file
    # can give the directions of several, and a source without a camera stops the robot forever.
    values = parameters_in(file, node, namespace) if cameras else {}
    unheard = [name for name in values.get('sources', CAMERAS)
               if name not in cameras and not values.get(f'{name}.topic')]
    if not cameras or not unheard:
        return []
    if of_package and len(cameras) == 1:
        return list(cameras)
    raise RuntimeError(
        f"{node} would listen to {', '.join(unheard)} ({argument} is '{file}'), but the "
        f"perception node runs {', '.join(cameras)}: give a {argument} with sources: "
        f"[{', '.join(cameras)}] and where each of them looks")


def cameras_in(file: Path, namespace: str | None = None) -> list[str]:
    """Return the cameras of the perception node in a parameter file; empty: it names none."""
    cameras = parameters_in(file, 'vjepa_node', namespace).get('cameras', CAMERAS)
    return [] if isinstance(cameras, str) else list(cameras)


def parameters_in(file: Path, node: str, namespace: str | None = None) -> dict[str, Any]:
    """Return the parameters of a node in a file by their full names."""
    try:
        return values_of(read_file(file, lambda name: TEXT_ROW if TEXTS.fullmatch(name) else None),
                         node, namespace) or {}
    except ValueError as error:
        raise RuntimeError(str(error)) from error

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of nodes, each declared once: at the field of the dataclass that holds its value."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pkgutil import resolve_name
from typing import Any, TypeVar

Config = TypeVar('Config')

# When a change takes effect while the node runs.
LIVE = 'live'              # on the next result
BACKGROUND = 'background'  # once a new model is ready in the background
CONFIGURE = 'configure'    # at the next configure; refused while active
STARTUP = 'startup'        # read once when the process starts

KINDS = {bool: 'bool', int: 'int', float: 'double', str: 'string',
         tuple[float, ...]: 'double[]', tuple[str, ...]: 'string[]'}
ITEMS = {tuple[float, ...]: float, tuple[str, ...]: str}

# Shared by several nodes.
CAMERAS = ('camera',)
DEVICE = re.compile(r'auto|cpu|mps|cuda(:\d+)?')
DEVICES = 'auto, cpu, cuda, cuda:N or mps'
NAME = re.compile(r'[A-Za-z](_?[A-Za-z0-9])*(/[A-Za-z](_?[A-Za-z0-9])*)*')
NAMES = 'ROS names such as front or left/eye'
ONE_NAME = 'a ROS name such as front or left/eye'
MESSAGES = ('twist', 'twist_stamped')
TRANSPORTS = ('auto', 'raw', 'compressed', 'ffmpeg')
MOST_SEED = 2**31 - 1

# Where each executable declares its parameters.
SCHEMAS = {'collision_guard': 'collision_guard.parameters:SCHEMA',
           'local_planner': 'local_planner.parameters:SCHEMA',
           'camera_source': 'sim.parameters:SOURCE', 'simulated_robot': 'sim.parameters:ROBOT',
           'vjepa_node': 'perception_node.parameters:SCHEMA',
           'command_watchdog': 'command_watchdog:SCHEMA'}
LONGEST = 100            # more of a name is not compared
# ROS declares them itself, some of them later.
OF_ROS = re.compile(r'use_sim_time|qos_overrides\..+|start_type_description_service')


@dataclass(frozen=True)
class Param:
    """One row: name, type, default, allowed values, unit, meaning, and when it takes effect."""

    name: str
    kind: type
    default: Any
    text: str
    effect: str = LIVE
    low: float | None = None
    high: float | None = None
    # Allowed values; a mapping says what each of them is called in Python
    choices: tuple[str, ...] | Mapping[str, Any] = ()
    unit: str = ''
    # pattern, allowed: what every string must match, and the same in words
    pattern: re.Pattern[str] | None = None
    allowed: str = ''
    multiple: int = 1
    # config, sets: the class, and the argument of it, that the value is for; see `make`
    config: type | None = None
    sets: str = ''

    @property
    def range_text(self) -> str:
        """Return the allowed values in words, '' when everything is."""
        if self.choices or self.low is None:
            return ', '.join(self.choices) or self.allowed
        text = f'at least {self.low:g}' if self.high is None else f'{self.low:g}..{self.high:g}'
        return f'{text}, multiple of {self.multiple}' if self.multiple > 1 else text

    def check(self, value: Any) -> tuple[Any, str]:
        """(value in the type of this row, '') or (None, what is wrong and what is allowed)."""
        item, listed = ITEMS.get(self.kind), isinstance(value, Iterable) and type(value) is not str
        values = list(value) if listed else [value]
        if (item or self.kind) is float:
            values = [float(each) if type(each) is int else each for each in values]
        problem = ''
        if listed is (item is None) or any(type(each) is not (item or self.kind)
                                           for each in values):
            # JSON is YAML, too.
            problem = f'must be a {KINDS[self.kind]} such as {json.dumps(self.default)}'
        problem = problem or next(filter(None, map(self._problem, values)), '')
        if problem:
            shown = list(value) if listed else value
            return None, f"parameter '{self.name}' is {shown!r:.200}, {problem}"
        return (tuple(values) if item else values[0]), ''

    def _problem(self, value: Any) -> str:
        if isinstance(value, str):
            if '$(' in value:
                return 'must be the value itself: nothing resolves $(...) in a parameter'
            if self.choices and value not in self.choices:
                return f'must be one of {self.range_text}'
            wrong = self.pattern is not None and not self.pattern.fullmatch(value)
        elif not math.isfinite(value):
            return 'must be finite'
        else:
            wrong = ((self.low is not None and value < self.low)
                     or (self.high is not None and value > self.high)
                     or (value % self.multiple and self.multiple > 1))
        return f'must be {self.range_text}' if wrong else ''

    def as_setting(self, value: Any) -> Any:
        """Convert a legal value to what the class takes: angles in radians, choices in Python."""
        if isinstance(self.choices, Mapping):
            return self.choices[value]
        return math.radians(value) if self.unit == 'deg' else value


AUTOSTART = Param('autostart', bool, False, 'Configure and activate without a lifecycle manager',
                  STARTUP)


def parameter(default: Any, text: str, *, name: str = '', **more: Any) -> Any:
    """Declare a field of a dataclass as a parameter of a node; `more`: of `Param`."""
    return field(default=default, metadata={'parameter': (name, text, more)})


def rows_of(config: type, effect: str = LIVE, before: str = '', only: Iterable[str] = ()
            ) -> tuple[Param, ...]:
    """Return the rows of the fields of a dataclass; `before`: what their names begin with."""
    made, chosen = [], tuple(only)
    for each in fields(config):
        if 'parameter' not in each.metadata or (chosen and each.name not in chosen):
            continue
        name, text, more = each.metadata['parameter']
        default: Any = each.default
        if isinstance(more.get('choices'), Mapping):
            default = next(word for word, value in more['choices'].items() if value == default)
        elif more.get('unit') == 'deg':
            default = round(math.degrees(default), 9)
        kind = more.get('kind') or (tuple[type(default[0]), ...] if isinstance(default, tuple)
                                    else type(default))
        made.append(Param(before + (name or each.name), text=text, config=config, sets=each.name,
                          **{'effect': effect, **more, 'kind': kind, 'default': default}))
    return tuple(made)


def check_ranges(config: object) -> None:
    """Raise ValueError for the first field that is a parameter and not within its range."""
    for row in rows_of(type(config)):
        value = getattr(config, row.sets)
        problem = '' if isinstance(value, tuple) else row._problem(value)
        if problem:
            raise ValueError(f'{row.sets} is {value}, {problem}')


def make(config: Callable[..., Config], rows: Iterable[Param], values: Mapping[str, Any],
         **more: Any) -> Config:
    """Make an object of a class from the values of the rows that are for it."""
    return config(**{**{row.sets: row.as_setting(values[row.name]) for row in rows
                        if row.config is config}, **more})


def named(rows: Iterable[Param], owner: str) -> tuple[Param, ...]:
    """Return the rows of one camera or sensor: NAME stands for it in names and defaults."""
    def own(value: Any) -> Any:
        return value.replace('NAME', owner) if isinstance(value, str) else value

    return tuple(replace(row, name=own(row.name), default=own(row.default)) for row in rows)


@dataclass(frozen=True)
class Schema:
    """All parameters of one node."""

    # Rows by the title of their section in the YAML file
    sections: Mapping[str, tuple[Param, ...]]
    # Makes the configuration of the node from values. With `hub` it also takes ``fetched``: the
    # names that may be fetched from the Hugging Face hub, None for any.
    read: Callable[..., Any]
    # Raises ValueError when the values of `sections` do not fit together
    check: Callable[[Mapping[str, Any]], object]
    # Parameters that list names, such as that of cameras, with the rows that each name brings
    lists: Mapping[str, Callable[[str], tuple[Param, ...]]] = field(default_factory=dict)
    hub: tuple[str, ...] = ()  # parameters that can name something on the hub

    @property
    def rows(self) -> tuple[Param, ...]:
        """Return the rows of all sections."""
        return tuple(row for rows in self.sections.values() for row in rows)

    def rows_of(self, name: str) -> tuple[Param, ...]:
        """Return the rows of a name in any list."""
        return tuple(row for make_rows in self.lists.values() for row in make_rows(name))

    def row(self, name: str) -> Param | None:
        """Return the row of a name, also of a camera or sensor that may be listed; or None."""
        owner = name.partition('.')[0]
        return next((row for row in (*self.rows, *(self.rows_of(owner) if owner != name else ()))
                     if row.name == name), None)

    def problem(self, values: Mapping[str, Any]) -> str:
        """Return what is wrong across several parameters, '' for nothing."""
        listed = [name for parameter in self.lists for name in values[parameter]]
        where = ' and '.join(f"'{parameter}'" for parameter in self.lists)
        taken = sorted({row.name.split('.')[0] for row in self.rows} & set(listed))
        if self.lists and not listed:
            return f'{where}: empty, must name at least one'
        if len(set(listed)) != len(listed):
            return f'{where}: {listed}, must name each once'
        if taken:
            return f'{where}: {taken}, which are names of other parameters'
        try:
            self.check(values)
        except ValueError as error:
            return f'parameters do not fit together: {error}'
        return ''

    def unread(self, given: Iterable[str], declared: Collection[str]) -> dict[str, str]:
        """Say of each name that nothing reads what to do, or what is probably meant."""
        found = {}
        for name in sorted(set(given) - set(declared)):
            if OF_ROS.fullmatch(name):
                continue
            owner, _, rest = name.partition('.')
            places = [f"'{place}'" for place, rows in self.lists.items()
                      if rest and name in {row.name for row in rows(owner)}]
            if places:
                found[name] = f"'{owner}' is not in {' or '.join(places)}"
            elif not _elsewhere(name):       # a file for /** may serve several nodes
                found[name] = nearest(name, declared)
        return found


def schema_of(executable: str) -> Schema:
    """Return the parameters of an executable of this package."""
    return resolve_name(f'vjepa_ros.ros.{SCHEMAS[executable]}')


def schemas() -> dict[str, Schema]:
    """Return the schemas of the nodes of this package that can be loaded here, by node."""
    found = {}
    for executable in SCHEMAS:
        try:
            found[executable] = schema_of(executable)
        except ModuleNotFoundError:     # without PyTorch this machine runs no such node
            continue
    return found


def nearest(name: str, declared: Iterable[str]) -> str:
    """Return which of the declared names is probably meant, as a question, or ''."""
    near = difflib.get_close_matches(name[:LONGEST], list(declared), 1)
    return f"do you mean '{near[0]}'?" if near else ''


def _elsewhere(name: str) -> bool:
    """Whether another node of this package has a parameter of this name."""
    # Only now: most nodes are given nothing that they do not have.
    return any(schema.row(name) is not None for schema in schemas().values())

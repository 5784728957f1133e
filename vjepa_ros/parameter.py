# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of nodes, each declared once: at the field of the dataclass that holds its value.

Default, range, unit and text stand in the metadata of the field (`parameter`). ROS descriptors,
validation, YAML files and the tables of the documentation derive from them (`rows_of`), and the
values find their way back into the dataclass (`make`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
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
        if self.choices:
            return ', '.join(self.choices)
        if self.allowed:
            return self.allowed
        if self.low is None and self.high is None:
            return ''
        low = '' if self.low is None else f'{self.low:g}'
        high = '' if self.high is None else f'{self.high:g}'
        text = f'{low}..{high}' if low and high else f'at least {low}' if low else f'up to {high}'
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
            problem = f'must be a {KINDS[self.kind]}{self._instead(value)}'
        problem = problem or next(filter(None, map(self._problem, values)), '')
        if problem:
            shown = list(value) if listed else value
            return None, f"parameter '{self.name}' is {shown!r:.200}, {problem}"
        return (tuple(values) if item else values[0]), ''

    def _instead(self, value: Any) -> str:
        """Return what to write for a value of a wrong type, '' where nobody can know."""
        if self.kind in ITEMS:
            if isinstance(value, str | int | float):
                return f': write [{value!s:.50}]'
            return ': put each of its values in quotes' if self.kind == tuple[str, ...] else ''
        if isinstance(value, Iterable) and not isinstance(value, str):
            return ': write one value, without brackets'
        if self.kind is str:
            return ': put it in quotes' if isinstance(value, bool | int | float) else ''
        if self.kind is bool:
            return ': write true or false'
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            return ''
        whole = self.kind is float or number.is_integer()
        return f': write {self.kind(number)!r}' if math.isfinite(number) and whole else ''

    def _problem(self, value: Any) -> str:
        if isinstance(value, str):
            if '$(' in value:
                return 'must be the value itself: nothing resolves $(...) in a parameter'
            if self.choices and value not in self.choices:
                return f'must be one of {self.range_text}'
            return f'must be {self.allowed}' if self.pattern and not (
                self.pattern.fullmatch(value)) else ''
        if not math.isfinite(value):
            return 'must be finite'
        wrong = ((self.low is not None and value < self.low)
                 or (self.high is not None and value > self.high)
                 or (self.multiple > 1 and value % self.multiple))
        return f'must be {self.range_text}' if wrong else ''

    def as_setting(self, value: Any) -> Any:
        """Convert a legal value to what the class takes: angles in radians, choices in Python."""
        if isinstance(self.choices, Mapping):
            return self.choices[value]
        return math.radians(value) if self.unit == 'deg' else value


def parameter(default: Any, text: str, *, name: str = '', **more: Any) -> Any:
    """Declare a field of a dataclass as a parameter of a node.

    `name`: its name in ROS where that is another; `more`: of `Param`.
    """
    return field(default=default, metadata={'parameter': (name, text, more)})


def rows_of(config: type, effect: str = LIVE, before: str = '', only: Iterable[str] = ()
            ) -> tuple[Param, ...]:
    """Return the rows of the fields of a dataclass that are parameters.

    `effect`: of those that name none; `before`: what all their names begin with; `only`: fields.
    """
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

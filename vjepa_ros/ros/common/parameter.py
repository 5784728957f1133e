# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of nodes as rows, the one place where each of them is declared.

ROS descriptors, validation, YAML files and the tables of the documents derive from the rows. A
default that a dataclass has is taken from there, see `setting`. This module imports no ROS.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

Config = TypeVar('Config')

# When a change takes effect while the node runs.
LIVE = 'live'              # on the next result
BACKGROUND = 'background'  # once a new model is ready in the background
CONFIGURE = 'configure'    # at the next configure; refused while active
STARTUP = 'startup'        # read once when the process starts

KINDS = {bool: 'bool', int: 'int', float: 'double', str: 'string',
         tuple[float, ...]: 'double[]', tuple[str, ...]: 'string[]'}


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
    # Whether a number counts as the string it is written as, such as the index of a camera
    numbers: bool = False
    # config, sets: the dataclass or class, and the argument of it, that the value is for; see
    # `make`
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
        wanted = KINDS[self.kind]
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if self.kind is str:
            value = self._as_text(value)
        if self.kind in (tuple[float, ...], tuple[str, ...]):
            item = float if self.kind == tuple[float, ...] else str
            if isinstance(value, str) or not isinstance(value, Iterable):
                return None, self._refuse(value, f'must be a {wanted}{self._instead(value)}')
            if item is float:
                value = [float(v) if type(v) is int else v for v in value]
            if not all(isinstance(v, item) for v in value):
                return None, self._refuse(value, f'must be a {wanted}{self._instead(value)}')
            value = tuple(value)
        elif type(value) is not self.kind:
            return None, self._refuse(value, f'must be a {wanted}{self._instead(value)}')
        for each in value if isinstance(value, tuple) else (value,):
            problem = self._problem(each)
            if problem:
                return None, self._refuse(value, problem)
        return value, ''

    def _as_text(self, value: Any) -> Any:
        """Return the text that YAML or rcl took for a number or a truth value, where it is clear.

        model_version: 2.0 is a number to them, and streaming: off is false; Off and no are, too.
        """
        for truth, words in SWITCHES.items():
            meant = [word for word in self.choices if word in words]
            written = isinstance(value, str) and value.lower() in words
            if len(meant) == 1 and (value is truth or (written and value not in self.choices)):
                return meant[0]
        known = type(value) in (int, float) and (self.numbers or str(value) in self.choices)
        return str(value) if known else value

    def _instead(self, value: Any) -> str:
        """Return what to write for a value of a wrong type, '' where nobody can know."""
        if self.kind in (tuple[float, ...], tuple[str, ...]):
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
        if isinstance(value, str) and '$(' in value:
            return 'must be the value itself: nothing resolves $(...) in a parameter'
        if self.choices and value not in self.choices:
            return f'must be one of {self.range_text}'
        if self.pattern and not self.pattern.fullmatch(value):
            return f'must be {self.allowed}'
        if isinstance(value, float) and not math.isfinite(value):
            return 'must be finite'
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                return f'must be {self.range_text}'
            if self.high is not None and value > self.high:
                return f'must be {self.range_text}'
            if self.multiple > 1 and value % self.multiple:
                return f'must be {self.range_text}'
        return ''

    def _refuse(self, value: Any, problem: str) -> str:
        shown = list(value) if isinstance(value, tuple) else value
        return f"parameter '{self.name}' is {shown!r:.200}, {problem}"

    def as_setting(self, value: Any) -> Any:
        """Convert a legal value to what the class takes: angles in radians, choices in Python."""
        if isinstance(self.choices, Mapping):
            return self.choices[value]
        return math.radians(value) if self.unit == 'deg' else value


def setting(config: type, name: str, text: str, effect: str = LIVE, sets: str = '',
            **more: Any) -> Param:
    """Make a row with the type and the default of an argument of a class."""
    arguments = inspect.signature(config).parameters
    whole = name.replace('.', '_')
    sets = sets or (whole if whole in arguments else name.rpartition('.')[2])
    default = arguments[sets].default
    if isinstance(more.get('choices'), Mapping):
        default = next(word for word, value in more['choices'].items() if value == default)
    elif more.get('unit') == 'deg':
        default = round(math.degrees(default), 9)
    kind = tuple[type(default[0]), ...] if isinstance(default, tuple) else type(default)
    return Param(name, kind, default, text, effect, config=config, sets=sets, **more)


def make(config: Callable[..., Config], rows: Iterable[Param], values: Mapping[str, Any],
         **more: Any) -> Config:
    """Make an object of a class from the values of the rows that are for it."""
    return config(**{row.sets: row.as_setting(values[row.name]) for row in rows
                     if row.config is config}, **more)


Rows = Callable[[str], tuple[Param, ...]]


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
    lists: Mapping[str, Rows] = field(default_factory=dict)
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


# Texts that YAML takes for a truth value.
SWITCHES = {True: ('on', 'yes', 'true'), False: ('off', 'no', 'false')}

# Shared by several nodes.
CAMERAS = ('camera',)
DEVICE = re.compile(r'auto|cpu|mps|cuda(:\d+)?')
DEVICES = 'auto, cpu, cuda, cuda:N or mps'
NAME = re.compile(r'[A-Za-z](_?[A-Za-z0-9])*(/[A-Za-z](_?[A-Za-z0-9])*)*')
NAMES = 'ROS names such as front or left/eye'
ONE_NAME = 'a ROS name such as front or left/eye'
MESSAGES = ('twist', 'twist_stamped')
TRANSPORTS = ('auto', 'raw', 'compressed', 'ffmpeg')
WEIGHTS_PARTS = ('auto', 'target_encoder', 'ema_encoder', 'encoder')
MOST_SEED = 2**31 - 1

AUTOSTART = Param('autostart', bool, False, 'Configure and activate without a lifecycle manager',
                  STARTUP)
ALLOW_DOWNLOAD = Param('allow_download', bool, False, 'Also download weights from the Hugging '
                       'Face hub that are named while the node runs; those named at its start are '
                       'always downloaded', STARTUP)
MAX_IMAGE_PIXELS = Param('max_image_pixels', int, 4096 * 4096, 'Largest accepted image; larger '
                         'ones are refused before decoding and counted, because few bytes can '
                         'contain a picture that takes minutes and gigabytes', low=4096,
                         high=10**8, unit='px')


def model_rows(config: type, effect: str) -> dict[str, Param]:
    """Return the rows that all nodes with a model have, by name."""
    row = partial(setting, config, effect=effect)
    rows = (
        row('device', 'Device of the model; auto: CUDA, else MPS, else the CPU', pattern=DEVICE,
            allowed=DEVICES),
        row('require_device', 'Fail when the device is missing or lacks an operator, instead of '
            'running on the CPU with a warning'),
        row('weights_part', 'Encoder in a file with several; auto: target_encoder, else '
            'ema_encoder, else encoder', choices=WEIGHTS_PARTS),
        row('allow_random_weights', 'Run untrained without weights; every output is marked '
            'untrained'),
        row('seed', 'Seed of random weights', low=0, high=MOST_SEED),
        row('cpu_threads', 'CPU threads of PyTorch; 0 keeps its default', low=0, high=256),
    )
    return {row.name: row for row in rows}


def transport_row(name: str) -> Param:
    """Return the row of the transport of images."""
    return Param(name, str, 'auto', 'Image topic to read; auto: the first of raw, compressed and '
                 'ffmpeg (H.264 and H.265) that delivers', CONFIGURE, choices=TRANSPORTS)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""One row of a table of parameters: what it is called, what it may be, and when it takes effect.

This module imports no ROS.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# How a change takes effect while the node runs.
LIVE = 'live'              # on the next result
BACKGROUND = 'background'  # a new model is made ready in the background, then swapped in
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
    choices: tuple[str, ...] = ()
    unit: str = ''
    pattern: re.Pattern[str] | None = None
    allowed: str = ''          # what the pattern means, in words
    multiple: int = 1

    @property
    def range_text(self) -> str:
        """Allowed values in words, '' when everything is."""
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
        if self.kind is str and type(value) in (int, float) and str(value) in self.choices:
            value = str(value)   # model_version: 2.0 is a number to YAML
        if self.kind in (tuple[float, ...], tuple[str, ...]):
            item = float if self.kind == tuple[float, ...] else str
            if isinstance(value, str) or not isinstance(value, Iterable):
                return None, self._refuse(value, f'must be a {wanted}')
            if item is float:
                value = [float(v) if isinstance(v, int) else v for v in value]
            if not all(isinstance(v, item) for v in value):
                return None, self._refuse(value, f'must be a {wanted}')
            value = tuple(value)
        elif type(value) is not self.kind:
            return None, self._refuse(value, f'must be a {wanted}')
        for each in value if isinstance(value, tuple) else (value,):
            problem = self._problem(each)
            if problem:
                return None, self._refuse(value, problem)
        return value, ''

    def _problem(self, value: Any) -> str:
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
        return f"parameter '{self.name}' is {shown!r}, {problem}"

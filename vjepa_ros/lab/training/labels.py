# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read from a topic of a recording, or from a table, when a robot touched something.

A contact is the moment when a flag rises: a bumper that reports true, a distance that falls below
a threshold. Before it the time to contact is known exactly; after the last one it is known that
nothing came until the labels end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vjepa_ros.sources.bag import Bag, parsing
from vjepa_ros.sources.base import SourceError

# What is read of a message when no field is named, and how its value becomes "in contact".
NUMBERS = ('Float32', 'Float64', 'Int8', 'Int16', 'Int32', 'Int64', 'UInt8', 'UInt16', 'UInt32',
           'UInt64')
FIELDS = {'Bool': 'data', 'Range': 'range', **dict.fromkeys(NUMBERS, 'data')}
THRESHOLD = re.compile(r'\s*([<>]?)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*')


@dataclass(frozen=True)
class Flags:
    """When a robot was in contact."""

    stamps_ns: np.ndarray  # (N,) int64, rising
    touching: np.ndarray  # (N,) bool

    def contact_s(self, stamp_ns: int) -> tuple[float, float]:
        """Time to the next contact, and how far ahead is known."""
        at = int(np.searchsorted(self.stamps_ns, stamp_ns, side='right')) - 1
        if at < 0 or stamp_ns > self.stamps_ns[-1]:
            return math.nan, math.nan
        if self.touching[at]:
            return 0.0, math.inf
        later = np.flatnonzero(self.touching[at:])
        if later.size:
            return float(self.stamps_ns[at + later[0]] - stamp_ns) / 1e9, math.inf
        return math.inf, float(self.stamps_ns[-1] - stamp_ns) / 1e9


@dataclass(frozen=True)
class Rule:
    """How a number of a message indicates contact."""

    below: bool  # whether contact is at or below the threshold, or above it
    threshold: float  # in the unit of the field

    @classmethod
    def parse(cls, text: str, below: bool) -> Rule:
        """Read ``0.3``, ``<0.3`` or ``>0.3``; `below` decides what a bare number means."""
        match = THRESHOLD.fullmatch(text)
        if match is None:
            raise SourceError(f"label threshold '{text}' is not a number, such as 0.3 or '<0.3'")
        return cls(below if not match[1] else match[1] == '<', float(match[2]))

    def touching(self, values: np.ndarray) -> np.ndarray:
        """Apply to values; NaN is no contact."""
        with np.errstate(invalid='ignore'):
            return values <= self.threshold if self.below else values > self.threshold


def read_flags(bag: Path, topic: str, field: str = '', threshold: str = '') -> Flags:
    """Contacts from a topic of a rosbag2."""
    with parsing(f"labels of '{bag}' on '{topic}' cannot be read"), closing(
            Bag(Path(bag))) as reader:
        found = [c for c in reader.connections if c.topic.lstrip('/') == topic.lstrip('/')]
        if not found:
            listing = ', '.join(sorted(f'{c.topic} ({c.msgtype})' for c in reader.connections))
            raise SourceError(f"bag '{bag}' has no label topic '{topic}'; it has: {listing}")
        kind = found[0].msgtype
        where = f"label topic '{topic}' ({kind}) of '{bag}'"
        path = _field_path(kind, field, where)
        stamps, values = [], []
        for connection, recorded_ns, raw in reader.messages(found):
            message = reader.deserialize(raw, connection.msgtype)
            stamps.append(_stamp(message, recorded_ns))
            values.append(_value(message, path, where))
        reader.tell()
    if not stamps:
        raise SourceError(f'{where} has no messages')
    order = np.argsort(stamps, kind='stable')
    return Flags(np.array(stamps, np.int64)[order],
                 _touching(values, kind, threshold, where)[order])


def _field_path(kind: str, field: str, where: str) -> Sequence[str]:
    name = field or FIELDS.get(kind.rsplit('/', 1)[-1], '')
    if not name:
        raise SourceError(f'{where} is of a type that is not known here: name the field that '
                          'tells of a contact (--label-field), or use one of '
                          f'{", ".join(FIELDS)}')
    return name.split('.')


def _stamp(message: object, recorded_ns: int) -> int:
    header = getattr(message, 'header', None)
    if header is None:
        return recorded_ns
    return header.stamp.sec * 1_000_000_000 + header.stamp.nanosec or recorded_ns


def _value(message: object, path: Sequence[str], where: str) -> bool | float:
    value = message
    for part in path:
        fields = [n for n in vars(value) if not n.startswith('__')] if hasattr(
            value, '__dict__') else []
        if part not in fields:
            raise SourceError(f"{where} has no field '{'.'.join(path)}'; at this place it has: "
                              f'{", ".join(fields) or "nothing"}')
        value = getattr(value, part)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, float, np.number)):
        return float(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return len(value) > 0       # such as a list of contacts
    raise SourceError(f"{where}: field '{'.'.join(path)}' is a {type(value).__name__}, neither "
                      'true or false, a number nor a list')


def _touching(values: list[bool | float], kind: str, threshold: str, where: str) -> np.ndarray:
    if all(isinstance(value, bool) for value in values):
        return np.array(values, bool)
    if not threshold:
        raise SourceError(f'{where} holds numbers: say from which on they mean contact '
                          "(--label-threshold, such as '<0.3')")
    return Rule.parse(threshold, below=kind.endswith('/Range')).touching(np.array(values, float))

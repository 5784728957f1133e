# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find events in the rows of a camera: level by hysteresis, with pre- and post-roll, merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vjepa_ros.fleet.scoring import urgency_of
from vjepa_ros.perception.types import Level

COLUMNS = ('at_s', 'stamp_ns', 'level', 'time_to_contact', 'collision_probability')


@dataclass(frozen=True)
class EventRule:
    """When there is an event."""

    # It begins at this level and ends below the next lower one, but not before CLEAR
    level: Level = Level.WARNING
    # before_s, after_s: added to its ends [s]; events that overlap then are one
    before_s: float = 2.0
    after_s: float = 2.0


def find_events(rows: Mapping[str, np.ndarray], rule: EventRule) -> list[dict[str, Any]]:
    """Return the events of one camera, in order of time.

    `rows`: (N,) arrays by the names of `COLUMNS`, in the order of the recording.
    """
    at_s, events = rows['at_s'], []
    for first, last in _merged(_runs(rows['level'], rule.level), at_s, rule):
        span = slice(first, last + 1)
        peak = max(range(first, last + 1), key=lambda n: urgency_of({
            'level': _known(rows['level'][n]), 'time_to_contact': rows['time_to_contact'][n]}))
        events.append({
            'begin_s': max(0.0, at_s[first] - rule.before_s),
            'end_s': min(at_s[-1], at_s[last] + rule.after_s),
            'first_stamp_ns': rows['stamp_ns'][first], 'last_stamp_ns': rows['stamp_ns'][last],
            'peak_s': at_s[peak], 'peak_stamp_ns': rows['stamp_ns'][peak],
            'level': rows['level'][peak],
            'time_to_contact': np.fmin.reduce(rows['time_to_contact'][span]),
            'collision_probability': np.fmax.reduce(rows['collision_probability'][span]),
            'rows': last + 1 - first, 'peak': peak})
    return events


def _known(level: int) -> int:
    return -1 if level == Level.UNKNOWN else level


def _runs(levels: np.ndarray, enter: Level) -> Iterator[tuple[int, int]]:
    """Yield the first and the last raised row of each run."""
    leave = max(Level.CAUTION, enter - 1)
    first = last = -1
    for number, level in enumerate(levels):
        if level == Level.UNKNOWN:
            continue
        if first >= 0 and level < leave:
            yield first, last
            first = -1
        elif level >= (enter if first < 0 else leave):
            first, last = (number if first < 0 else first), number
    if first >= 0:
        yield first, last


def _merged(runs: Iterable[tuple[int, int]], at_s: np.ndarray, rule: EventRule
            ) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in runs:
        if merged and at_s[first] - rule.before_s <= at_s[merged[-1][1]] + rule.after_s:
            merged[-1] = merged[-1][0], last
        else:
            merged.append((first, last))
    return merged

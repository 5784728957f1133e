# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Rows and events: their columns, their Parquet files, and how events follow from rows."""

from __future__ import annotations

import importlib
import json
import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.perception.types import Assessment, Level
from vjepa_ros.sources.base import printable

ROWS = 'rows'         # folder of the files of the chunks
FACTS = b'vjepa_ros'  # key of what a file says about its chunk
# Numbers of an assessment, as in a message of the node: float32.
NUMBERS = ('motion_score', 'obstacle_score', 'collision_probability', 'time_to_contact',
           'looming_rate', 'bearing', 'elevation', 'known_fraction', 'clip_span_s',
           'clip_rate_hz', 'clearance', 'collision_if_ahead', 'approach_speed',
           'collision_horizon', 'latency_ms')
REGION_NUMBERS = ('x', 'y', 'width', 'height', 'bearing', 'elevation', 'time_to_contact',
                  'looming_rate', 'confidence')
COLUMNS = ('at_s', 'stamp_ns', 'level', 'time_to_contact', 'collision_probability')   # of events


def arrow(name: str = 'pyarrow') -> Any:
    """Import a module of PyArrow."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f'tables of results need PyArrow ({error}): '
                         'pip install pyarrow rosbags av') from error


@cache
def row_schema() -> Any:
    """Return the Arrow schema of a row, one per assessment."""
    pa = arrow()
    shared = pa.dictionary(pa.int32(), pa.string())
    region = pa.struct([*((name, pa.float32()) for name in REGION_NUMBERS),
                        ('side', pa.string()), ('on_course', pa.bool_())])
    return pa.schema([
        ('bag', shared), ('topic', shared), ('camera', shared), ('at_s', pa.float64()),
        ('stamp_ns', pa.int64()), ('frame_id', shared),
        *((name, pa.float32()) for name in NUMBERS),
        ('level', pa.uint8()), ('flags', pa.uint16()), ('regions', pa.list_(region)),
        ('model_sha256', shared), ('configuration', shared),
        ('thumbnail', pa.binary()), ('embedding', pa.list_(pa.float32()))])


@cache
def event_schema() -> Any:
    """Return the Arrow schema of an event."""
    pa = arrow()
    return pa.schema([
        ('event', pa.int32()), ('bag', pa.string()), ('topic', pa.string()),
        ('camera', pa.string()), ('begin_s', pa.float64()), ('end_s', pa.float64()),
        ('first_stamp_ns', pa.int64()), ('last_stamp_ns', pa.int64()),
        ('peak_s', pa.float64()), ('peak_stamp_ns', pa.int64()), ('level', pa.uint8()),
        ('time_to_contact', pa.float32()), ('collision_probability', pa.float32()),
        ('rows', pa.int32()), ('thumbnail', pa.binary())])


def row_of(a: Assessment) -> dict[str, Any]:
    """Return the columns that come from an assessment.

    Its `timings` are left out: they belong to the computer, and equal inputs give equal files.
    """
    return {'camera': a.camera, 'stamp_ns': a.stamp_ns, 'frame_id': a.frame_id,
            **{name: getattr(a, name) for name in NUMBERS},
            'level': int(a.level), 'flags': int(a.flags),
            'regions': [{name: getattr(region, name)
                         for name in (*REGION_NUMBERS, 'side', 'on_course')}
                        for region in a.regions]}


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], schema: Any,
                facts: Mapping[str, Any] | None = None) -> None:
    """Write a Parquet file that is either whole or not there."""
    pa, parquet = arrow(), arrow('pyarrow.parquet')
    if facts is not None:
        schema = schema.with_metadata({FACTS: json.dumps(facts, sort_keys=True).encode()})
    # Paths may be no UTF-8, which all text in the format is.
    table = pa.Table.from_pylist([{name: printable(value) if isinstance(value, str) else value
                                   for name, value in row.items()} for row in rows],
                                 schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.{socket.gethostname()}.{os.getpid()}.tmp')
    try:
        with draft.open('wb') as file:
            parquet.write_table(table, file, compression='zstd')
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def read_facts(path: Path) -> dict[str, Any] | None:
    """Return what a file says about its chunk; None where there is no readable file."""
    if not path.is_file():
        return None
    try:
        return json.loads(arrow('pyarrow.parquet').read_schema(path).metadata[FACTS])
    except (KeyError, TypeError, ValueError, OSError):      # those of Arrow are ValueErrors
        return None


def read_rows(files: Iterable[Path], columns: Sequence[str] | None = None) -> Any:
    """Return the rows of files as one Arrow table, in the order of the files."""
    tables = [arrow('pyarrow.parquet').ParquetFile(file).read(columns=columns) for file in files]
    return arrow().concat_tables(tables).unify_dictionaries() if tables \
        else row_schema().empty_table()


# -- events ---------------------------------------------------------------------------------------

@dataclass(frozen=True)
class EventRule:
    """When there is an event."""

    level: Level = Level.WARNING  # it begins at, and ends below the next lower one but CLEAR
    before_s: float = 2.0  # added to its ends [s]; events that overlap then are one
    after_s: float = 2.0


def find_events(rows: Mapping[str, np.ndarray], rule: EventRule) -> list[dict[str, Any]]:
    """Return the events of one camera, in order of time, from (N,) arrays of `COLUMNS`."""
    at_s, events = rows['at_s'], []
    for first, last in _merged(_runs(rows['level'], rule.level), at_s, rule):
        span = slice(first, last + 1)
        peak = max((n for n in range(first, last + 1) if rows['level'][n] != Level.UNKNOWN),
                   key=lambda n: urgency_of({name: rows[name][n]
                                             for name in ('level', 'time_to_contact')}))
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


def urgency_of(row: Any) -> tuple[float, float]:
    """Return what rows and events are compared by: the level, then the time to contact."""
    ttc = row['time_to_contact']
    return row['level'], -math.inf if ttc is None or math.isnan(ttc) else -ttc


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

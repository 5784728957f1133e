# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a run has found: rows and events as Parquet, run.json, and one self-contained page."""

from __future__ import annotations

import importlib
import json
import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np

from vjepa_ros.lab.report.page import chip, data_uri, html_page, html_table, html_tiles
from vjepa_ros.perception.types import Assessment, Level
from vjepa_ros.sources.base import printable

if TYPE_CHECKING:
    from vjepa_ros.fleet.recordings import Chunk, Recording
    from vjepa_ros.fleet.run import Run
    from vjepa_ros.fleet.scoring import Scored

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
MOST_EVENTS = 200        # on the page; the table has all


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
                facts: Mapping[str, Any]) -> None:
    """Write a Parquet file, with what it says of itself, that is either whole or not there."""
    pa, parquet = arrow(), arrow('pyarrow.parquet')
    # Paths may be no UTF-8, which all text in the format is.
    table = pa.Table.from_pylist(
        [{name: printable(value) if isinstance(value, str) else value
          for name, value in row.items()} for row in rows],
        schema=schema.with_metadata({FACTS: json.dumps(facts, sort_keys=True).encode()}))
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
    for first, last in _spans(rows['level'], at_s, rule):
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


def _spans(levels: np.ndarray, at_s: np.ndarray, rule: EventRule) -> list[list[int]]:
    """Return the first and the last raised row of each event."""
    leave = max(Level.CAUTION, rule.level - 1)
    spans: list[list[int]] = []
    raised = False
    for number, level in enumerate(levels):
        if level == Level.UNKNOWN:
            continue
        if level < (leave if raised else rule.level):
            raised = False
        elif raised or (spans and at_s[number] - rule.before_s
                        <= at_s[spans[-1][1]] + rule.after_s):
            raised, spans[-1][1] = True, number
        else:
            raised = True
            spans.append([number, number])
    return spans


def urgency_of(row: Any) -> tuple[float, float]:
    """Return what rows and events are compared by: the level, then the time to contact."""
    ttc = row['time_to_contact']
    return row['level'], -math.inf if ttc is None or math.isnan(ttc) else -ttc


# -- summary --------------------------------------------------------------------------------------

def write_summary(run: Run, rule: EventRule, command: str) -> str:
    """Write events, run.json, which says what belongs together, and the page; tell of them."""
    done: dict[Recording, list[tuple[Chunk, Scored]]] = {}
    for chunk in run.chunks:
        if chunk.file in run.scored:
            done.setdefault(chunk.recording, []).append((chunk, run.scored[chunk.file]))
    events: list[dict[str, Any]] = []
    for camera, parts in done.items():
        table = read_rows([run.file(chunk) for chunk, _ in parts], [*COLUMNS, 'thumbnail'])
        for event in find_events({name: table[name].to_numpy() for name in COLUMNS}, rule):
            events.append(event | {
                'event': len(events), 'bag': camera.path, 'topic': camera.topic,
                'camera': camera.camera, 'thumbnail': table['thumbnail'][event['peak']].as_py()})
    write_table(run.folder / 'events.parquet', events, event_schema(), {})
    every = [part for parts in done.values() for part in parts]
    facts = {
        'command': command, 'configuration': json.loads(run.config.text()),
        'weights_sha256': run.weights,
        'files': [f'{ROWS}/{chunk.file}' for chunk, _ in every],
        'cameras': [{'bag': camera.path, 'topic': camera.topic, 'camera': camera.camera,
                     'seconds': sum(scored.seconds for _, scored in parts)}
                    for camera, parts in done.items()],
        'chunks': len(run.chunks), 'skipped': run.skipped,
        'event_rule': {**vars(rule), 'level': rule.level.name}, 'events': len(events),
        **{name: sum(getattr(scored, name) for _, scored in every)
           for name in ('rows', 'frames', 'seconds')},
        'new_seconds': run.new_s, 'wall_s': run.wall_s, 'problems': run.problems}
    draft = run.folder / '.run.json.tmp'
    draft.write_text(json.dumps(facts, indent=1), encoding='utf-8')
    draft.replace(run.folder / 'run.json')
    page = run.folder / 'index.html'
    page.write_text(_page(events, facts), encoding='utf-8', errors='surrogateescape')
    return f'{facts["rows"]} rows and {len(events)} events: {page}'


def _page(events: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Return the page: what was scored, the events, the most urgent first, and all cameras."""
    settings, level = facts['configuration'], facts['event_rule']['level']
    track = settings['track']
    named = {'Model': settings['engine']['model_size'], 'Weights': facts['weights_sha256'][:16],
             'Clip': f"{track['num_frames']} frames"}
    body = ['<header><h1>Events in recordings</h1><div class="facts">'
            + ''.join(f'<div><b>{name}</b>{escape(value)}</div>' for name, value in named.items())
            + f'</div><code class="cmd">{escape(facts["command"])}</code></header>',
            html_tiles([(_length(facts['seconds']), 'of recordings scored'),
                        (f'{facts["rows"]:,}', 'assessments'), (f'{facts["events"]:,}', 'events'),
                        (f'{len(facts["problems"]):,}', 'problems found')])]
    if facts['problems']:
        items = ''.join(f'<li>{escape(problem)}</li>' for problem in facts['problems'])
        body.append(f'<section class="notes"><h2>What could not be scored</h2><ul>{items}</ul>'
                    '</section>')
    shown = sorted(events, key=urgency_of, reverse=True)[:MOST_EVENTS]
    hidden = f' The {len(shown)} most urgent of {len(events)} are shown.' \
        if len(events) > len(shown) else ''
    body.append('<section><h2>Events to look at</h2><p class="soft">Times at '
                f'{level} or above, the most urgent first: highest level, then least time to '
                f'contact. Boxes carry the time to contact.{hidden}</p><div class="frames">'
                f'{"".join(map(_figure, shown)) or "None."}</div></section>')
    rows = []
    for camera in facts['cameras']:
        those = [event['end_s'] - event['begin_s'] for event in events
                 if (event['bag'], event['topic']) == (camera['bag'], camera['topic'])]
        rows.append((f"{camera['bag']} {camera['topic']}".rstrip(), _length(camera['seconds']),
                     *((str(len(those)), _length(sum(those))) if those else ('no event', ''))))
    if rows:
        body.append('<section><h2>Cameras</h2>' + html_table(
            ('recording and camera', 'scored', 'events', 'their length'), rows) + '</section>')
    return html_page('Events in recordings', body)


def _figure(event: Mapping[str, Any]) -> str:
    picture, ttc = event['thumbnail'], event['time_to_contact']
    image = f'<img loading="lazy" alt="" src="{data_uri(picture, "jpeg")}">' if picture else ''
    contact = 'contact unknown' if math.isnan(ttc) else 'no contact' if math.isinf(ttc) \
        else f'contact in {ttc:.1f} s'
    return (f'<figure id="event-{event["event"]}">{image}<figcaption>'
            f'{chip(int(event["level"]))}<b>#{event["event"]}</b> {contact} at the least &middot; '
            f'{event["end_s"] - event["begin_s"]:.1f} s long &middot; picture '
            f'at&nbsp;{clock(event["peak_s"])}<br><code>{escape(event["bag"])} '
            f'{escape(event["topic"])}</code></figcaption></figure>')


def clock(seconds: float) -> str:
    """Return a time since the start as minutes and seconds."""
    return f'{int(seconds // 60)}:{seconds % 60:04.1f}'


def _length(seconds: float) -> str:
    return f'{seconds / 3600:.1f} h' if seconds >= 3600 else f'{seconds / 60:.1f} min' \
        if seconds >= 60 else f'{seconds:.0f} s'

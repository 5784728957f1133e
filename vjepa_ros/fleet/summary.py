# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what a run has found: events, run.json, and one self-contained page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from vjepa_ros.fleet.config import weights_sha256
from vjepa_ros.fleet.recordings import Recording
from vjepa_ros.fleet.run import Run
from vjepa_ros.fleet.tables import (
    COLUMNS,
    EventRule,
    ROWS,
    event_schema,
    find_events,
    read_rows,
    urgency_of,
    write_table,
)
from vjepa_ros.lab.report.page import chip, data_uri, html_page, html_table, html_tiles

MOST_EVENTS = 200        # on the page; the table has all


def write_summary(run: Run, rule: EventRule, command: str) -> str:
    """Write events, run.json and the page; what there is, in words."""
    events = gather_events(run, rule)
    facts = write_manifest(run, len(events), rule, command)
    page = events_page(events, facts)
    (run.folder / 'index.html').write_text(page, encoding='utf-8', errors='surrogateescape')
    return f'{facts["rows"]} rows and {len(events)} events: {run.folder / "index.html"}'


def gather_events(run: Run, rule: EventRule) -> list[dict[str, Any]]:
    """Find the events of all recordings, write their table and return its rows."""
    events: list[dict[str, Any]] = []
    by_recording: dict[Recording, list[Path]] = {}
    for chunk in run.chunks:
        if chunk.file in run.scored:
            by_recording.setdefault(chunk.recording, []).append(run.file(chunk))
    for recording, files in by_recording.items():
        table = read_rows(files, [*COLUMNS, 'thumbnail'])
        for event in find_events({name: table[name].to_numpy() for name in COLUMNS}, rule):
            event.update(event=len(events), bag=recording.path, topic=recording.topic,
                         camera=recording.camera,
                         thumbnail=table['thumbnail'][event.pop('peak')].as_py())
            events.append(event)
    write_table(run.folder / 'events.parquet', events, event_schema())
    return events


def write_manifest(run: Run, events: int, rule: EventRule, command: str) -> dict[str, Any]:
    """Write run.json, which says what belongs together, and return it."""
    done = [(chunk, run.scored[chunk.file]) for chunk in run.chunks if chunk.file in run.scored]
    seconds: dict[Recording, float] = {}
    for chunk, scored in done:
        seconds[chunk.recording] = seconds.get(chunk.recording, 0.0) + scored.seconds
    facts = {
        'command': command, 'configuration': json.loads(run.config.text()),
        'weights_sha256': weights_sha256(run.config.engine),
        'files': [f'{ROWS}/{chunk.file}' for chunk, _ in done],
        'cameras': [{'bag': camera.path, 'topic': camera.topic, 'camera': camera.camera,
                     'seconds': length} for camera, length in seconds.items()],
        'chunks': len(run.chunks), 'skipped': run.skipped,
        'rows': sum(scored.rows for _, scored in done), 'events': events,
        'event_rule': {**vars(rule), 'level': rule.level.name},
        'frames': sum(scored.frames for _, scored in done), 'seconds': sum(seconds.values()),
        'new_seconds': run.new_s, 'wall_s': run.wall_s, 'problems': run.problems}
    draft = run.folder / '.run.json.tmp'
    draft.write_text(json.dumps(facts, indent=1), encoding='utf-8')
    draft.replace(run.folder / 'run.json')
    return facts


def events_page(events: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Return the page: what was scored, the events, the most urgent first, and all cameras."""
    settings, level = facts['configuration'], facts['event_rule']['level']
    track = settings['track']
    named = {'Model': settings['engine']['model_size'], 'Weights': facts['weights_sha256'][:16],
             'Clip': f"{track['num_frames']} frames at {track['clip_fps']:g} Hz"}
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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lay out the events of a run as one self-contained HTML page, the most urgent first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vjepa_ros.fleet.scoring import urgency_of
from vjepa_ros.lab.report.page import chip, data_uri, html_page, html_table

MOST_EVENTS = 200        # on the page; the table has all


def events_page(events: Sequence[Mapping[str, Any]], facts: Mapping[str, Any],
                clips: Sequence[str] = ()) -> str:
    """Return the page."""
    shown = sorted(events, key=urgency_of, reverse=True)[:MOST_EVENTS]
    problems = facts['problems']
    body = [_header(facts), _tiles(facts)]
    if problems:
        items = ''.join(f'<li>{escape(problem)}</li>' for problem in problems)
        body.append(f'<section class="notes"><h2>What could not be scored</h2><ul>{items}</ul>'
                    '</section>')
    body.append(_events(shown, facts, clips))
    body.append(_cameras(events, facts['cameras']))
    return html_page('Events in recordings', [part for part in body if part])


def _header(facts: Mapping[str, Any]) -> str:
    settings = facts['configuration']
    parts = (('Model', settings['engine']['model_size']),
             ('Weights', facts['weights_sha256'][:16]),
             ('Clip', f"{settings['track']['num_frames']} frames at "
              f"{settings['track']['clip_fps']:g} Hz"))
    named = ''.join(f'<div><b>{name}</b>{escape(str(value))}</div>' for name, value in parts)
    return (f'<header><h1>Events in recordings</h1><div class="facts">{named}</div>'
            f'<code class="cmd">{escape(facts["command"])}</code></header>')


def _tiles(facts: Mapping[str, Any]) -> str:
    tiles = [(_length(facts['seconds']), 'of recordings scored'),
             (f'{facts["rows"]:,}', 'assessments'), (f'{facts["events"]:,}', 'events'),
             (f'{len(facts["problems"]):,}', 'problems found')]
    return '<div class="tiles">' + ''.join(
        f'<div class="tile"><b>{value}</b><span>{name}</span></div>'
        for value, name in tiles) + '</div>'


def _events(shown: Sequence[Mapping[str, Any]], facts: Mapping[str, Any],
            clips: Sequence[str]) -> str:
    count, level = facts['events'], facts['event_rule']['level']
    figures = []
    for event in shown:
        picture = event['thumbnail']
        image = f'<img loading="lazy" alt="" src="{data_uri(picture, "jpeg")}">' if picture else ''
        span = f'{event["end_s"] - event["begin_s"]:.1f} s long'
        clip = clips[int(event['event'])] if clips else ''
        link = f'<br><a href="{escape(clip, quote=True)}/">clip</a>' if clip else ''
        figures.append(
            f'<figure id="event-{event["event"]}">{image}<figcaption>'
            f'{chip(int(event["level"]))}<b>#{event["event"]}</b> '
            f'{contact(event["time_to_contact"])} at the least &middot; {span} &middot; picture '
            f'at&nbsp;{clock(event["peak_s"])}<br><code>{escape(event["bag"])} '
            f'{escape(event["topic"])}</code>{link}</figcaption></figure>')
    hidden = f' The {len(shown)} most urgent of {count} are shown.' if count > len(shown) else ''
    text = (f'Times at {level} or above, the most urgent first: highest level, then least time to '
            f'contact. Boxes carry the time to contact.{hidden}')
    return (f'<section><h2>Events to look at</h2><p class="soft">{text}</p>'
            f'<div class="frames">{"".join(figures) or "None."}</div></section>')


def _cameras(events: Sequence[Mapping[str, Any]], cameras: Sequence[Mapping[str, Any]]) -> str:
    """List all cameras that were scored, those with most events first."""
    lengths: dict[tuple[str, str], list[float]] = {
        (camera['bag'], camera['topic']): [] for camera in cameras}
    for event in events:
        lengths[event['bag'], event['topic']].append(event['end_s'] - event['begin_s'])
    rows = []
    for camera in sorted(cameras, key=lambda c: -len(lengths[c['bag'], c['topic']])):
        those = lengths[camera['bag'], camera['topic']]
        rows.append((f"{camera['bag']} {camera['topic']}".rstrip(), _length(camera['seconds']),
                     *((str(len(those)), _length(sum(those))) if those else ('no event', ''))))
    return '<section><h2>Cameras</h2>' + html_table(
        ('recording and camera', 'scored', 'events', 'their length'), rows
    ) + '</section>' if rows else ''


def contact(ttc: float) -> str:
    """Return a time to contact in words."""
    if math.isnan(ttc):
        return 'contact unknown'
    return 'no contact' if math.isinf(ttc) else f'contact in {ttc:.1f} s'


def clock(seconds: float) -> str:
    """Return a time since the start as minutes and seconds."""
    return f'{int(seconds // 60)}:{seconds % 60:04.1f}'


def _length(seconds: float) -> str:
    return f'{seconds / 3600:.1f} h' if seconds >= 3600 else f'{seconds / 60:.1f} min' \
        if seconds >= 60 else f'{seconds:.0f} s'

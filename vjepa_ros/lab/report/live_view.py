# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show assessments live, in a terminal or as plain lines of a log, and collect them."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.panel import Panel
from rich.spinner import Spinner
from rich.text import Text

from vjepa_ros.perception.types import Assessment, Level, Quality

MAX_POINTS = 36000
LEVEL_STYLES = {Level.CLEAR: 'green', Level.CAUTION: 'yellow', Level.WARNING: 'dark_orange',
                Level.DANGER: 'red', Level.UNKNOWN: 'medium_purple'}
DOTS = {'starting': ('◌', 'yellow'), 'ready': ('●', 'green'), 'ended': ('○', 'grey50')}
PLAIN_PERIOD_S = 2.0     # between two lines where there is no terminal
RECENT_S = 3.0           # over which rates and latency are taken
STAGE = 'stage_ms.'      # prefix of the stage times in the diagnostics
SCORES = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead',
          'time_to_contact', 'looming_rate', 'bearing', 'elevation', 'known_fraction')
# Flags that every user should see; the others are in the overlay and the report.
NOTABLE = (Quality.LOW_TEXTURE | Quality.STALE | Quality.SLOW_CAMERA | Quality.DEVICE_FALLBACK
           | Quality.WARMING_UP)


@dataclass(frozen=True)
class Point:
    """One assessment on the time axis of its source; an unknown truth is NaN."""

    time_s: float
    assessment: Assessment
    truth_s: float = math.nan
    latency_ms: float = math.nan


@dataclass
class Status:
    """State for the view, which the tool updates."""

    title: str
    source: str
    span_s: float | None = None  # expected length of the source [s], None when it has no end
    phase: str = 'starting'  # what the tool waits for; '' while results arrive
    parts: dict[str, str] = field(default_factory=dict)  # state of each process, one of `DOTS`
    model: str = ''  # model and device in words
    trained: bool | None = None  # None: unknown
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    results: int = 0  # so far, of which `points` are the newest
    frames_in: int = 0
    rate_in_hz: float = math.nan  # of the frames
    note: str = ''  # the last problem

    def add(self, point: Point) -> None:
        self.points.append(point)
        self.results += 1
        self.phase = ''

    @property
    def time_s(self) -> float:
        """Time of the newest result on the axis of the source [s]."""
        return self.points[-1].time_s if self.points else 0.0

    def speed(self) -> str:
        """Return rates and latency of the last seconds in words."""
        recent = [p for p in self.points.copy() if self.time_s - p.time_s <= RECENT_S]
        span = recent[-1].time_s - recent[0].time_s if recent else 0.0
        latencies = [p.latency_ms for p in recent if not math.isnan(p.latency_ms)]
        parts = []
        if not math.isnan(self.rate_in_hz):
            parts.append(f'{self.rate_in_hz:.1f} Hz in')
        if span > 0:
            parts.append(f'{(len(recent) - 1) / span:.1f} Hz out')
        if latencies:
            parts.append(f'latency {median(latencies):.0f} ms')
        return ', '.join([*parts, f'{self.frames_in} frames, {self.results} results'])


class View:
    """Live display of a `Status`: in a terminal a panel, else a line every two seconds."""

    def __init__(self, status: Status, console: Console) -> None:
        self.status, self.console = status, console
        self._live = Live(console=console, get_renderable=lambda: render(status),
                          refresh_per_second=8) if console.is_terminal else None
        self._said = ('', -math.inf)

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tick(self) -> None:
        """Print a plain line when one is due, but not in a terminal."""
        if self._live is not None:
            return
        now, phase = time.monotonic(), self.status.phase
        if phase and phase == self._said[0]:
            return
        if not phase and not self._said[0] and now - self._said[1] < PLAIN_PERIOD_S:
            return
        self._said = (phase, now)
        self.console.print(phase or plain_line(self.status), highlight=False, soft_wrap=True)


def log_to(console: Console) -> None:
    """Print the warnings of this package through the console, above a live panel."""
    handler = RichHandler(logging.WARNING, console, show_path=False, show_time=False)
    logging.getLogger('vjepa_ros').handlers = [handler]


def plain_line(status: Status) -> str:
    """Return the newest result as one line of a log."""
    point = status.points[-1]
    return ' | '.join((
        f'[{point.time_s:5.1f} s] {point.assessment.level.name:<8} {_contact(point)}',
        _scores(point.assessment), status.speed()))


def render(status: Status) -> RenderableType:
    """Return the whole panel."""
    about = Text(status.source, 'bold')
    for name, state in status.parts.items():
        about.append('  ' + DOTS[state][0], DOTS[state][1]).append(f' {name}', 'not bold')
    span = '' if status.span_s is None else f' / {status.span_s:.1f}'
    about.append(f'  {status.time_s:.1f}{span} s', 'not bold')
    model = Text(status.model, 'cyan')
    if status.trained is False:
        model.append(' ').append('\u00a0UNTRAINED\u00a0', 'bold black on yellow')
    rows: list[RenderableType] = [about, model]
    if status.points:
        point = status.points[-1]
        a, style = point.assessment, LEVEL_STYLES[point.assessment.level]
        head = Text.assemble((f'  {a.level.name:^7}  ', f'bold black on {style}'), '  ',
                             (_contact(point), f'bold {style}'))
        head.append('   ' + ' '.join((a.flags & NOTABLE).names).replace('_', ' '), 'yellow')
        rows += [head, Text(_scores(a)), Text(status.speed(), 'grey70')]
    if status.phase:
        rows.append(Spinner('dots', Text(status.phase, 'bold')))
    if status.note:
        rows.append(Text(status.note, 'yellow', no_wrap=True, overflow='ellipsis'))
    return Panel(Group(*rows), title=f'[bold]{status.title}', border_style='grey50',
                 padding=(0, 1))


def _scores(a: Assessment) -> str:
    return ', '.join(f'{name} ' + (' -- ' if math.isnan(value) else f'{value:.2f}')
                     for name, value in (
                         ('motion', a.motion_score), ('obstacle', a.obstacle_score),
                         ('collision', a.collision_probability),
                         ('if ahead', a.collision_if_ahead)))


def _contact(point: Point) -> str:
    a, truth = point.assessment, point.truth_s
    degrees = math.degrees(a.bearing)
    if math.isnan(a.time_to_contact):
        said = 'contact unknown'
    elif math.isinf(a.time_to_contact):
        said = 'nothing on course'
    else:
        said = f'contact in {min(a.time_to_contact, 99.0):.1f} s'
        if math.isfinite(degrees):
            said += f', {abs(degrees):.0f}° {"right" if degrees > 0 else "left"}'
    if math.isnan(truth):
        return said
    return said + (' (true: none)' if math.isinf(truth) else f' (true: {truth:.1f} s)')


class Recording:
    """Output of the recorder of the demo so far, which also updates a `Status`.

    `take` may run in another thread than the rest.
    """

    def __init__(self, status: Status) -> None:
        self.ready = threading.Event()          # set when the recorder has subscribed
        self.model: dict[str, str] = {}         # the newest diagnostics of the node
        self.camera: dict[str, str] = {}
        self.frames_sent = self.states = 0      # by the camera, and diagnostics so far
        self._status = status
        self._results: list[dict[str, Any]] = []
        self._truth: dict[int, dict[str, Any]] = {}
        self._first_ns = self._last_ns = 0

    def take(self, line: str) -> None:
        """Take one line of JSON; other lines, such as output of libraries, are ignored."""
        if not line.startswith('{'):
            return
        message = json.loads(line)
        getattr(self, '_on_' + message.pop('kind'))(message)

    @property
    def configure_failed(self) -> bool:
        """Whether the node failed to load its model."""
        state = self.model.get('state', '')
        return state == 'unconfigured' and self.model['message'] != state

    @property
    def played_s(self) -> float:
        """Time from the first to the newest frame of the camera [s]."""
        return (self._last_ns - self._first_ns) / 1e9

    def covers(self, stamp_ns: int) -> bool:
        """Return whether a time lies between the first and the newest frame of the camera."""
        return self._first_ns <= stamp_ns <= self._last_ns

    @property
    def results(self) -> int:
        """Return the number of assessments so far."""
        return len(self._results)

    def records(self) -> list[dict[str, Any]]:
        """Return all assessments by stamp, each with the truth of its stamp."""
        unknown = {'true_ttc': math.nan, 'true_looming': math.nan}
        return sorted(({**r, **self._truth.get(r['stamp_ns'], unknown)} for r in self._results),
                      key=lambda record: record['stamp_ns'])

    def _on_ready(self, message: dict[str, Any]) -> None:
        self.ready.set()

    def _on_frames(self, message: dict[str, Any]) -> None:
        self.frames_sent = message['count']
        self._first_ns, self._last_ns = message['first_ns'], message['last_ns']

    def _on_truth(self, message: dict[str, Any]) -> None:
        self._truth[message.pop('stamp_ns')] = message

    def _on_result(self, message: dict[str, Any]) -> None:
        # Assessments have no stage times; those of the diagnostics are at most a second old.
        timings = {k[len(STAGE):]: float(v) for k, v in self.camera.items()
                   if k.startswith(STAGE) and v != 'unknown'}
        self._results.append({**message, 'timings': timings})
        stamp = message['stamp_ns']
        self._first_ns = self._first_ns or stamp
        truth = self._truth.get(stamp, {}).get('true_ttc', math.nan)
        seen = Assessment(camera='', stamp_ns=stamp, frame_id='', level=Level(message['level']),
                          flags=Quality(message['flags']), **{k: message[k] for k in SCORES})
        self._status.add(Point((stamp - self._first_ns) / 1e9, seen, truth,
                               message['latency_ms']))

    def _on_state(self, message: dict[str, Any]) -> None:
        self.states += 1
        self.model = message.get('model', self.model)
        self.camera = message.get('camera', self.camera)
        status, model = self._status, self.model
        if 'device' in model:
            status.model = f"{model['model']} on {model['device']}, {model['precision']}"
            status.trained = model['trained'] == 'True'
        if model.get('state') == 'active' and status.parts.get('node') == 'starting':
            status.parts['node'] = 'ready'
        if self.camera:
            status.frames_in = int(self.camera['frames_in'])
            rate = self.camera['rate_in_hz']
            status.rate_in_hz = math.nan if rate == 'unknown' else float(rate)

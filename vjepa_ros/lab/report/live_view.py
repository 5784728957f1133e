# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show assessments live, in a terminal or as plain lines of a log, and collect them."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.panel import Panel
from rich.spinner import Spinner
from rich.text import Text

from vjepa_ros.perception.types import Assessment, Level, Quality

KEEP = 9000              # newest results for report and video: ten minutes at 15 Hz
LEVEL_STYLES = {Level.CLEAR: 'green', Level.CAUTION: 'yellow', Level.WARNING: 'dark_orange',
                Level.DANGER: 'red', Level.UNKNOWN: 'medium_purple'}
DOTS = {'starting': ('◌', 'yellow'), 'ready': ('●', 'green'), 'ended': ('○', 'grey50')}
PLAIN_PERIOD_S = 2.0     # between two lines where there is no terminal
RECENT_S = 3.0           # over which rates and latency are taken
# Flags that every user should see; the others are in the overlay and the report.
NOTABLE = (Quality.LOW_TEXTURE | Quality.STALE | Quality.SLOW_CAMERA | Quality.DEVICE_FALLBACK
           | Quality.WARMING_UP)


@dataclass
class Status:
    """A run so far: what the view shows and the report is made of."""

    title: str
    source: str
    span_s: float | None = None  # expected length of the source [s], None when it has no end
    phase: str = 'starting'  # what the tool waits for; '' while results arrive
    parts: dict[str, str] = field(default_factory=dict)  # state of each process, one of `DOTS`
    model: str = ''
    device: str = ''
    precision: str = ''
    trained: bool = True
    # The newest results, whose latency is that of their arrival here
    results: deque[Assessment] = field(default_factory=lambda: deque(maxlen=KEEP))
    truth: dict[int, float] = field(default_factory=dict)  # time to contact [s] by stamp [ns]
    count: int = 0  # of all results
    begin_ns: int = 0  # stamp of the first frame
    frames_in: int = 0
    rate_in_hz: float = math.nan  # of the frames

    def add(self, assessment: Assessment) -> None:
        self.results.append(assessment)
        self.count += 1
        self.phase = ''

    @property
    def time_s(self) -> float:
        """Time of the newest result on the axis of the source [s]."""
        return (self.results[-1].stamp_ns - self.begin_ns) / 1e9 if self.results else 0.0

    def speed(self) -> str:
        """Return rates and latency of the last seconds in words."""
        results = self.results.copy()
        recent = [a for a in results if results[-1].stamp_ns - a.stamp_ns <= RECENT_S * 1e9]
        span_s = (recent[-1].stamp_ns - recent[0].stamp_ns) / 1e9 if recent else 0.0
        parts = []
        if not math.isnan(self.rate_in_hz):
            parts.append(f'{self.rate_in_hz:.1f} Hz in')
        if span_s > 0:
            parts.append(f'{(len(recent) - 1) / span_s:.1f} Hz out')
        if recent:
            parts.append(f'latency {median(a.latency_ms for a in recent):.0f} ms')
        return ', '.join([*parts, f'{self.frames_in} frames, {self.count} results'])


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
        self.console.print(phase or _plain_line(self.status), highlight=False, soft_wrap=True)


def log_to(console: Console) -> None:
    """Print the warnings of this package through the console, above a live panel."""
    handler = RichHandler(logging.WARNING, console, show_path=False, show_time=False)
    logging.getLogger('vjepa_ros').handlers = [handler]


def _plain_line(status: Status) -> str:
    """Return the newest result as one line of a log."""
    a = status.results[-1]
    return ' | '.join((f'[{status.time_s:5.1f} s] {a.level.name:<8} {_contact(a, status)}',
                       _scores(a), status.speed()))


def render(status: Status) -> RenderableType:
    """Return the whole panel."""
    about = Text(status.source, 'bold')
    for name, state in status.parts.items():
        about.append('  ' + DOTS[state][0], DOTS[state][1]).append(f' {name}', 'not bold')
    span = '' if status.span_s is None else f' / {status.span_s:.1f}'
    about.append(f'  {status.time_s:.1f}{span} s', 'not bold')
    model = Text(f'{status.model} on {status.device}, {status.precision}' if status.model else '',
                 'cyan')
    if not status.trained:
        model.append(' ').append('\u00a0UNTRAINED\u00a0', 'bold black on yellow')
    rows: list[RenderableType] = [about, model]
    if status.results:
        a = status.results[-1]
        style = LEVEL_STYLES[a.level]
        head = Text.assemble((f'  {a.level.name:^7}  ', f'bold black on {style}'), '  ',
                             (_contact(a, status), f'bold {style}'))
        head.append('   ' + ' '.join((a.flags & NOTABLE).names).replace('_', ' '), 'yellow')
        rows += [head, Text(_scores(a)), Text(status.speed(), 'grey70')]
    if status.phase:
        rows.append(Spinner('dots', Text(status.phase, 'bold')))
    return Panel(Group(*rows), title=f'[bold]{status.title}', border_style='grey50',
                 padding=(0, 1))


def _scores(a: Assessment) -> str:
    return ', '.join(f'{name} ' + (' -- ' if math.isnan(value) else f'{value:.2f}')
                     for name, value in (
                         ('motion', a.motion_score), ('obstacle', a.obstacle_score),
                         ('collision', a.collision_probability),
                         ('if ahead', a.collision_if_ahead)))


def _contact(a: Assessment, status: Status) -> str:
    truth = status.truth.get(a.stamp_ns, math.nan)
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

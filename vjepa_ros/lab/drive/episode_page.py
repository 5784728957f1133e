# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show one driven episode: a film of what the robot saw and did, and a page about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.drive.loop import Moment, Outcome
from vjepa_ros.lab.drive.top_view import SIZE
from vjepa_ros.lab.report.page import data_uri, html_page, html_table, jpeg_bytes
from vjepa_ros.lab.report.plots import GRID, INK
from vjepa_ros.lab.report.video import write_video

SEEN = (384, 288)         # size of the camera in the film [px]
FRAME = (SEEN[0] + SIZE[0] + 24, SIZE[1] + 16)
STILLS = 6
MOVING_HZ = 5.0           # of the film in the page
BEFORE_S = -0.5           # before its start the robot waits for perception
FARTHEST_S = 10.0         # longer times to contact are not drawn
DARK, SOFT = (40, 36, 28), (124, 107, 92)     # BGR


def film(folder: Path, moments: tuple[Moment, ...]) -> Iterator[np.ndarray]:
    """Yield frames (BGR) of camera and view from above, as the robot wrote them."""
    files = sorted(folder.glob('*.png'))[-len(moments):]
    for file, moment in zip(files, moments, strict=True):
        if moment.time < BEFORE_S:
            continue
        frame = np.full((FRAME[1], FRAME[0], 3), 255, np.uint8)
        _put(frame, cv2.imread(str(file)), (8, 8), SEEN)
        _put(frame, _beside(file, '_map'), (SEEN[0] + 16, 8), SIZE)
        level = {0: 'clear', 1: 'caution', 2: 'warning', 3: 'danger'}.get(moment.level, 'unknown')
        contact = ('' if not moment.time_to_contact < FARTHEST_S
                   else f', contact in {moment.time_to_contact:.1f} s')
        _write(frame, f'{moment.time:5.1f} s   {moment.speed:.1f} m/s   {level}{contact}', 445,
               DARK)
        _write(frame, f'guard: {moment.state}', 467, SOFT)
        yield frame


def write_page(path: Path, folder: Path, outcome: Outcome, figures: dict[str, Any], rate: float,
               command: str) -> list[Path]:
    """Write the film and the page of an episode; return the files.

    `rate`: pictures per second [Hz].
    """
    video = write_video(path.with_suffix(''), film(folder, outcome.moments), rate)
    moments = [m for m in outcome.moments if m.time >= BEFORE_S]
    pick = np.linspace(0, len(moments) - 1, STILLS + 2).round().astype(int)[1:-1]
    shown = [(moments[number], frame) for number, frame in enumerate(film(
        folder, outcome.moments)) if number in pick]
    good = outcome.reached and not outcome.collided
    badge = ('yes', 'REACHED') if good else ('no', 'COLLIDED' if outcome.collided else 'MISSED')
    tiles = [(f'{outcome.driven:.1f} m', 'driven'), (f'{outcome.shortest:.1f} m', 'shortest way'),
             (f'{figures["spl"]:.2f}', 'success by length of the way (SPL)'),
             (str(outcome.stops), 'stops'), (_milliseconds(outcome.plan_ms), 'to plan'),
             (f'{outcome.moments[-1].time:.1f} s', 'simulated time')]
    cells = ''.join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>'
                    for value, name in tiles)
    stills = ''.join(
        f'<figure><img loading="lazy" alt="camera and map" src="'
        f'{data_uri(jpeg_bytes(frame), "jpeg")}"><figcaption>'
        f'{moment.time:.1f} s</figcaption></figure>' for moment, frame in shown)
    # Browsers do not play what OpenCV writes as mp4.
    media = (f'<img style="width:100%;max-width:{FRAME[0]}px" alt="film of the drive" '
             f'src="{data_uri(_moving(film(folder, outcome.moments), rate), "webp")}">'
             f'<p class="soft">Also as <a href="{video.name}">{video.name}</a>.</p>')
    title = f'Episode {outcome.number}: {outcome.scenario}, {outcome.place}'
    touched = f' It touched: {outcome.touched}.' if outcome.collided else ''
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_page(escape(title), [
        f'<header><div class="head"><h1>{escape(title)}</h1><div class="badge {badge[0]}">'
        f'{badge[1]}</div></div><p class="soft">A planner drives a robot to a goal past what is '
        f'in the way, a guard behind it; perception sees nothing but the camera.{touched}</p>'
        f'<code class="cmd">{escape(command)}</code></header>',
        f'<div class="tiles">{cells}</div>',
        '<section><h2>Film</h2><p class="soft">Camera, and the true scene from above, which the '
        'robot does not know: its way in blue, the goal in green, candidate twists from green '
        f'(no risk) to red, the chosen one bold.</p>{media}</section>',
        f'<section><h2>Moments</h2><div class="frames">{stills}</div></section>',
        '<section class="plot"><h2>Course</h2><div class="wide"><img alt="distance, speed and '
        f'time to contact" src="{data_uri(_course(outcome).encode(), "svg+xml")}"></div>'
        '</section>',
        '<section><h2>Figures</h2>' + html_table(('', 'this episode'), [
            (name, '-' if value is None else f'{value:g}') for name, value in figures.items()])
        + '</section>']), encoding='utf-8')
    return [path, video]


def _moving(frames: Iterator[np.ndarray], rate: float) -> bytes:
    """Return frames (BGR) at a rate [Hz] as an animated WebP picture."""
    from PIL import Image
    stride = max(1, round(rate / MOVING_HZ))
    images = [Image.fromarray(np.ascontiguousarray(frame[..., ::-1]))
              for number, frame in enumerate(frames) if number % stride == 0]
    out = BytesIO()
    images[0].save(out, 'webp', save_all=True, append_images=images[1:], loop=0, quality=70,
                   duration=round(1000 * stride / rate))
    return out.getvalue()


def _named(folder: Path, end: str) -> Path:
    return folder.with_name(folder.name + end)


def _beside(file: Path, end: str) -> np.ndarray | None:
    other = _named(file.parent, end) / file.name
    return cv2.imread(str(other)) if other.is_file() else None


def _put(frame: np.ndarray, picture: np.ndarray | None, at: tuple[int, int],
         size: tuple[int, int]) -> None:
    if picture is not None:
        x, y = at
        frame[y:y + size[1], x:x + size[0]] = cv2.resize(picture, size,
                                                         interpolation=cv2.INTER_AREA)


def _write(frame: np.ndarray, text: str, y: int, colour: tuple[int, int, int]) -> None:
    cv2.putText(frame, text, (8, y), cv2.FONT_HERSHEY_SIMPLEX, 0.42, colour, 1, cv2.LINE_AA)


def _milliseconds(value: float) -> str:
    return f'{value:.0f} ms' if math.isfinite(value) else '-'


def _course(outcome: Outcome) -> str:
    """Return a plot of distance, speed and time to contact as SVG."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 4.6), layout='constrained')
    axes = figure.subplots(3, 1, sharex=True)
    moments = [m for m in outcome.moments if m.time >= 0]
    time = [m.time for m in moments]
    contact = np.array([m.time_to_contact for m in moments])
    for one, values, text, style in (
            (axes[0], [m.distance for m in moments], 'free path ahead [m]', '-'),
            (axes[1], [m.speed for m in moments], 'speed [m/s]', '-'),
            (axes[2], np.where(contact < FARTHEST_S, contact, np.nan), 'time to contact [s]',
             '.')):
        one.plot(time, values, style, color='#15803d', ms=4)
        one.set_ylabel(text, fontsize=8, color=INK)
        one.grid(color=GRID)
    axes[-1].set_xlabel('time since the start [s]', fontsize=8)
    out = StringIO()
    figure.savefig(out, format='svg')
    return out.getvalue()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of driven episodes, and write a page about them and one episode's film."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.drive.loop import Moment, Outcome
from vjepa_ros.lab.drive.top_view import SIZE
from vjepa_ros.lab.report.page import (
    data_uri,
    drawn,
    html_page,
    html_table,
    html_tiles,
    legend,
    plain,
)

WITHOUT = 'without_guard'
COLOURS = {'without_guard': '#94a3b8', 'with_guard': '#0b6bcb', 'with_planner': '#15803d'}
WORDS = {'without_guard': 'without guard', 'with_guard': 'with guard',
         'with_planner': 'guard and planner'}
SEEN = (384, 288)         # size of the camera in the film [px]
FRAME = (SEEN[0] + SIZE[0] + 24, SIZE[1] + 16)
FILM_HZ = 5.0             # of the film in the page, which browsers show as WebP
BEFORE_S = -0.5           # before its start the robot waits for perception
FARTHEST_S = 10.0         # longer times to contact are not drawn
DARK, SOFT = (40, 36, 28), (124, 107, 92)     # BGR


def figures(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """Compute the figures of all modes."""
    free = [n for n, o in enumerate(outcomes[WITHOUT]) if not o.collided]
    result: dict[str, Any] = {
        mode: {'collisions_per_episode': _mean(o.collided for o in rows),
               'progress': _mean(o.progress for o in rows)}
        for mode, rows in outcomes.items()}
    kept = {mode: _kept(outcomes[WITHOUT], rows, free) for mode, rows in outcomes.items()
            if mode != WITHOUT}
    result['progress_kept'] = kept.get('with_guard')
    result['details'] = {
        'free_episodes': len(free), 'episodes': len(outcomes[WITHOUT]),
        'times_fewer_collisions': {
            mode: _ratio(result[WITHOUT]['collisions_per_episode'],
                         result[mode]['collisions_per_episode']) for mode in kept},
        'progress_kept': kept,
        **{mode: _details(rows, free) for mode, rows in outcomes.items()}}
    return result


def figures_of_goals(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """Compute the figures of episodes that are about getting to the goal."""
    result: dict[str, Any] = {}
    for mode, rows in outcomes.items():
        gone, plans = sum(o.driven for o in rows), [o.plan_ms for o in rows
                                                    if math.isfinite(o.plan_ms)]
        result[mode] = {
            'success': _mean(o.reached for o in rows),
            'collisions_per_km': round(1e3 * sum(o.collided for o in rows) / gone, 3)
            if gone > 0 else None,
            'spl': _mean(o.reached * o.shortest / max(o.shortest, o.driven) for o in rows),
            'stops_per_episode': _mean(o.stops for o in rows),
            'plan_ms': _mean(plans) if plans else None}
    first = next(iter(outcomes.values()))
    result['details'] = {
        'episodes': len(first), **{mode: {
            'kilometres': round(sum(o.driven for o in rows) / 1e3, 4),
            **_details(rows, ()),
            'missed': [o.number for o in rows if not o.reached]}
            for mode, rows in outcomes.items()}}
    return result


def _mean(values: Any) -> float:
    values = [float(v) for v in values]
    return round(sum(values) / len(values), 5) if values else math.nan


def _ratio(before: float, after: float) -> float | None:
    """Return before over after, None when nothing is left."""
    return round(before / after, 2) if after > 0 else None


def _kept(before: Sequence[Outcome], after: Sequence[Outcome],
          which: Sequence[int]) -> float | None:
    if not which:
        return None
    return round(sum(after[n].progress for n in which)
                 / sum(before[n].progress for n in which), 5)


def _details(rows: Sequence[Outcome], free: Sequence[int]) -> dict[str, Any]:
    scenarios = sorted({o.scenario for o in rows})
    return {
        'collisions_while_standing': sum(o.struck for o in rows),
        'stops_per_episode': _mean(o.stops for o in rows),
        'needless_stops_per_episode': _mean(o.needless_stops for o in rows),
        'stops_per_free_episode': _mean(rows[n].stops for n in free) if free else None,
        'by_scenario': {name: {
            'episodes': sum(o.scenario == name for o in rows),
            'collisions': sum(o.collided for o in rows if o.scenario == name),
            'success': _mean(o.reached for o in rows if o.scenario == name),
            'progress': _mean(o.progress for o in rows if o.scenario == name)}
            for name in scenarios},
        'collided': [{'number': o.number, 'scenario': o.scenario, 'place': o.place,
                      'touched': o.touched, 'speed_m_s': round(o.cruise, 2),
                      'standing': o.struck} for o in rows if o.collided]}


def write_page(path: Path, outcomes: Mapping[str, Sequence[Outcome]], result: Mapping[str, Any],
               lines: Sequence[str], film: Path, number: int) -> None:
    """Write a page of all episodes, and of the film of one in the last mode.

    `film`: folder of the images of the recorded episodes, by mode; `number`: of the one to show.
    """
    mode = list(outcomes)[-1]
    outcome = next(o for o in outcomes[mode] if o.number == number)
    configuration = result['configuration']
    frames = [*film_of(film / mode / f'{number:04d}', outcome.moments)]
    good = outcome.reached and not outcome.collided
    badge = ('yes', 'REACHED') if good else ('no', 'COLLIDED' if outcome.collided else 'MISSED')
    tiles = [(f'{outcome.driven:.1f} m', 'driven'), (str(outcome.stops), 'stops'),
             (f'{outcome.moments[-1].time:.1f} s', 'simulated time')]
    if math.isfinite(outcome.shortest):
        tiles.append((f'{outcome.shortest:.1f} m', 'shortest way'))
    if math.isfinite(outcome.plan_ms):
        tiles.append((f'{outcome.plan_ms:.0f} ms', 'to plan'))
    touched = f' It touched: {outcome.touched}.' if outcome.collided else ''
    title = f'Episode {number}: {outcome.scenario}, {outcome.place}, {WORDS[mode]}'
    moving = data_uri(_moving(frames, configuration['episode']['rate']), 'webp')
    path.write_text(html_page(escape(title), [
        f'<header><div class="head"><h1>{escape(title)}</h1><div class="badge {badge[0]}">'
        f'{badge[1]}</div></div><p class="soft">Perception sees nothing but the camera.{touched}'
        f'</p><code class="cmd">{escape(configuration["command"])}</code></header>',
        html_tiles(tiles),
        '<section><h2>Film</h2><p class="soft">Camera, and over DDS the true scene from above, '
        'which the robot does not know: its way in blue, the goal in green, candidate twists from '
        'green (no risk) to red, the chosen one bold.</p><img style="width:100%;max-width:'
        f'{FRAME[0]}px" alt="film of the drive" src="{moving}"></section>',
        '<section class="plot"><h2>Course</h2><div class="wide"><img alt="course of this episode" '
        f'src="{data_uri(_course(outcomes, number), "svg+xml")}"></div></section>',
        '<section><h2>All episodes</h2>' + ''.join(f'<p>{escape(x)}</p>' for x in lines)
        + _by_scenario(outcomes, configuration['details']) + '</section>']), encoding='utf-8')


def _by_scenario(outcomes: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    figures = ('collisions', 'success', 'progress')
    rows = [(name, str(one['episodes']), WORDS[mode], *(f'{one[f]:g}' for f in figures))
            for mode in outcomes for name, one in details[mode]['by_scenario'].items()]
    return html_table(('scenario', 'episodes', 'mode', *figures), rows)


def film_of(folder: Path, moments: tuple[Moment, ...]) -> Iterator[np.ndarray]:
    """Yield frames (BGR) of camera and view from above, as the robot wrote them."""
    files = sorted(folder.glob('*.png'))[-len(moments):]
    for file, moment in zip(files, moments, strict=True):
        if moment.time < BEFORE_S:
            continue
        frame = np.full((FRAME[1], FRAME[0], 3), 255, np.uint8)
        above = folder.with_name(f'{folder.name}_map') / file.name
        _put(frame, file, (8, 8), SEEN)
        if above.is_file():
            _put(frame, above, (SEEN[0] + 16, 8), SIZE)
        level = {0: 'clear', 1: 'caution', 2: 'warning', 3: 'danger'}.get(moment.level, 'unknown')
        contact = ('' if not moment.time_to_contact < FARTHEST_S
                   else f', contact in {moment.time_to_contact:.1f} s')
        for y, colour, text in (
                (445, DARK, f'{moment.time:5.1f} s   {moment.speed:.1f} m/s   {level}{contact}'),
                (467, SOFT, f'guard: {moment.state} {moment.reason}')):
            cv2.putText(frame, text, (8, y), cv2.FONT_HERSHEY_SIMPLEX, 0.42, colour, 1,
                        cv2.LINE_AA)
        yield frame


def _put(frame: np.ndarray, file: Path, at: tuple[int, int], size: tuple[int, int]) -> None:
    picture = cv2.imread(str(file))
    if picture is not None:
        x, y = at
        frame[y:y + size[1], x:x + size[0]] = cv2.resize(picture, size,
                                                         interpolation=cv2.INTER_AREA)


def _moving(frames: Sequence[np.ndarray], rate: float) -> bytes:
    """Return frames (BGR) at a rate [Hz] as an animated WebP picture."""
    from PIL import Image
    stride = max(1, round(rate / FILM_HZ))
    images = [Image.fromarray(np.ascontiguousarray(frame[..., ::-1]))
              for frame in frames[::stride]]
    out = BytesIO()
    images[0].save(out, 'webp', save_all=True, append_images=images[1:], loop=0, quality=70,
                   duration=round(1000 * stride / rate))
    return out.getvalue()


def _course(outcomes: Mapping[str, Sequence[Outcome]], number: int) -> bytes:
    """Draw distance, speed and time to contact of one episode as SVG; shading: the guard acts."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 6.5), layout='constrained')
    axes = figure.subplots(3, 1, sharex=True)
    for mode, rows in outcomes.items():
        outcome = next(o for o in rows if o.number == number)
        moments = [m for m in outcome.moments if m.time >= 0]
        time, color = np.array([m.time for m in moments]), COLOURS[mode]
        axes[0].plot(time, [m.distance for m in moments], color=color, label=WORDS[mode] + (
            f', hit {outcome.touched}' if outcome.collided else ''))
        axes[1].plot(time, [m.speed for m in moments], color=color)
        axes[1].fill_between(time, 0, 1, where=[m.state not in ('free', 'idle') for m in moments],
                             alpha=0.12, color=color,
                             transform=axes[1].get_xaxis_transform())
        contact = np.array([m.time_to_contact for m in moments])
        axes[2].plot(time, np.where(contact < FARTHEST_S, contact, np.nan), '.', color=color)
    for one, text in zip(axes, ('free path ahead [m]', 'speed [m/s], shaded: guard acts',
                                'time to contact [s]'), strict=True):
        one.set_ylabel(text)
        one.set_ylim(bottom=0)
        plain(one)
    legend(axes[0])
    axes[-1].set_xlabel('time since the start [s]')
    return drawn(figure, 'svg')

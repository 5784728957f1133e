# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of driven episodes, and write a page about them and one episode's film."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.drive.loop import Moment, Outcome
from vjepa_ros.lab.drive.top_view import SIZE
from vjepa_ros.lab.report.page import data_uri, html_page, html_tiles
from vjepa_ros.lab.report.plots import GRID, INK
from vjepa_ros.lab.report.report import write_video

WITHOUT = 'without_guard'
COLOURS = {'without_guard': '#94a3b8', 'with_guard': '#0b6bcb', 'with_planner': '#15803d'}
WORDS = {'without_guard': 'without guard', 'with_guard': 'with guard',
         'with_planner': 'guard and planner'}
SEEN = (384, 288)         # size of the camera in the film [px]
FRAME = (SEEN[0] + SIZE[0] + 24, SIZE[1] + 16)
MOVING_HZ = 5.0           # of the film in the page
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
               lines: Sequence[str], film: Path, number: int) -> list[Path]:
    """Write a page of all episodes, and the film of one in the last mode; return the files.

    `film`: folder of the images of the recorded episodes, by mode; `number`: of the one to show.
    """
    mode = list(outcomes)[-1]
    outcome = next(o for o in outcomes[mode] if o.number == number)
    configuration = result['configuration']
    rate = configuration['episode']['rate']
    frames = [*film_of(film / mode / f'{number:04d}', outcome.moments)]
    path.parent.mkdir(parents=True, exist_ok=True)
    video = write_video(path.with_suffix('.mp4'), frames, rate)
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
    path.write_text(html_page(escape(title), [
        f'<header><div class="head"><h1>{escape(title)}</h1><div class="badge {badge[0]}">'
        f'{badge[1]}</div></div><p class="soft">Perception sees nothing but the camera.{touched}'
        f'</p><code class="cmd">{escape(configuration["command"])}</code></header>',
        html_tiles(tiles),
        # Browsers do not play what OpenCV writes as mp4.
        '<section><h2>Film</h2><p class="soft">Camera, and over DDS the true scene from above, '
        'which the robot does not know: its way in blue, the goal in green, candidate twists from '
        'green (no risk) to red, the chosen one bold.</p><img style="width:100%;max-width:'
        f'{FRAME[0]}px" alt="film of the drive" src="{data_uri(_moving(frames, rate), "webp")}">'
        f'<p class="soft">Also as <a href="{video.name}">{video.name}</a>.</p></section>',
        '<section class="plot"><h2>Figures</h2>' + ''.join(f'<p>{escape(x)}</p>' for x in lines)
        + '<div class="wide"><img alt="figures by scenario, and the course of this episode" src="'
        f'{data_uri(_plot(outcomes, result, number).encode(), "svg+xml")}"></div></section>']),
        encoding='utf-8')
    return [path, video]


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
    stride = max(1, round(rate / MOVING_HZ))
    images = [Image.fromarray(np.ascontiguousarray(frame[..., ::-1]))
              for frame in frames[::stride]]
    out = BytesIO()
    images[0].save(out, 'webp', save_all=True, append_images=images[1:], loop=0, quality=70,
                   duration=round(1000 * stride / rate))
    return out.getvalue()


def _plot(outcomes: Mapping[str, Sequence[Outcome]], result: Mapping[str, Any],
          number: int) -> str:
    """Draw figures by scenario and the course of one episode, as SVG."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 9.4), layout='constrained')
    grid = figure.add_gridspec(4, 2, height_ratios=[1.6, 1, 1, 1])
    details = result['configuration']['details']
    _bars(figure.add_subplot(grid[0, 0]), outcomes, details, 'collisions')
    _bars(figure.add_subplot(grid[0, 1]), outcomes, details,
          'progress' if 'progress_kept' in result else 'success')
    _course([figure.add_subplot(grid[row, :]) for row in (1, 2, 3)], outcomes, number)
    out = StringIO()
    figure.savefig(out, format='svg')
    return out.getvalue()


def _bars(axes: Any, outcomes: Mapping[str, Sequence[Outcome]], details: Mapping[str, Any],
          what: str) -> None:
    names = list(details[next(iter(outcomes))]['by_scenario'])
    wide = 0.8 / len(outcomes)
    for number, mode in enumerate(outcomes):
        rows = [details[mode]['by_scenario'][name] for name in names]
        values = [row[what] / (row['episodes'] if what == 'collisions' else 1) for row in rows]
        mean = sum(v * row['episodes'] for v, row in zip(values, rows, strict=True)) / sum(
            row['episodes'] for row in rows)
        axes.bar(np.arange(len(names)) + (number - (len(outcomes) - 1) / 2) * wide, values, wide,
                 color=COLOURS[mode], label=f'{WORDS[mode]}: {mean:.3g}')
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_title({'collisions': 'collisions per episode', 'success': 'reached their goal',
                    'progress': 'share of the route driven'}[what], fontsize=10, color=INK)
    axes.grid(axis='y', color=GRID)
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1.45)       # room for the legend
    axes.legend(fontsize=7, loc='upper center', ncols=2)


def _course(axes: Sequence[Any], outcomes: Mapping[str, Sequence[Outcome]],
            example: int) -> None:
    """Draw distance, speed and time to contact of one episode; shading: the guard acts."""
    for mode, rows in outcomes.items():
        outcome = next(o for o in rows if o.number == example)
        moments = [m for m in outcome.moments if m.time >= 0]
        if not moments:
            continue
        time, style = np.array([m.time for m in moments]), {'color': COLOURS[mode]}
        axes[0].plot(time, [m.distance for m in moments], **style, label=WORDS[mode] + (
            f', hit {outcome.touched}' if outcome.collided else ''))
        axes[1].plot(time, [m.speed for m in moments], **style)
        acts = np.array([m.state not in ('free', 'idle') for m in moments])
        if acts.any():
            axes[1].fill_between(time, 0, 1, where=acts, alpha=0.12, lw=0,
                                 transform=axes[1].get_xaxis_transform(), **style)
        contact = np.array([m.time_to_contact for m in moments])
        axes[2].plot(time, np.where(contact < FARTHEST_S, contact, np.nan), '.', ms=3, **style)
    first = next(o for rows in outcomes.values() for o in rows if o.number == example)
    axes[0].set_title(f'episode {example}: {first.scenario}, {first.place}', fontsize=10,
                      color=INK)
    for one, text in zip(axes, ('free path ahead [m]', 'speed [m/s], shaded: guard acts',
                                'time to contact [s]'), strict=True):
        one.set_ylabel(text, fontsize=8, color=INK)
        one.grid(color=GRID)
        one.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    axes[-1].set_xlabel('time since the start [s]', fontsize=8)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of driven episodes, and show them: a page, a film, a view from above."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, TYPE_CHECKING

import cv2
import numpy as np

from vjepa_ros.lab.report.page import (
    data_uri,
    drawn,
    html_page,
    html_table,
    html_tiles,
    legend,
    plain,
)
from vjepa_ros.lab.world.episodes.world import EpisodeWorld

if TYPE_CHECKING:      # it loads the perception, which the simulated robot does not need
    from vjepa_ros.lab.drive.loop import Moment, Outcome

WITHOUT = 'without_guard'
COLOURS = {'without_guard': '#94a3b8', 'with_guard': '#0b6bcb', 'with_planner': '#15803d'}
WORDS = {'without_guard': 'without guard', 'with_guard': 'with guard',
         'with_planner': 'guard and planner'}
SIZE = (336, 480)         # width and height of a view from above [px]
SEEN = (384, 288)         # size of the camera in the film [px]
FRAME = (SEEN[0] + SIZE[0] + 24, SIZE[1] + 16)
FILM_HZ = 5.0             # of the film in the page, which browsers show as WebP
BEFORE_S = -0.5           # before its start the robot waits for perception
FARTHEST_S = 10.0         # longer times to contact are not drawn
DARK, SOFT = (40, 36, 28), (124, 107, 92)     # BGR
MARGIN_M = 1.2            # of a view from above, around start and goal
ARC_S = 1.5               # length of the arcs of candidates
PAPER, THING, INK = (250, 249, 247), (178, 170, 160), (72, 60, 52)
WAY, GOAL, CHOSEN = (20, 95, 190), (20, 125, 60), (20, 95, 190)
GOOD, BAD = np.array((120, 190, 130)), np.array((225, 110, 90))
SHIFT = 4                 # bits after the point, for smooth lines


def figures(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
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
    driven = [sum(rows[n].progress for n in which) for rows in (after, before)]
    return round(driven[0] / driven[1], 5) if which else None


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
    """Write a page of all episodes and of one in the last mode; `film` has images by mode."""
    mode = list(outcomes)[-1]
    outcome = next(o for o in outcomes[mode] if o.number == number)
    configuration = result['configuration']
    columns = ('collisions', 'success', 'progress')
    rows = [(name, str(one['episodes']), WORDS[mode], *(f'{one[c]:g}' for c in columns))
            for mode in outcomes
            for name, one in configuration['details'][mode]['by_scenario'].items()]
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
        + html_table(('scenario', 'episodes', 'mode', *columns), rows) + '</section>']),
        encoding='utf-8')


def film_of(folder: Path, moments: tuple[Moment, ...]) -> Iterator[np.ndarray]:
    """Yield frames (BGR) of camera and view from above, as the robot wrote them."""
    files = sorted(folder.glob('*.png'))[-len(moments):]
    for file, moment in zip(files, moments, strict=True):
        if moment.time < BEFORE_S:
            continue
        frame = np.full((FRAME[1], FRAME[0], 3), 255, np.uint8)
        above = folder.with_name(f'{folder.name}_map') / file.name
        for shown, x, size in ((file, 8, SEEN), (above, SEEN[0] + 16, SIZE)):
            if shown.is_file() and (picture := cv2.imread(str(shown))) is not None:
                frame[8:8 + size[1], x:x + size[0]] = cv2.resize(
                    picture, size, interpolation=cv2.INTER_AREA)
        level = {0: 'clear', 1: 'caution', 2: 'warning', 3: 'danger'}.get(moment.level, 'unknown')
        contact = ('' if not moment.time_to_contact < FARTHEST_S
                   else f', contact in {moment.time_to_contact:.1f} s')
        for y, colour, text in (
                (445, DARK, f'{moment.time:5.1f} s   {moment.speed:.1f} m/s   {level}{contact}'),
                (467, SOFT, f'guard: {moment.state} {moment.reason}')):
            cv2.putText(frame, text, (8, y), cv2.FONT_HERSHEY_SIMPLEX, 0.42, colour, 1,
                        cv2.LINE_AA)
        yield frame


def _moving(frames: Sequence[np.ndarray], rate: float) -> bytes:
    """Return frames (BGR) at a rate [Hz] as an animated WebP picture."""
    from PIL import Image
    stride = max(1, round(rate / FILM_HZ))
    images = [Image.fromarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
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


class TopView:
    def __init__(self, world: EpisodeWorld, number: int = 0) -> None:
        self._world, self._number = world, number
        points = world.episodes[number].route.points
        low, high = points.min(0) - MARGIN_M, points.max(0) + MARGIN_M
        width, height = SIZE
        self._scale = min(width / 7.0, height / float(high[1] - low[1]))
        self._middle = 0.5 * (low + high)
        self._trail: list[np.ndarray] = []

    def draw(self, candidates: np.ndarray | None = None) -> np.ndarray:
        """Return a picture of the present moment; the way driven is that between calls."""
        world, number = self._world, self._number
        place, yaw = world.robots.place[number], float(world.robots.yaw[number])
        self._trail.append(place.copy())
        image = np.full((SIZE[1], SIZE[0], 3), PAPER, np.uint8)
        for outline in world.outlines(number):
            cv2.fillPoly(image, [self._at(outline)], THING, cv2.LINE_AA, SHIFT)
        goal = world.episodes[number].route.points[-1]
        self._disc(image, goal, 0.5, GOAL, 2)
        # The chosen one last, above all others.
        for row in () if candidates is None else candidates[np.argsort(candidates['rank'])[::-1]]:
            self._arc(image, place, yaw, row)
        cv2.polylines(image, [self._at(np.array(self._trail))], False, WAY, 2, cv2.LINE_AA, SHIFT)
        cv2.polylines(image, [self._at(world.corners(number))], True, INK, 2, cv2.LINE_AA, SHIFT)
        nose = place + 0.5 * world.config.robot.length * np.array((math.sin(yaw), math.cos(yaw)))
        self._disc(image, nose, 0.06, INK, -1)
        return image

    def _at(self, points: np.ndarray) -> np.ndarray:
        """Return pixels (P, 2) of places x, z [m], with `SHIFT` bits after the point."""
        away = (points - self._middle) * self._scale * (1, -1)
        return np.round((away + np.array(SIZE) / 2) * 2 ** SHIFT).astype(np.int32)

    def _disc(self, image: np.ndarray, place: np.ndarray, radius: float,
              colour: Sequence[int], thickness: int) -> None:
        x, y = self._at(place[None])[0].tolist()
        cv2.circle(image, (x, y), round(radius * self._scale * 2 ** SHIFT), colour, thickness,
                   cv2.LINE_AA, SHIFT)

    def _arc(self, image: np.ndarray, place: np.ndarray, yaw: float, row: np.void) -> None:
        """Draw where the first twist of a candidate leads."""
        vx, omega = float(row['vx']), float(row['omega'])
        times = np.linspace(0, ARC_S, 9)
        bend = -omega * times                           # yaw grows to the right
        chord = vx * times * np.sinc(bend / (2 * np.pi))
        middle = yaw + 0.5 * bend
        points = place + chord[:, None] * np.stack((np.sin(middle), np.cos(middle)), -1)
        best, risk = row['rank'] == 0, float(np.clip(row['risk'], 0, 1))
        colour = CHOSEN if best else tuple(((1 - risk) * GOOD + risk * BAD).astype(int).tolist())
        cv2.polylines(image, [self._at(points)], False, colour, 4 if best else 1, cv2.LINE_AA,
                      SHIFT)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of driven episodes, and draw them: plot, course of one episode, video."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.drive.loop import Outcome
from vjepa_ros.lab.report.foxglove import Shown, write_mcap
from vjepa_ros.lab.report.plots import GRID, INK
from vjepa_ros.lab.report.video import write_video

WITHOUT = 'without_guard'
COLOURS = {'without_guard': '#94a3b8', 'with_guard': '#0b6bcb', 'with_planner': '#15803d'}
WORDS = {'without_guard': 'without guard', 'with_guard': 'with guard',
         'with_planner': 'guard and planner'}
_FARTHEST_S = 10.0   # longer times to contact are not drawn
_BAND_PX = 22        # above the images, with the name of the mode
_DPI = 110


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


def draw(outcomes: Mapping[str, Sequence[Outcome]], result: Mapping[str, Any],
         example: int | None) -> Any:
    """Draw a matplotlib figure of all episodes and, if recorded, of one.

    `example`: number of a recorded episode; None draws none.
    """
    from matplotlib.figure import Figure
    rows = 3 if example is not None else 0
    figure = Figure(figsize=(10, 3.4 + 2.0 * rows), layout='constrained', dpi=_DPI)
    grid = figure.add_gridspec(1 + rows, 2, height_ratios=[1.6] + [1] * rows)
    share = 'progress' if 'progress_kept' in result else 'success'
    _bars(figure.add_subplot(grid[0, 0]), outcomes, result, 'collisions')
    _bars(figure.add_subplot(grid[0, 1]), outcomes, result, share)
    if example is not None:
        below: list[Any] = []
        for n in range(rows):
            below.append(figure.add_subplot(grid[1 + n, :], sharex=below[0] if below else None))
        _course(below, outcomes, example)
    return figure


def _bars(axes: Any, outcomes: Mapping[str, Sequence[Outcome]], result: Mapping[str, Any],
          what: str) -> None:
    names = list(result['details'][next(iter(outcomes))]['by_scenario'])
    wide = 0.8 / len(outcomes)
    for number, mode in enumerate(outcomes):
        rows = [result['details'][mode]['by_scenario'][name] for name in names]
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
        axes[2].plot(time, np.where(contact < _FARTHEST_S, contact, np.nan), '.', ms=3, **style)
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


def write(path: Path, film: Path, modes: Sequence[str], number: int, rate: float) -> Path:
    """Write the video of an episode.

    `rate`: images per second [Hz].
    """
    files = {mode: sorted((film / mode / f'{number:04d}').glob('*.png')) for mode in modes}
    if not all(files.values()):
        raise ValueError(f'no images of episode {number} for '
                         f'{[mode for mode in modes if not files[mode]]}')
    return write_video(path.with_suffix(''), _frames(files), rate)


def write_recordings(folder: Path, film: Path | None, outcomes: Mapping[str, Sequence[Outcome]]
                     ) -> list[Path]:
    """Write each recorded episode of each mode as an MCAP file for Foxglove.

    `film`: folder of images as for `write`; None: the files have no pictures.
    """
    files = []
    for mode, outcome in ((m, o) for m, rows in outcomes.items() for o in rows if o.moments):
        stamps = [round((m.time - outcome.moments[0].time + 1.0) * 1e9) for m in outcome.moments]
        # The folder may have images of an earlier drive before these.
        images = [] if film is None else sorted(
            (film / mode / f'{outcome.number:04d}').glob('*.png'))[-len(stamps):]
        files.append(write_mcap(folder / f'{mode}-{outcome.number:04d}.mcap', Shown(
            [{'stamp_ns': stamp, 'level': m.level, 'time_to_contact': m.time_to_contact,
              'guard': m.state} for stamp, m in zip(stamps, outcome.moments, strict=True)],
            list(zip(stamps, images, strict=False)))))
    return files


def _frames(files: dict[str, list[Path]]) -> Iterator[np.ndarray]:
    """Yield BGR images side by side; a run that has ended shows its last one."""
    for step in range(max(map(len, files.values()))):
        shown = []
        for mode, paths in files.items():
            path = paths[min(step, len(paths) - 1)]
            picture = cv2.imread(str(path))
            if picture is None:
                raise ValueError(f'{path} is not a picture')
            band = np.full((_BAND_PX, picture.shape[1], 3), 255, np.uint8)
            ended = ' (ended)' if step >= len(paths) else ''
            cv2.putText(band, WORDS[mode] + ended, (4, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.5,
                        (40, 36, 28), 1, cv2.LINE_AA)
            shown.append(np.concatenate((band, picture)))
        yield np.concatenate(shown, 1)

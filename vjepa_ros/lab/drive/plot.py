# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw driven episodes: figures of all of them, the course of one, and its video."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.drive.loop import Moment, Outcome
from vjepa_ros.lab.report.plots import GRID, INK
from vjepa_ros.lab.report.report import write_video

COLOURS = {'without_guard': '#94a3b8', 'with_guard': '#0b6bcb', 'with_planner': '#15803d'}
WORDS = {'without_guard': 'without guard', 'with_guard': 'with guard',
         'with_planner': 'guard and planner'}
_FARTHEST_S = 10.0   # times to contact beyond are not drawn
_DPI = 110


def draw(outcomes: Mapping[str, Sequence[Outcome]], result: Mapping[str, Any],
         example: int | None) -> Any:
    """A matplotlib figure.

    Parameters
    ----------
    outcomes, result
        Of `drive_figures.figures`.
    example
        Number of an episode whose moments were kept; None draws none.
    """
    from matplotlib.figure import Figure
    rows = 3 if example is not None else 0
    figure = Figure(figsize=(10, 3.4 + 2.0 * rows), layout='constrained', dpi=_DPI)
    grid = figure.add_gridspec(1 + rows, 2, height_ratios=[1.6] + [1] * rows)
    _bars(figure.add_subplot(grid[0, 0]), outcomes, result, 'collisions')
    _bars(figure.add_subplot(grid[0, 1]), outcomes, result, 'progress')
    if example is not None:
        below: list[Any] = []
        for n in range(rows):
            below.append(figure.add_subplot(grid[1 + n, :], sharex=below[0] if below else None))
        _course(below, outcomes, example)
    return figure


def _bars(axes: Any, outcomes: Mapping[str, Sequence[Outcome]], result: Mapping[str, Any],
          what: str) -> None:
    names = list(result['details']['without_guard']['by_scenario'])
    wide = 0.8 / len(outcomes)
    for number, mode in enumerate(outcomes):
        rows = [result['details'][mode]['by_scenario'][name] for name in names]
        values = [row['collisions'] / row['episodes'] if what == 'collisions'
                  else row['progress'] for row in rows]
        key = 'collisions_per_episode' if what == 'collisions' else 'progress'
        axes.bar(np.arange(len(names)) + (number - (len(outcomes) - 1) / 2) * wide, values, wide,
                 color=COLOURS[mode], label=f'{WORDS[mode]}: {result[mode][key]:.3g}')
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_title('collisions per episode' if what == 'collisions' else
                   'part of the route driven', fontsize=10, color=INK)
    axes.grid(axis='y', color=GRID)
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1.3)        # room for the legend
    axes.legend(fontsize=7)


def _course(axes: Sequence[Any], outcomes: Mapping[str, Sequence[Outcome]],
            example: int) -> None:
    """Distance, speed and time to contact over the time of one episode."""
    for mode, rows in outcomes.items():
        outcome = next(o for o in rows if o.number == example)
        moments = [m for m in outcome.moments if m.time >= 0]
        if not moments:
            continue
        course(axes, moments, COLOURS[mode], WORDS[mode] + (
            f', hit {outcome.touched}' if outcome.collided else ''))
    first = next(o for o in outcomes['without_guard'] if o.number == example)
    axes[0].set_title(f'episode {example}: {first.scenario}, {first.place}', fontsize=10,
                      color=INK)
    label(axes)


def course(axes: Sequence[Any], moments: Sequence[Moment], colour: str, name: str) -> None:
    """One run on three axes; the times at which the guard acted are shaded on the second."""
    time = np.array([m.time for m in moments])
    axes[0].plot(time, [m.distance for m in moments], color=colour, label=name)
    axes[1].plot(time, [m.speed for m in moments], color=colour, label=name)
    acts = np.array([m.state not in ('free', 'idle') for m in moments])
    if acts.any():
        axes[1].fill_between(time, 0, 1, where=acts, color=colour, alpha=0.12, lw=0,
                             transform=axes[1].get_xaxis_transform())
    contact = np.array([m.time_to_contact for m in moments])
    contact = np.where(contact < _FARTHEST_S, contact, np.nan)
    axes[2].plot(time, contact, '.', ms=3, color=colour, label=name)


def label(axes: Sequence[Any]) -> None:
    """Names and units of the three axes of `course`."""
    for one, text in zip(axes, ('free way ahead [m]', 'speed [m/s], shaded: guard acts',
                                'time to contact [s]'), strict=True):
        one.set_ylabel(text, fontsize=8, color=INK)
        one.grid(color=GRID)
        one.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    axes[-1].set_xlabel('time since the start [s]', fontsize=8)


_BAND_PX = 22    # above the pictures, with the name of the mode


def write(path: Path, film: Path, modes: Sequence[str], number: int, rate: float) -> Path:
    """Write the video of an episode.

    Parameters
    ----------
    path
        Of the video, without or with its extension.
    film
        Folder with a folder of pictures for each mode and episode, as `drive.jobs` writes it.
    modes, number
        Which.
    rate
        Pictures per second [Hz].

    Returns
    -------
    Path
        Of the file, see `vjepa_ros.lab.report.report.write_video`.

    Raises
    ------
    ValueError
        When there are no pictures.
    """
    files = {mode: sorted((film / mode / f'{number:04d}').glob('*.png')) for mode in modes}
    if not all(files.values()):
        raise ValueError(f'no pictures of episode {number} for '
                         f'{[mode for mode in modes if not files[mode]]}')
    return write_video(path.with_suffix(''), _frames(files), rate)


def _frames(files: dict[str, list[Path]]) -> Iterator[np.ndarray]:
    """BGR pictures side by side; a run that has ended shows its last one."""
    for step in range(max(map(len, files.values()))):
        shown = []
        for mode, paths in files.items():
            picture = cv2.imread(str(paths[min(step, len(paths) - 1)]))
            band = np.full((_BAND_PX, picture.shape[1], 3), 255, np.uint8)
            ended = ' (ended)' if step >= len(paths) else ''
            cv2.putText(band, WORDS[mode] + ended, (4, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.5,
                        (40, 36, 28), 1, cv2.LINE_AA)
            shown.append(np.concatenate((band, picture)))
        yield np.concatenate(shown, 1)

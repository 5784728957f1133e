# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the figures of an evaluation into a document, with plots and pictures beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.lab.evaluation.page import (
    LEGEND,
    calibration,
    curves,
    grids,
    markdown,
    reasons,
    summary,
    world_calibration,
)
from vjepa_ros.lab.evaluation.pictures import Picture, failed
from vjepa_ros.lab.evaluation.plots import reliability_plot, roc, timeline
from vjepa_ros.lab.evaluation.recording_replay import Played
from vjepa_ros.lab.evaluation.world import WorldRun
from vjepa_ros.lab.report.measurement import fill

BLOCK = 'accuracy'
SHEET_WIDTH, TILE_COLUMNS, QUALITY = 800, 2, 75
WHITE = (255, 255, 255)


def write(document: Path, report: Mapping[str, Any], played: Sequence[Played],
          pictures: Mapping[str, Sequence[Picture]], world: WorldRun | None) -> None:
    """Replace the block between the marks of a document, and the folder of its pictures.

    Parameters
    ----------
    document
        Markdown file with ``<!-- accuracy:begin -->`` and ``<!-- accuracy:end -->``. Pictures go
        into the folder beside it that has its name without the extension.
    report, played, pictures, world
        As for `vjepa_ros.lab.evaluation.page.render`.

    Raises
    ------
    ValueError
        When a mark is missing.
    OSError
        When the document cannot be read or written.
    """
    text = document.read_text(encoding='utf-8')
    fill(text, BLOCK, '')       # complains before anything is written
    folder = document.with_suffix('')
    folder.mkdir(exist_ok=True)
    for old in [*folder.glob('*.png'), *folder.glob('*.jpg')]:
        old.unlink()
    block = '\n'.join(_parts(report, played, pictures, world, folder))
    document.write_text(fill(text, BLOCK, block), encoding='utf-8')


def _parts(report: Mapping[str, Any], played: Sequence[Played],
           pictures: Mapping[str, Sequence[Picture]], world: WorldRun | None,
           folder: Path) -> list[str]:
    known = report['configuration']
    parts = [f'| | |\n|---|---|\n| Command | `{known["command"]}`, {known["minutes"]} minutes |\n'
             f'| Date, machine | {known["date"]}, {known["machine"]} |\n'
             f'| Model | {known["model"]} |\n| Method | {known["method"]}, one configuration for '
             'all recordings (the defaults) |\n']
    notes = [*known['notes'], *reasons(report)]
    parts.append(''.join(f'- {note}\n' for note in notes))
    parts += [f'### {grid.title}\n\n{markdown(grid)}' for grid in grids(report)]
    parts.append(f'{LEGEND}\n')
    pairs = curves(report, played)
    if pairs:
        (folder / 'roc.png').write_bytes(roc(pairs, 'png'))
        found = calibration(report, played)
        (folder / 'reliability.png').write_bytes(reliability_plot(found, 'png'))
        parts.append(f'![ROC curves]({folder.name}/roc.png) '
                     f'![reliability]({folder.name}/reliability.png)\n')
    if world is not None:
        parts.append(_world(world, pictures.get('world', ()), folder))
    for each in played:
        parts.append(_sequence(each, report, pictures.get(each.item.name, ()), folder))
    return [part for part in parts if part]


def _sequence(played: Played, report: Mapping[str, Any], pictures: Sequence[Picture],
              folder: Path) -> str:
    name = played.item.name
    (folder / f'{name}.png').write_bytes(
        timeline(played, report['configuration']['method'], 'png'))
    text = (f'### `{name}`\n\n{summary(played, report["sequences"][name])}\n\n'
            f'![{name} over time]({folder.name}/{name}.png)\n')
    return text + _failures(name, failed(pictures), TILE_COLUMNS, folder)


def _world(world: WorldRun, pictures: Sequence[Picture], folder: Path) -> str:
    plot = reliability_plot(world_calibration(world), 'png')
    (folder / 'world_reliability.png').write_bytes(plot)
    return ('### Rendered clips\n\nReliability of the hazard over all horizons; below, the clips '
            f'that were judged worst.\n\n![reliability]({folder.name}/world_reliability.png)\n'
            + _failures('world', pictures, 2 * TILE_COLUMNS, folder))


def _failures(name: str, wrong: Sequence[Picture], columns: int, folder: Path) -> str:
    if not wrong:
        return ''
    (folder / f'{name}_failures.jpg').write_bytes(sheet(wrong, columns))
    listing = ''.join(f'{i}. {p.failure}: {p.caption}\n' for i, p in enumerate(wrong, 1))
    return (f'\nFailures, row by row:\n\n{listing}\n'
            f'![failures in {name}]({folder.name}/{name}_failures.jpg)\n')


def sheet(pictures: Sequence[Picture], columns: int) -> bytes:
    """Some pictures of one sequence as one JPEG, row by row, each whole in its tile."""
    width = SHEET_WIDTH // columns
    images = [cv2.imdecode(np.frombuffer(p.jpeg, np.uint8), cv2.IMREAD_COLOR) for p in pictures]
    images = [cv2.resize(i, (width, max(1, round(i.shape[0] * width / i.shape[1]))),
                         interpolation=cv2.INTER_AREA) for i in images]
    rows = []
    for first in range(0, len(images), columns):
        row = images[first:first + columns]
        height = max(i.shape[0] for i in row)
        tiles = [cv2.copyMakeBorder(i, 0, height - i.shape[0], 0, 0, cv2.BORDER_CONSTANT,
                                    value=WHITE) for i in row]
        tiles += [np.full((height, width, 3), 255, np.uint8)] * (columns - len(row))
        rows.append(np.hstack(tiles))
    done, data = cv2.imencode('.jpg', np.vstack(rows), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    if not done:
        raise ValueError(f'cannot encode a sheet of {len(pictures)} pictures as jpeg')
    return data.tobytes()

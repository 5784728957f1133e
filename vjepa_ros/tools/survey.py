# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the node over DDS on several recordings and collect figures and pictures of each."""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.perception.assessment import Level
from vjepa_ros.tools.blocks import fill
from vjepa_ros.tools.demo import Demo, make_plan
from vjepa_ros.tools.json_file import write_json
from vjepa_ros.tools.report import json_safe

SHEET_COLUMNS, SHEET_ROWS, TILE_WIDTH = 3, 2, 440


def survey(source: str, name: str, out_dir: Path, pictures: Path, console: Console,
           parameters: dict[str, object]) -> dict[str, Any]:
    """Play one source through the node; its figures, with a sheet of overlays in `pictures`.

    Parameters
    ----------
    source
        As for `vjepa-ros demo --source`.
    name
        Name of the recording in figures and files.
    out_dir
        Takes report, video and summary.
    pictures
        Folder of the sheet ``NAME.jpg``.
    console
        Where progress is shown.
    parameters
        Of the node.
    """
    demo = Demo(make_plan(source, None), parameters, out_dir, console,
                f'vjepa-ros survey {name}')
    summary, video = demo.run()
    records = demo.recording.records()
    if video is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(pictures / f'{name}.jpg'), sheet(video),
                    [cv2.IMWRITE_JPEG_QUALITY, 78])
    levels = Counter(Level(r['level']).name.lower() for r in records)
    return {
        'frames_in': summary['frames_in'], 'assessments_out': summary['assessments_out'],
        'latency_ms': summary['latency_ms'],
        'levels': {level.name.lower(): levels[level.name.lower()] for level in Level},
        'level_changes': summary['level_changes'],
        'motion_score_median': _median(records, 'motion_score'),
        'known_fraction_median': _median(records, 'known_fraction'),
        'looming_rate_median': _median(records, 'looming_rate'),
        'shortest_time_to_contact': min((r['time_to_contact'] for r in records
                                         if math.isfinite(r['time_to_contact'])),
                                        default=math.nan),
    }


def sheet(video: Path) -> np.ndarray:
    """Frames spread evenly over a video, as one picture."""
    capture = cv2.VideoCapture(str(video))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    capture.release()
    count = SHEET_COLUMNS * SHEET_ROWS
    picks = [frames[round(i)] for i in np.linspace(0.14, 0.97, count) * (len(frames) - 1)]
    height = round(picks[0].shape[0] * TILE_WIDTH / picks[0].shape[1])
    tiles = [cv2.resize(p, (TILE_WIDTH, height), interpolation=cv2.INTER_AREA) for p in picks]
    return np.vstack([np.hstack(tiles[row * SHEET_COLUMNS:(row + 1) * SHEET_COLUMNS])
                      for row in range(SHEET_ROWS)])


def show(results: dict[str, dict[str, Any]], console: Console) -> None:
    """Print the figures as a table."""
    table = Table('recording', 'in', 'out', 'ms', 'motion', 'known',
                  *(level.name.lower() for level in Level), box=None, padding=(0, 1))
    for name, r in results.items():
        table.add_row(name, str(r['frames_in']), str(r['assessments_out']),
                      f'{r["latency_ms"]["median"]:.0f}', f'{r["motion_score_median"]:.2f}',
                      f'{r["known_fraction_median"]:.2f}', *map(str, r['levels'].values()))
    console.print(table)


def markdown(results: dict[str, dict[str, Any]]) -> str:
    """The figures as the table of a document."""
    levels = [level.name.lower() for level in Level]
    heads = ['Recording', 'Frames', 'Results', 'Latency ms (median, p95)', 'Motion', 'Known',
             *levels]
    lines = [' | '.join(['', *heads, '']).strip(), '|' + '---|' * len(heads)]
    for name, r in results.items():
        cells = [f'`{name}`', r['frames_in'], r['assessments_out'],
                 f'{r["latency_ms"]["median"]:.0f}, {r["latency_ms"]["p95"]:.0f}',
                 f'{r["motion_score_median"]:.2f}', f'{100 * r["known_fraction_median"]:.0f} %',
                 *(r['levels'][level] for level in levels)]
        lines.append(' | '.join(['', *map(str, cells), '']).strip())
    return '\n'.join(lines) + '\n'


def _median(records: Sequence[dict[str, Any]], key: str) -> float:
    known = [r[key] for r in records if math.isfinite(r[key])]
    return statistics.median(known) if known else math.nan


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 when all recordings were played."""
    parser = argparse.ArgumentParser(prog='vjepa-ros survey', description=__doc__)
    parser.add_argument('sources', nargs='+', help='recordings, as for vjepa-ros demo --source')
    parser.add_argument('--out', type=Path, default=Path('demo_output/survey'),
                        help='folder for the reports')
    parser.add_argument('--pictures', type=Path, default=Path('docs/first_results'),
                        help='folder for the sheets of overlays')
    parser.add_argument('--json', type=Path, default=Path('docs/first_results/figures.json'),
                        help='file for the figures')
    parser.add_argument('--document', type=Path, metavar='FILE', help='also put the table '
                        'between the marks <!-- survey:begin --> and <!-- survey:end --> here')
    args = parser.parse_args(argv)
    console = Console()
    results = {}
    for source in args.sources:
        name = Path(source).stem
        console.rule(name)
        results[name] = survey(source, name, args.out / name, args.pictures, console, {})
    write_json(args.json, json_safe(results))
    show(results, console)
    if args.document is not None:
        args.document.write_text(fill(args.document.read_text(), 'survey', markdown(results)))
    return 0

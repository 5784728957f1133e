# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find the moments of scored recordings that look most like a picture or an event."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.console import print_error, real, whole
from vjepa_ros.fleet.results import arrow, clock, read_rows

PLACE = ('bag', 'topic', 'camera', 'at_s', 'stamp_ns')
NONE = 'the results have no embeddings; score with --embeddings'
Moment = dict[str, Any]     # `PLACE` of a row, and the cosine of its embedding and the example's


def search(files: Sequence[Path], example: np.ndarray, count: int, apart_s: float,
           wanted: Callable[[Moment], bool] = lambda moment: True) -> list[Moment]:
    """Return the moments most like an example (D,), the best first.

    Embeddings are standardised over the results: what all moments share, such as the camera
    itself, does not tell them apart. The files are read one after the other, twice: of all rows
    only the likeness stays in memory. Of moments of a camera closer than `apart_s` only the best
    counts.
    """
    total, squares, rows = np.zeros(len(example)), np.zeros(len(example)), 0
    for file in files:
        embeddings = _embeddings(file, len(example))
        total += embeddings.sum(axis=0, dtype=np.float64)
        squares += np.square(embeddings, dtype=np.float64).sum(axis=0)
        rows += len(embeddings)
    if not rows:
        raise ValueError(NONE)
    centre = total / rows
    scale = np.maximum(np.sqrt(np.maximum(squares / rows - centre ** 2, 0.0)), 1e-6)
    one = (example - centre) / scale
    moments: list[Moment] = []
    for file in files:
        standard = (_embeddings(file, len(example)) - centre) / scale
        likeness = standard @ one / np.maximum(
            np.linalg.norm(standard, axis=1) * np.linalg.norm(one), 1e-12)
        table = read_rows([file], PLACE)
        found = ({name: table[name][int(n)].as_py() for name in PLACE}
                 | {'likeness': float(likeness[n])} for n in np.argsort(-likeness, kind='stable'))
        # Enough of each file, whatever of the others is better.
        moments += _spread(filter(wanted, found), count, apart_s)
    return _spread(sorted(moments, key=lambda m: -m['likeness']), count, apart_s)


def _embeddings(file: Path, size: int) -> np.ndarray:
    """Return the embeddings of a file, (N, D) float32; ValueError for those of another model."""
    column = read_rows([file], ['embedding'])['embedding'].combine_chunks()
    if column.null_count == len(column):
        return np.empty((0, size), np.float32)
    values = column.flatten().to_numpy(zero_copy_only=False)
    if len(values) != size * len(column):
        raise ValueError(f"'{file}' has embeddings of {len(values) // len(column)} numbers, the "
                         f'example has {size}; they must come from the same weights')
    return values.reshape(-1, size)


def _spread(moments: Iterable[Moment], count: int, apart_s: float) -> list[Moment]:
    """Return the first moments, without those close to a better one of their camera."""
    taken: list[Moment] = []
    for moment in moments:
        if all((t['bag'], t['topic']) != (moment['bag'], moment['topic'])
               or abs(t['at_s'] - moment['at_s']) >= apart_s for t in taken):
            taken.append(moment)
            if len(taken) == count:
                break
    return taken


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros find', description=__doc__)
    add = parser.add_argument
    add('example', metavar='PICTURE_OR_EVENT', help='picture file, or number of an '
        'event, which is not shown itself')
    add('results', type=Path, metavar='RESULTS', help='folder that vjepa-ros score has written, '
        'with --embeddings')
    add('--top', type=whole(), default=10, metavar='N', help='moments to show (default: '
        '%(default)s)')
    add('--apart', type=real(0, 3600), default=2.0, metavar='S', help='of moments of a camera '
        'closer than this only the best is shown (default: %(default)g s)')
    add('--json', action='store_true', help='write JSON lines')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when moments were found."""
    args = make_parser().parse_args(argv)
    try:
        facts = _facts(args.results)
        files = [args.results / file for file in facts['files']]
        if args.example.isdigit():
            moments = _like_event(int(args.example), args, files, facts['configuration']['track'])
        else:
            example = _of_picture(Path(args.example), facts['configuration'])
            moments = search(files, example, args.top, args.apart)
    except (ValueError, OSError) as error:
        return print_error(f'vjepa-ros find: {error}')
    if args.json:
        for moment in moments:
            print(json.dumps(moment))
        return 0
    table = Table('likeness', 'at', 'recording', 'camera', 'stamp [s]')
    for moment in moments:
        table.add_row(f'{moment["likeness"]:.3f}', clock(moment['at_s']), moment['bag'],
                      moment['camera'], f'{moment["stamp_ns"] / 1e9:.3f}')
    Console().print(table)
    return 0


def _facts(results: Path) -> dict[str, Any]:
    try:
        return json.loads((results / 'run.json').read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise ValueError(f"'{results}' is no folder of results: {error}; write one with "
                         'vjepa-ros score --embeddings') from error


def _like_event(number: int, args: argparse.Namespace, files: Sequence[Path],
                track: Mapping[str, Any]) -> list[Moment]:
    """Return the moments like the picture of an event, but for those whose clip has it."""
    events = read_rows([args.results / 'events.parquet']).to_pylist()
    event = next((e for e in events if e['event'] == number), None)
    if event is None:
        raise ValueError(f'there is no event {number}; the results have {len(events)}'
                         + (', from 0 on' if events else ': give a picture instead'))
    found = arrow('pyarrow.parquet').read_table(files, columns=['embedding'], filters=[
        (mine, '==', event[its]) for mine, its in (
            ('bag', 'bag'), ('topic', 'topic'), ('stamp_ns', 'peak_stamp_ns'))])['embedding']
    if not len(found):
        raise ValueError(f'the rows of event {number} are not there')
    if (example := found[0].as_py()) is None:
        raise ValueError(NONE)
    clip_s = (track['num_frames'] - 1) / track['clip_fps']

    def another(moment: Moment) -> bool:
        return (moment['bag'], moment['topic']) != (event['bag'], event['topic']) or (
            abs(moment['at_s'] - event['peak_s']) > clip_s)

    return search(files, np.array(example, np.float32), args.top, args.apart, another)


def _of_picture(path: Path, configuration: Mapping[str, Any]) -> np.ndarray:
    """Embed a picture with the model of the results."""
    from vjepa_ros.clip.resize import View
    from vjepa_ros.fleet.scoring import config_of, embed
    from vjepa_ros.runtime.model import Model
    from vjepa_ros.sources import open_source

    config = config_of(configuration)
    with open_source(path) as source:
        rgb = next(iter(source)).rgb
    engine = Model.load(config.engine)
    try:
        view = View(config.track.resize_mode, (rgb.shape[1], rgb.shape[0]),
                    config.track.image_size)
        return embed(engine, [view.apply(rgb)])[0]
    finally:
        engine.close()

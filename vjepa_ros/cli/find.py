# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find the moments of scored recordings that look most like a picture or an event."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.console import print_error, real, whole
from vjepa_ros.fleet.config import config_of
from vjepa_ros.fleet.summary import clock
from vjepa_ros.fleet.tables import arrow, read_rows

PLACE = ('bag', 'topic', 'camera', 'at_s', 'stamp_ns')


@dataclass(frozen=True)
class Moment:
    """A row that was found."""

    bag: str
    topic: str
    camera: str
    at_s: float
    stamp_ns: int
    likeness: float  # cosine of its embedding and that of the example, -1..1


class Span(NamedTuple):
    """A time of a camera, of a recording [s]."""

    bag: str
    topic: str
    begin_s: float
    end_s: float

    def holds(self, bag: str, topic: str, at_s: Any) -> Any:
        """Return whether a moment, or each of several of one camera, lies in it."""
        return ((bag, topic) == self[:2]) & (self.begin_s <= at_s) & (at_s <= self.end_s)


NOWHERE = Span('', '', 0.0, 0.0)


def search(files: Sequence[Path], example: np.ndarray, count: int, apart_s: float,
           besides: Span = NOWHERE) -> list[Moment]:
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
        raise ValueError('the results have no embeddings; score with --embeddings')
    centre = total / rows
    scale = np.maximum(np.sqrt(np.maximum(squares / rows - centre ** 2, 0.0)), 1e-6)
    one = (example - centre) / scale
    moments: list[Moment] = []
    for file in files:
        standard = (_embeddings(file, len(example)) - centre) / scale
        likeness = standard @ one / np.maximum(
            np.linalg.norm(standard, axis=1) * np.linalg.norm(one), 1e-12)
        table = read_rows([file], PLACE)
        found = (Moment(**{name: table[name][int(n)].as_py() for name in PLACE},
                        likeness=float(likeness[n]))
                 for n in np.argsort(-likeness, kind='stable'))
        # Enough of each file, whatever of the others is better.
        moments += _spread((m for m in found if not besides.holds(m.bag, m.topic, m.at_s)),
                           count, apart_s)
    return _spread(sorted(moments, key=lambda m: -m.likeness), count, apart_s)


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
        if all((t.bag, t.topic) != (moment.bag, moment.topic)
               or abs(t.at_s - moment.at_s) >= apart_s for t in taken):
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
        example, besides = (
            _of_event(int(args.example), args.results, files, facts) if args.example.isdigit()
            else (_of_picture(Path(args.example), facts), NOWHERE))
        moments = search(files, example, args.top, args.apart, besides)
    except (ValueError, OSError) as error:
        return print_error(f'vjepa-ros find: {error}')
    if args.json:
        for moment in moments:
            print(json.dumps(dataclasses.asdict(moment)))
        return 0
    table = Table('likeness', 'at', 'recording', 'camera', 'stamp [s]')
    for moment in moments:
        table.add_row(f'{moment.likeness:.3f}', clock(moment.at_s), moment.bag, moment.camera,
                      f'{moment.stamp_ns / 1e9:.3f}')
    Console().print(table)
    return 0


def _facts(results: Path) -> dict[str, Any]:
    file = results / 'run.json'
    try:
        return json.loads(file.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise ValueError(f"'{results}' is no folder of results: {error}; write one with "
                         'vjepa-ros score --embeddings') from error


def _of_event(number: int, results: Path, files: Sequence[Path], facts: Mapping[str, Any]
              ) -> tuple[np.ndarray, Span]:
    """Return the embedding of an event's picture, and the clips around that would find it."""
    events = read_rows([results / 'events.parquet']).to_pylist()
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
        raise ValueError('the results have no embeddings; score with --embeddings')
    track = facts['configuration']['track']
    clip_s = (track['num_frames'] - 1) / track['clip_fps']
    return np.array(example, np.float32), Span(event['bag'], event['topic'],
                                               event['peak_s'] - clip_s, event['peak_s'] + clip_s)


def _of_picture(path: Path, facts: dict[str, Any]) -> np.ndarray:
    """Embed a picture with the model of the results."""
    from vjepa_ros.clip.resize import View
    from vjepa_ros.fleet.scoring import embed
    from vjepa_ros.runtime.model import Model
    from vjepa_ros.sources.folder import load
    from vjepa_ros.sources.gain import GainControl

    config = config_of(facts['configuration'])
    rgb = GainControl().reduce(load(path)[0])[0]
    engine = Model.load(config.engine)
    try:
        view = View(config.track.resize_mode, (rgb.shape[1], rgb.shape[0]),
                    config.track.image_size)
        return embed(engine, [view.apply(rgb)])[0]
    finally:
        engine.close()

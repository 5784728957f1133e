# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find the moments of scored recordings that look most like a picture or an event."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vjepa_ros.cli.console import print_error, real, whole
from vjepa_ros.fleet.config import config_of
from vjepa_ros.fleet.find import NOWHERE, Span, search
from vjepa_ros.fleet.summary import clock
from vjepa_ros.fleet.tables import arrow, read_rows


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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Moments of scored recordings are found again by a picture of them or by an event."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('pyarrow')

from scenes import texture
from test_score import WORDS

from vjepa_ros.cli import find, score
from vjepa_ros.fleet.results import event_schema, row_schema, write_table

pytestmark = pytest.mark.usefixtures('one_thread')


def write_rows(path: Path, bag: str, embeddings: np.ndarray) -> Path:
    write_table(path, [{'bag': bag, 'topic': '/eye', 'camera': 'eye', 'at_s': n / 10,
                        'stamp_ns': n, 'embedding': one} for n, one in enumerate(embeddings)],
                row_schema(), {})
    return path


def test_the_search_is_exact_and_neighbours_count_once(tmp_path):
    rng = np.random.default_rng(0)
    known = rng.normal(5.0, [1.0, 2.0, 3.0, 4.0], (60, 4)).astype(np.float32)
    files = [write_rows(tmp_path / f'{n}.parquet', f'{n}', known[n * 20:n * 20 + 20])
             for n in range(3)]
    example = known[33] + rng.normal(0, 0.01, 4)
    z = (known - known.mean(axis=0)) / known.std(axis=0)
    one = (example - known.mean(axis=0)) / known.std(axis=0)
    every = z @ one / np.linalg.norm(z, axis=1) / np.linalg.norm(one)
    found = find.search(files, example, 5, 0.0)
    assert [20 * int(m['bag']) + m['stamp_ns'] for m in found] == list(np.argsort(-every)[:5])
    assert [m['likeness'] for m in found] == pytest.approx(np.sort(every)[::-1][:5], abs=1e-5)
    apart = find.search(files, example, 60, 0.75)
    for bag in '012':
        at = sorted(m['at_s'] for m in apart if m['bag'] == bag)
        assert np.diff(at).min() >= 0.75 and len(at) >= 2
    with pytest.raises(ValueError, match='4 numbers'):
        find.search(files, np.ones(5), 1, 0.0)


def test_an_event_finds_what_is_like_it_but_not_itself(tmp_path, capsys):
    known = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    known[[25, 50]] = known[32]          # alike: in the clip of the event, and later
    for bag in ('bag', 'other'):
        write_rows(tmp_path / f'{bag}.parquet', bag, known)
    write_table(tmp_path / 'events.parquet', [{
        'event': 3, 'topic': '/eye', 'camera': 'eye', 'bag': 'bag', 'peak_stamp_ns': 32,
        'peak_s': 3.25}], event_schema(), {})
    (tmp_path / 'run.json').write_text(json.dumps({
        'configuration': {'track': {'num_frames': 4, 'clip_fps': 2.0}},     # clips of 1.5 s
        'files': ['bag.parquet', 'other.parquet']}))
    assert find.main(['3', str(tmp_path), '--json', '--apart', '0', '--top', '200']) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(m['bag'], m['stamp_ns']) for m in found[:4]} == {
        ('bag', 50), ('other', 25), ('other', 32), ('other', 50)}
    assert {m['stamp_ns'] for m in found if m['bag'] == 'bag'} == {*range(18), *range(48, 80)}


def test_a_picture_finds_its_place(tmp_path, capsys):
    """Each place stands still in a film of its own."""
    for number in range(4):
        (folder := tmp_path / 'walks' / f'place_{number}').mkdir(parents=True)
        for n in range(10):
            cv2.imwrite(str(folder / f'{n}.png'), texture((160, 120), number)[..., ::-1])
    out = tmp_path / 'out'
    # Random features of a still scene tell places apart; one process, so as to be quick.
    words = [word for one in WORDS for word in ('-p', one)]
    assert score.main([str(tmp_path / 'walks'), '--out', str(out), '--jobs', '1', '--embeddings',
                       '--rate', '10', *words]) == 0
    capsys.readouterr()
    example = str(tmp_path / 'example.jpg')        # not bit for bit the same
    cv2.imwrite(example, texture((160, 120), 2)[..., ::-1])
    assert find.main([example, str(out), '--json', '--top', '4']) == 0
    # A command of another test may have left its console to the logger.
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{')]
    assert Path(found[0]['bag']).name == 'place_2' and len(found) == 4
    for results, said in ((out, 'no event 0'), (tmp_path, '--embeddings')):
        assert find.main(['0', str(results)]) == 1
        assert said in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Moments of scored recordings are found again by a picture of them or by an event."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('pyarrow')

from scenes import texture
from test_score import WORDS

from vjepa_ros.cli import find, score
from vjepa_ros.fleet import lance_table
from vjepa_ros.fleet.similarity import Span, search
from vjepa_ros.fleet.tables import event_schema, row_schema, write_table

pytestmark = pytest.mark.usefixtures('one_thread')


def write_rows(path: Path, bag: str, embeddings: np.ndarray) -> Path:
    write_table(path, [{'bag': bag, 'topic': '/eye', 'camera': 'eye', 'at_s': n / 10,
                        'stamp_ns': n, 'embedding': one} for n, one in enumerate(embeddings)],
                row_schema(), {})
    return path


def write_event(folder: Path, event: dict, facts: dict) -> None:
    """Write an event of the camera of `write_rows`, and facts of a run with clips of 1.5 s."""
    write_table(folder / 'events.parquet', [{'topic': '/eye', 'camera': 'eye', **event}],
                event_schema())
    (folder / 'run.json').write_text(json.dumps({
        'configuration': {'track': {'num_frames': 4, 'clip_fps': 2.0}}, **facts}))


def test_the_search_is_exact_and_neighbours_count_once(tmp_path):
    rng = np.random.default_rng(0)
    known = rng.normal(5.0, [1.0, 2.0, 3.0, 4.0], (60, 4)).astype(np.float32)
    files = [write_rows(tmp_path / f'{n}.parquet', f'{n}', known[n * 20:n * 20 + 20])
             for n in range(3)]
    example = known[33] + rng.normal(0, 0.01, 4)
    z = (known - known.mean(axis=0)) / known.std(axis=0)
    one = (example - known.mean(axis=0)) / known.std(axis=0)
    every = z @ one / np.linalg.norm(z, axis=1) / np.linalg.norm(one)
    found = search(files, example, 5, 0.0)
    assert [20 * int(m.bag) + m.stamp_ns for m in found] == list(np.argsort(-every)[:5])
    assert [m.likeness for m in found] == pytest.approx(np.sort(every)[::-1][:5], abs=1e-5)
    apart = search(files, example, 60, 0.75)
    for bag in '012':
        at = sorted(m.at_s for m in apart if m.bag == bag)
        assert np.diff(at).min() >= 0.75 and len(at) >= 2
    with pytest.raises(ValueError, match='4 numbers'):
        search(files, np.ones(5), 1, 0.0)


@pytest.mark.parametrize('indexed', [10**9, 1000])
def test_lance_finds_what_the_exact_search_finds(indexed, tmp_path, monkeypatch, capsys):
    pytest.importorskip('lancedb')
    monkeypatch.setattr(lance_table, 'INDEXED', indexed)
    monkeypatch.setattr(find, 'EXACT_ROWS', 1000)
    rng = np.random.default_rng(1)
    known = rng.normal(3.0, np.linspace(0.5, 4.0, 32), (3000, 32)).astype(np.float32)
    (tmp_path / 'rows').mkdir()
    files = [write_rows(tmp_path / 'rows' / f'{n}.parquet', f'{n}', known[n * 600:n * 600 + 600])
             for n in range(5)]
    write_event(tmp_path, {'event': 0, 'bag': '2', 'peak_stamp_ns': 7, 'peak_s': 0.7},
                {'files': [f'rows/{f.name}' for f in files], 'rows': 3000})
    assert find.main(['0', str(tmp_path)]) == 1
    assert '--embeddings lance' in capsys.readouterr().err
    assert lance_table.write_lance(tmp_path, files) == 3000
    before = [p.stat().st_mtime_ns for p in (tmp_path / 'lance').iterdir()]
    lance_table.write_lance(tmp_path, files)             # nothing is written twice
    assert [p.stat().st_mtime_ns for p in (tmp_path / 'lance').iterdir()] == before
    assert find.main(['0', str(tmp_path), '--json', '--top', '5', '--apart', '1']) == 0
    got = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    exact = search(files, known[1207], 5, 1.0, Span('2', '/eye', 0.7 - 1.5, 0.7 + 1.5))
    assert [(m['bag'], m['stamp_ns']) for m in got] == [(m.bag, m.stamp_ns) for m in exact]
    assert [m['likeness'] for m in got] == pytest.approx([m.likeness for m in exact], abs=1e-5)
    assert [m for m in got if m['bag'] == '2' and m['stamp_ns'] <= 22] == []
    with pytest.raises(ValueError, match='31'):
        lance_table.search_lance(tmp_path, files, known[0, :31], 1, 0.0)
    with pytest.raises(ValueError, match='--embeddings lance'):
        lance_table.search_lance(tmp_path, files[:4], known[0], 1, 0.0)


def test_without_lancedb_the_remedy_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'lancedb', None)
    assert score.main([str(tmp_path), '--out', str(tmp_path / 'out'), '--embeddings',
                       'lance']) == 1
    assert 'pip install lancedb' in capsys.readouterr().err


def test_an_event_finds_what_is_like_it_but_not_itself(tmp_path, capsys):
    known = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    known[[25, 50]] = known[32]          # alike: in the clip of the event, and later
    for bag in ('bag', 'other'):
        write_rows(tmp_path / f'{bag}.parquet', bag, known)
    write_event(tmp_path, {'event': 3, 'bag': 'bag', 'peak_stamp_ns': 32, 'peak_s': 3.25},
                {'files': ['bag.parquet', 'other.parquet']})
    assert find.main(['3', str(tmp_path), '--json', '--apart', '0', '--top', '200']) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(m['bag'], m['stamp_ns']) for m in found[:4]} == {
        ('bag', 50), ('other', 25), ('other', 32), ('other', 50)}
    assert found[3]['likeness'] == pytest.approx(1.0)
    assert {m['stamp_ns'] for m in found if m['bag'] == 'bag'} == {*range(18), *range(48, 80)}


def test_a_picture_finds_its_place(tmp_path, capsys):
    """Each place stands still in a film of its own."""
    pictures = [texture((160, 120), seed) for seed in range(4)]
    for number, picture in enumerate(pictures):
        folder = tmp_path / 'walks' / f'place_{number}'
        folder.mkdir(parents=True)
        for n in range(10):
            cv2.imwrite(str(folder / f'{n}.png'), picture[..., ::-1])
    out = tmp_path / 'out'
    # Random features of a still scene tell places apart; one process, so as to be quick.
    words = [str(tmp_path / 'walks'), '--out', str(out), '--jobs', '1', '--embeddings',
             '--rate', '10']
    for word in WORDS:
        words += ['-p', word]
    assert score.main(words) == 0
    capsys.readouterr()
    # Not bit for bit the same.
    cv2.imwrite(str(tmp_path / 'example.jpg'), pictures[2][..., ::-1])
    assert find.main([str(tmp_path / 'example.jpg'), str(out), '--json', '--top', '4']) == 0
    # A command of another test may have left its console to the logger.
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{')]
    assert Path(found[0]['bag']).name == 'place_2' and len(found) == 4
    assert find.main(['0', str(out)]) == 1
    assert 'no event 0' in capsys.readouterr().err
    assert find.main(['0', str(tmp_path)]) == 1
    assert '--embeddings' in capsys.readouterr().err

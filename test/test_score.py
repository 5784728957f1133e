# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recordings are scored as the node would, in chunks, and what is broken loses nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('pyarrow')

from bundles import save_causal_bundle, save_constant_bundle
from deadly import killer, unfit
from recordings import BagMaker, S, write_drive
from scenes import synthetic, texture

from vjepa_ros.cli import find
from vjepa_ros.cli import score as command
from vjepa_ros.fleet import run as fleet
from vjepa_ros.fleet.recordings import cameras_of, find_recordings
from vjepa_ros.fleet.results import (
    EventRule,
    ROWS,
    event_schema,
    find_events,
    read_rows,
    row_schema,
    write_table,
)
from vjepa_ros.fleet.scoring import Scorer, read_config
from vjepa_ros.lab.worker_pool import run_each
from vjepa_ros.perception.types import Level

pytestmark = pytest.mark.usefixtures('one_thread')

WORDS = ('weights:=random', 'allow_random_weights:=true', 'num_frames:=4', 'image_size:=64',
         'clip_fps:=5.0', 'device:=cpu', 'cpu_threads:=1')


@pytest.fixture(scope='module')
def drive():
    """Frames of a drive at an obstacle, 10 Hz."""
    return synthetic(size=(160, 120), start_s=4.2, count=70)


@pytest.fixture(scope='module')
def bag(tmp_path_factory, drive):
    return write_drive(tmp_path_factory.mktemp('bags') / 'drive', drive)


def scored(out: Path, *paths: Path, words=WORDS, chunk_s: float = 300.0) -> fleet.Run:
    run = fleet.Run(read_config(None, words), out)
    found, run.problems = find_recordings(paths)
    fleet.plan(run, found, (), chunk_s)
    scorer = Scorer(run.config, out / ROWS)

    def here(chunks, done) -> None:
        for chunk in chunks:
            try:
                done(chunk, scorer.score(chunk), '')
            except (ValueError, OSError) as error:
                done(chunk, None, str(error))

    fleet.score(run, here, lambda text: None)
    return run


def rows_of(run: fleet.Run) -> list[dict]:
    return read_rows([run.file(chunk) for chunk in run.chunks
                      if chunk.file in run.scored]).to_pylist()


def same(rows: list[dict], others: list[dict]) -> None:
    """Equal but for the rounding of sums, which depends on where arrays lie in memory."""
    assert len(rows) == len(others) > 0
    for one, other in zip(rows, others, strict=True):
        for name in one.keys() - {'thumbnail'}:        # of which each chunk has its own
            if name == 'regions':
                same([{}, *one[name]], [{}, *other[name]])
            elif isinstance(one[name], float | list):
                assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-5, nan_ok=True), \
                    name
            else:
                assert one[name] == other[name], name


def test_chunks_give_the_rows_of_the_whole_and_nothing_is_done_twice(tmp_path, bag):
    # Weights that remember the past of a clip, 24 intervals long, and heads that tell of it.
    streaming = save_causal_bundle(tmp_path / 'causal.safetensors')
    words = (*WORDS[2:], f'weights:={streaming}', 'max_rate:=7.0', 'clip_fps:=8.0')
    whole = rows_of(scored(tmp_path / 'whole', bag, words=words))
    parts = scored(tmp_path / 'parts', bag, words=words, chunk_s=2.0)
    assert len(parts.chunks) == 3
    same(rows_of(parts), whole)
    assert len({row['clearance'] for row in whole}) > 10        # the past is told
    parts.file(parts.chunks[1]).unlink()
    again = scored(tmp_path / 'parts', bag, words=words, chunk_s=2.0)
    assert again.skipped == 2
    same(rows_of(again), whole)


def test_what_is_broken_is_listed_and_loses_nothing_else(tmp_path, drive):
    bags = tmp_path / 'bags'
    for name, count in (('a', 20), ('short', 3)):
        write_drive(bags / name, drive[:count])
    with BagMaker(bags / 'holes') as made:
        for n, frame in enumerate(drive[:20]):
            made.image('/eye/image_raw', frame.stamp_ns, frame.rgb,
                       'strange' if n in (0, 12) else 'rgb8')
    run = scored(tmp_path / 'out', bags)
    holes, short = sorted(run.problems, key=lambda text: 'holes' not in text)
    assert f'{bags}/holes' in holes and '2 images' in holes and f'{bags}/short' in short
    assert {Path(row['bag']).name for row in rows_of(run)} == {'a', 'holes'}
    again = scored(tmp_path / 'out', bags / 'a', bags / 'holes')
    assert again.skipped == 2 and again.problems == [holes]      # still known


def test_cameras_are_the_image_topics_but_depth_and_what_nodes_have_drawn(tmp_path, caplog):
    drawn = ['/eye/depth/image_raw', '/vjepa_node/eye/overlay/compressed']
    with BagMaker(tmp_path / 'all') as made:
        for topic in ('/eye/image_raw', *drawn):
            made.image(topic, S, np.zeros((24, 32, 3), np.uint8))
    assert [camera.topic for camera in cameras_of(tmp_path / 'all')[0]] == ['/eye/image_raw']
    assert drawn[0] in caplog.text
    found, absent = cameras_of(tmp_path / 'all', [*drawn, 'rear'])
    assert [camera.topic for camera in found] == drawn
    assert len(absent) == 1 and "'/rear'" in absent[0]


@pytest.mark.parametrize(('words', 'named'), [
    (['max_rat:=3.0'], 'max_rat'), (['max_rate=3.0'], 'max_rate=3.0'),
    (['max_rate:=-3.0'], '0.1'), (['max_image_pixels:=40000'], 'no effect')])
def test_a_wrong_parameter_is_refused_by_name(words, named):
    with pytest.raises(ValueError, match=named):
        read_config(None, words)


U = 255


@pytest.mark.parametrize(('levels', 'roll_s', 'spans'), [
    ([0, 2, 1, 1, 2, 1, 0, 0], 0.5, [(0.5, 5.5, 2)]),               # until below CAUTION
    ([0, 2, U, U, 3, 0], 0.5, [(0.5, 4.5, 3)]),                     # unknown does not end it
    ([2, 0, 2, 0, 0], 1.0, [(0.0, 3.0, 2)]),                       # they touch: one
    ([0, 0, 2], 1.0, [(1.0, 2.0, 2)])])                            # the recording ends
def test_events_by_hysteresis_with_rolls(levels, roll_s, spans):
    n = len(levels)
    events = find_events({'at_s': np.arange(n, dtype=float), 'stamp_ns': np.arange(n) * S,
                          'level': np.array(levels), 'time_to_contact': np.linspace(5, 1, n),
                          'collision_probability': np.full(n, 0.5)},
                         EventRule(Level.WARNING, roll_s, roll_s))
    assert [(e['begin_s'], e['end_s'], e['level']) for e in events] == spans
    assert all(levels[event['peak']] == event['level'] for event in events)


def test_a_killed_process_loses_no_task_but_one_that_always_kills(tmp_path):
    got, once = {}, str(tmp_path / 'once')
    run_each(['a', once, 'b', 'always', 'hangs', 'bad', 'c'], 2, killer,
             lambda task, result, problem: got.update({task: (result, problem)}))
    assert {task: result for task, (result, _) in got.items()} == {
        'a': 'A', 'b': 'B', 'c': 'C', 'bad': None, 'always': None, 'hangs': None,
        once: once.upper()}
    assert got['bad'][1] == 'bad task'
    assert 'memory' in got['always'][1] and 'hung' in got['hangs'][1]
    with pytest.raises(ValueError, match='no such weights'):
        run_each(['a', 'b'], 2, unfit, lambda *_: None)

def test_a_fleet_with_hostile_neighbours_is_scored_to_rows_events_and_a_page(tmp_path, bag):
    """In a terminal that knows ASCII alone, with files that never end and names that are none."""
    bags, out = tmp_path / 'bags', tmp_path / 'out'
    bags.mkdir()
    weights = save_constant_bundle(tmp_path / 'tiny.safetensors', expansion=0.16, course=0.9,
                                   contact=6.0)          # everything comes nearer at 0.8 /s
    name = 'Fahrt für Tür'.encode('latin-1')
    shutil.copytree(bag, target := bags / os.fsdecode(name))
    os.mkfifo(bags / 'pipe.mcap')
    (bags / 'zero.mp4').symlink_to('/dev/zero')
    (bags / 'old.bag').write_bytes(b'#ROSBAG V2.0\n')

    def run(*paths):
        words = [word for one in (*WORDS, f'weights:={weights}') for word in ('-p', one)]
        done = subprocess.run(
            [sys.executable, '-m', 'vjepa_ros', 'score', *paths, '--out', out, '--jobs', '1',
             '--chunk', '3', *words], capture_output=True, timeout=300, env={
                 **os.environ, 'LC_ALL': 'C', 'PYTHONIOENCODING': 'ascii:strict',
                 'PYTHONUTF8': '0', 'PYTHONCOERCECLOCALE': '0'})
        said = (done.stdout + done.stderr).decode()
        assert 'Traceback' not in said, said
        return done.returncode, said

    code, said = run(bags, tmp_path / 'misspelt')
    assert code == 1 and '4 problems' in said, said
    for word in ('pipe.mcap', 'zero.mp4', 'old.bag', "misspelt' does not exist"):
        assert word in said, said
    facts = json.loads((out / 'run.json').read_text())
    assert [os.fsencode(camera['bag']) for camera in facts['cameras']] == [os.fsencode(target)]
    events = read_rows([out / 'events.parquet']).to_pylist()
    assert facts['events'] == len(events) > 0 and facts['rows'] > 40 and facts['chunks'] == 2
    for event in events:
        picture = cv2.imdecode(np.frombuffer(event['thumbnail'], np.uint8), cv2.IMREAD_COLOR)
        assert picture.shape[1] == 480
    page = (out / 'index.html').read_bytes()
    assert page.count(b'<figure') == len(events) and name in page and b'old.bag' in page
    assert run(target)[0] == 0                               # nothing left to do
    assert json.loads((out / 'run.json').read_text())['skipped'] == 2


def write_rows(path: Path, bag: str, embeddings: np.ndarray) -> Path:
    write_table(path, [{'bag': bag, 'topic': '/eye', 'camera': 'eye', 'at_s': n / 10,
                        'stamp_ns': n, 'embedding': one} for n, one in enumerate(embeddings)],
                row_schema(), {})
    return path


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
    assert command.main([str(tmp_path / 'walks'), '--out', str(out), '--jobs', '1', '--embeddings',
                       '--rate', '10', *words]) == 0
    capsys.readouterr()
    example = str(tmp_path / 'example.jpg')        # not bit for bit the same
    cv2.imwrite(example, texture((160, 120), 2)[..., ::-1])
    assert find.main([example, str(out), '--json', '--top', '4']) == 0
    # A command of another test may have left its console to the logger.
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{')]
    assert Path(found[0]['bag']).name == 'place_2'
    assert len({moment['bag'] for moment in found}) == 4        # neighbours count once
    for results, said in ((out, 'no event 0'), (tmp_path, '--embeddings')):
        assert find.main(['0', str(results)]) == 1
        assert said in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recordings are scored as the node would, in chunks, and what is broken loses nothing else."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import psutil
import pytest

pytest.importorskip('pyarrow')

from bundles import save_causal_bundle
from deadly import killer, unfit
from recordings import BagMaker, S, write_drive
from scenes import synthetic, texture

from vjepa_ros.cli import find
from vjepa_ros.cli import score as command
from vjepa_ros.fleet import run as fleet
from vjepa_ros.fleet.recordings import Recording, cameras_of, cut, find_recordings
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


def with_holes(path: Path, frames, *strange: int) -> Path:
    with BagMaker(path) as made:
        for n, frame in enumerate(frames):
            made.image('/eye/image_raw', frame.stamp_ns, frame.rgb,
                       'strange' if n in strange else 'rgb8')
    return path


def here(config, folder: Path) -> fleet.Backend:
    """Score in this process."""
    scorer = Scorer(config, folder / ROWS)

    def run(chunks, done) -> None:
        for chunk in chunks:
            try:
                done(chunk, scorer.score(chunk), '')
            except (ValueError, OSError) as error:
                done(chunk, None, str(error))
    return run


def scored(out: Path, *paths: Path, words=WORDS, chunk_s: float = 300.0) -> fleet.Run:
    run = fleet.Run(read_config(None, words), out)
    found, run.problems = find_recordings(paths)
    fleet.plan(run, found, (), chunk_s)
    fleet.score(run, here(run.config, out), lambda text: None)
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
    whole = scored(tmp_path / 'whole', bag)
    parts = scored(tmp_path / 'parts', bag, chunk_s=2.0)
    assert len(parts.chunks) == 3
    same(rows_of(parts), rows_of(whole))
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / 'parts' / ROWS).iterdir()}
    parts.file(parts.chunks[1]).unlink()
    again = scored(tmp_path / 'parts', bag, chunk_s=2.0)
    assert again.skipped == 2
    changed = [f for f in times if f.stat().st_mtime_ns != times[f]]
    assert changed == [parts.file(parts.chunks[1])]


def test_chunks_begin_where_a_stream_has_forgotten_its_beginning(tmp_path, bag):
    # Weights that remember the past of a clip, 24 intervals long, and heads that tell of it.
    streaming = save_causal_bundle(tmp_path / 'causal.safetensors')
    words = (*WORDS[2:], f'weights:={streaming}', 'max_rate:=7.0', 'clip_fps:=8.0')
    whole = rows_of(scored(tmp_path / 'whole', bag, words=words))
    parts = scored(tmp_path / 'parts', bag, words=words, chunk_s=2.0)
    assert len(parts.chunks) == 3
    same(rows_of(parts), whole)
    assert len({row['clearance'] for row in whole}) > 10        # the past is told


# -- what is broken -------------------------------------------------------------------------------

def test_what_is_broken_is_listed_and_loses_nothing_else(tmp_path, drive):
    bags = tmp_path / 'bags'
    for name, count in (('a', 20), ('cut', 20), ('short', 3)):
        write_drive(bags / name, drive[:count])
    file, = (bags / 'cut').glob('*.mcap')
    file.write_bytes(file.read_bytes()[:5000])
    with_holes(bags / 'holes', drive[:20], 0, 12)
    run = scored(tmp_path / 'out', bags)
    problems = {name: [p for p in run.problems if re.search(rf'{bags}/{name}\b', p)]
                for name in ('a', 'cut', 'holes', 'short')}
    assert {name: len(found) for name, found in problems.items()} == {
        'a': 0, 'cut': 1, 'holes': 1, 'short': 1}
    assert '2 images' in problems['holes'][0]
    assert {Path(row['bag']).name for row in rows_of(run)} == {'a', 'holes'}
    again = scored(tmp_path / 'out', bags / 'a', bags / 'holes')
    assert again.skipped == 2 and len(again.problems) == 1      # still known


def test_cameras_are_the_image_topics_but_depth_and_what_nodes_have_drawn(tmp_path, caplog):
    drawn = ['/eye/depth/image_raw', '/vjepa_node/eye/overlay/compressed']
    for name, topics in (('all', ['/eye/image_raw', *drawn]), ('drawn', drawn)):
        with BagMaker(tmp_path / name) as made:
            for topic in topics:
                made.image(topic, S, np.zeros((24, 32, 3), np.uint8))
    assert [camera.topic for camera in cameras_of(tmp_path / 'all')[0]] == ['/eye/image_raw']
    assert drawn[0] in caplog.text
    found, absent = cameras_of(tmp_path / 'all', [*drawn, 'rear'])
    assert [camera.topic for camera in found] == drawn
    assert len(absent) == 1 and "'/rear'" in absent[0]
    found, absent = cameras_of(tmp_path / 'drawn')
    assert not found and drawn[0] in absent[0] and '--topic' in absent[0]


@pytest.mark.parametrize('name', ['weights', 'heads'])
def test_weights_that_are_not_there_are_named_with_the_option(name, tmp_path, capsys):
    (film := tmp_path / 'film.mp4').touch()
    assert command.main([str(film), '--out', str(tmp_path / 'out'), '-p',
                         f'{name}:={tmp_path}/none.safetensors']) == 1
    said = capsys.readouterr().err
    assert f"'{tmp_path}/none.safetensors' does not exist" in said and f'{name}:=FILE' in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(('words', 'named'), [
    (['max_rat:=3.0'], 'max_rat'), (['max_rate=3.0'], 'max_rate=3.0'),
    (['max_rate:=-3.0'], '0.1'), (['max_image_pixels:=40000'], 'no effect'),
    (['cameras:=[front'], r"'cameras:=\[front': .*not YAML"),
    (['num_frames:=5'], 'multiple of 2')])
def test_a_wrong_parameter_is_refused_by_name(words, named):
    with pytest.raises(ValueError, match=named):
        read_config(None, words)


# -- chunks, events, processes --------------------------------------------------------------------

def test_chunks_cover_a_recording_and_their_names_say_what_decides_them(bag):
    for duration_s, ends in ((25.0, [10.0, math.inf]), (4.0, [math.inf]), (math.nan, [math.inf])):
        chunks, other = (cut(Recording(str(bag), '/t', 'eye', duration_s), 10.0, identity)
                         for identity in ('this', 'that'))
        assert [chunk.end_s for chunk in chunks] == ends
        assert [chunk.begin_s for chunk in chunks] == [0.0, *ends[:-1]]
        assert len({chunk.file for chunk in (*chunks, *other)}) == 2 * len(ends)


U = 255


@pytest.mark.parametrize(('levels', 'roll_s', 'spans'), [
    ([0, 1, 1, 0, 0], 0.5, []),
    ([0, 2, 1, 1, 2, 1, 0, 0], 0.5, [(0.5, 5.5, 2)]),               # until below CAUTION
    ([0, 2, U, U, 3, 0], 0.5, [(0.5, 4.5, 3)]),                     # unknown does not end it
    ([2, 0, 0, 2, 0], 0.5, [(0.0, 0.5, 2), (2.5, 3.5, 2)]),
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


def test_hostile_neighbours_and_names_that_are_no_text_lose_nothing_else(tmp_path, bag):
    """In a terminal that knows ASCII alone, with files that take all memory or never end."""
    fleet, out = tmp_path / 'fleet', tmp_path / 'out'
    fleet.mkdir()
    name = 'Fahrt für Tür'.encode('latin-1')
    target, film = fleet / os.fsdecode(name), fleet / os.fsdecode(b'\xff\xfe.avi')
    shutil.copytree(bag, target)
    writer = cv2.VideoWriter(str(tmp_path / 'film.avi'), cv2.VideoWriter_fourcc(*'MJPG'), 10.0,
                             (160, 120))
    for n in range(20):
        writer.write(np.full((120, 160, 3), 10 * n, np.uint8))
    writer.release()
    shutil.move(tmp_path / 'film.avi', film)
    os.mkfifo(fleet / 'pipe.mcap')
    (fleet / 'zero.mp4').symlink_to('/dev/zero')
    (fleet / 'old.bag').write_bytes(b'#ROSBAG V2.0\n')
    cv2.imwrite(str(fleet / 'map.pgm'), np.zeros((9, 9), np.uint8))
    words = [word for one in WORDS for word in ('-p', one)]
    done = subprocess.run(
        [sys.executable, '-m', 'vjepa_ros', 'score', fleet, '--out', out, '--jobs', '1',
         *words], capture_output=True, timeout=300, env={
             **os.environ, 'LC_ALL': 'C', 'PYTHONIOENCODING': 'ascii:strict', 'PYTHONUTF8': '0',
             'PYTHONCOERCECLOCALE': '0'})
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 1 and '3 problems' in said and 'Traceback' not in said, said
    for word in ('pipe.mcap', 'zero.mp4', 'old.bag', 'map.pgm'):
        assert word in said, said
    page = (out / 'index.html').read_bytes()
    assert name in page and b'\xff\xfe.avi' in page and b'old.bag' in page
    facts = json.loads((out / 'run.json').read_text())
    assert {os.fsencode(camera['bag']) for camera in facts['cameras']} == {
        os.fsencode(target), os.fsencode(film)}
    rows = read_rows([out / file for file in facts['files']]).to_pylist()
    assert len({row['bag'] for row in rows}) == 2 and len(rows) > 60


def test_the_command_writes_rows_events_and_a_page(tmp_path, bag, capsys):
    broken, misspelt = tmp_path / 'broken.mcap', str(tmp_path / 'misspelt')
    broken.write_bytes(b'no bag')
    out = tmp_path / 'out'
    words = [str(bag), str(broken), '--out', str(out), '--jobs', '1', '--chunk', '3']
    for word in WORDS:
        words += ['-p', word]
    assert command.main([misspelt, '--out', str(out)]) == 1
    assert 'does not exist' in capsys.readouterr().err and not out.exists()
    assert command.main([misspelt, *words]) == 1
    said = capsys.readouterr().err
    assert 'broken.mcap' in said and "misspelt' does not exist" in said and '2 problems' in said
    facts = json.loads((out / 'run.json').read_text())
    events = read_rows([out / 'events.parquet']).to_pylist()
    assert facts['events'] == len(events) > 0 and facts['rows'] > 40 and facts['chunks'] == 2
    for event in events:
        picture = cv2.imdecode(np.frombuffer(event['thumbnail'], np.uint8), cv2.IMREAD_COLOR)
        assert picture.shape[1] == 480
    page = (out / 'index.html').read_text()
    assert page.count('<figure') == len(events) and 'broken.mcap' in page
    assert f'<td>{bag} /eye/image_raw</td>' in page
    assert command.main([words[0], *words[2:]]) == 0          # nothing left to do
    assert json.loads((out / 'run.json').read_text())['skipped'] == 2


def actors() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):     # it has just ended
            found += [process] if 'MapWorker' in ' '.join(process.cmdline()) else []
    return found


@pytest.mark.slow
def test_rows_are_the_same_on_a_cluster_that_loses_an_actor(tmp_path, bag, drive):
    pytest.importorskip('ray', reason='Ray is large and not part of the test environment: '
                        "pip install 'ray[data]' to run this test")
    holes = with_holes(tmp_path / 'holes', drive[:20], 8)
    config = read_config(None, WORDS)
    alone, together = (fleet.Run(config, tmp_path / name) for name in ('alone', 'together'))
    for run in (alone, together):
        fleet.plan(run, [bag, holes, tmp_path / 'gone.mcap'], (), 1.0)
    killed = []

    def kill(text: str) -> None:
        end_s = time.monotonic() + 30.0
        while not killed and time.monotonic() < end_s:
            time.sleep(0.1)
            if len(both := actors()) == 2:            # as many as were asked for
                both[0].kill()
                killed.append(both[0].pid)

    fleet.score(alone, here(config, alone.folder), lambda text: None)
    fleet.score(together, fleet.cluster(config, together.folder, 'local', 2), kill)
    assert killed and len(together.chunks) == 7
    assert together.problems == alone.problems      # of the bag that is not there, and the picture
    assert len(alone.problems) == 2 and '1 image' in alone.problems[1]
    same(rows_of(together), rows_of(alone))


# -- find -----------------------------------------------------------------------------------------

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
    assert command.main([str(tmp_path / 'walks'), '--out', str(out), '--jobs', '1', '--embeddings',
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

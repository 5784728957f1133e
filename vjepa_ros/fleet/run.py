# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score the chunks of recordings: in processes of one machine, or on a Ray cluster of many."""

from __future__ import annotations

import importlib
import os
import pickle
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import torch

from vjepa_ros.fleet.recordings import Chunk, Recording, cut, looked_at
from vjepa_ros.fleet.results import ROWS, read_facts
from vjepa_ros.fleet.scoring import ScoreConfig, Scored, Scorer, weights_sha256
from vjepa_ros.lab.worker_pool import run_each

# Ray's remarks on its own plans; what fails comes as an exception. It reads these when it starts.
QUIET = {'RAY_DATA_LOG_LEVEL': 'ERROR', 'RAY_BACKEND_LOG_LEVEL': 'fatal'}
Done = Callable[[Any, Any, str], object]      # gets a task, its result, and what went wrong
Backend = Callable[[Sequence[Chunk], Done], None]


@dataclass
class Run:
    """What a run is about, and what became of it."""

    config: ScoreConfig
    folder: Path  # of the results
    weights: str = ''  # what identifies them
    chunks: list[Chunk] = field(default_factory=list)  # in order of recordings and time
    scored: dict[str, Scored] = field(default_factory=dict)  # by the names of their files
    skipped: int = 0  # how many were done before
    problems: list[str] = field(default_factory=list)  # what could not be scored, or not wholly
    new_s: float = 0.0  # how much of the recordings was scored now [s]
    wall_s: float = 0.0  # how long that took [s]

    def file(self, chunk: Chunk) -> Path:
        """Return the file of the rows of a chunk."""
        return self.folder / ROWS / chunk.file


def plan(run: Run, paths: Sequence[Path], topics: Sequence[str], chunk_s: float,
         rate: float | None = None, jobs: int = 1) -> None:
    """List the chunks (of a length [s]) of recordings; what cannot be opened is a problem."""
    run.weights = weights_sha256(run.config.engine)
    found: dict[Path, tuple[list[Recording], list[str]]] = {}

    def done(path: Path, cameras: Any, problem: str) -> None:
        found[path] = ([], [f"'{path}': {problem}"]) if problem else cameras

    _in_processes(paths, jobs, partial(_reader, topics, rate), done)
    for path in paths:
        cameras, problems = found[path]
        run.problems += problems
        for camera in cameras:
            try:
                run.chunks += cut(camera, chunk_s, run.config.text() + run.weights)
            except OSError as error:
                run.problems.append(str(error))


def _reader(topics: Sequence[str], rate: float | None) -> Callable[[Path], Any]:
    return partial(looked_at, topics=topics, rate=rate)


def score(run: Run, backend: Backend, tell: Callable[[str], None]) -> None:
    """Score the chunks that are not done yet."""
    run.scored = {chunk.file: Scored(**facts) for chunk in run.chunks
                  if (facts := read_facts(run.file(chunk))) is not None}
    run.skipped = len(run.scored)
    waiting = [chunk for chunk in run.chunks if chunk.file not in run.scored]
    begin = time.perf_counter()

    def done(chunk: Chunk, scored: Scored | None, problem: str) -> None:
        if scored is None:
            run.problems.append(f'{chunk}: {problem}')
        else:
            run.scored[chunk.file] = scored
            run.new_s += scored.seconds
        said = problem if scored is None else f'{scored.rows} rows'
        tell(f'{chunk}: {said}; {len(run.scored)} of {len(run.chunks)} chunks are done')

    if waiting:
        backend(waiting, done)
    run.wall_s = time.perf_counter() - begin
    rows = Counter[Recording]()
    for chunk in run.chunks:
        if (scored := run.scored.get(chunk.file)) is not None:
            rows[chunk.recording] += scored.rows
            run.problems += [f'{chunk}: {problem}' for problem in scored.problems]
    for draft in (run.folder / ROWS).glob('.*.tmp'):     # of processes that were killed
        draft.unlink(missing_ok=True)
    track = run.config.track
    run.problems += [
        f'{recording}: no rows, no clip was ever full: it is too short, or has gaps of more than '
        f'{track.max_frame_gap:g} s (parameter max_frame_gap)'
        for recording, count in rows.items() if not count]


# -- one machine ----------------------------------------------------------------------------------

def processes(config: ScoreConfig, folder: Path, jobs: int) -> Backend:
    """Return what scores chunks in processes, each with a model."""
    return lambda chunks, done: _in_processes(chunks, jobs, partial(_scorer, config, folder), done)


def _scorer(config: ScoreConfig, folder: Path) -> Callable[[Chunk], Scored]:
    return Scorer(config, folder / ROWS).score


def _in_processes(tasks: Sequence[Any], jobs: int, make: Callable[[], Callable[[Any], Any]],
                  done: Done) -> None:
    """Run tasks in processes; also those that are killed leave no temporary files."""
    with TemporaryDirectory(prefix='vjepa_ros_') as room:
        run_each(tasks, jobs, partial(_made_in, room, make), done)


def _made_in(room: str, make: Callable[[], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    tempfile.tempdir = room
    return make()


# -- many machines --------------------------------------------------------------------------------

class _Actor:
    """Scores chunks in a process of the cluster."""

    def __init__(self, config: ScoreConfig, folder: Path) -> None:
        torch.set_num_threads(1)
        cv2.setNumThreads(1)
        self._score = _scorer(config, folder)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        answers = []
        for packed in batch['chunk']:
            try:
                answers.append((self._score(pickle.loads(packed)), ''))
            except (ValueError, OSError) as error:      # of recordings, files and disks
                answers.append((None, str(error)))
        return {'number': batch['number'], 'answer': [pickle.dumps(a) for a in answers]}


def cluster(config: ScoreConfig, folder: Path, address: str, actors: int) -> Backend:
    """Return what scores chunks on a Ray cluster.

    Recordings and results must have the same paths on all its machines. Where the model runs on
    CUDA each actor has a GPU of its own, or its share of one where there are more actors than GPUs
    when the run begins; else it has a core.
    """
    for name, level in QUIET.items():
        os.environ.setdefault(name, level)
    try:
        ray = importlib.import_module('ray')
        data = importlib.import_module('ray.data')
    except ImportError as error:
        raise ValueError(f"--ray needs Ray ({error}): pip install 'ray[data]<2.64'") from error

    def run(chunks: Sequence[Chunk], done: Done) -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level='error')
        except (ConnectionError, ValueError) as error:
            raise ValueError(f"--ray '{address}': {error}") from error
        try:
            left = set(range(len(chunks)))
            for row in answers(chunks):
                left.remove(row['number'])
                done(chunks[row['number']], *pickle.loads(row['answer']))
            for number in sorted(left):
                done(chunks[number], None, 'its process ended twice, perhaps for lack of memory')
        finally:
            ray.shutdown()

    def answers(chunks: Sequence[Chunk]) -> Iterator[Mapping[str, Any]]:
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        # A block is a chunk: one that kills its actor each time loses no other.
        context.max_errored_blocks = -1
        gpus = int(ray.cluster_resources().get('GPU', 0))
        on_gpu = config.engine.device.startswith('cuda') or (
            config.engine.device == 'auto' and gpus > 0)
        most = min(actors, len(chunks))
        items = data.from_items([{'number': n, 'chunk': pickle.dumps(chunk)}
                                 for n, chunk in enumerate(chunks)],
                                override_num_blocks=len(chunks))
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)     # of the last three keywords
            return items.map_batches(
                _Actor, fn_constructor_args=(config, folder.resolve()), batch_size=1,
                # A pool of variable size does not grow while each actor has one task at most.
                compute=data.ActorPoolStrategy(size=most, max_tasks_in_flight_per_actor=1),
                num_cpus=0 if on_gpu else 1, num_gpus=share_of_gpu(gpus, most) if on_gpu else 0,
                max_restarts=-1, max_task_retries=1).iter_rows()      # that Ray 2.64 will refuse

    return run


def share_of_gpu(gpus: int, actors: int) -> float:
    """Return the part of a GPU for each of some actors, none of which is split over two."""
    return 1 / -(-actors // gpus) if 0 < gpus < actors else 1

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score recordings with several processes, and gather what they found."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vjepa_ros.fleet.config import ScoreConfig, weights_sha256
from vjepa_ros.fleet.decoding import Opener, decoded_here
from vjepa_ros.fleet.events import COLUMNS, EventRule, find_events
from vjepa_ros.fleet.recordings import Chunk, RERUN, Recording, cut, looked_at
from vjepa_ros.fleet.scoring import Scored, Scorer
from vjepa_ros.fleet.tables import ROWS, event_schema, read_facts, read_rows, write_table
from vjepa_ros.fleet.workers import Workers, reading

READER_BYTES = 8 << 30       # of a process that opens recordings
Backend = Callable[[Sequence[Chunk], Callable[[Chunk, Any, str], object]], None]


@dataclass
class Run:
    """What a run is about, and what became of it."""

    # config, folder: configuration, and folder of the results
    config: ScoreConfig
    folder: Path
    # All chunks, in order of recordings and time
    chunks: list[Chunk] = field(default_factory=list)
    # What became of those that are done, by the names of their files
    scored: dict[str, Scored] = field(default_factory=dict)
    skipped: int = 0  # how many were done before
    # What could not be scored, or not wholly, each with its recording
    problems: list[str] = field(default_factory=list)
    # new_s, wall_s: how much of the recordings was scored now, and how long that took [s]
    new_s: float = 0.0
    wall_s: float = 0.0

    def file(self, chunk: Chunk) -> Path:
        """Return the file of the rows of a chunk."""
        return self.folder / ROWS / chunk.file


def plan(run: Run, paths: Sequence[Path], topics: Sequence[str], chunk_s: float,
         rate: float | None = None, jobs: int = 0) -> None:
    """List the chunks of recordings; what cannot be opened becomes a problem.

    `chunk_s`: length of a chunk [s].
    """
    identity = run.config.text() + weights_sha256(run.config.engine)
    found: dict[Path, tuple[list[Recording], list[str]]] = {}

    def done(path: Path, cameras: Any, problem: str) -> None:
        found[path] = ([], [f"'{path}': {problem}"]) if problem else cameras

    if jobs:
        Workers(min(jobs, len(paths)), partial(_reader, topics, rate), done).run(paths)
    else:
        for path in paths:
            done(path, looked_at(path, topics, rate), '')
    for path in paths:
        cameras, problems = found[path]
        run.problems += problems
        for camera in cameras:
            try:
                run.chunks += cut(camera, chunk_s, identity)
            except OSError as error:
                run.problems.append(str(error))


def _reader(topics: Sequence[str], rate: float | None, threads: int
            ) -> Callable[[Path], tuple[list[Recording], list[str]]]:
    """Return what looks at recordings in a process that may not take all memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([READER_BYTES, *limits]), hard))

    def look(path: Path) -> tuple[list[Recording], list[str]]:
        with reading():
            return looked_at(path, topics, rate)

    return look


def score(run: Run, backend: Backend, tell: Callable[[str], None]) -> None:
    """Score the chunks that are not done yet."""
    waiting = []
    for chunk in run.chunks:
        facts = read_facts(run.file(chunk))
        shown = run.folder / chunk.rerun_file
        if facts is None or (run.config.rerun and not shown.is_file()):
            waiting.append(chunk)
        else:
            run.scored[chunk.file] = Scored(**facts)
            run.skipped += 1
    begin = time.perf_counter()

    def done(chunk: Chunk, scored: Scored | None, problem: str) -> None:
        where = f'{chunk.recording} from {chunk.begin_s:g} s'
        if scored is None:
            run.problems.append(f'{where}: {problem}')
            said = problem
        else:
            run.scored[chunk.file] = scored
            run.new_s += scored.seconds
            said = f'{scored.rows} rows'
        tell(f'{where}: {said}; {len(run.scored)} of {len(run.chunks)} chunks are done')

    if waiting:
        backend(waiting, done)
    run.wall_s = time.perf_counter() - begin
    for chunk in run.chunks:
        run.problems += [f'{chunk.recording} from {chunk.begin_s:g} s: {problem}' for problem in
                         run.scored.get(chunk.file, Scored()).problems]
    for folder in (ROWS, RERUN):
        for draft in (run.folder / folder).glob('.*.tmp'):     # of processes that were killed
            draft.unlink(missing_ok=True)
    run.problems += _without_rows(run)


def _without_rows(run: Run) -> list[str]:
    """Say which recordings were read and gave nothing."""
    rows: dict[Recording, int] = {}
    for chunk in run.chunks:
        if chunk.file in run.scored:
            rows[chunk.recording] = (rows.get(chunk.recording, 0)
                                     + run.scored[chunk.file].rows)
    track = run.config.track
    return [f'{recording}: no rows, no clip was ever full: it must cover '
            f'{(track.num_frames - 1) / track.clip_fps:g} s without a gap of more than '
            f'{track.max_frame_gap:g} s (parameters num_frames, clip_fps, max_frame_gap)'
            for recording, count in rows.items() if not count]


def processes(config: ScoreConfig, folder: Path, jobs: int) -> Backend:
    """Return what scores chunks in processes, each with a model."""
    def run(chunks: Sequence[Chunk], done: Callable[[Chunk, Any, str], object]) -> None:
        make = partial(scorer_of, config, folder / ROWS)
        Workers(min(jobs, len(chunks)), make, done).run(chunks)
    return run


def scorer_of(config: ScoreConfig, folder: Path, threads: int, opener: Opener = decoded_here
              ) -> Callable[[Chunk], Scored]:
    """Return what scores chunks in this process, with a number of threads."""
    import cv2
    import torch

    cv2.setNumThreads(threads)
    if not config.engine.cpu_threads:
        torch.set_num_threads(threads)
    return Scorer(config, folder, opener).score


def gather_events(run: Run, rule: EventRule) -> list[dict[str, Any]]:
    """Find the events of all recordings, write their table and return its rows."""
    events: list[dict[str, Any]] = []
    by_recording: dict[Recording, list[Path]] = {}
    for chunk in run.chunks:
        if chunk.file in run.scored:
            by_recording.setdefault(chunk.recording, []).append(run.file(chunk))
    for recording, files in by_recording.items():
        table = read_rows(files, [*COLUMNS, 'thumbnail'])
        rows = {name: table[name].to_numpy() for name in COLUMNS}
        for event in find_events(rows, rule):
            event.update(event=len(events), bag=recording.path, topic=recording.topic,
                         camera=recording.camera,
                         thumbnail=table['thumbnail'][event.pop('peak')].as_py())
            events.append(event)
    write_table(run.folder / 'events.parquet', events, event_schema())
    return events


def write_manifest(run: Run, events: int, rule: EventRule, command: str) -> dict[str, Any]:
    """Write run.json, which says what belongs together, and return it."""
    seconds: dict[Recording, float] = {}
    for chunk in run.chunks:
        if chunk.file in run.scored:
            seconds[chunk.recording] = (seconds.get(chunk.recording, 0.0)
                                        + run.scored[chunk.file].seconds)
    facts = {
        'command': command, 'configuration': json.loads(run.config.text()),
        'weights_sha256': weights_sha256(run.config.engine),
        'files': [f'{ROWS}/{chunk.file}' for chunk in run.chunks if chunk.file in run.scored],
        'cameras': [{'bag': camera.path, 'topic': camera.topic, 'camera': camera.camera,
                     'seconds': length} for camera, length in seconds.items()],
        'chunks': len(run.chunks), 'skipped': run.skipped,
        'rows': sum(scored.rows for scored in run.scored.values()), 'events': events,
        'event_rule': {**vars(rule), 'level': rule.level.name},
        'frames': sum(scored.frames for scored in run.scored.values()),
        'seconds': sum(scored.seconds for scored in run.scored.values()),
        'new_seconds': run.new_s, 'wall_s': run.wall_s, 'problems': run.problems}
    draft = run.folder / '.run.json.tmp'
    draft.write_text(json.dumps(facts, indent=1), encoding='utf-8')
    draft.replace(run.folder / 'run.json')
    return facts

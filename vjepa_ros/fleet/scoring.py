# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score chunks with one model: the perception of the node over the frames of a recording."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TYPE_CHECKING

import cv2

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.ring import Push
from vjepa_ros.fleet.config import ScoreConfig
from vjepa_ros.fleet.decoding import Opener, Part, decoded_here
from vjepa_ros.fleet.embedding import embed
from vjepa_ros.fleet.recordings import Chunk
from vjepa_ros.fleet.tables import row_of, row_schema, write_table
from vjepa_ros.perception.pipeline import EARLY, Perception
from vjepa_ros.perception.settings import Wants
from vjepa_ros.perception.types import Level, Result
from vjepa_ros.runtime.engine import Engine
from vjepa_ros.sources import SourceError, SourceFrame
from vjepa_ros.visualization.overlay import Layers, OverlayStatus, draw_overlay

if TYPE_CHECKING:
    from vjepa_ros.viewer.rerun_log import RerunLog

THUMBNAIL_PX = 480       # width
RAISED = (Level.CAUTION, Level.WARNING, Level.DANGER)


@dataclass
class Scored:
    """What became of a chunk."""

    # frames, seconds: frames played, and time of the recording that the chunk covers [s]
    frames: int = 0
    seconds: float = 0.0
    rows: int = 0  # of its table
    problems: list[str] = field(default_factory=list)  # what could not be read, in words


class Scorer:
    """A loaded model that scores one chunk after the other.

    Parameters
    ----------
    config
        Of the run.
    folder
        Where the files of the chunks go.
    opener
        Decodes recordings.
    """

    def __init__(self, config: ScoreConfig, folder: Path, opener: Opener = decoded_here) -> None:
        self._config, self._folder, self._open = config, folder, opener
        self._engine = Engine.load(config.engine)
        self._text = config.text()
        self._wants = Wants(change=config.rerun, moving=config.rerun)

    def score(self, chunk: Chunk) -> Scored:
        """Score a chunk and write its file.

        What cannot be decoded is a problem of the result, as in the node that skips it; where the
        recording cannot be read any further, the rows until there are kept.
        """
        scored, rows, peaks = Scored(), [], _Peaks()
        remembered_s = self._engine.stream_reach / self._config.track.clip_fps
        begin_s = max(0.0, chunk.begin_s - self._config.warm_up_s - remembered_s)
        # A frame just before the end may give way to one after it.
        end_s = chunk.end_s + 1.0 / self._config.max_rate
        with self._open(chunk.recording, begin_s, end_s) as part, self._log(chunk) as log:
            perception = Perception(self._engine, self._config.track, [chunk.recording.camera])
            self._engine.forget()
            track, = perception.tracks.values()
            track.intrinsics, track.distortion = part.intrinsics, part.distortion
            try:
                frames = _frames(part, chunk, scored)
                for at_s, result in self._results(perception, frames):
                    if chunk.holds(at_s):
                        rows.append(self._row(chunk, at_s, result))
                        peaks.take(rows[-1], result)
                        if log is not None:
                            _show(log, result, track.optics())
            finally:
                track.release()
        peaks.end()
        scored.rows = len(rows)
        write_table(self._folder / chunk.file, rows, row_schema(), vars(scored))
        return scored

    def _results(self, perception: Perception, frames: Iterable[tuple[float, SourceFrame]]
                 ) -> Iterator[tuple[float, Result]]:
        """Yield the time of a frame and its result, for all that a quick node would assess.

        Where frames come faster than ``max_rate``, the newest is assessed when one is due. That
        is at multiples of the period since the recording began, wherever a chunk begins.
        """
        track, = perception.tracks.values()
        period_s, due = 1.0 / self._config.max_rate, 0   # periods
        waiting: tuple[float, float] | None = None       # when it came, and when it is due

        def run() -> Iterator[tuple[float, Result]]:
            nonlocal due, waiting
            samples = perception.pending()
            if waiting is not None and samples:
                due = max(due + 1, math.ceil(waiting[1] / period_s))
                for result in perception.run(samples, self._config.settings,
                                             {track.name: self._wants}, lambda stamp_ns: 0.0):
                    yield waiting[0], result
            waiting = None

        for at_s, frame in frames:
            if waiting is not None and waiting[1] < at_s:
                yield from run()
            pushed = track.push(frame.rgb, frame.stamp_ns, frame.frame_id, gain=frame.gain)
            if pushed in (Push.ACCEPTED, Push.RESET):
                waiting = at_s, max(at_s, (due - EARLY) * period_s)
                if waiting[1] == at_s:
                    yield from run()
        yield from run()

    def _log(self, chunk: Chunk) -> AbstractContextManager[RerunLog | None]:
        if not self._config.rerun:
            return nullcontext()
        from vjepa_ros.fleet.rerun_file import rerun_file

        return rerun_file(self._folder.parent, chunk)

    def _row(self, chunk: Chunk, at_s: float, result: Result) -> dict[str, Any]:
        embedding = None
        if self._config.embeddings:
            assert result.image is not None     # it is wanted
            embedding = embed(self._engine, [result.view.apply(result.image)])[0]
        return {'bag': chunk.recording.path, 'topic': chunk.recording.topic, 'at_s': at_s,
                **row_of(result.assessment), 'model_sha256': self._engine.report.sha256,
                'configuration': self._text, 'thumbnail': None, 'embedding': embedding}


def _frames(part: Part, chunk: Chunk, scored: Scored) -> Iterator[tuple[float, SourceFrame]]:
    """Yield time and frame, also those around the chunk; note what of it cannot be read."""
    lost, first = 0, ''
    try:
        for at_s, load in part.frames:
            try:
                frame = load()
            except SourceError as error:
                if chunk.holds(at_s):
                    lost, first = lost + 1, first or str(error)
                continue
            if chunk.holds(at_s):
                scored.frames += 1
                scored.seconds = at_s - chunk.begin_s
            yield at_s, frame
    except SourceError as error:
        scored.problems.append(str(error))
    if lost:
        scored.problems.append(f'{lost} image{"s" * (lost > 1)} skipped, the first: {first}')


def _show(log: RerunLog, result: Result, optics: Optics) -> None:
    a = result.assessment
    log.at(a.stamp_ns)
    if result.image is not None:
        log.picture(a.camera, result.image)
        log.picture(a.camera, thumbnail(result), 'overlay')
    log.result(a.camera, result, optics)


class _Peaks:
    """Gives the most urgent row of each run at or above a level a thumbnail.

    So any level that events may begin at finds one. What is unknown does not end a run.
    """

    def __init__(self) -> None:
        self._best: dict[Level, tuple[tuple[float, float], dict[str, Any], bytes]] = {}

    def take(self, row: dict[str, Any], result: Result) -> None:
        """Take the next row."""
        level, drawn = result.assessment.level, b''
        if level == Level.UNKNOWN:
            return
        for least in RAISED:
            if level < least:
                self._close(least)
                continue
            urgency = urgency_of(row)
            if least not in self._best or urgency > self._best[least][0]:
                drawn = drawn or thumbnail(result)
                self._best[least] = urgency, row, drawn

    def end(self) -> None:
        """End all runs."""
        for least in RAISED:
            self._close(least)

    def _close(self, least: Level) -> None:
        if least in self._best:
            _, row, row['thumbnail'] = self._best.pop(least)


def urgency_of(row: Any) -> tuple[float, float]:
    """Return what rows are compared by: the level, then the time to contact."""
    ttc = row['time_to_contact']
    return row['level'], -math.inf if ttc is None or math.isnan(ttc) else -ttc


def thumbnail(result: Result) -> bytes:
    """Draw a small overlay as JPEG."""
    a = result.assessment
    overlay = draw_overlay(result.image, a, Layers(result.moves, result.looming, result.view),
                           OverlayStatus(camera=a.camera), THUMBNAIL_PX)
    return cv2.imencode('.jpg', overlay, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()

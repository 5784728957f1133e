# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score chunks with one model: the perception of the node over the frames of a recording."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.clip.ring import Push
from vjepa_ros.fleet.config import ScoreConfig
from vjepa_ros.fleet.recordings import Chunk, reading
from vjepa_ros.fleet.tables import row_of, row_schema, urgency_of, write_table
from vjepa_ros.model.variants import find_variant
from vjepa_ros.overlay import Layers, OverlayStatus, draw_overlay
from vjepa_ros.perception.pipeline import EARLY, Perception
from vjepa_ros.perception.settings import Wants
from vjepa_ros.perception.types import Level, Result
from vjepa_ros.runtime.model import Model
from vjepa_ros.sources import SourceError, SourceFrame
from vjepa_ros.sources.base import Load

THUMBNAIL_PX = 480       # width
RAISED = (Level.CAUTION, Level.WARNING, Level.DANGER)
CELLS = 2                # per side, over which the patches of an embedding are averaged


@dataclass
class Scored:
    """What became of a chunk."""

    frames: int = 0
    seconds: float = 0.0  # of the recording that its frames cover
    rows: int = 0
    problems: list[str] = field(default_factory=list)  # what could not be read, in words


class Scorer:
    """A loaded model that scores one chunk after the other, into files of a folder."""

    def __init__(self, config: ScoreConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._engine = Model.load(config.engine)
        self._text = config.text()

    def score(self, chunk: Chunk) -> Scored:
        """Score a chunk and write its file."""
        scored, rows, peaks = Scored(), [], _Peaks()
        remembered_s = self._engine.stream_reach / self._config.track.clip_fps
        begin_s = max(0.0, chunk.begin_s - self._config.warm_up_s - remembered_s)
        # A frame just before the end may give way to one after it.
        end_s = chunk.end_s + 1.0 / self._config.max_rate
        with reading():
            source = chunk.recording.open()
        with source:
            perception = Perception(self._engine, self._config.track, [chunk.recording.camera])
            self._engine.forget()
            track, = perception.tracks.values()
            track.intrinsics, track.distortion = source.intrinsics, source.distortion
            try:
                frames = _frames(source.excerpt(begin_s, end_s), chunk, scored)
                for at_s, result in self._results(perception, frames):
                    if chunk.holds(at_s):
                        rows.append(self._row(chunk, at_s, result))
                        peaks.take(rows[-1], result)
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
                                             {track.name: Wants()}, lambda stamp_ns: 0.0):
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

    def _row(self, chunk: Chunk, at_s: float, result: Result) -> dict[str, Any]:
        embedding = None
        if self._config.embeddings:
            assert result.image is not None     # it is wanted
            embedding = embed(self._engine, [result.view.apply(result.image)])[0]
        return {'bag': chunk.recording.path, 'topic': chunk.recording.topic, 'at_s': at_s,
                **row_of(result.assessment), 'model_sha256': self._engine.report.sha256,
                'configuration': self._text, 'thumbnail': None, 'embedding': embedding}


def _frames(loads: Iterator[tuple[float, Load]], chunk: Chunk, scored: Scored
            ) -> Iterator[tuple[float, SourceFrame]]:
    """Yield time and frame, also those around the chunk; note what of it cannot be read."""
    lost, first = 0, ''
    try:
        while True:
            with reading():
                found = next(loads, None)
            if found is None:
                break
            at_s, load = found
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


def thumbnail(result: Result) -> bytes:
    """Draw a small overlay as JPEG."""
    a = result.assessment
    overlay = draw_overlay(result.image, a, Layers(result.moves, result.looming, result.view),
                           OverlayStatus(camera=a.camera), THUMBNAIL_PX)
    return cv2.imencode('.jpg', overlay, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()


def embed(engine: Model, pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return the embeddings (N, CELLS^2 D) of pictures, uint8 (S, S, 3) as the encoder gets them.

    They are features from the middle of the encoder, averaged over `CELLS` x `CELLS` cells, of a
    tubelet that shows a picture twice. The last layer, and a past in which the camera moved, tell
    how things move, which hides the place (docs/score.md).
    """
    middle = find_variant(engine.config.model_size).depth // 2 - 1
    found = engine.features([[picture] * engine.config.num_frames for picture in pictures],
                            layers=(middle,), newest=1)
    return np.array([np.concatenate([cell.mean(axis=(0, 1))
                                     for half in np.array_split(layers[0, 0], CELLS)
                                     for cell in np.array_split(half, CELLS, axis=1)])
                     for layers in found], np.float32)

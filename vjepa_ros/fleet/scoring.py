# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score chunks with one model: the perception of the node, by its parameters, over recordings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vjepa_ros.clip.ring import Push
from vjepa_ros.fleet.recordings import Chunk, reading
from vjepa_ros.fleet.results import (
    COLUMNS,
    EventRule,
    find_events,
    row_of,
    row_schema,
    write_table,
)
from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.files import file_sha256
from vjepa_ros.model.checkpoint.load import bundled_file
from vjepa_ros.model.variants import BACK_S, find_variant
from vjepa_ros.overlay import Layers, OverlayStatus, draw_overlay
from vjepa_ros.perception.pipeline import EARLY, Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Level, Result
from vjepa_ros.ros.parameter_file import read_file, read_word, values_of
from vjepa_ros.ros.perception_node.parameters import SCHEMA
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources import SourceError, SourceFrame
from vjepa_ros.sources.base import Load

NODE = 'vjepa_node'  # whose parameters a file is read for
# Of the engine: what changes how fast a row is made, and where, but not what it says.
BESIDE = ('require_device', 'cpu_threads', 'fetched', 'allow_random_weights')
LIMITS = ('max_image_pixels',)      # of the node, not of `sources`
SETTLED = 17         # time constants after which a float32 has forgotten the past: ln 2**24
EMBEDDING = 'middle layer, 2 x 2 cells'      # what `embed` computes
THUMBNAIL_PX = 480       # width
RAISED = (Level.CAUTION, Level.WARNING, Level.DANGER)
CELLS = 2                # per side, over which the patches of an embedding are averaged


@dataclass(frozen=True)
class ScoreConfig:
    """Configuration of a run; engine, track and settings are as in the node."""

    engine: ModelConfig
    track: TrackConfig
    settings: Settings
    max_rate: float             # largest rate of results of a camera [Hz]
    embeddings: bool = False    # whether each row gets the embedding of its picture

    @property
    def warm_up_s(self) -> float:
        """Time before a chunk that is played but not kept, beside what a stream remembers [s].

        Longer than one clip: until the smoothing has forgotten that it began here. Only a level
        that hysteresis has held for longer than that differs from one scored without chunks.
        """
        track, settings = self.track, self.settings
        clip_s = max((track.num_frames - 1) / track.clip_fps, BACK_S[-1])
        return clip_s + 1.0 / track.clip_fps + SETTLED * settings.smoothing + settings.level_hold

    def text(self) -> str:
        """Return everything that decides a row, as JSON; equal texts give equal rows."""
        facts: dict[str, Any] = asdict(self)
        facts['embeddings'] = self.embeddings and EMBEDDING
        for name in BESIDE:
            del facts['engine'][name]
        return json.dumps(facts, sort_keys=True)


def read_config(file: Path | None, words: Sequence[str] = (), embeddings: bool = False
                ) -> ScoreConfig:
    """Make a configuration as a node would with the same parameters; no file gives defaults."""
    given = {} if file is None else _of_file(file)
    for word in words:
        whose, name, value = read_word(word, SCHEMA.row)
        if name in LIMITS:
            raise ValueError(f"parameter '{name}' has no effect on recordings, whose limits are "
                             'fixed; leave it out')
        if whose in ('', NODE):
            given[name] = value
    rows = {row.name: row for row in SCHEMA.rows}
    values = {name: row.default for name, row in rows.items()}
    # The rows of cameras say where images come from, which is a recording here.
    cameras = [f'{camera}.' for camera in given.get('cameras', values['cameras'])]
    for name, value in given.items():
        if name in rows:
            values[name], problem = rows[name].check(value)
            if problem:
                raise ValueError(problem)
        elif not name.startswith(('qos_overrides', 'use_sim_time', *cameras)):
            raise ValueError(f"parameter '{name}' is not one of vjepa_node; docs/parameters.md "
                             'lists them')
    values.update({row.name: row.default for camera in values['cameras']
                   for row in SCHEMA.rows_of(camera)})
    if problem := SCHEMA.problem(values):
        raise ValueError(problem)
    node = SCHEMA.read(values)
    return ScoreConfig(node.engine, node.track, node.settings, node.max_rate, embeddings)


def _of_file(file: Path) -> dict[str, Any]:
    blocks = read_file(file, SCHEMA.row)
    try:
        given = values_of(blocks, NODE)
    except ValueError as error:
        raise ValueError(f"parameter file '{file}': {error}") from error
    if given is None and blocks:
        raise ValueError(f"parameter file '{file}' has nothing for {NODE}, only for "
                         f"{', '.join(blocks)}: name it {NODE} or /**")
    return given or {}


def config_of(facts: Mapping[str, Any]) -> ScoreConfig:
    """Return the configuration that `ScoreConfig.text` describes."""
    engine = ModelConfig(**facts['engine'],
                         allow_random_weights=facts['engine']['weights'] == 'random')
    return ScoreConfig(engine, TrackConfig(**facts['track']), Settings(**facts['settings']),
                       facts['max_rate'], bool(facts['embeddings']))


def weights_sha256(config: ModelConfig) -> str:
    """Return what identifies the weights: the hash of their file, or the seed of random ones."""
    path = None
    if config.weights != 'random':
        path = (located(config.weights, 'weights', config.fetched) if config.weights
                else bundled_file(config.model_size, config.model_version))
    if path is None:
        return f'random, seed {config.seed}'
    files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    if config.heads:
        files.append(located(config.heads, 'heads', config.fetched))
    for file in files:
        if not file.is_file():
            raise ValueError(f"weights file '{file}' does not exist; give a checkpoint by "
                             '-p weights:=FILE (heads:=FILE), or none for the bundled one')
    return '+'.join(file_sha256(file) for file in files)


# -- chunks ---------------------------------------------------------------------------------------

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
        remembered_s = self._engine.stream_reach
        begin_s = max(0.0, chunk.begin_s - self._config.warm_up_s - remembered_s)
        # A frame just before the end may give way to one after it.
        end_s = chunk.end_s + 1.0 / self._config.max_rate
        with reading():
            source = chunk.recording.open()
        scored = Scored()
        with source:
            perception = Perception(self._engine, self._config.track, [chunk.recording.camera])
            self._engine.forget()
            track, = perception.tracks.values()
            track.intrinsics, track.distortion = source.intrinsics, source.distortion
            try:
                frames = _frames(source.excerpt(begin_s, end_s), chunk, scored)
                rows = [self._row(chunk, at_s, result)
                        for at_s, result in self._results(perception, frames)
                        if chunk.holds(at_s)]
            finally:
                track.release()
        # A picture stays where an event may peak, whatever level events begin at.
        table = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
        peaks = {event['peak'] for level in RAISED
                 for event in find_events(table, EventRule(level, 0.0, 0.0))}
        for number, row in enumerate(rows):
            row['thumbnail'] = row['thumbnail'] if number in peaks else None
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
        assert result.image is not None     # it is wanted
        embedding = embed(self._engine, [result.view.apply(result.image)])[0] \
            if self._config.embeddings else None
        return {'bag': chunk.recording.path, 'topic': chunk.recording.topic, 'at_s': at_s,
                **row_of(result.assessment), 'model_sha256': self._engine.report.sha256,
                'configuration': self._text, 'embedding': embedding,
                'thumbnail': thumbnail(result) if result.assessment.level in RAISED else None}


def _frames(loads: Iterator[tuple[float, Load]], chunk: Chunk, scored: Scored
            ) -> Iterator[tuple[float, SourceFrame]]:
    """Yield time and frame, also those around the chunk; note what of it cannot be read."""
    lost: list[str] = []
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
                lost += [str(error)] if chunk.holds(at_s) else []
                continue
            if chunk.holds(at_s):
                scored.frames += 1
                scored.seconds = at_s - chunk.begin_s
            yield at_s, frame
    except SourceError as error:
        scored.problems.append(str(error))
    if lost:
        scored.problems.append(f'{len(lost)} image{"s" * (len(lost) > 1)} skipped, the first: '
                               f'{lost[0]}')


def thumbnail(result: Result) -> bytes:
    """Draw a small overlay as JPEG."""
    a = result.assessment
    overlay = draw_overlay(result.image, a, Layers(result.moves, result.looming_map, result.view),
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

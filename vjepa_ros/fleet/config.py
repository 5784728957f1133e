# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What decides the rows of a recording: the parameters of the perception node, and the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.files import file_sha256
from vjepa_ros.model.checkpoint.load import bundled_file
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.ros.parameter_file import read_file, read_word, values_of
from vjepa_ros.ros.perception_node.parameters import NodeConfig, SCHEMA
from vjepa_ros.runtime.model import ModelConfig

NODE = 'vjepa_node'  # whose parameters a file is read for
# Of the engine: what changes how fast a row is made, and where, but not what it says.
BESIDE = ('require_device', 'cpu_threads', 'fetched', 'allow_random_weights')
LIMITS = ('max_image_pixels',)      # of the node, not of `sources`
SETTLED = 17         # time constants after which a float32 has forgotten the past: ln 2**24
EMBEDDING = 'middle layer, 2 x 2 cells'      # what `scoring.embed` computes


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
        clip_s = max((track.num_frames - 1) / track.clip_fps, track.looming_history)
        return clip_s + 1.0 / track.clip_fps + SETTLED * settings.smoothing + settings.level_hold

    def text(self) -> str:
        """Return everything that decides a row, as JSON; equal texts give equal rows."""
        engine = {name: value for name, value in asdict(self.engine).items()
                  if name not in BESIDE}
        return json.dumps({'engine': engine, 'track': asdict(self.track),
                           'settings': asdict(self.settings), 'max_rate': self.max_rate,
                           'embeddings': self.embeddings and EMBEDDING}, sort_keys=True)


def read_config(file: Path | None, words: Sequence[str] = (), embeddings: bool = False
                ) -> ScoreConfig:
    """Make a configuration as a node would with the same parameters; no file gives defaults."""
    values = {row.name: row.default for row in SCHEMA.rows}
    given = _of_file(file) if file is not None else {}
    for word in words:
        whose, name, value = read_word(word, SCHEMA.row)
        if name in LIMITS:
            raise ValueError(f"parameter '{name}' has no effect on recordings, whose limits are "
                             'fixed; leave it out')
        if whose in ('', NODE):
            given[name] = value
    rows = {row.name: row for row in SCHEMA.rows}
    # The rows of cameras say where images come from, which is a recording here.
    cameras = given.get('cameras', values['cameras'])
    for name, value in given.items():
        if name not in rows:
            if not name.startswith(('qos_overrides', 'use_sim_time', *(f'{c}.' for c in cameras))):
                raise ValueError(f"parameter '{name}' is not one of vjepa_node; "
                                 'docs/parameters.md lists them')
        else:
            values[name], problem = rows[name].check(value)
            if problem:
                raise ValueError(problem)
    values.update({row.name: row.default for camera in values['cameras']
                   for row in SCHEMA.rows_of(camera)})
    if problem := SCHEMA.problem(values):
        raise ValueError(problem)
    node: NodeConfig = SCHEMA.read(values)
    return ScoreConfig(node.engine, node.track, node.settings, node.max_rate, embeddings)


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


def _of_file(file: Path) -> dict[str, Any]:
    blocks = read_file(file, SCHEMA.row)
    try:
        given = values_of(blocks, NODE)
    except ValueError as error:
        raise ValueError(f"parameter file '{file}': {error}") from error
    if given is None and blocks:
        raise ValueError(f"parameter file '{file}' has nothing for {NODE}, only for "
                         f"{', '.join(blocks) or 'no node'}: name it {NODE} or /**")
    return given or {}

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play recordings through the perception without ROS."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.lab.evaluation.metrics import Outcome, Patches, Truth, find_groups, of_method
from vjepa_ros.lab.evaluation.still_scenes import PatchReader
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources import PlayOptions, Source, SourceError, SourceFrame, open_source
from vjepa_ros.sources.folder import FolderSource, StillSource

MARKS = {
    '': 'the truth is in the labels of the recording (labels.csv), if any',
    'negative': 'no collision is imminent in any frame; nothing else is known',
    'still': 'neither camera nor scene moves: no collision, nothing comes nearer',
}
CAMERA = 'camera'
NS = 1e9

@dataclass(frozen=True)
class Item:
    path: str  # as for `vjepa_ros.sources.open_source`
    mark: str  # a key of `MARKS`
    name: str  # unique name of the sequence in tables and files

    def open(self, setup: Setup) -> Source:
        """Open it; live cameras and endless sources are refused."""
        source = open_source(self.path, PlayOptions(topic=setup.topic, rate=setup.rate))
        if source.live or isinstance(source, StillSource):
            source.close()
            raise SourceError(f"'{self.path}' ({source.name}) has no end; evaluate takes "
                              'recording folders, image folders, videos and bags')
        return source

    def truth(self, frame: SourceFrame) -> tuple[float, float]:
        """Return collision (0, 1 or NaN) and time to contact [s] (or NaN) of a frame."""
        known = frame.truth or {}
        collision, ttc = known.get('collision'), known.get('time_to_contact_s')
        collision = math.nan if collision is None else float(collision)
        ttc = math.nan if ttc is None else float(ttc)
        if self.mark in ('negative', 'still'):
            if collision == 1:
                raise SourceError(
                    f"'{self.path}' is marked '::{self.mark}', but its labels say that a "
                    f'collision is imminent at {frame.stamp_ns * 1e-9:.3f} s; remove the mark')
            collision = 0.0
        if self.mark == 'still':
            ttc = math.inf
        if ttc <= 0:
            raise SourceError(
                f"'{self.path}': time_to_contact_s is {ttc:g} at stamp "
                f'{frame.stamp_ns * 1e-9:.3f} s, must be above 0, inf (nothing comes nearer) '
                'or empty (unknown)')
        return collision, ttc


def read_items(words: Sequence[str]) -> list[Item]:
    """Read paths with optional marks, such as ``motorway.mp4::negative``."""
    items: list[Item] = []
    for word in words:
        path, _, mark = word.partition('::')
        if mark not in MARKS:
            known = '; '.join(f'::{m} ({text})' for m, text in MARKS.items() if m)
            raise SourceError(f"'{word}' has the unknown mark '::{mark}'; known are {known}")
        stem = Path(path.rstrip('/')).stem or path
        taken = {item.name for item in items}
        name, number = stem, 2
        while name in taken:
            name, number = f'{stem}-{number}', number + 1
        items.append(Item(path, mark, name))
    return items


@dataclass(frozen=True)
class Setup:
    settings: Settings  # live settings
    track: TrackConfig  # settings of the frame memory
    engine: Model | None = None  # the loaded model, with heads; None only while it is passed on
    topic: str | None = None  # image topic of bags, None for the first
    rate: float | None = None  # of pictures without stamps; others are thinned to it [Hz]

    @property
    def model(self) -> Model:
        """Return the loaded model."""
        assert self.engine is not None, 'the process has made it'
        return self.engine


def remade(setup: Setup) -> Callable[[], Setup]:
    """Return a picklable function that makes the same setup in another process."""
    config = None if setup.engine is None else setup.engine.config
    return partial(_make_setup, replace(setup, engine=None), config)


def _make_setup(setup: Setup, config: ModelConfig | None) -> Setup:
    return setup if config is None else replace(setup, engine=Model.load(config))


@dataclass
class Played:
    item: Item
    truth: Truth
    outcome: Outcome
    heads_problem: str  # why heads are not valid, in how many frames
    patches: Patches | None = None  # looming of the patches where depth and poses are known

    def stamps(self) -> np.ndarray:
        return self.truth.stamps_s - self.truth.stamps_s[0]


class Reader:
    """Assesses a recording."""

    def __init__(self, setup: Setup, source: Source) -> None:
        self._setup = setup
        self._perception = Perception(setup.model, setup.track, [CAMERA])
        self.track = self._perception.tracks[CAMERA]
        self.track.intrinsics, self.track.distortion = source.intrinsics, source.distortion

    def take(self, frame: SourceFrame) -> Result | None:
        """Return the result at a frame; None while the clip fills."""
        self.track.push(frame.rgb, frame.stamp_ns, frame.frame_id, gain=frame.gain)
        sample = self.track.sample()
        if sample is None:
            return None
        # The heads are needed, but not the features.
        return self._perception.run({CAMERA: sample}, self._setup.settings,
                                    {CAMERA: Wants(features=False, image=False)},
                                    lambda stamp: 0.0)[0]


def play(setup: Setup, item: Item) -> Played:
    stamps: list[float] = []
    truths: list[tuple[float, float]] = []
    said: list[Result | None] = []
    with item.open(setup) as source:
        reader = Reader(setup, source)
        scene = source.scene() if isinstance(source, FolderSource) else None
        patches = None if scene is None else PatchReader(scene)
        for frame in source:
            if stamps and frame.stamp_ns / NS <= stamps[-1]:
                raise SourceError(f"'{item.path}': stamp {frame.stamp_ns} ns does not follow "
                                  f'{stamps[-1]:.9f} s; time must rise within a recording')
            truths.append(item.truth(frame))
            stamps.append(frame.stamp_ns / NS)
            said.append(reader.take(frame))
            if patches is not None and said[-1] is not None:
                patches.take(frame.stamp_ns, said[-1])
    if not stamps:
        raise SourceError(f"'{item.path}' has no frames")
    collision, ttc = np.array(truths).T
    return Played(item, Truth(np.array(stamps), collision, ttc),
                  outcome(said), problem_of([r for r in said if r is not None]),
                  None if patches is None else patches.patches())


def outcome(results: Sequence[Result | None]) -> Outcome:
    def column(name: str, missing: float = math.nan) -> np.ndarray:
        return np.array([missing if r is None else float(getattr(r.assessment, name))
                         for r in results])

    return Outcome(np.array([r is not None for r in results]), column('collision_probability'),
                   column('collision_if_ahead'), column('time_to_contact'), column('looming_rate'),
                   column('level', 255.0).astype(int))


def assemble(played: Sequence[Played]) -> dict[str, Any]:
    if not played:
        return {'sequences': {}, 'pooled': {}, 'groups': {}}
    groups = find_groups({p.item.name: p.truth for p in played})
    found = of_method({p.item.name: (p.truth, p.outcome) for p in played}, groups)
    return {'sequences': {p.item.name: found['sequences'][p.item.name]
                          | {'heads_problem': p.heads_problem} for p in played},
            'pooled': found['pooled'],
            'groups': {group: {'sequences': members} | found['groups'][group]
                       for group, members in groups.items()}}


def problem_of(results: Sequence[Result]) -> str:
    """Return why heads were not valid in a recording, in how many frames; '' where they were."""
    problems = Counter(r.heads_problem for r in results if r.heads_problem)
    return f'the heads were not valid in {problems.total()} frames: ' \
        f'{problems.most_common(1)[0][0]}' if problems else ''

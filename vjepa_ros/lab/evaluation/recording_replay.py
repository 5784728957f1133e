# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play recordings through the perception without ROS, with every method at once."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.clip.ring import Push
from vjepa_ros.lab.evaluation.metrics import Outcome, Patches, Truth, find_groups, of_method
from vjepa_ros.lab.evaluation.still_scenes import PatchReader
from vjepa_ros.looming.gyroscope import Gyroscope, JITTER_S
from vjepa_ros.perception.assessment import LevelFilter
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources import PlayOptions, Source, SourceError, SourceFrame, open_source
from vjepa_ros.sources.folder import BODY_IN_OPTICAL, FolderSource, StillSource

MARKS = {
    '': 'the truth is in the labels of the recording (labels.csv), if any',
    'negative': 'no collision is imminent in any frame; nothing else is known',
    'still': 'neither camera nor scene moves: no collision, nothing comes nearer',
}
METHODS = ('geometric', 'learned', 'fused')
CAMERA = 'camera'
NS = 1e9
NO_RATES = 'no imu.csv or motion.csv (only recording folders have rates)'


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
    methods: tuple[str, ...]  # of `METHODS`; the last one is reported
    settings: Settings  # live settings
    track: TrackConfig  # settings of the frame memory
    engine: Model | None = None  # the loaded model; None when no method needs it
    topic: str | None = None  # image topic of bags, None for the first
    imu: tuple[float, float] = (0.0, JITTER_S)  # offset of rates, standard error of frames [s]
    use_imu: bool = False  # whether the methods are given the rates
    rate: float | None = None  # of pictures without stamps; others are thinned to it [Hz]


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
    outcomes: dict[str, Outcome]  # by method
    told: dict[str, str]  # why heads or rates are unused
    patches: Patches | None = None  # looming of the patches where depth and poses are known

    def stamps(self) -> np.ndarray:
        return self.truth.stamps_s - self.truth.stamps_s[0]


class Reader:
    """Assesses a recording with every method, which share ring, looming field and encoding."""

    def __init__(self, setup: Setup, source: Source) -> None:
        self.setup = setup
        self._perception = None if setup.engine is None else Perception(
            setup.engine, setup.track, [CAMERA])
        self.track = CameraState(CAMERA, setup.track) if self._perception is None \
            else self._perception.tracks[CAMERA]
        self.track.intrinsics, self.track.distortion = source.intrinsics, source.distortion
        self.gyroscope: Gyroscope | None = None
        self._rates: deque[tuple[int, np.ndarray]] = deque()
        rates = source.angular_rates() if setup.use_imu and isinstance(
            source, FolderSource) else None
        if rates is not None:
            self.gyroscope = self.track.gyroscope = Gyroscope(BODY_IN_OPTICAL, *setup.imu)
            self._rates.extend(zip(rates[0].tolist(), rates[1], strict=True))
        elif setup.use_imu:      # one that can not be used: each result then says why
            self.track.gyroscope = Gyroscope()
            self.track.gyroscope.problem = NO_RATES
        self._assessors = {method: LevelFilter() for method in setup.methods}
        self._settings = {m: replace(setup.settings, looming_method=m) for m in setup.methods}

    def take(self, frame: SourceFrame) -> dict[str, Result]:
        """Return the results of every method at a frame; empty while the clip fills."""
        gyroscope = self.gyroscope
        while gyroscope is not None and self._rates and not gyroscope.covers(frame.stamp_ns):
            gyroscope.push(*self._rates.popleft())
        pushed = self.track.push(frame.rgb, frame.stamp_ns, frame.frame_id, gain=frame.gain)
        if pushed is Push.RESET:
            for assessor in self._assessors.values():
                assessor.reset()
        sample = self.track.sample()
        if sample is None:
            return {}
        # The methods need the heads, but not the features.
        wants, settings = Wants(features=False, image=False), self.setup.settings
        if self._perception is None:
            seen = self.track.observe(sample, settings, wants)
        else:
            seen = self._perception.observe({CAMERA: sample}, {CAMERA: wants}, settings)[CAMERA]
        out = {}
        for method, assessor in self._assessors.items():
            # Each method has its own smoothing and level; the rest is shared.
            self.track.level_filter = assessor
            out[method] = self.track.assess(seen.under(self._settings[method], wants))
        return out


def play(setup: Setup, item: Item) -> Played:
    stamps: list[float] = []
    truths: list[tuple[float, float]] = []
    said: list[dict[str, Result]] = []
    with item.open(setup) as source:
        reader = Reader(setup, source)
        scene = source.scene() if isinstance(source, FolderSource) else None
        patches = None if scene is None else PatchReader(scene, setup.settings.min_confidence)
        for frame in source:
            if stamps and frame.stamp_ns / NS <= stamps[-1]:
                raise SourceError(f"'{item.path}': stamp {frame.stamp_ns} ns does not follow "
                                  f'{stamps[-1]:.9f} s; time must rise within a recording')
            truths.append(item.truth(frame))
            stamps.append(frame.stamp_ns / NS)
            said.append(reader.take(frame))
            if patches is not None:
                patches.take(frame.stamp_ns, said[-1])
    if not stamps:
        raise SourceError(f"'{item.path}' has no frames")
    collision, ttc = np.array(truths).T
    return Played(item, Truth(np.array(stamps), collision, ttc),
                  {m: outcome([r.get(m) for r in said]) for m in setup.methods},
                  told([r[setup.methods[-1]] for r in said if r]),
                  None if patches is None else patches.patches())


def outcome(results: Sequence[Result | None]) -> Outcome:
    def column(name: str, missing: float = math.nan) -> np.ndarray:
        return np.array([missing if r is None else float(getattr(r.assessment, name))
                         for r in results])

    ahead = np.array([r is not None and r.method != 'geometric' for r in results])
    return Outcome(np.array([r is not None for r in results]), column('collision_probability'),
                   np.where(ahead, column('collision_if_ahead'), math.nan),
                   column('time_to_contact'), column('looming_rate'),
                   column('level', 255.0).astype(int))


def assemble(played: Sequence[Played], methods: Sequence[str]) -> dict[str, Any]:
    if not played:
        return {'sequences': {}, 'pooled': {}, 'groups': {}, 'methods': {}}
    groups = find_groups({p.item.name: p.truth for p in played})
    found = {method: of_method({p.item.name: (p.truth, p.outcomes[method]) for p in played},
                               groups) for method in methods}
    main = found[methods[-1]]
    return {'sequences': {p.item.name: main['sequences'][p.item.name] | p.told for p in played},
            'pooled': main['pooled'],
            'groups': {group: {'sequences': members} | main['groups'][group]
                       for group, members in groups.items()}, 'methods': found}


def told(results: Sequence[Result]) -> dict[str, str]:
    """Return what the results of a recording say of themselves: why heads or rates are unused."""
    problems = Counter(r.heads_problem for r in results if r.heads_problem)
    heads = f'the heads were not valid in {problems.total()} frames: ' \
        f'{problems.most_common(1)[0][0]}' if problems else ''
    used = [r.gyroscope for r in results if r.gyroscope is not None]
    reasons = Counter(filter(None, used)).most_common(1)
    gyroscope = f'gyroscope used at {used.count("") / len(used):.0%} of the frames ' \
        f'{"".join(reason for reason, _ in reasons)}' if used else ''
    return {'heads_problem': heads, 'gyroscope': gyroscope.strip()}

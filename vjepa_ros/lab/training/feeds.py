# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Supply training with batches of rendered clips, and of clips cut out of recordings.

Labels of recordings come from a table (labels.csv), or from a topic that tells when a robot
touched something. A contact is the moment when a flag rises: a bumper that reports true, a
distance that falls below a threshold. Before it the time to contact is known exactly; after the
last one it is known that nothing came until the labels end.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.resize import View
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.network import Batch
from vjepa_ros.lab.world.clips import (
    ClipWorld,
    HORIZONS_S,
    SPLIT_BATCH,
    Targets,
    clip_targets,
    derive,
    generator,
    joined,
    mirror,
)
from vjepa_ros.model.variants import PATCH
from vjepa_ros.sources import PlayOptions, SourceError, SourceFrame, open_source
from vjepa_ros.sources.bag import Bag, parsing

SHORT_SHARE = 0.2   # of the steps with the fewest tubelets
REUSE_GAP = 8       # steps between two uses of a clip, so that no batch resembles the one before
INTERVALS_S = (1 / 30, 0.5)      # time between the frames of a clip, as in the world
STEPS = (1, 2, 3, 4, 6, 8)       # frames of the recording from one frame of a clip to the next
MAX_GAP = 1.6                    # a longer step than so many steps is a hole in the recording
MAX_BYTES = 4 << 30
THRESHOLD = re.compile(r'\s*([<>]?)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*')
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Draw:
    """How one process of a run draws its batches."""

    # seed, rank: of the run and of this process
    seed: int
    rank: int
    device: torch.device  # where batches end up
    lengths: tuple[int, int] = (0, 0)  # fewest and most tubelets that a block-causal encoder sees

    def tubelets(self, random: torch.Generator) -> int:
        """Draw how many tubelets are seen: sometimes the fewest, as after a stream begins."""
        fewest, most = self.lengths
        short = float(torch.rand((), generator=random)) < SHORT_SHARE
        return fewest if short else most

    def flip(self, count: int, random: torch.Generator) -> Tensor:
        """Draw which of `count` clips are mirrored, (count,) bool."""
        which = torch.rand(count, generator=random) < 0.5
        if self.device.type == 'cuda':      # from pinned memory a copy does not wait
            return which.pin_memory().to(self.device, non_blocking=True)
        return which


class WorldFeed:
    """Endless batches of rendered clips, the same for the same seed, step and rank."""

    def __init__(self, worlds: Sequence[ClipWorld], count: int, draw: Draw, workers: int = 1,
                 reuse: int = 1) -> None:
        if count % reuse:
            raise ValueError(f'{count} clips of a batch cannot be made of {reuse} equal parts: '
                             'choose a batch that is a multiple of reuse')
        self._worlds, self._count, self._draw, self._reuse = worlds, count, draw, reuse
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix='scenes')
        self._drawn: dict[int, Future] = {}
        self._made: dict[int, tuple[Tensor, Targets, Tensor]] = {}
        self._ahead = 2 * workers

    def __enter__(self) -> WorldFeed:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; steps in another order than 0, 1, 2 only cost time."""
        # Rendering is expensive: parts may be of steps before, mirrored anew.
        parts = [step - age * REUSE_GAP for age in range(self._reuse)]
        # At the start of a run, when there are no old clips, those there are serve more often.
        parts = [part if part >= 0 else part % (step + 1) for part in parts]
        oldest = step - (self._reuse - 1) * REUSE_GAP
        self._made = {k: v for k, v in self._made.items() if oldest <= k <= step}
        for part in [*(p for p in parts if p not in self._made),
                     *range(step + 1, step + self._ahead + 1)]:
            if part not in self._drawn:
                self._drawn[part] = self._pool.submit(
                    self._world(part).sample,
                    derive(self._draw.seed, 'scenes', part, self._draw.rank),
                    self._count // self._reuse)
        for part in parts:
            if part not in self._made:
                clips = self._world(part).film(self._drawn.pop(part).result())
                self._made[part] = clips.frames, clip_targets(clips), clips.stamps_s.double()
        frames, targets, stamps = zip(*(self._made[part] for part in parts), strict=True)
        random = generator(self._draw.seed, 'places', step, self._draw.rank)
        # A mirrored scene is as likely as the scene itself, and danger has no side.
        flip = self._draw.flip(self._count, random)
        return Batch(mirror(torch.cat(frames), flip, 3), joined(targets).flipped(flip),
                     torch.cat(stamps), self._draw.tubelets(random))

    def _world(self, made: int) -> ClipWorld:
        # Those of a batch, REUSE_GAP steps apart, are of different worlds, too.
        return self._worlds[(made + made // REUSE_GAP) % len(self._worlds)]


def split(worlds: Sequence[ClipWorld], first_seed: int, count: int) -> Iterator[Batch]:
    """Render the clips of a fixed split, `count` of each world, in pieces of a fixed size."""
    for world in worlds:
        for number in range(-(-count // SPLIT_BATCH)):
            clips = world.clips(first_seed + number,
                                min(SPLIT_BATCH, count - number * SPLIT_BATCH))
            yield Batch(clips.frames, clip_targets(clips), clips.stamps_s.double())


@dataclass(frozen=True)
class Flags:
    stamps_ns: np.ndarray  # (N,) int64, rising
    touching: np.ndarray  # (N,) bool

    def contact_s(self, stamp_ns: int) -> tuple[float, float]:
        """Time to the next contact, and how far ahead is known."""
        at = int(np.searchsorted(self.stamps_ns, stamp_ns, side='right')) - 1
        if at < 0 or stamp_ns > self.stamps_ns[-1]:
            return math.nan, math.nan
        if self.touching[at]:
            return 0.0, math.inf
        later = np.flatnonzero(self.touching[at:])
        if later.size:
            return float(self.stamps_ns[at + later[0]] - stamp_ns) / 1e9, math.inf
        return math.inf, float(self.stamps_ns[-1] - stamp_ns) / 1e9


def read_flags(bag: Path, topic: str, field: str = '', threshold: str = '') -> Flags:
    with parsing(f"labels of '{bag}' on '{topic}' cannot be read"), closing(
            Bag(Path(bag))) as reader:
        found = [c for c in reader.connections if c.topic.lstrip('/') == topic.lstrip('/')]
        if not found:
            listing = ', '.join(sorted(f'{c.topic} ({c.msgtype})' for c in reader.connections))
            raise SourceError(f"bag '{bag}' has no label topic '{topic}'; it has: {listing}")
        kind = found[0].msgtype
        where = f"label topic '{topic}' ({kind}) of '{bag}'"
        path = field or ('range' if kind.endswith('/Range') else 'data')
        stamps, values = [], []
        for connection, recorded_ns, raw in reader.messages(found):
            message = reader.deserialize(raw, connection.msgtype)
            at = message.header.stamp if hasattr(message, 'header') else None
            stamped = at and at.sec * 1_000_000_000 + at.nanosec
            stamps.append(stamped or recorded_ns)
            values.append(_value(message, path, where))
        reader.tell()
    if not stamps:
        raise SourceError(f'{where} has no messages')
    order = np.argsort(stamps, kind='stable')
    return Flags(np.array(stamps, np.int64)[order],
                 _touching(values, kind, threshold, where)[order])


def _value(message: object, path: str, where: str) -> bool | float:
    value = message
    for part in path.split('.'):
        if not hasattr(value, part):
            fields = [n for n in getattr(value, '__dict__', ()) if not n.startswith('__')]
            raise SourceError(f"{where} has no field '{path}'; at this place it has: "
                              f'{", ".join(fields) or "nothing"}. Name the one that tells of a '
                              'contact (label_field)')
        value = getattr(value, part)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, float, np.number)):
        return float(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return len(value) > 0       # such as a list of contacts
    raise SourceError(f"{where}: field '{path}' is a {type(value).__name__}, neither true or "
                      'false, a number nor a list')


def _touching(values: list[bool | float], kind: str, threshold: str, where: str) -> np.ndarray:
    if all(isinstance(value, bool) for value in values):
        return np.array(values, bool)
    if not threshold:
        raise SourceError(f'{where} holds numbers: say from which on they mean contact '
                          "(label_threshold, such as '<0.3')")
    match = THRESHOLD.fullmatch(threshold)
    if match is None:
        raise SourceError(f"label threshold '{threshold}' is not a number, such as 0.3 or '<0.3'")
    below = match[1] == '<' if match[1] else kind.endswith('/Range')
    numbers = np.array(values, float)       # NaN is no contact
    return numbers <= float(match[2]) if below else numbers > float(match[2])


@dataclass(frozen=True)
class Recording:
    name: str  # for people
    frames: np.ndarray  # (N, S, S, 3) uint8
    stamps_ns: np.ndarray  # (N,) int64, rising
    contact_s: np.ndarray  # (N,) time to the next contact [s], inf for none, NaN unknown
    certain_s: np.ndarray  # (N,) how far ahead that is certain [s]
    danger: np.ndarray  # (N,) 1, 0 or NaN: a plain flag "about to collide", as set by people


def load_recording(path: str, config: TrainConfig) -> Recording:
    flags = None
    if config.label_topic:
        if (Path(path).expanduser() / 'labels.csv').is_file():
            log.info("'%s' has its own labels.csv; the label topic is for bags", path)
        else:
            flags = read_flags(Path(path).expanduser(), config.label_topic, config.label_field,
                               config.label_threshold)
    size = config.image_size
    frames, stamps, labels = [], [], []
    with open_source(path, PlayOptions(topic=config.image_topic or None)) as source:
        view = View(config.resize_mode, source.size, size)
        for frame in source:
            if frame.rgb.shape[1::-1] != view.source_size:
                view = View(config.resize_mode, frame.rgb.shape[1::-1], size)
            if stamps and frame.stamp_ns <= stamps[-1]:
                continue
            frames.append(view.apply(frame.rgb))
            stamps.append(frame.stamp_ns)
            labels.append(_label(frame, flags))
            if len(frames) * frames[0].nbytes > MAX_BYTES:
                raise SourceError(f"'{path}' is too long to be held in memory "
                                  f'({MAX_BYTES >> 30} GiB at {size} px): cut it into parts')
    if not frames:
        raise SourceError(f"'{path}' has no frames")
    contact_s, certain_s, danger = np.array(labels, float).T
    if np.isnan(contact_s).all() and np.isnan(danger).all():
        raise SourceError(f"'{path}' has no labels: a recording folder needs the column "
                          'collision or time_to_contact_s in labels.csv, a bag a label topic '
                          'whose times overlap with those of the images')
    return Recording(path, np.stack(frames), np.array(stamps, np.int64), contact_s, certain_s,
                     danger)


def _label(frame: SourceFrame, flags: Flags | None) -> tuple[float, float, float]:
    if flags is not None:
        return (*flags.contact_s(frame.stamp_ns), math.nan)
    truth = frame.truth or {}
    contact, collision = truth.get('time_to_contact_s', math.nan), truth.get('collision')
    # "Never" in a table is only known as far as the recording goes: beyond the longest horizon
    # it is masked.
    certain = math.nan if math.isnan(contact) else (
        math.inf if math.isfinite(contact) else HORIZONS_S[-1])
    return contact, certain, math.nan if collision is None else float(collision)


class RecordingFeed:
    def __init__(self, recordings: Sequence[Recording], num_frames: int, horizon_s: float):
        self._recordings, self._num_frames = recordings, num_frames
        self._horizon_s = horizon_s     # time that the plain flags speak about [s]
        self._clips = [list(self._possible(r)) for r in recordings]
        for recording, clips in zip(recordings, self._clips, strict=True):
            if not clips:
                raise SourceError(
                    f"'{recording.name}' holds no labelled clip of {num_frames} frames between "
                    f'{INTERVALS_S[0]:.3f} and {INTERVALS_S[1]:.3f} s apart')

    def __len__(self) -> int:
        return sum(map(len, self._clips))

    def batch(self, count: int, random: torch.Generator, device: torch.device) -> Batch:
        """Clips chosen at random: half of them near a contact, where there are such."""
        numbers = torch.rand(count, 3, generator=random).tolist()
        chosen = [self._choose(*three) for three in numbers]
        frames = torch.from_numpy(np.stack([r.frames[list(picks)] for r, picks, _ in chosen]))
        return Batch(frames.to(device),
                     self._targets(chosen, frames.shape[2] // PATCH).to(device))

    def _choose(self, which: float, near: float, where: float
                ) -> tuple[Recording, tuple[int, ...], float]:
        at = int(which * len(self._clips))
        recording, clips = self._recordings[at], self._clips[at]
        if near < 0.5:
            close = [c for c in clips if recording.contact_s[c[0][-1]] <= HORIZONS_S[-1]
                     or recording.danger[c[0][-1]] > 0.5]
            clips = close or clips
        return recording, *clips[int(where * len(clips))]

    def _possible(self, recording: Recording) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield the frame indices of every labelled clip, and its interval [s]."""
        stamps = recording.stamps_ns / 1e9
        labelled = ~(np.isnan(recording.contact_s) & np.isnan(recording.danger))
        # A camera at half the rate of the clip: every frame is shown twice.
        kinds = [*((step, 1) for step in STEPS), (1, 2)]
        for last, (step, times) in product(np.flatnonzero(labelled).tolist(), kinds):
            first = last - (self._num_frames // times - 1) * step
            if first < 0:
                continue
            picks = range(first, last + 1, step)
            gaps = np.diff(stamps[list(picks)])
            usual = float(np.median(gaps))
            if gaps.max() <= MAX_GAP * usual \
                    and INTERVALS_S[0] * 0.9 <= usual / times <= INTERVALS_S[1] * 1.1:
                yield tuple(p for p in picks for _ in range(times)), usual / times

    def _targets(self, chosen: Sequence[tuple[Recording, tuple[int, ...], float]],
                 side: int) -> Targets:
        """Return the targets that labels give; they say nothing about single patches."""
        last = [(r, picks[-1]) for r, picks, _ in chosen]
        contact = torch.tensor([r.contact_s[i] for r, i in last], dtype=torch.float32)
        certain = torch.tensor([r.certain_s[i] for r, i in last], dtype=torch.float32)
        danger = torch.tensor([r.danger[i] for r, i in last], dtype=torch.float32)
        horizons = torch.tensor(HORIZONS_S)
        # NaN compares as false: unknown values stay unknown.
        hazard = contact[:, None] <= horizons
        intervals = torch.tensor([interval for _, _, interval in chosen], dtype=torch.float32)
        return replace(
            Targets.unknown(intervals, side),
            contact_s=torch.where(contact.isfinite(), contact, math.inf),
            contact_known=contact.isfinite(),
            hazard=hazard.float(), hazard_known=hazard | (certain[:, None] >= horizons),
            danger=torch.nan_to_num(danger),
            danger_s=torch.full_like(danger, self._horizon_s), danger_known=~torch.isnan(danger))


def mixed(world: WorldFeed | None, recordings: RecordingFeed, count: int, draw: Draw,
          step: int) -> Batch:
    """Return a batch of a world, if any, and of `count` clips of recordings."""
    random = generator(draw.seed, 'recordings', step, draw.rank)
    real = recordings.batch(count, random, draw.device)
    # Labels of recordings say nothing about single patches, so only pixels are mirrored.
    frames = mirror(real.frames, draw.flip(count, random), 3)
    if world is None:
        return Batch(frames, real.targets)
    made = world.batch(step)
    return Batch(torch.cat((made.frames, frames)), joined((made.targets, real.targets)))

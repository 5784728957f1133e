# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the learned heads of a clip say, in physical units, and whether they are valid for it.

Heads know nothing of time: they count in intervals of the clip. Seconds come from the stamps of
the frames that were used. A patch is known when

- it shows image (not a bar of the letterbox),
- it or its neighbours show structure, or most of the picture does: heads look at the whole clip,
  and on rendered clips they are as right about plain patches among others as about those, while a
  covered lens or a white-out is unknown, whatever they make of it. To be known, a patch must also
  show structure after the slope of the picture is taken out; for probabilities the picture alone
  suffices, for a plain wall right ahead looks like a covered lens. A patch that surely comes
  nearer (by two standard errors faster than the 0.25 /s at which caution begins) needs structure
  only somewhere in the clip: what has come so near that nothing of it can be made out has not gone
  away. The same holds for the motion of a patch that surely moves by itself (0.9: 99 % of such
  rendered patches do),
- its own standard error is small: confidence is 1 / (1 + (sigma / doubt)^2) with
  doubt = 0.0625 /s + 0.45 |rate|, so that at the usual least confidence of 0.2 two standard errors
  of a surface that seems still stay below 0.25 /s, the looming at which caution begins.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.model.checkpoint.layouts import BundleMeta
from vjepa_ros.model.head_specs import CLEARANCE_EDGES, CONTACT_EDGES
from vjepa_ros.perception.settings import TrackConfig, Wants
from vjepa_ros.perception.structure import Shown
from vjepa_ros.runtime.prediction import HeadArrays

log = logging.getLogger(__name__)

UNEVEN = 0.5             # part of the mean spacing by which a spacing of frames may differ
TOLERANCE = 0.05         # part by which an interval may leave the trained range
DOUBT_S = (0.0625, 0.45)  # standard error 1/s, absolute and relative, at which confidence is half
SURELY = 2.0             # standard errors by which a surface comes nearer that needs no structure
CLOSING_PER_S = 0.25     # and faster than this, 1/s
SURELY_MOVES = 0.9       # probability of own motion from which none is needed
BLOCKED = 0.2            # probability that the way ahead is blocked within what is told as free
ON_COURSE = (0.3, 0.6)   # probability from which a patch is on course, and is so fully
NO_HEADS = 'there are no learned heads; set `weights` to a file with heads, or set `heads`'
NS = 1e9
_NAN = np.float32(np.nan)


@dataclass(frozen=True)
class Rhythm:
    """How the frames of a clip lie in time."""

    # Mean time between two frames of the clip, repeated ones counted [s]; NaN for one frame
    interval_s: float
    hold: int  # how often each frame stands in the clip; 0 when that differs from frame to frame
    spacing_s: tuple[float, float]  # shortest and longest time between different neighbours [s]
    even: bool  # whether all frames stand equally often and at about equal distances in the clip

    @classmethod
    def of(cls, stamps_ns: Sequence[int]) -> Rhythm:
        """Return the rhythm of the stamps of a clip [ns], oldest first."""
        runs = Counter(stamps_ns)
        if len(runs) < 2:
            return cls(math.nan, len(stamps_ns), (math.nan, math.nan), False)
        hold = runs[stamps_ns[0]] if len(set(runs.values())) == 1 else 0
        gaps = np.diff(sorted(runs)) / NS
        mean = float(gaps.mean()) / (hold or len(stamps_ns) / len(runs))
        low, high = float(gaps.min()), float(gaps.max())
        even = low >= (1 - UNEVEN) * mean * hold and high <= (1 + UNEVEN) * mean * hold
        return cls(mean, hold, (low, high), hold > 0 and even)


_rhythm = lru_cache(64)(Rhythm.of)     # of the clips of all cameras


def evened(sample: Sample, clip_fps: float) -> Sample:
    """Return the clip of a camera slower than `clip_fps` [Hz] with each frame equally often.

    Where the times of a clip fall halfway between two frames, jitter of the stamps decides which
    is nearer, and frames occur one to three times in the clip. Heads were trained on an even
    pattern. A clip that can not be made even is returned as it is.
    """
    total = len(sample.frames)
    if not 2 <= sample.distinct < total:
        return sample
    held = dict(zip(sample.stamps_ns, sample.frames, strict=True))
    stamps = sorted(held)
    hold = round(float(np.median(np.diff(stamps))) / NS * clip_fps)
    if hold < 2 or total % hold or len(stamps) < total // hold or total // hold < 2:
        return sample
    kept = [stamp for stamp in stamps[-(total // hold):] for _ in range(hold)]
    span_s = (kept[-1] - kept[0]) / NS
    distinct = total // hold
    return replace(sample, frames=tuple(held[stamp] for stamp in kept), stamps_ns=tuple(kept),
                   span_s=span_s, rate_hz=(distinct - 1) / span_s, distinct=distinct)


def range_problem(trained: BundleMeta, num_frames: int, image_size: int, resize_mode: str,
                  sample: Sample) -> str:
    """Return why heads are not valid for a clip: value, trained range, remedy."""
    for name, value in (('num_frames', num_frames), ('image_size', image_size),
                        ('resize_mode', resize_mode)):
        wanted = getattr(trained, name)
        if value != wanted and value not in trained.other_modes:
            return f'{name} is {value}, the heads were trained on {wanted}; set {name}: {wanted}'
    if not trained.window:
        return _rhythm_problem(trained, _rhythm(sample.stamps_ns))
    # A block-causal encoder is told when each frame was taken.
    return _time_problem(trained, 'time between the newest frames', sample.step_s,
                         f'raise the rate of the camera to {1 / trained.interval_s[1]:.3g} Hz or '
                         'more', 'let the driver of the camera stamp its images')


def _rhythm_problem(trained: BundleMeta, rhythm: Rhythm) -> str:
    if math.isnan(rhythm.interval_s):
        return 'the clip is one single frame, repeated; lower clip_fps to the rate of the camera'
    if not rhythm.even:
        low, high = rhythm.spacing_s
        return (f'spacing of the frames is uneven, {low:.3f} to {high:.3f} s, the heads were '
                'trained on even clips; set clip_fps to the rate of the camera or a whole '
                'fraction of it')
    if rhythm.hold not in trained.holds:
        fastest = max(trained.holds) / (rhythm.interval_s * rhythm.hold)
        shown = ' or '.join(map(str, trained.holds))
        return (f'frame repetition is {rhythm.hold}, the heads were trained on {shown}; '
                f'lower clip_fps to {fastest:.3g} or less')
    shortest, longest = trained.interval_s
    return _time_problem(trained, 'frame interval', rhythm.interval_s,
                         f'raise clip_fps to {1 / longest:.3g} or more',
                         f'lower clip_fps to {1 / shortest:.3g} or less')


def _time_problem(trained: BundleMeta, what: str, time_s: float, if_long: str, if_short: str
                  ) -> str:
    shortest, longest = trained.interval_s
    if shortest * (1 - TOLERANCE) <= time_s <= longest * (1 + TOLERANCE):
        return ''
    return (f'{what} is {time_s:.3f} s, the heads were trained on {shortest:.3f} to '
            f'{longest:.3f} s; {if_long if time_s > longest else if_short}')


@dataclass(frozen=True)
class Distribution:
    """A distribution over bins of a positive quantity; the rest of it lies beyond all bins."""

    edges: np.ndarray  # (K+1,) borders, ascending
    until: np.ndarray  # (K+1,) probability of at most each border, ascending from 0

    @classmethod
    def of(cls, edges: Sequence[float], probability: np.ndarray,
           unit: float = 1.0) -> Distribution:
        """Build one from K+1 edges (times `unit`) and K+1 probabilities, the last one: beyond."""
        until = np.zeros(len(probability))
        np.cumsum(probability[:-1], dtype=np.float64, out=until[1:])
        return cls(_scaled(tuple(edges), unit), until)

    def below(self, value: float) -> float:
        """Return the probability of at most a value, linear in its logarithm inside a bin."""
        if value <= 0:
            return 0.0
        reached = float(np.interp(math.log(value), self._logs, self.until))
        return min(max(reached, 0.0), 1.0)      # NaN stays NaN

    def quantile(self, probability: float) -> float:
        """Return the value reached with a probability above 0; inf when none is."""
        if self.until[-1] < probability:
            return math.inf
        return math.exp(np.interp(probability, self.until, self._logs))

    @cached_property
    def _logs(self) -> np.ndarray:
        return np.log(self.edges)


@lru_cache(64)      # intervals of all cameras
def _scaled(edges: tuple[float, ...], unit: float) -> np.ndarray:
    scaled = np.asarray(edges) * unit
    scaled.flags.writeable = False      # all clips share it
    return scaled


@dataclass(frozen=True)
class LearnedField:
    """The heads of one clip in physical units, on the patch grid."""

    rate: np.ndarray  # (Hp, Wp) float32 looming rate [1/s], NaN where the patch shows no image
    sigma: np.ndarray  # (Hp, Wp) float32 standard error of it [1/s]
    confidence: np.ndarray  # (Hp, Wp) float32 0..1; 0 where nothing can be seen
    # (Hp, Wp) float32 probability that the surface moves by itself, NaN unknown
    moving: np.ndarray
    course: np.ndarray  # (Hp, Wp) float32 probability that it will enter the robot's volume, 0..1
    # Distribution of the time until anything enters the robot's volume, as things move [s]
    contact: Distribution
    # Distribution of the free way ahead of the robot, whether anything moves or not [m]
    clearance: Distribution
    view: View  # where the patches lie in the source image
    # sees, saw: whether the newest frame of the clip shows structure at all; whether any frame
    # does
    sees: bool = True
    saw: bool = True

    @cached_property
    def on_course(self) -> np.ndarray:
        """How far patches are on course (Hp, Wp), 0..1.

        Many that are hardly so are no danger together.
        """
        low, high = map(np.float32, ON_COURSE)
        return np.minimum(np.maximum((self.course - low) / (high - low), np.float32(0)),
                          np.float32(1))

    def known(self, least: float) -> np.ndarray:
        """Return the patches (Hp, Wp) bool whose rate is known with at least a confidence."""
        known = self.confidence >= least
        known &= np.isfinite(self.rate)
        return known

    @cached_property
    def time_to_contact(self) -> float:
        """Time by which contact is as likely as not [s]; inf when it never is."""
        return self.contact.quantile(0.5)

    @cached_property
    def free_way(self) -> float:
        """Way ahead that is free with a probability of 0.8 [m]; inf beyond 16 m, NaN unknown.

        Unknown where the newest frame shows no structure: a wall right ahead or a covered lens.
        """
        return self.clearance.quantile(BLOCKED) if self.sees else math.nan


class HeadsSaid(NamedTuple):
    """The outputs of the heads for a clip in which they are valid."""

    heads: HeadArrays
    interval: float  # frame interval that they count in [s], see `HeadsUse.interval_s`
    view: View
    shown: Shown  # where the frames show structure


def stacked(items: Iterable[object], *names: str) -> Iterable[np.ndarray]:
    """Return arrays of attributes of items, an array for each of at least two names."""
    return map(np.array, zip(*map(attrgetter(*names), items), strict=True))


def learned_fields(said: Sequence[HeadsSaid]) -> list[LearnedField]:
    """Convert what the heads of one model say to physical units, all clips at once."""
    expansion, scale, moves = stacked(said, 'heads.expansion', 'heads.scale', 'heads.moving')
    inside, seen, sure, saw = stacked(said, 'shown.inside', 'shown.seen', 'shown.sure',
                                      'shown.saw')
    interval = np.array([one.interval for one in said])[:, None, None]
    rate = expansion / interval.astype(np.float32)
    sigma = scale * (math.sqrt(2.0) / interval).astype(np.float32)     # of a Laplace distribution
    able = inside & saw[:, None, None]     # to be told of without structure
    closing = able & (rate - SURELY * sigma > CLOSING_PER_S)
    doubt = DOUBT_S[0] + DOUBT_S[1] * np.abs(rate)
    confidence = ((seen & sure) | closing) / (1.0 + (sigma / doubt) ** 2)
    moving = np.where(seen | (able & (moves >= SURELY_MOVES)), moves, _NAN)
    rate = np.where(inside, rate, _NAN)
    return [LearnedField(
        rate[n], sigma[n], confidence[n], moving[n], one.heads.course,
        Distribution.of(CONTACT_EDGES, one.heads.contact, one.interval),
        Distribution.of(CLEARANCE_EDGES, one.heads.clearance), one.view, one.shown.sees,
        one.shown.saw) for n, one in enumerate(said)]


class HeadsUse:
    """The learned heads as one camera may use them. Each kind of problem is logged once."""

    def __init__(self, camera: str, meta: BundleMeta | None, config: TrackConfig) -> None:
        self.camera = camera
        self.meta = meta    # their training range; None without heads
        self.config = config
        # Whether the model is told when each frame was taken, or there are no heads.
        self.timed = meta is None or meta.window > 0
        self._logged: set[str] = set()

    def problem(self, sample: Sample) -> str:
        """Return why no heads are valid for a clip, with the remedy; '' when they are."""
        problem = NO_HEADS if self.meta is None else range_problem(
            self.meta, self.config.num_frames, self.config.image_size, self.config.resize_mode,
            sample)
        if problem:
            self._warn(problem.partition(' is ')[0], 'looming, contact and level are unknown: '
                       + problem)
        return problem

    def interval_s(self, sample: Sample) -> float:
        """Return the frame interval that the heads count in [s]."""
        if self.meta is not None and self.timed:
            return sample.step_s
        return _rhythm(sample.stamps_ns).interval_s

    def wanted(self, problem: str, wants: Wants) -> bool:
        """Return whether the heads are valid for a clip, see `problem`, and somebody uses them."""
        return not problem and (wants.features or wants.moving or wants.looming)

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning('%s: %s', self.camera, text)

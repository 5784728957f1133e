# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Maps on the patch grid of a camera: looming, motion, and what the learned heads say.

Motion comes from the change of the features of a patch over the tubelets of a clip. With F_t(p)
the feature of patch p in tubelet t of D channels,

    c_t(p) = |F_{t+1}(p) - F_t(p) - mean_q(F_{t+1}(q) - F_t(q))| / sqrt(D)    change
    r(p)   = sqrt(mean_t (c_t(p) / n_t(s(p)))^2)                              in noise floors
    m(p)   = 1 - exp(-max(0, r(p) - r0) / R_SCALE)                            motion, 0 .. 1

where n_t(s) is the change that sensor noise alone causes in a patch of strength s, measured for
the loaded model (`vjepa_ros.runtime.noise_floor`), and r0 = max(R_QUIET, 1 + 4 spread).

Motion is 0 up to 2 noise floors, 0.5 at 4.1, 0.9 at 8.9. The noise floor corresponds to 2.5 grey
levels at the size of the model input. Stronger noise of a camera in the dark (above about 5 grey
levels after resizing) shows as motion, as does camera shake of more than about a quarter of an
input pixel where the texture is fine. A surface without texture shows no motion while it moves,
only its borders do. With untrained weights the features are a random projection of the pixels:
they show change, not its meaning. Trained weights give the same features to the same motion a
tubelet later, so a view that slides evenly changes less than what starts, stops or turns.

Heads know nothing of time: they count in intervals of the clip. Seconds come from the stamps of
the frames that were used. A patch is known when

- it shows image (not a bar of the letterbox),
- it or its neighbours show structure, or most of the picture does: heads look at the whole clip,
  and on rendered clips they are as right about plain patches among others as about those, while a
  covered lens or a white-out is unknown, whatever they make of it. What is left of the picture
  without its slope must show structure, too, for a patch to count as known; probabilities need
  that of the picture alone, for a plain wall right ahead looks like a covered lens. A patch that
  surely comes nearer (by two standard errors faster than the 0.25 /s at which caution begins)
  needs no more than structure somewhere in the clip: what has come so near that nothing of it can
  be made out has not gone away, but that nothing comes is never told blindly. Nor does, for its
  motion, a patch that surely moves by itself (0.9: of rendered patches 99 % of these do),
- its own standard error is small: confidence is 1 / (1 + (sigma / doubt)^2) with
  doubt = 0.0625 /s + 0.45 |rate|, so that at the usual least confidence of 0.2 two standard errors
  of a surface that seems still stay below 0.25 /s, the looming at which caution begins.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from vjepa_ros.clip.resize import PatchCells, View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.looming.structure import Shown
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.model.head_specs import CLEARANCE_EDGES, CONTACT_EDGES
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.runtime.noise_floor import Change, NoiseFloor, patch_strength, tubelet_change
from vjepa_ros.runtime.prediction import HeadArrays

log = logging.getLogger(__name__)

CACHED = 64    # views and regions of interest; one or a few of each camera
R_QUIET = 2.0  # noise floors that count as no motion
R_SCALE = 3.0  # noise floors above r0 at which motion reaches 63 %
WEAK = 0.4     # strength assumed when the pixels are unknown
UNEVEN = 0.5             # part of the mean spacing by which a spacing of frames may differ
TOLERANCE = 0.05         # part by which an interval may leave the trained range
DOUBT_S = (0.0625, 0.45)  # standard error 1/s, absolute and relative, at which confidence is half
SURELY = 2.0             # standard errors by which a surface comes nearer that needs no structure
CLOSING_PER_S = 0.25     # and faster than this, 1/s
SURELY_MOVES = 0.9       # probability of own motion from which none is needed
BLOCKED = 0.2            # probability that the way ahead is blocked within what is told as free
NS = 1e9
_NAN = np.float32(np.nan)


# -- masks, looming and motion --------------------------------------------------------------------

@lru_cache(CACHED)
def valid_mask(view: View) -> np.ndarray:
    """Return the patches that show image and not bars, (Hp, Wp) bool, read only."""
    return _read_only(view.patch_valid() > 0.5)


@lru_cache(CACHED)
def score_mask(view: View, roi: tuple[float, float, float, float]) -> np.ndarray:
    """Return the patches of `valid_mask` centred in a region of interest, (Hp, Wp), read only."""
    boxes = view.patch_boxes()
    x = 0.5 * (boxes[..., 0] + boxes[..., 2]) / view.source_size[0]
    y = 0.5 * (boxes[..., 1] + boxes[..., 3]) / view.source_size[1]
    inside = (x >= roi[0]) & (x <= roi[2]) & (y >= roi[1]) & (y <= roi[3])
    return _read_only(valid_mask(view) & inside)


def looming_map(view: View, field: LoomingField | None, min_confidence: float) -> np.ndarray:
    """Return the looming rate [1/s] of each patch, (Hp, Wp) float32; NaN below the confidence."""
    if field is None:
        return np.full(view.patch_valid().shape, np.nan, np.float32)
    rate = np.where(field.confidence >= min_confidence, field.rate, np.nan)
    xs, ys = field.centers[0, :, 0], field.centers[:, 0, 1]
    return _cells(tuple(xs.tolist()), tuple(ys.tolist()), field.gray_size, view).of(rate)


_cells = lru_cache(CACHED)(PatchCells)


def motion_map(features: np.ndarray, floor: NoiseFloor, clip: np.ndarray | None = None,
               valid: np.ndarray | None = None) -> np.ndarray:
    """Compute the motion of each patch.

    `valid`: (Hp, Wp) bool, patches that show the image and not the bars of a letterbox.
    """
    _check(features.shape[0], floor)
    if valid is not None:
        valid = np.asarray(valid, bool)
        if not valid.any():
            return np.full(features.shape[1:3], np.nan, np.float32)
    strength = np.full(features.shape[1:3], WEAK) if clip is None else patch_strength(clip)
    return motion_of(Change(tubelet_change(features, valid), strength), floor, valid)


def motion_of(change: Change, floor: NoiseFloor, valid: np.ndarray | None = None) -> np.ndarray:
    """Compute `motion_map` from a change of the features, made with the same `valid`."""
    _check(len(change.steps) + 1, floor)
    if valid is not None and not valid.any():
        return np.full(change.strength.shape, np.nan, np.float32)
    ratio = change.steps / floor.expected(change.strength)
    excess = np.sqrt(np.square(ratio).mean(axis=0)) - max(R_QUIET, 1.0 + 4.0 * floor.spread)
    motion = -np.expm1(-np.maximum(excess, 0.0) / R_SCALE)
    if valid is not None:
        motion[~valid] = np.nan
    return motion.astype(np.float32)


def motion_score(motion: np.ndarray, mask: np.ndarray | None = None) -> float:
    """Return how much of the view moves.

    `motion`: (Hp, Wp), see `motion_map`; `mask`: (Hp, Wp) bool region of interest; everything
    when omitted.
    """
    inside = np.isfinite(motion)
    if mask is not None:
        inside &= mask
    known = motion[inside]
    return float(known.mean()) if known.size else math.nan


def _check(tubelets: int, floor: NoiseFloor) -> None:
    if tubelets - 1 != floor.offset.size:
        raise ValueError(f'features of {tubelets} tubelets do not go with a noise floor '
                         f'of {floor.offset.size} transitions; measure it with the same clips')


def _read_only(mask: np.ndarray) -> np.ndarray:
    mask.flags.writeable = False    # all callers share it
    return mask


# -- learned heads --------------------------------------------------------------------------------

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
    total = len(sample.slots)
    if not 2 <= sample.distinct < total:
        return sample
    held = dict(zip(sample.stamps_ns, sample.slots, strict=True))
    stamps = sorted(held)
    hold = round(float(np.median(np.diff(stamps))) / NS * clip_fps)
    if hold < 2 or total % hold or len(stamps) < total // hold or total // hold < 2:
        return sample
    kept = [stamp for stamp in stamps[-(total // hold):] for _ in range(hold)]
    span_s = (kept[-1] - kept[0]) / NS
    distinct = total // hold
    return replace(sample, slots=tuple(held[stamp] for stamp in kept), stamps_ns=tuple(kept),
                   span_s=span_s, rate_hz=(distinct - 1) / span_s, distinct=distinct)


def range_problem(trained: BundleMeta, num_frames: int, image_size: int, resize_mode: str,
                  sample: Sample) -> str:
    """Return why heads are not valid for a clip: value, trained range, remedy."""
    for name, value in (('num_frames', num_frames), ('image_size', image_size),
                        ('resize_mode', resize_mode)):
        wanted = getattr(trained, name)
        if value != wanted and value not in trained.other_modes:
            return f'{name} is {value}, the heads were trained on {wanted}; set {name}: {wanted}'
    # A block-causal encoder is told when each frame was taken.
    return '' if trained.window else _rhythm_problem(trained, _rhythm(sample.stamps_ns))


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
    return _interval_problem(trained, rhythm.interval_s)


def _interval_problem(trained: BundleMeta, interval_s: float) -> str:
    shortest, longest = trained.interval_s
    if interval_s > longest * (1 + TOLERANCE):
        remedy = f'raise clip_fps to {1 / longest:.3g} or more'
    elif interval_s < shortest * (1 - TOLERANCE):
        remedy = f'lower clip_fps to {1 / shortest:.3g} or less'
    else:
        return ''
    return (f'frame interval is {interval_s:.3f} s, the heads were trained on '
            f'{shortest:.3f} to {longest:.3f} s; {remedy}')


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

    @property
    def median(self) -> float:
        """Return the value reached with a probability of one half; inf when none is."""
        return self.quantile(0.5)

    @cached_property
    def _logs(self) -> np.ndarray:
        return np.log(self.edges)


@lru_cache(CACHED)
def _scaled(edges: tuple[float, ...], unit: float) -> np.ndarray:
    return _read_only(np.asarray(edges) * unit)


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
    def time_to_contact(self) -> float:
        """Time by which contact is as likely as not [s]; inf when it never is."""
        return self.contact.quantile(0.5)

    @cached_property
    def free_way(self) -> float:
        """Way ahead that is free with a probability of 0.8 [m]; inf beyond 16 m, NaN unknown.

        Unknown where the newest frame shows no structure: a wall right ahead or a covered lens.
        """
        return self.clearance.quantile(BLOCKED) if self.sees else math.nan


def learned_field(heads: HeadArrays, interval: float, view: View,
                  shown: Shown) -> LearnedField:
    """Convert the outputs of the heads for a clip in which they are valid.

    `interval`: frame interval that they count in [s], see `HeadsUse.interval_s`.
    """
    rate = heads.expansion / interval
    sigma = heads.scale * (math.sqrt(2.0) / interval)   # of a Laplace distribution
    doubt = DOUBT_S[0] + DOUBT_S[1] * np.abs(rate)
    able = shown.inside & shown.saw     # to be told of without structure
    closing = able & (rate - SURELY * sigma > CLOSING_PER_S)
    known = (shown.seen & shown.sure) | closing
    confidence = known / (1.0 + (sigma / doubt) ** 2)
    moving = np.where(shown.seen | (able & (heads.moving >= SURELY_MOVES)), heads.moving, _NAN)
    return LearnedField(
        np.where(shown.inside, rate, _NAN), sigma, confidence, moving, heads.course,
        Distribution.of(CONTACT_EDGES, heads.contact, interval),
        Distribution.of(CLEARANCE_EDGES, heads.clearance), view, shown.sees, shown.saw)


class HeadsUse:
    """The learned heads as one camera may use them. Each kind of problem is logged once.

    Parameters
    ----------
    camera
        Its name, for log lines.
    meta
        Training range of the heads; None without heads.
    config
        Shape of the camera's clips.

    Attributes
    ----------
    timed
        Whether the model is told when each frame was taken, or there are no heads.
    """

    def __init__(self, camera: str, meta: BundleMeta | None, config: TrackConfig) -> None:
        self.camera = camera
        self.meta = meta
        self.config = config
        self.timed = meta is None or meta.window > 0
        self._checked: tuple[Sample | None, str] = (None, '')
        self._logged: set[str] = set()

    def problem(self, sample: Sample) -> str:
        """Return why the heads are not valid for a clip; '' when they are, or there are none."""
        if self.meta is None:
            return ''
        if self._checked[0] is not sample:
            problem = range_problem(self.meta, self.config.num_frames, self.config.image_size,
                                    self.config.resize_mode, sample)
            if not problem and self.timed:
                problem = _interval_problem(self.meta, 1 / self.config.clip_fps)
            if problem:
                self._warn(problem.partition(' is ')[0], 'the learned heads are not valid, '
                           f'geometry is used instead: {problem}')
            self._checked = sample, problem
        return self._checked[1]

    def interval_s(self, sample: Sample) -> float:
        """Return the frame interval that the heads count in [s]."""
        if self.meta is not None and self.timed:
            return 1 / self.config.clip_fps
        return _rhythm(sample.stamps_ns).interval_s

    def wanted(self, sample: Sample, wants: Wants, settings: Settings) -> bool:
        """Return whether the heads are valid for a clip and somebody uses them."""
        geometric = settings.looming_method == 'geometric'
        if settings.looming_method == 'learned' and self.meta is None:
            self._warn('none', "looming_method is 'learned', but no heads are loaded: geometry is "
                       'used; set `weights` to a file with heads, or set `heads`')
        if self.meta is None or self.problem(sample):
            return False
        return wants.features or wants.moving or (wants.looming and not geometric)

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning('%s: %s', self.camera, text)

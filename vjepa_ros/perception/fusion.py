# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge one clip by geometric looming and learned heads, so that each guards the other.

All functions are pure.

The rule (`looming.method: fused`), cell by cell and then for the whole view:

1. Looming: where both know, their mean weighted by 1 / sigma^2 (no sigma counts as less than
   0.01 /s + 5 %); where one knows, that one; else unknown.
2. On course: the mean of the geometric weight (by how the surface moves away from its own focus
   of expansion) and the learned weight, where both know; else that of the one that knows. The
   learned weight is 0 up to a probability of 0.3 and 1 from 0.6 on: many cells that are
   hardly on course are no danger together.
3. The clip head gives the time by which contact is as likely as not. Where that is less than the
   time to contact of the learned field, it counts instead: what is in the way is met before the
   camera is where it stands. This is the time to contact.
4. Where a crop has cut the view of the heads, geometry counts by itself.
5. Geometry and heads disagree when, both being sure (confidence 0.5), they differ by more than
   three combined sigma and by more than ``looming_threshold`` on a tenth of what both are sure of
   (six cells at least), or when their times to contact differ by more than a factor of two and
   one is below ``thresholds.caution_ttc``.

`learned` takes the heads alone, `geometric` the geometry alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.collision import (
    CourseField,
    SourceVerdict,
    UNKNOWN,
    alike,
    course_weights,
    in_roi,
    judge_fields,
    known_cells,
    stacked,
)
from vjepa_ros.perception.danger import (
    APART_TIME,
    Contact,
    LIKELY,
    ON_COURSE,
    believed_rate,
    clip_counts,
    contact_probability,
    contact_within,
    probability_when_unobserved,
    times_disagree,
)
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Region, Threat

CELL_PX = 16                  # of the grid where there is no geometric field, px of the grey image
LEAST_SIGMA = (0.01, 0.05)    # 1/s, and part of the rate: no source counts as better than this
WHOLE = 0.999                 # part of a picture from which heads count as seeing all of it
SURE = 0.5                    # confidence from which a source can disagree
APART_SIGMA = 3.0             # combined standard errors between cells that disagree
APART_AREA, APART_CELLS = 0.1, 6
ROUNDING = 1e-5               # between rates of the same cells, joined with nothing or not
_F32 = np.float32
_ZERO = _F32(0)
# Rate, confidence, sigma and course of cells that the heads do not see.
_OUTSIDE = np.array((math.nan, 0.0, math.inf, 0.0), _F32)[:, None, None]


@dataclass(frozen=True)
class Judgement:
    """What is known about contact from one clip."""

    method: str  # what it comes from: 'geometric', 'learned' or 'fused'
    field: LoomingField | None  # looming on its cells, None when unknown
    threat: Threat  # what is on course
    # Of contact within ``collision_horizon``, NaN unknown; None without heads, when it follows
    # from the smoothed looming rate
    probability: float | None = None
    disagrees: bool = False  # whether geometry and heads contradict each other
    # Looming rate on course that the level follows, 1/s; None where that is the one of `threat`
    believed: float | None = None
    # What the heads alone say, where only geometry, which compares two pictures, sees what
    # `threat` says; else None
    by_heads: Contact | None = None
    obstacle_score: float = math.nan  # how much comes nearer within the horizon, 0..1
    regions: tuple[Region, ...] = ()  # what comes nearer, most urgent first


class Sources(NamedTuple):
    """What geometry and heads have measured of one camera."""

    geometric: LoomingField | None  # of the newest frame; None when unknown or not wanted
    learned: LearnedField | None  # heads of the clip; None when there are none, or not valid
    size: tuple[int, int]  # width and height of the source image [px]
    grey_size: tuple[int, int]  # and of the grey image of the looming estimate [px]
    optics: Optics  # of the source image


class _Clip:
    """A clip of one camera while it is judged with those of others."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.fields: dict[str, CourseField] = {}    # to be judged alone, by where they come from
        self.disagree = False       # whether geometry and heads do


def judge(cameras: Sequence[Sources], settings: Settings) -> list[Judgement]:
    """Judge clips by ``settings.looming_method`` where there are valid heads, all at once."""
    clips = [*map(_Clip, cameras)]
    _lay_out_geometry(clips, settings)
    if settings.looming_method != 'geometric':
        for clip in clips:
            of = clip.sources
            if of.learned is not None:
                clip.fields['heads'] = on_cells(of.learned, of.geometric, of.size, of.grey_size)
    if settings.looming_method == 'fused':
        _join([clip for clip in clips if len(clip.fields) == 2], settings)
    verdicts = iter(judge_fields([(field, clip.sources.size, clip.sources.optics)
                                  for clip in clips for field in clip.fields.values()], settings))
    return [_judged(clip.sources, dict(zip(clip.fields, verdicts, strict=False)), clip.disagree,
                    settings) for clip in clips]


def _lay_out_geometry(clips: Sequence[_Clip], settings: Settings) -> None:
    """Add the fields of geometry with what is on course in them."""
    given = [(clip, field) for clip in clips if (field := clip.sources.geometric) is not None]
    for group in alike(given, [(field.rate.shape, field.cell_px) for _, field in given]):
        courses = course_weights([(field, clip.sources.optics.fx / clip.sources.size[0])
                                  for clip, field in group], settings)
        for (clip, field), course in zip(group, courses, strict=True):
            clip.fields['geometry'] = CourseField(**vars(field), course=course)


def _join(clips: Sequence[_Clip], settings: Settings) -> None:
    """Add what geometry and heads say together, and whether they contradict each other."""
    for group in alike(clips, [clip.fields['geometry'].rate.shape for clip in clips]):
        pairs = FieldPairs([clip.fields['geometry'] for clip in group],
                           [clip.fields['heads'] for clip in group])
        for clip, both, disagree in zip(group, pairs.fuse(settings.min_confidence),
                                        pairs.disagree(settings).tolist(), strict=True):
            clip.fields['both'], clip.disagree = both, disagree
            heads, geometry = clip.sources.learned, clip.fields['geometry']
            # Point 4: what geometry sees where a crop has cut the view.
            if heads is not None and heads.view.coverage < WHOLE:
                inside, *_ = _patches(
                    geometry.centers.astype(np.float32, copy=False).tobytes(),
                    geometry.rate.shape, clip.sources.size, geometry.gray_size, heads.view)
                clip.fields['aside'] = replace(
                    geometry, confidence=np.where(inside, _ZERO, geometry.confidence))


def _judged(one: Sources, verdicts: Mapping[str, SourceVerdict], disagree: bool,
            settings: Settings) -> Judgement:
    """Judge one clip by what its sources say alone."""
    geometry, learned = verdicts.get('geometry'), one.learned
    if learned is None or 'heads' not in verdicts:
        if geometry is None:
            return Judgement('geometric', None, UNKNOWN)
        return Judgement('geometric', one.geometric, geometry.threat,
                         obstacle_score=geometry.obstacle_score(), regions=geometry.regions())
    by_heads = both = _with_clip(verdicts['heads'], one, verdicts['heads'].cells, settings)
    alone, by_geometry = by_heads.threat, UNKNOWN
    if geometry is not None and 'both' in verdicts:
        by_geometry, both = geometry.threat, verdicts['both']
        if not math.isnan(alone.course_rate):
            both = _with_clip(both, one, by_heads.cells, settings)
        disagree |= times_disagree(by_geometry, alone, settings)
    threat, aside = both.threat, verdicts.get('aside')
    beside = UNKNOWN if aside is None else aside.threat
    believed = believed_rate((threat, by_geometry, alone), learned, by_geometry, settings)
    if not math.isnan(beside.course_rate):
        believed = max(beside.course_rate, believed)     # of a number and NaN, the first
    least, reported = believed * (1 - ROUNDING), both
    if not math.isnan(believed) and not threat.course_rate >= least:
        # One source alone raises this: report it no later than the level does.
        faster = [each for each in (aside, geometry)
                  if each is not None and each.threat.course_rate >= least]
        reported = faster[0] if faster else by_heads
        threat = replace(reported.threat, course_rate=believed,
                         observed_fraction=threat.observed_fraction)
    regions = reported.regions()
    if not regions and reported is not both:
        regions = both.regions()
    by_heads_alone = None
    if threat.course_rate > APART_TIME * alone.course_rate:     # false with NaN
        by_heads_alone = Contact(alone.course_rate, alone.course_rate, contact_within(
            settings.collision_horizon, learned, UNKNOWN))
    return Judgement(settings.looming_method, both.cells, threat,
                     _probability(believed, beside, by_geometry, learned, settings), disagree,
                     believed, by_heads_alone, reported.obstacle_score(), regions)


def _probability(believed: float, aside: Threat, by_geometry: Threat, learned: LearnedField,
                 settings: Settings) -> float:
    """Return the probability of contact within ``collision_horizon``; NaN where it is not told."""
    horizon = settings.collision_horizon
    probability = contact_within(horizon, learned, by_geometry)
    if not math.isnan(aside.course_rate):
        probability = max(contact_probability(aside.course_rate, horizon), probability)
    if math.isnan(believed):
        return probability_when_unobserved(probability, learned, settings)
    return probability


def without_sight(found: Judgement, learned: LearnedField | None,
                  settings: Settings) -> Judgement | None:
    """Return what is left of a judgement where the middle of the view shows nothing.

    None where something comes, which counts however little is seen. That nothing comes is not
    told: what is met comes from the middle.
    """
    threat, believed, probability = found.threat, found.believed, found.probability
    rates = threat.course_rate, 0.0 if believed is None else believed
    likely = probability is not None and probability >= LIKELY
    if likely or any(rate * settings.caution_ttc > 1.0 for rate in rates):    # false with NaN
        return None
    if probability is not None and learned is not None:
        probability = probability_when_unobserved(probability, learned, settings)
    return replace(
        found, probability=probability, believed=None if believed is None else math.nan,
        threat=replace(threat, course_rate=math.nan, bearing=math.nan, elevation=math.nan))


def on_cells(learned: LearnedField, like: LoomingField | None, size: tuple[int, int],
             gray_size: tuple[int, int]) -> CourseField:
    """Return what the heads say on the cells of a geometric field, or of a grid of the same kind.

    Each cell takes the patch that its centre lies in; outside the view it is unknown.
    """
    if like is None:
        centers, cell = _grid(gray_size), float(CELL_PX)
    else:
        centers, cell, gray_size = like.centers, like.cell_px, like.gray_size
    inside, patches, everywhere = _patches(
        centers.astype(np.float32, copy=False).tobytes(), centers.shape[:2], size, gray_size,
        learned.view)
    maps = np.array((learned.rate, learned.confidence, learned.sigma, learned.course), _F32)
    maps = maps.reshape(len(maps), -1).take(patches, axis=1)
    low, high = ON_COURSE
    maps[3] = np.minimum(np.maximum((maps[3] - _F32(low)) / _F32(high - low), _ZERO), _F32(1))
    if not everywhere:
        maps = np.where(inside, maps, _OUTSIDE)
    rate, confidence, sigma, course = maps
    return CourseField(rate, confidence, sigma, np.zeros(centers.shape, _F32), centers,
                       np.zeros(3, _F32), None, math.nan, cell, gray_size, course)


@lru_cache(8)       # grids of all cameras
def _patches(centers: bytes, shape: tuple[int, ...], size: tuple[int, int],
             gray_size: tuple[int, int], view: View) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return whether cells lie in the view, and the number of a patch of it, both (Hc, Wc).

    And whether all lie in it.
    """
    points = (np.frombuffer(centers, np.float32).reshape(*shape, 2) + 0.5) * (
        np.array(size) / gray_size) - 0.5
    place = np.floor((view.from_source(points) + 0.5) / view.patch).astype(int)
    rows, cols = view.patch_valid.shape
    inside = np.asarray(((place >= 0) & (place < (cols, rows))).all(axis=-1))
    patches = place[..., 1].clip(0, rows - 1) * cols + place[..., 0].clip(0, cols - 1)
    return inside, patches, bool(inside.all())


class FieldPairs:
    """Fields of geometry and heads on the same cells, of N cameras."""

    def __init__(self, geometry: Sequence[CourseField], heads: Sequence[CourseField]) -> None:
        self._like = geometry
        both = np.array([*stacked([*geometry, *heads], 'rate', 'sigma', 'course', 'confidence')])
        self._both = both.reshape(len(both), 2, len(geometry), *both.shape[2:])
        self._rate, self._sigma, self._course, self._confidence = self._both    # (2, N, Hc, Wc)
        # Of a number and NaN, fmax takes the number.
        least = np.fmax(np.abs(self._rate), _ZERO)
        least *= _F32(LEAST_SIGMA[1])
        least += _F32(LEAST_SIGMA[0])
        self._variance = np.maximum(self._sigma, least)     # no source counts as better
        self._variance *= self._variance

    def fuse(self, min_confidence: float) -> list[CourseField]:
        """Combine both on their cells: points 1 and 2 of the rule."""
        known = np.isfinite(self._rate)
        known &= self._confidence >= min_confidence
        knows = known.astype(np.float32)
        weights = knows / self._variance
        whole = weights[0] + weights[1]
        weights *= np.where(known, self._rate, _ZERO)        # 0 times NaN is NaN
        any_known = whole > 0
        # Where neither knows, keep the less uncertain one with its low confidence.
        first = self._confidence[0] >= self._confidence[1]
        rate, sigma, course = np.where(first, self._both[:3, 0], self._both[:3, 1])
        np.divide(weights[0] + weights[1], whole, out=rate, where=any_known)
        np.divide(1.0, np.sqrt(whole), out=sigma, where=any_known)
        shares = knows * self._course
        np.divide(shares[0] + shares[1], knows[0] + knows[1], out=course, where=any_known)
        fused = zip(self._like, rate, np.maximum(*self._confidence), sigma, course, strict=True)
        return [replace(like, rate=rate, confidence=confidence, sigma=sigma, course=course)
                for like, rate, confidence, sigma, course in fused]

    def disagree(self, settings: Settings) -> np.ndarray:
        """Return whether both are sure of contradicting rates on a part of the roi: point 5.

        (N,) bool.
        """
        apart = np.abs(self._rate[0] - self._rate[1])     # NaN where either is unknown
        sure = np.minimum(*self._confidence) >= SURE
        sure &= np.isfinite(apart)
        sure &= np.array([in_roi(like, settings)[0] for like in self._like])
        limit = APART_SIGMA * np.sqrt(self._variance[0] + self._variance[1])
        against = sure & (apart > np.maximum(limit, settings.looming_threshold))
        least = np.maximum(APART_CELLS, APART_AREA * np.count_nonzero(sure, (1, 2)))
        return np.count_nonzero(against, (1, 2)) >= least


def _with_clip(verdict: SourceVerdict, one: Sources, field: CourseField,
               settings: Settings) -> SourceVerdict:
    """Apply point 3 of the rule."""
    threat, learned = verdict.threat, one.learned
    if learned is None or not clip_counts(learned.time_to_contact, threat.course_rate):
        return verdict
    bearing, elevation = threat.bearing, threat.elevation
    if math.isnan(bearing):
        # The danger has no place of its own: point at what is most probably on course.
        likely = np.where(known_cells(field, settings.min_confidence), field.course, 0.0)
        x, y = (field.centers.reshape(-1, 2)[int(np.argmax(likely))]
                * one.size[0] / field.gray_size[0])
        bearing, elevation = one.optics.direction(float(x), float(y))
    return replace(verdict, threat=replace(
        threat, course_rate=1.0 / learned.time_to_contact, bearing=bearing, elevation=elevation))


def _grid(gray_size: tuple[int, int]) -> np.ndarray:
    """Return centres (Hc, Wc, 2) of cells in the middle of a grey image, at least one."""
    axes = []
    for length in gray_size:
        count = max(1, length // CELL_PX)
        axes.append((length - count * CELL_PX) / 2 + (np.arange(count) + 0.5) * CELL_PX - 0.5)
    return np.stack(np.meshgrid(*axes), -1).astype(np.float32)

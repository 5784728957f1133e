# SPDX-License-Identifier: Apache-2.0
"""Combine geometric looming with what the learned heads say, so that each guards the other.

The rule (`looming.method: fused`), cell by cell and then for the whole view:

1. Looming: where both know, their mean weighted by 1 / sigma^2 (no sigma counts as less than
   0.01 /s + 5 %); where one knows, that one; else unknown.
2. On course: the mean of the geometric weight (by how the surface moves away from its own focus
   of expansion) and the learned probability, where both know; else that of the one that knows.
3. The clip head tells by when contact is as likely as not. Where that is less than half the time
   to contact of the learned field, it counts instead.
4. Geometry and heads disagree when, both being sure (confidence 0.5), they differ by more than
   three combined sigma and by more than ``thresholds.looming`` on a tenth of what both are sure of
   (six cells at least), or when their times to contact differ by more than a factor of two and
   one is below ``thresholds.caution_ttc``. Then the flag `disagreement` is set and the most
   urgent of geometry, heads and their combination decides time to contact and level. So within
   a factor of two the weighted mean stands, beyond it the shorter time: the heads can raise a
   level, but can not take away a danger that geometry sees.
5. Collision probability: mean of the log odds of the calibrated hazard (weight 1) and of the
   geometric probability (weight 0.5, less where geometry knows under half of the region of
   interest); one alone where only one knows. That is contact as things move now. The heads also
   tell how far the way ahead is free: the probability that it is shorter than what the robot
   would cover within the horizon at ``approach_speed`` counts where it is larger. It never
   raises a level: a robot that stands before a wall is in no danger.

`learned` takes the heads alone, `geometric` the geometry alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from vjepa_ros.perception.collision import (
    UNKNOWN,
    Optics,
    Threat,
    contact_probability,
    course_weight,
    find_threats,
)
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.looming import LoomingField
from vjepa_ros.perception.settings import Settings

CELL_PX = 16                  # of the grid where there is no geometric field, px of the grey image
LEAST_SIGMA = (0.01, 0.05)    # 1/s, and part of the rate: no source counts as better than this
SURE = 0.5                    # confidence from which a source can disagree
APART_SIGMA = 3.0             # combined standard errors between cells that disagree
APART_AREA, APART_CELLS = 0.1, 6
APART_TIME = 2.0              # factor between times to contact that disagree
GEOMETRY_WEIGHT = 0.5         # of the geometric log odds, relative to those of the heads
KNOWN_WELL = 0.5              # known part of the region of interest that gives the full weight
MOST_LOG_ODDS = 5.0           # no source is surer than 0.9933


@dataclass(frozen=True)
class CourseField(LoomingField):
    """A looming field that also tells what is on course.

    Attributes
    ----------
    course : (Hc, Wc) float32, 0 to 1, how far a cell is on collision course
    """

    course: np.ndarray


@dataclass(frozen=True)
class Judgement:
    """What is known about contact from one clip.

    Attributes
    ----------
    method
        What it comes from: 'geometric', 'learned' or 'fused'.
    field
        Looming on its cells, None when unknown.
    threat
        What is on course.
    probability
        Of contact within ``collision_horizon``, NaN unknown; None without heads, when it follows
        from the smoothed looming rate.
    disagrees
        Whether geometry and heads contradict each other.
    """

    method: str
    field: LoomingField | None
    threat: Threat
    probability: float | None = None
    disagrees: bool = False


def judge(geometric: LoomingField | None, learned: LearnedField | None, size: tuple[int, int],
          gray_size: tuple[int, int], optics: Optics, settings: Settings) -> Judgement:
    """Judge one clip by ``settings.looming_method``, as far as there are heads that hold.

    Parameters
    ----------
    geometric
        Geometric looming of the newest frame; None when unknown or not wanted.
    learned
        What the heads say; None when there are none or they do not hold.
    size, gray_size
        Width and height of the source image and of the grey image of the looming estimate [px].
    optics
        Intrinsics of the source image.
    settings
        Live settings.
    """
    if learned is None or settings.looming_method == 'geometric':
        threat = find_threats(geometric, size, optics, settings)
        return Judgement('geometric', geometric, threat)
    heads = on_cells(learned, geometric, size, gray_size)
    by_heads = _with_clip(_threat(heads, size, optics, settings), learned, heads, size, optics,
                          settings)
    if settings.looming_method == 'learned' or geometric is None:
        return Judgement(settings.looming_method, heads, by_heads,
                         collision_probability(learned, by_heads, UNKNOWN, settings))
    focal = optics.fx * geometric.gray_size[0] / size[0]
    geometry = CourseField(**_values(geometric), course=course_weight(
        geometric, np.nan_to_num(geometric.rate), focal, settings))
    by_geometry = find_threats(geometric, size, optics, settings)
    field = fuse(geometry, heads, settings.min_confidence)
    threat = _threat(field, size, optics, settings)
    if not math.isnan(by_heads.course_rate):
        threat = _with_clip(threat, learned, heads, size, optics, settings)
    disagrees = (fields_disagree(geometry, heads, settings)
                 or times_disagree(by_geometry, by_heads, settings))
    if disagrees:
        threat = _most_urgent(threat, by_geometry, by_heads)
    return Judgement('fused', field, threat,
                     collision_probability(learned, by_heads, by_geometry, settings), disagrees)


def on_cells(learned: LearnedField, like: LoomingField | None, size: tuple[int, int],
             gray_size: tuple[int, int]) -> CourseField:
    """What the heads say, on the cells of a geometric field or of a grid of the same kind.

    Each cell takes the patch that its centre lies in; outside the view it is unknown.
    """
    if like is None:
        centers, cell = _grid(gray_size), float(CELL_PX)
    else:
        centers, cell, gray_size = like.centers, like.cell_px, like.gray_size
    points = (centers + 0.5) * (np.array(size) / gray_size) - 0.5
    place = np.floor((learned.view.from_source(points) + 0.5) / learned.view.patch).astype(int)
    rows, cols = learned.rate.shape
    inside = ((place >= 0) & (place < (cols, rows))).all(axis=-1)
    x, y = np.clip(place[..., 0], 0, cols - 1), np.clip(place[..., 1], 0, rows - 1)
    f32 = np.float32
    return CourseField(
        np.where(inside, learned.rate[y, x], f32(np.nan)),
        np.where(inside, learned.confidence[y, x], f32(0)),
        np.where(inside, learned.sigma[y, x], f32(np.inf)),
        np.zeros(centers.shape, f32), centers, np.zeros(3, f32), None,
        math.nan, cell, gray_size, np.where(inside, learned.course[y, x], f32(0)))


def fuse(geometry: CourseField, heads: CourseField, min_confidence: float) -> CourseField:
    """Points 1 and 2 of the rule, on the cells of both."""
    pair = (geometry, heads)
    known = [_known(field, min_confidence) for field in pair]
    weight = [np.where(k, 1.0 / _floored(f) ** 2, 0.0) for k, f in zip(known, pair, strict=True)]
    any_known, total = known[0] | known[1], weight[0] + weight[1]
    # Where none knows, what is least unknown is kept with its low confidence.
    first = geometry.confidence >= heads.confidence

    def mean(name: str, shares: list[np.ndarray], whole: np.ndarray) -> np.ndarray:
        values = [getattr(field, name) for field in pair]
        mixed = sum(np.where(share > 0, share * value, 0.0)
                    for share, value in zip(shares, values, strict=True))
        return np.where(any_known, mixed / np.where(whole > 0, whole, 1.0),
                        np.where(first, *values)).astype(np.float32)

    with np.errstate(divide='ignore'):
        sigma = np.where(any_known, 1.0 / np.sqrt(total), np.where(first, geometry.sigma,
                                                                  heads.sigma))
    confidence = np.maximum(geometry.confidence, heads.confidence)
    even = [k.astype(float) for k in known]
    return replace(geometry, rate=mean('rate', weight, total), sigma=sigma.astype(np.float32),
                   confidence=confidence.astype(np.float32),
                   course=mean('course', even, even[0] + even[1]))


def fields_disagree(geometry: CourseField, heads: CourseField, settings: Settings) -> bool:
    """Whether both are sure of contradicting rates on a part of the region of interest."""
    width, height = geometry.gray_size
    x, y = ((geometry.centers[..., 0] + 0.5) / width, (geometry.centers[..., 1] + 0.5) / height)
    left, top, right, bottom = settings.roi
    sure = (_known(geometry, SURE) & _known(heads, SURE)
            & (x >= left) & (x <= right) & (y >= top) & (y <= bottom))
    apart = np.abs(geometry.rate - heads.rate)
    limit = APART_SIGMA * np.hypot(_floored(geometry), _floored(heads))
    against = sure & (apart > limit) & (apart > settings.looming_threshold)
    return int(against.sum()) >= max(APART_CELLS, APART_AREA * int(sure.sum()))


def times_disagree(first: Threat, second: Threat, settings: Settings) -> bool:
    """Whether times to contact differ by more than a factor, one of them being short."""
    low, high = sorted((first.course_rate, second.course_rate))
    return high > APART_TIME * low and high > 1.0 / settings.caution_ttc   # false with NaN


def collision_probability(learned: LearnedField, by_heads: Threat, by_geometry: Threat,
                          settings: Settings) -> float:
    """Point 5 of the rule; NaN when neither knows."""
    horizon = settings.collision_horizon
    geometric = contact_probability(by_geometry.course_rate, horizon)
    if math.isnan(by_heads.course_rate):
        return geometric
    ahead = learned.clearance.below(settings.approach_speed * horizon)
    return max(ahead, _pooled(learned.hazard(horizon), geometric, by_geometry.known_fraction))


def _pooled(hazard: float, geometric: float, known_fraction: float) -> float:
    if math.isnan(geometric):
        return hazard
    weight = GEOMETRY_WEIGHT * min(1.0, known_fraction / KNOWN_WELL)
    odds = (_log_odds(hazard) + weight * _log_odds(geometric)) / (1.0 + weight)
    return 1.0 / (1.0 + math.exp(-odds))


def _log_odds(probability: float) -> float:
    if not 0.0 < probability < 1.0:
        return math.copysign(MOST_LOG_ODDS, probability - 0.5)
    odds = math.log(probability / (1.0 - probability))
    return min(MOST_LOG_ODDS, max(-MOST_LOG_ODDS, odds))


def _threat(field: CourseField, size: tuple[int, int], optics: Optics,
            settings: Settings) -> Threat:
    return find_threats(field, size, optics, settings, field.course)


def _with_clip(threat: Threat, learned: LearnedField, field: CourseField, size: tuple[int, int],
               optics: Optics, settings: Settings) -> Threat:
    """Point 3 of the rule; where the dense heads know nothing, the clip head has no say."""
    if math.isnan(threat.course_rate):
        return threat
    rate = 1.0 / learned.time_to_contact
    if rate <= APART_TIME * threat.course_rate:
        return threat
    bearing, elevation = threat.bearing, threat.elevation
    if math.isnan(bearing):
        # The danger has no place of its own: point at what is most probably on course.
        likely = np.where(_known(field, settings.min_confidence), field.course, 0.0)
        x, y = field.centers.reshape(-1, 2)[int(np.argmax(likely))] * size[0] / field.gray_size[0]
        bearing, elevation = optics.bearing(float(x)), optics.elevation(float(y))
    return replace(threat, course_rate=rate, bearing=bearing, elevation=elevation)


def _most_urgent(combined: Threat, *others: Threat) -> Threat:
    """The most urgent threat, with what the combination knows of the view."""
    known = [t for t in (combined, *others) if not math.isnan(t.course_rate)]
    worst = max(known, key=lambda t: t.course_rate, default=UNKNOWN)
    return replace(worst, known_fraction=combined.known_fraction,
                   regions=worst.regions or combined.regions,
                   obstacle_score=max((t.obstacle_score for t in known), default=math.nan))


def _known(field: LoomingField, confidence: float) -> np.ndarray:
    return np.isfinite(field.rate) & (field.confidence >= confidence)


def _floored(field: LoomingField) -> np.ndarray:
    """Standard errors [1/s] as far as they are believed."""
    return np.maximum(field.sigma, LEAST_SIGMA[0] + LEAST_SIGMA[1] * np.abs(
        np.nan_to_num(field.rate)))


def _values(field: LoomingField) -> dict[str, object]:
    return {f.name: getattr(field, f.name) for f in fields(LoomingField)}


def _grid(gray_size: tuple[int, int]) -> np.ndarray:
    """Centres (Hc, Wc, 2) of cells in the middle of a grey image, at least one."""
    axes = []
    for length in gray_size:
        count = max(1, length // CELL_PX)
        axes.append((length - count * CELL_PX) / 2 + (np.arange(count) + 0.5) * CELL_PX - 0.5)
    return np.stack(np.meshgrid(*axes), -1).astype(np.float32)

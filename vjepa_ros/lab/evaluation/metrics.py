# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how well scores and estimates agree with the truth, of clips and of recordings.

Arrays have equal length and any shape (read flat). A score of NaN is unknown and ranks lowest. A
figure that cannot be computed, such as the area under a curve of one class, is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vjepa_ros.lab.report.measurement import json_safe

HORIZONS_S = (0.5, 1.0, 1.5, 2.0, 3.0)
FALSE_ALARM_RATE = 0.05   # of what is without contact, for the time to collision
STILL_PER_S = 0.002       # a surface with less looming [1/s] counts as not closing
MOST_RELATIVE_ERROR = 10.0   # an estimate of infinity against a finite truth counts as this
TURNING_DEG_S = 30, 60    # bounds of the classes of how fast a camera turns [degrees/s]
WARNING, UNKNOWN = 2, 255   # levels as published; UNKNOWN is not an alarm
LONGEST_STEP = 3.0          # longest gap between frames that counts, in usual gaps


def ranked(scores: ArrayLike, positive: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return scores with NaN as -inf, and labels as bool, both flat."""
    score = np.asarray(scores, float).ravel()
    label = np.asarray(positive).ravel().astype(bool)
    return np.where(np.isnan(score), -np.inf, score), label


def roc_auc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Compute the area under the ROC curve: P(positive > negative), a tie counts half."""
    score, label = ranked(scores, positive)
    n_positive = int(label.sum())
    n_negative = label.size - n_positive
    if not n_positive or not n_negative:
        return math.nan
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank = (last - 0.5 * (counts - 1))[inverse]      # mean rank of equal scores, from 1
    above = rank[label].sum() - n_positive * (n_positive + 1) / 2
    return float(above / (n_positive * n_negative))


def operating_points(scores: ArrayLike, positive: ArrayLike
                     ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count alarms on both classes for every threshold."""
    score, label = ranked(scores, positive)
    values, inverse = np.unique(score, return_inverse=True)
    hits = np.bincount(inverse, label, values.size)[::-1]
    falls = np.bincount(inverse, ~label, values.size)[::-1]
    return (np.append(np.inf, values[::-1]), np.append(0.0, np.cumsum(falls)),
            np.append(0.0, np.cumsum(hits)))


def average_precision(scores: ArrayLike, positive: ArrayLike) -> float:
    _, falls, hits = operating_points(scores, positive)
    if not hits[-1]:
        return math.nan
    precision = hits[1:] / (hits[1:] + falls[1:])
    return float((np.diff(hits) * precision).sum() / hits[-1])


def threshold_at(scores: ArrayLike, positive: ArrayLike,
                 false_alarm_rate: float = FALSE_ALARM_RATE) -> float:
    """Return the lowest score that alarms with at most this share of false alarms; inf if none."""
    thresholds, falls, _ = operating_points(scores, positive)
    if not falls[-1]:
        return math.nan
    allowed = thresholds[falls <= false_alarm_rate * falls[-1] + 1e-9]
    allowed = allowed[np.isfinite(allowed)]
    return float(allowed.min()) if allowed.size else math.inf


@dataclass(frozen=True)
class Reliability:
    predicted: np.ndarray  # mean probability in each bin, NaN in an empty one
    observed: np.ndarray  # part of positives in it
    count: np.ndarray  # predictions in it

    @property
    def error(self) -> float:
        """Return the expected calibration error: mean distance of both, weighted by count."""
        filled = self.count > 0
        if not filled.any():
            return math.nan
        gap = np.abs(self.predicted[filled] - self.observed[filled])
        return float((self.count[filled] * gap).sum() / self.count.sum())


def reliability(probability: ArrayLike, positive: ArrayLike, bins: int = 15) -> Reliability:
    p = np.asarray(probability, float).ravel()
    known = ~np.isnan(p)
    p, label = p[known], np.asarray(positive).ravel().astype(bool)[known]
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins).astype(float)
    with np.errstate(invalid='ignore'):
        return Reliability(np.bincount(place, p, bins) / count,
                           np.bincount(place, label, bins) / count, count)


def expected_calibration_error(probability: ArrayLike, positive: ArrayLike) -> float:
    return reliability(probability, positive).error


def r2(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the share of the variance that the estimate explains; NaN is left out."""
    estimate, truth = (np.asarray(values, float).ravel() for values in (estimate, truth))
    known = ~np.isnan(estimate) & ~np.isnan(truth)
    estimate, truth = estimate[known], truth[known]
    if truth.size < 2:
        return math.nan
    spread = float(np.square(truth - truth.mean()).sum())
    return 1.0 - float(np.square(estimate - truth).sum()) / spread if spread > 0 else math.nan


def mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else math.nan


def median_relative_error(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the median of ``|estimate - truth| / truth`` over finite, positive truths."""
    estimate, truth = (np.asarray(values, float).ravel() for values in (estimate, truth))
    judged = np.isfinite(truth) & (truth > 0) & ~np.isnan(estimate)
    if not judged.any():
        return math.nan
    error = np.abs(estimate[judged] - truth[judged]) / truth[judged]
    return float(np.median(np.minimum(error, MOST_RELATIVE_ERROR)))


# -- single clips with exact truth, such as rendered ones -----------------------------------------

@dataclass(frozen=True)
class ClipTruth:
    """Truth at the newest frame of each of N clips; NaN patches are not judged."""

    contact_time: np.ndarray  # (N,) time until something enters the robot's volume [s], inf never
    interval_s: np.ndarray  # (N,) time between the frames of the clip [s]
    looming: np.ndarray  # (N, Hp, Wp) closing speed over distance [1/s]
    moving: np.ndarray  # (N, Hp, Wp) 1 where the surface moves by itself, 0 where not


@dataclass(frozen=True)
class ClipOutcome:
    """What was said of each of N clips; NaN is unknown, None is missing."""

    hazard: np.ndarray  # (N, 5) probability of contact within each of `HORIZONS_S`
    time_to_contact: np.ndarray | None = None  # (N,) [s], inf for none
    # looming, moving: (N, Hp, Wp) in the units of the truth; `moving` may be any score
    looming: np.ndarray | None = None
    moving: np.ndarray | None = None


def joined(parts: list[Any]) -> Any:
    """Join truths or outcomes; what the first lacks is missing."""
    first = parts[0]
    return replace(first, **{
        f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(first)
        if getattr(first, f.name) is not None})


def clip_figures(truth: ClipTruth, outcome: ClipOutcome) -> dict[str, Any]:
    hazard = np.asarray(outcome.hazard, float)
    happened = truth.contact_time[:, None] <= np.array(HORIZONS_S)
    names = [f'{seconds:g}' for seconds in HORIZONS_S]
    columns = list(zip(names, hazard.T, happened.T, strict=True))
    near = truth.contact_time <= HORIZONS_S[-1]
    judged = ~np.isnan(truth.moving)
    return json_safe({
        'clips': int(truth.contact_time.size),
        'collision_auc': {k: roc_auc(p, y) for k, p, y in columns},
        'average_precision': {k: average_precision(p, y) for k, p, y in columns},
        'expected_calibration_error': expected_calibration_error(hazard, happened),
        'expected_calibration_error_by_horizon': {
            k: expected_calibration_error(p, y) for k, p, y in columns},
        **_looming(truth, outcome.looming),
        'moving_auc': None if outcome.moving is None else roc_auc(
            outcome.moving[judged], truth.moving[judged] > 0.5),
        'ttc_median_relative_error': None if outcome.time_to_contact is None else
        median_relative_error(outcome.time_to_contact[near], truth.contact_time[near]),
        'mean_time_to_collision_s': _time_to_collision(truth.contact_time, hazard[:, -1],
                                                       happened[:, -1])})


def _looming(truth: ClipTruth, looming: np.ndarray | None) -> dict[str, float | None]:
    names = ('looming_r2', 'looming_r2_known', 'expansion_r2', 'looming_when_still_per_s',
             'looming_known')
    if looming is None:
        return dict.fromkeys(names)
    judged = ~np.isnan(truth.looming)
    true, said = truth.looming[judged], looming[judged]
    dt = np.broadcast_to(truth.interval_s[:, None, None], truth.looming.shape)[judged]
    filled = np.nan_to_num(said, nan=0.0)
    still = np.abs(true) < STILL_PER_S
    return dict(zip(names, (
        r2(filled, true), r2(said, true), r2(filled * dt, true * dt),
        mean(np.abs(filled[still])), mean(~np.isnan(said))), strict=True))


def _time_to_collision(contact_time: np.ndarray, hazard: np.ndarray,
                       happened: np.ndarray) -> float:
    """Return the mean time left when the longest hazard alarms; no alarm counts as 0 s."""
    threshold = threshold_at(hazard, happened)
    if math.isnan(threshold):
        return math.nan
    # Unknown is no alarm, whatever the threshold.
    alarm = np.where(np.isnan(hazard), -np.inf, hazard)[happened] >= threshold
    return mean(np.where(alarm, contact_time[happened], 0.0))


# -- patches of cameras that move through still scenes --------------------------------------------

@dataclass(frozen=True)
class Patches:
    """Looming of M patches whose truth is known [1/s], and how fast the camera turned there."""

    truth: np.ndarray  # (M,)
    turning_deg_s: np.ndarray  # (M,)
    rate: np.ndarray  # (M,) that was said, NaN unknown, and its standard error
    sigma: np.ndarray


def patch_figures(truth: ArrayLike, turning_deg_s: ArrayLike, rate: ArrayLike,
                  sigma: ArrayLike) -> dict[str, Any]:
    truth, turning, rate, sigma = (np.asarray(values, float) for values in (
        truth, turning_deg_s, rate, sigma))
    known, filled = ~np.isnan(rate), np.nan_to_num(rate, nan=0.0)
    error = np.abs(filled - truth)
    stated = known & np.isfinite(sigma) & (sigma > 0)
    both = np.stack([rate[known], truth[known]])
    varied = both.shape[1] > 1 and (both.std(axis=1) > 0).all()
    slow, fast = TURNING_DEG_S
    classes = {f'below_{slow}': turning < slow, f'{slow}_to_{fast}':
               (turning >= slow) & (turning <= fast), f'above_{fast}': turning > fast}
    return json_safe({
        'patches': truth.size, 'looming_r2': r2(filled, truth),
        'looming_r2_known': r2(rate, truth),
        'correlation_known': float(np.corrcoef(both)[0, 1]) if varied else math.nan,
        'looming_mae_per_s': mean(error), 'mae_of_zero_per_s': mean(np.abs(truth)),
        'looming_known': mean(known),
        'error_over_stated': float(np.linalg.norm(error[stated]) / np.linalg.norm(sigma[stated]))
        if stated.any() else math.nan,
        'looming_r2_by_turning_deg_s': {name: r2(filled[those], truth[those])
                                        for name, those in classes.items()}})


# -- sequences of frames with truth ---------------------------------------------------------------

@dataclass(frozen=True)
class Truth:
    """Truth at each of N frames; NaN is unknown."""

    stamps_s: np.ndarray  # time of the frame [s], rising
    collision: np.ndarray  # 1 when a collision is imminent, 0 when not
    time_to_contact: np.ndarray  # seconds, inf when nothing comes nearer


@dataclass(frozen=True)
class Outcome:
    """What was said at each of N frames; NaN is unknown."""

    scored: np.ndarray  # whether this frame was assessed; other values are ignored
    # collision_probability, collision_if_ahead: 0..1
    collision_probability: np.ndarray
    collision_if_ahead: np.ndarray
    time_to_contact: np.ndarray  # [s]
    looming_rate: np.ndarray  # [1/s]
    level: np.ndarray  # 0..3 and 255 (unknown)

    @property
    def score(self) -> np.ndarray:
        """The greater of both probabilities: people label what comes and what is near alike."""
        return np.fmax(self.collision_probability, self.collision_if_ahead)

    @property
    def alarm(self) -> np.ndarray:
        """Whether each assessed frame has level WARNING or above."""
        return (self.level >= WARNING) & (self.level != UNKNOWN) & self.scored


Pairs = Sequence[tuple[Truth, Outcome]]


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return first and one-past-last index of every stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], np.asarray(mask, np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def durations(stamps_s: np.ndarray) -> np.ndarray:
    """Return the time from each frame to the next [s]; the last gets the usual time."""
    if stamps_s.size < 2:
        return np.zeros(stamps_s.size)
    step = np.diff(stamps_s)
    usual = float(np.median(step))
    return np.append(np.clip(step, 0.0, LONGEST_STEP * usual), usual)


def false_alarms(truth: Truth, outcome: Outcome) -> tuple[int, float]:
    """Count stretches of alarm in which nothing was imminent, and the minutes without danger."""
    label = truth.collision
    count = sum(bool((label[a:b] == 0).any() and not (label[a:b] == 1).any())
                for a, b in runs(outcome.alarm))
    return count, float(durations(truth.stamps_s)[(label == 0) & outcome.scored].sum()) / 60.0


def leads(truth: Truth, outcome: Outcome, threshold: float) -> list[float]:
    """Return the time from the first alarm within each labelled danger to its contact [s]."""
    out = []
    # A danger without assessed frames says nothing about the method. Contact is at the last
    # frame, or later by its true time to contact where that is known.
    for a, b in runs((truth.collision == 1) & outcome.scored):
        left = float(truth.time_to_contact[b - 1])
        ahead = left if math.isfinite(left) and left > 0 else 0.0
        hit = np.flatnonzero(outcome.score[a:b] >= threshold)
        out.append(float(truth.stamps_s[b - 1]) + ahead - float(truth.stamps_s[a + hit[0]])
                   if hit.size else math.nan)
    return out


def sequence_figures(pairs: Pairs, threshold: float) -> dict[str, Any]:
    """Compute the figures over sequences taken together; None where truth is missing."""
    score, now, if_ahead, estimate, rate, level, collision, ttc = _columns(pairs, lambda t, o: (
        o.score, o.collision_probability, o.collision_if_ahead, o.time_to_contact,
        o.looming_rate, o.level, t.collision, t.time_to_contact))
    known, positive = ~np.isnan(collision), collision == 1
    closing, still = np.isfinite(ttc) & (ttc > 0), np.isposinf(ttc) & ~np.isnan(rate)
    with np.errstate(divide='ignore'):
        error = np.abs(rate - np.where(ttc > 0, 1.0 / ttc, np.nan))     # 0 for an infinite time

    def auc(values: np.ndarray) -> float:
        return math.nan if np.isnan(values).all() else roc_auc(values[known],
                                                                       positive[known])

    counted = [false_alarms(*pair) for pair in pairs]
    minutes = sum(m for _, m in counted)
    led = [one for pair in pairs for one in leads(*pair, threshold)]
    return json_safe({
        'collision_auc': auc(score), 'collision_probability_auc': auc(now),
        'collision_if_ahead_auc': auc(if_ahead),
        'average_precision': average_precision(score[known], positive[known])
        if (collision == 0).any() else math.nan,
        'expected_calibration_error': expected_calibration_error(
            score[known], positive[known]),
        'ttc_median_relative_error': median_relative_error(estimate, ttc),
        'ttc_coverage': mean(~np.isnan(estimate[closing])),
        'looming_mae_per_s': mean(error[~np.isnan(error)]),
        'looming_when_still_per_s': mean(np.abs(rate[still])),
        'false_alarms_per_minute': sum(c for c, _ in counted) / minutes if minutes else math.nan,
        'unknown_fraction': mean(level == UNKNOWN),
        'mean_time_to_collision_s': math.nan if math.isnan(threshold) else mean(
            np.nan_to_num(led)),
        'dangers': len(led), 'dangers_detected': sum(not math.isnan(one) for one in led),
        'frames': sum(t.stamps_s.size for t, _ in pairs), 'frames_scored': int(score.size),
        'frames_labelled': int(known.sum())})


def _columns(pairs: Pairs, of: Callable[[Truth, Outcome], tuple[np.ndarray, ...]]
             ) -> list[np.ndarray]:
    parts = [[column[o.scored] for column in of(t, o)] for t, o in pairs]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def find_groups(truths: Mapping[str, Truth]) -> dict[str, list[str]]:
    tests: dict[str, Callable[[Truth], Any]] = {
        'collision': lambda t: (t.collision == 1).any() and (t.collision == 0).any(),
        'nothing_imminent': lambda t: (t.collision == 0).any() and not (t.collision == 1).any(),
        'closing': lambda t: (np.isfinite(t.time_to_contact) & (t.time_to_contact > 0)).any(),
        'still': lambda t: np.isposinf(t.time_to_contact).any()}
    groups = {group: [name for name, truth in truths.items() if test(truth)]
              for group, test in tests.items()}
    return {group: members for group, members in groups.items() if members}


def of_method(pairs: Mapping[str, tuple[Truth, Outcome]],
              groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    score, label = _columns([*pairs.values()], lambda t, o: (o.score, t.collision))
    threshold = threshold_at(score[~np.isnan(label)], label[~np.isnan(label)] == 1)
    return {'pooled': sequence_figures([*pairs.values()], threshold),
            'sequences': {name: sequence_figures([pair], threshold)
                          for name, pair in pairs.items()},
            'groups': {group: sequence_figures([pairs[m] for m in members], threshold)
                       for group, members in groups.items()}}

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how well scores, probabilities and estimates agree with the truth, also of clips.

All functions take arrays of equal length and any shape (read flat). A score of NaN is unknown and
ranks lowest, so that it is never an advantage. A figure that cannot be computed, such as the area
under a curve of one class, is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vjepa_ros.lab.report.measurement import json_safe

HORIZONS_S = (0.5, 1.0, 1.5, 2.0, 3.0)
FALSE_ALARM_RATE = 0.05   # of what is without contact, for the time to collision
STILL_PER_S = 0.002       # a surface with less looming [1/s] counts as not closing
MOST_RELATIVE_ERROR = 10.0   # an estimate of infinity against a finite truth counts as this


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
    """Average the precision over the steps of recall, without interpolation."""
    _, falls, hits = operating_points(scores, positive)
    if not hits[-1]:
        return math.nan
    precision = hits[1:] / (hits[1:] + falls[1:])
    return float((np.diff(hits) * precision).sum() / hits[-1])


def threshold_at(scores: ArrayLike, positive: ArrayLike,
                 false_alarm_rate: float = FALSE_ALARM_RATE) -> float:
    """Return the lowest threshold with at most this share of false alarms; inf if none.

    An alarm is a score at or above the threshold. A score of NaN never alarms.
    """
    thresholds, falls, _ = operating_points(scores, positive)
    if not falls[-1]:
        return math.nan
    allowed = thresholds[falls <= false_alarm_rate * falls[-1] + 1e-9]
    allowed = allowed[np.isfinite(allowed)]
    return float(allowed.min()) if allowed.size else math.inf


@dataclass(frozen=True)
class Reliability:
    """Predicted and observed frequency per bin of probability."""

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
    """Compare probabilities with what happened, in bins of equal width; NaN is left out."""
    p = np.asarray(probability, float).ravel()
    known = ~np.isnan(p)
    p, label = p[known], np.asarray(positive).ravel().astype(bool)[known]
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins).astype(float)
    with np.errstate(invalid='ignore'):
        return Reliability(np.bincount(place, p, bins) / count,
                           np.bincount(place, label, bins) / count, count)


def expected_calibration_error(probability: ArrayLike, positive: ArrayLike) -> float:
    """Compute the mean distance of probability and observed frequency over equal bins."""
    return reliability(probability, positive).error


def r2(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the share of the variance that the estimate explains; NaN is left out.

    1 is perfect, 0 is as good as the mean of the truth, below 0 is worse than that.
    """
    estimate, truth = _pairs(estimate, truth)
    if truth.size < 2:
        return math.nan
    spread = float(np.square(truth - truth.mean()).sum())
    return 1.0 - float(np.square(estimate - truth).sum()) / spread if spread > 0 else math.nan


def mean(values: np.ndarray) -> float:
    """Compute the mean, NaN of nothing."""
    return float(values.mean()) if values.size else math.nan


def mean_absolute_error(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the mean of ``|estimate - truth|`` without NaN."""
    estimate, truth = _pairs(estimate, truth)
    return mean(np.abs(estimate - truth))


def median_relative_error(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the median of ``|estimate - truth| / truth`` over finite, positive truths.

    Unknown estimates are left out. Errors are clipped at 10 (1000 %), also infinite ones.
    """
    estimate = np.asarray(estimate, float).ravel()
    truth = np.asarray(truth, float).ravel()
    judged = np.isfinite(truth) & (truth > 0) & ~np.isnan(estimate)
    if not judged.any():
        return math.nan
    error = np.abs(estimate[judged] - truth[judged]) / truth[judged]
    return float(np.median(np.minimum(error, MOST_RELATIVE_ERROR)))


def _pairs(estimate: ArrayLike, truth: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    estimate = np.asarray(estimate, float).ravel()
    truth = np.asarray(truth, float).ravel()
    known = ~np.isnan(estimate) & ~np.isnan(truth)
    return estimate[known], truth[known]


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
    """Output of a method for each of N clips; NaN is unknown, None is missing."""

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
    """Compute all figures; None where the method lacks output or the truth has one class."""
    hazard = np.asarray(outcome.hazard, float)
    happened = truth.contact_time[:, None] <= np.array(HORIZONS_S)
    columns = list(zip(map(horizon_key, HORIZONS_S), hazard.T, happened.T, strict=True))
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
                                                       happened[:, -1]),
    })


def horizon_key(seconds: float) -> str:
    """Return the name of a horizon in the figures."""
    return f'{seconds:g}'


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

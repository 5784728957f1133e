# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how well scores, probabilities and estimates agree with the truth.

All functions take arrays of equal length and any shape (read flat). A score of NaN is unknown and
ranks lowest, so that it is never an advantage. A figure that cannot be computed, such as the area
under a curve of one class, is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

MOST_RELATIVE_ERROR = 10.0   # an estimate of infinity against a finite truth counts as this


def ranked(scores: ArrayLike, positive: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return scores with NaN as -inf, and labels as bool, both flat."""
    score = np.asarray(scores, float).ravel()
    label = np.asarray(positive).ravel().astype(bool)
    if score.size != label.size:
        raise ValueError(f'{score.size} scores for {label.size} labels')
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


def threshold_at(scores: ArrayLike, positive: ArrayLike, false_alarm_rate: float) -> float:
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

    # predicted, observed: mean probability and part of positives in each bin, NaN in an empty
    # one
    predicted: np.ndarray
    observed: np.ndarray
    count: np.ndarray  # predictions in each bin

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
    label = np.asarray(positive).ravel().astype(bool)
    if p.size != label.size:
        raise ValueError(f'{p.size} probabilities for {label.size} labels')
    known = ~np.isnan(p)
    p, label = p[known], label[known]
    if p.size and (p.min() < 0 or p.max() > 1):
        raise ValueError(f'probabilities reach from {p.min():g} to {p.max():g}, '
                         'must be within 0 to 1')
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins).astype(float)
    with np.errstate(invalid='ignore'):
        return Reliability(np.bincount(place, p, bins) / count,
                           np.bincount(place, label, bins) / count, count)


def expected_calibration_error(probability: ArrayLike, positive: ArrayLike,
                               bins: int = 15) -> float:
    """Compute the mean distance of probability and observed frequency over equal bins."""
    return reliability(probability, positive, bins).error


def r2(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the share of the variance that the estimate explains; NaN is left out.

    1 is perfect, 0 is as good as the mean of the truth, below 0 is worse than that.
    """
    estimate, truth = _pairs(estimate, truth)
    if truth.size < 2:
        return math.nan
    spread = float(np.square(truth - truth.mean()).sum())
    return 1.0 - float(np.square(estimate - truth).sum()) / spread if spread > 0 else math.nan


def mean_absolute_error(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Compute the mean of ``|estimate - truth|`` without NaN."""
    estimate, truth = _pairs(estimate, truth)
    return float(np.abs(estimate - truth).mean()) if truth.size else math.nan


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
    if estimate.size != truth.size:
        raise ValueError(f'{estimate.size} estimates for {truth.size} truths')
    known = ~np.isnan(estimate) & ~np.isnan(truth)
    return estimate[known], truth[known]

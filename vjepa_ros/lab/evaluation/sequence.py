# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of methods on sequences of frames with truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vjepa_ros.lab.evaluation import metrics
from vjepa_ros.lab.report.measurement import json_safe

WARNING, UNKNOWN = 2, 255   # levels as published; UNKNOWN is not an alarm
LONGEST_STEP = 3.0          # longest gap between frames that counts, in usual gaps


@dataclass(frozen=True)
class Truth:
    """Truth at each of N frames; NaN is unknown."""

    stamps_s: np.ndarray  # time of the frame [s], rising
    collision: np.ndarray  # 1 when a collision is imminent, 0 when not
    time_to_contact: np.ndarray  # seconds, inf when nothing comes nearer


@dataclass(frozen=True)
class Outcome:
    """Output of a method at each of N frames; NaN is unknown."""

    scored: np.ndarray  # whether the method assessed this frame; other values are ignored
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
    """Return the time from the first alarm within each labelled danger to its contact [s].

    NaN is a danger without alarm. Contact is at the last frame of the danger, or later by its true
    time to contact where that is known.
    """
    out = []
    # A danger without assessed frames says nothing about the method.
    for a, b in runs((truth.collision == 1) & outcome.scored):
        left = float(truth.time_to_contact[b - 1])
        ahead = left if math.isfinite(left) and left > 0 else 0.0
        hit = np.flatnonzero(outcome.score[a:b] >= threshold)
        out.append(float(truth.stamps_s[b - 1]) + ahead - float(truth.stamps_s[a + hit[0]])
                   if hit.size else math.nan)
    return out


def alarm_threshold(pairs: Pairs) -> float:
    """Return the lowest score at which few enough of the frames labelled 0 alarm."""
    score, label = _columns(pairs, lambda t, o: (o.score, t.collision))
    return metrics.threshold_at(score[~np.isnan(label)], label[~np.isnan(label)] == 1)


def figures(pairs: Pairs, threshold: float) -> dict[str, Any]:
    """Compute the figures over sequences taken together; None where truth is missing."""
    score, now, if_ahead, estimate, rate, level, collision, ttc = _columns(pairs, lambda t, o: (
        o.score, o.collision_probability, o.collision_if_ahead, o.time_to_contact,
        o.looming_rate, o.level, t.collision, t.time_to_contact))
    known, positive = ~np.isnan(collision), collision == 1
    closing, still = np.isfinite(ttc) & (ttc > 0), np.isposinf(ttc) & ~np.isnan(rate)
    with np.errstate(divide='ignore'):
        true_rate = np.where(ttc > 0, 1.0 / ttc, np.nan)     # 0 for an infinite time

    def auc(values: np.ndarray) -> float:
        return math.nan if np.isnan(values).all() else metrics.roc_auc(values[known],
                                                                       positive[known])

    counted = [false_alarms(*pair) for pair in pairs]
    minutes = sum(m for _, m in counted)
    led = [one for pair in pairs for one in leads(*pair, threshold)]
    return json_safe({
        'collision_auc': auc(score), 'collision_probability_auc': auc(now),
        'collision_if_ahead_auc': auc(if_ahead),
        'average_precision': metrics.average_precision(score[known], positive[known])
        if (collision == 0).any() else math.nan,
        'expected_calibration_error': metrics.expected_calibration_error(
            score[known], positive[known]),
        'ttc_median_relative_error': metrics.median_relative_error(estimate, ttc),
        'ttc_coverage': metrics.mean(~np.isnan(estimate[closing])),
        'looming_mae_per_s': metrics.mean_absolute_error(rate, true_rate),
        'looming_when_still_per_s': metrics.mean(np.abs(rate[still])),
        'false_alarms_per_minute': sum(c for c, _ in counted) / minutes if minutes else math.nan,
        'unknown_fraction': metrics.mean(level == UNKNOWN),
        'mean_time_to_collision_s': math.nan if math.isnan(threshold) else metrics.mean(
            np.nan_to_num(led)),
        'dangers': len(led), 'dangers_detected': sum(not math.isnan(one) for one in led),
        'frames': sum(t.stamps_s.size for t, _ in pairs), 'frames_scored': int(score.size),
        'frames_labelled': int(known.sum())})


def _columns(pairs: Pairs, of: Callable[[Truth, Outcome], tuple[np.ndarray, ...]]
             ) -> list[np.ndarray]:
    """Join columns of sequences over their assessed frames."""
    parts = [[column[o.scored] for column in of(t, o)] for t, o in pairs]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def find_groups(truths: Mapping[str, Truth]) -> dict[str, list[str]]:
    """Group the names of sequences by what their truth allows to judge."""
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
    """Return the figures of a method: pooled, by sequence and by group."""
    threshold = alarm_threshold([*pairs.values()])
    return {'pooled': figures([*pairs.values()], threshold),
            'sequences': {name: figures([pair], threshold) for name, pair in pairs.items()},
            'groups': {group: figures([pairs[m] for m in members], threshold)
                       for group, members in groups.items()}}

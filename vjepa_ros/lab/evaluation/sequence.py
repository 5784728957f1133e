# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of a method on sequences of frames with truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vjepa_ros.lab.evaluation import alarms, metrics

FALSE_ALARM_RATE = 0.05   # of frames labelled 0, at which the time to collision is measured
NEAR_S = 10.0             # shorter times to contact are also judged separately
Figures = dict[str, float | int | None]


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
    score: np.ndarray  # higher is more dangerous
    is_probability: bool = False  # whether the score is a probability
    # time_to_contact, looming_rate: in s and 1/s, None for a method without them
    time_to_contact: np.ndarray | None = None
    looming_rate: np.ndarray | None = None
    level: np.ndarray | None = None  # 0..3 and 255 (unknown), None for a method without levels
    # collision_probability, collision_if_ahead: what the score is the greater of, None for a
    # method without them
    collision_probability: np.ndarray | None = None
    collision_if_ahead: np.ndarray | None = None

    @property
    def alarm(self) -> np.ndarray:
        """Whether each assessed frame has an alarm (ValueError without levels)."""
        return alarms.is_alarm(self.levels) & self.scored

    @property
    def levels(self) -> np.ndarray:
        """Levels (ValueError without any)."""
        if self.level is None:
            raise ValueError('this method has no levels')
        return self.level


def alarm_threshold(pairs: Sequence[tuple[Truth, Outcome]],
                    rate: float = FALSE_ALARM_RATE) -> float:
    """Return the lowest score at which at most this share of frames labelled 0 alarms."""
    score, label = _labelled(pairs)
    return metrics.threshold_at(score, label, rate)


def figures(pairs: Sequence[tuple[Truth, Outcome]], threshold: float) -> Figures:
    """Compute the figures over sequences taken together; None where truth is missing."""
    score, label = _labelled(pairs)
    frames = sum(t.stamps_s.size for t, _ in pairs)
    scored = sum(int(o.scored.sum()) for _, o in pairs)
    everything = [(t, _unscored_lowest(o)) for t, o in pairs]
    probable = [(t, o) for t, o in pairs if o.is_probability]
    return {
        'collision_auc': _none(metrics.roc_auc(score, label)),
        'average_precision': _none(metrics.average_precision(score, label)
                                   if label.size and not label.all() else math.nan),
        **_contact_times(pairs),
        **_looming(pairs),
        **_false_alarms(pairs),
        **_time_to_collision(pairs, threshold),
        'expected_calibration_error': _none(
            metrics.expected_calibration_error(*_labelled(probable))),
        'collision_auc_all_frames': _none(metrics.roc_auc(*_labelled(everything))),
        **_each_alone(pairs),
        'frames': frames,
        'frames_scored': scored,
        'frames_labelled': int(label.size),
        'frames_positive': int(label.sum()),
        'frames_score_unknown': int(np.isnan(score).sum()),
    }


def _labelled(pairs: Sequence[tuple[Truth, Outcome]]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels of the frames that have both."""
    masks = [o.scored & ~np.isnan(t.collision) for t, o in pairs]
    score = [o.score[m] for (_, o), m in zip(pairs, masks, strict=True)]
    label = [t.collision[m] == 1 for (t, _), m in zip(pairs, masks, strict=True)]
    return _join(score), _join(label).astype(bool)


def _each_alone(pairs: Sequence[tuple[Truth, Outcome]]) -> Figures:
    """Return the area under the ROC curve of each probability that the score consists of."""
    found: Figures = {}
    for name in ('collision_probability', 'collision_if_ahead'):
        there = [(t, replace(o, score=v)) for t, o in pairs
                 if (v := getattr(o, name)) is not None]
        found[f'{name}_auc'] = _none(metrics.roc_auc(*_labelled(there)))
    return found


def _unscored_lowest(outcome: Outcome) -> Outcome:
    score = np.where(outcome.scored, outcome.score, np.nan)
    return Outcome(np.ones_like(outcome.scored), score, outcome.is_probability)


def _contact_times(pairs: Sequence[tuple[Truth, Outcome]]) -> Figures:
    """Return the error of the time to contact where the truth is finite."""
    asked = [(t.time_to_contact[o.scored], v[o.scored]) for t, o in pairs
             if (v := o.time_to_contact) is not None]
    truth, estimate = (_join([pair[i] for pair in asked]) for i in range(2))
    closing = np.isfinite(truth) & (truth > 0)
    near = closing & (truth <= NEAR_S)
    known = closing & ~np.isnan(estimate)
    return {
        'ttc_median_relative_error': _none(metrics.median_relative_error(estimate, truth)),
        'ttc_median_relative_error_below_10s': _none(
            metrics.median_relative_error(estimate[near], truth[near])),
        'ttc_coverage': _none(known.sum() / closing.sum() if closing.any() else math.nan),
        'ttc_frames': int(closing.sum()),
    }


def _looming(pairs: Sequence[tuple[Truth, Outcome]]) -> Figures:
    """Return the error of the looming rate, and its size where nothing closes."""
    asked = [(t.time_to_contact[o.scored], v[o.scored]) for t, o in pairs
             if (v := o.looming_rate) is not None]
    truth, rate = (_join([pair[i] for pair in asked]) for i in range(2))
    with np.errstate(divide='ignore'):
        closing_rate = np.where(truth > 0, 1.0 / truth, np.nan)     # 0 for an infinite time
    still = np.isposinf(truth) & ~np.isnan(rate)
    return {
        'looming_mae_per_s': _none(metrics.mean_absolute_error(rate, closing_rate)),
        'looming_when_still_per_s': _none(
            float(np.abs(rate[still]).mean()) if still.any() else math.nan),
        'still_frames': int(still.sum()),
    }


def _false_alarms(pairs: Sequence[tuple[Truth, Outcome]]) -> Figures:
    levelled = [(t, o) for t, o in pairs if o.level is not None]
    counted = [alarms.false_alarms(t.stamps_s, o.levels, t.collision, o.scored)
               for t, o in levelled]
    count, minutes = sum(c for c, _ in counted), sum(m for _, m in counted)
    level = _join([o.levels[o.scored] for _, o in levelled])
    judged = minutes > 0
    return {
        'false_alarms_per_minute': count / minutes if judged else None,
        'false_alarms': count if judged else None,
        'minutes_without_danger': minutes if judged else None,
        'unknown_fraction': float((level == alarms.UNKNOWN).mean()) if level.size else None,
    }


def _time_to_collision(pairs: Sequence[tuple[Truth, Outcome]], threshold: float) -> Figures:
    """Return the mean time from first alarm to contact; a missed danger counts as 0 s."""
    found = []
    for truth, outcome in pairs:
        known = outcome.scored & ~np.isnan(outcome.score)
        alarm = known & (np.where(known, outcome.score, -np.inf) >= threshold)
        # A danger without assessed frames says nothing about the method.
        label = np.where(outcome.scored, truth.collision, np.nan)
        found += alarms.contacts(truth.stamps_s, label, truth.time_to_contact, alarm)
    if not found or math.isnan(threshold):
        return {'mean_time_to_collision_s': None, 'dangers': len(found), 'dangers_detected': None}
    return {'mean_time_to_collision_s': float(np.mean([c.lead_s for c in found])),
            'dangers': len(found),
            'dangers_detected': sum(not math.isnan(c.warned_s) for c in found)}


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0)


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the figures of a method on single clips with exact truth, such as rendered ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from vjepa_ros.lab.evaluation import metrics

HORIZONS_S = (0.5, 1.0, 1.5, 2.0, 3.0)
FALSE_ALARM_RATE = 0.05   # of clips without contact, for the time to collision
STILL_PER_S = 0.002       # a surface with less looming [1/s] counts as not closing


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
    if hazard.shape != (truth.contact_time.size, len(HORIZONS_S)):
        raise ValueError(f'hazard is {hazard.shape}, expected '
                         f'{(truth.contact_time.size, len(HORIZONS_S))}: one column for each of '
                         f'{HORIZONS_S} s')
    happened = truth.contact_time[:, None] <= np.array(HORIZONS_S)
    columns = list(zip(map(horizon_key, HORIZONS_S), hazard.T, happened.T, strict=True))
    return {
        'clips': int(truth.contact_time.size),
        'collision_auc': {k: _none(metrics.roc_auc(p, y)) for k, p, y in columns},
        'average_precision': {k: _none(metrics.average_precision(p, y)) for k, p, y in columns},
        'expected_calibration_error': _none(
            metrics.expected_calibration_error(hazard, happened)),
        'expected_calibration_error_by_horizon': {
            k: _none(metrics.expected_calibration_error(p, y)) for k, p, y in columns},
        **_looming(truth, outcome.looming),
        'moving_auc': None if outcome.moving is None else _moving(truth.moving, outcome.moving),
        'ttc_median_relative_error': _contact_time(truth.contact_time, outcome.time_to_contact),
        'mean_time_to_collision_s': _time_to_collision(truth.contact_time, hazard[:, -1],
                                                       happened[:, -1]),
    }


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
        _none(metrics.r2(filled, true)), _none(metrics.r2(said, true)),
        _none(metrics.r2(filled * dt, true * dt)),
        float(np.abs(filled[still]).mean()) if still.any() else None,
        float((~np.isnan(said)).mean()) if said.size else None), strict=True))


def _moving(truth: np.ndarray, score: np.ndarray) -> float | None:
    judged = ~np.isnan(truth)
    return _none(metrics.roc_auc(score[judged], truth[judged] > 0.5))


def _contact_time(truth: np.ndarray, estimate: np.ndarray | None) -> float | None:
    """Return the error where contact comes within the longest horizon."""
    near = truth <= HORIZONS_S[-1]
    return None if estimate is None else _none(
        metrics.median_relative_error(estimate[near], truth[near]))


def _time_to_collision(contact_time: np.ndarray, hazard: np.ndarray,
                       happened: np.ndarray) -> float | None:
    """Return the mean time left when the longest hazard alarms; no alarm counts as 0 s."""
    threshold = metrics.threshold_at(hazard, happened, FALSE_ALARM_RATE)
    if not happened.any() or math.isnan(threshold):
        return None
    # Unknown is no alarm, whatever the threshold.
    alarm = np.where(np.isnan(hazard), -np.inf, hazard)[happened] >= threshold
    return float(np.where(alarm, contact_time[happened], 0.0).mean())


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

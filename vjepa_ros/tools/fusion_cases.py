# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the rule that joins heads and geometry makes of clips, with other numbers in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vjepa_ros.evaluation.clips import HORIZONS_S, ClipOutcome, ClipTruth, clip_figures
from vjepa_ros.perception.assessment import Level, Quality
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.belief import Rule, contact_within
from vjepa_ros.perception.collision import UNKNOWN, find_threats
from vjepa_ros.perception.fusion import judge
from vjepa_ros.perception.learned import learned_field
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.track import Track
from vjepa_ros.tools.evaluate_film import films, shown, truth_of
from vjepa_ros.tools.evaluate_run import CAMERA, Setup
from vjepa_ros.tools.evaluate_world import encoded, world_of

LEAST_P = 0.0067        # of the logarithmic loss: no source is surer, see MOST_LOG_ODDS
FAR = 1.5               # times to contact of more than so many thresholds are no danger
STEP_S, MOST_S = 0.05, 10.0   # of what is simulated in time


@dataclass(frozen=True)
class Said:
    """What one rule said of N clips.

    Attributes
    ----------
    hazard
        (N, 5) probability of contact within `HORIZONS_S`.
    rate, believed
        (N,) looming rate on course: as told, and as the level follows it [1/s]; NaN unknown.
    """

    hazard: np.ndarray
    rate: np.ndarray
    believed: np.ndarray


def judged_part(setup: Setup, seed: int, count: int, device: str,
                rules: Sequence[Rule]) -> tuple[ClipTruth, list[Said]]:
    """Truth and what each rule said of the clips of one seed; a task of `Workers`."""
    world = world_of(setup.track.image_size, setup.track.num_frames, device)
    clips = world.clips(seed, count)
    truth, rendered = truth_of(clips), list(films(clips))
    settings = replace(setup.settings, looming_method='fused', approach_speed=0.0)
    rows: list[list[tuple[float, ...]]] = [[] for _ in rules]
    for film, output in zip(rendered, encoded(rendered, setup), strict=True):
        track = Track(CAMERA, film.track(setup.track))
        sample = shown(film, track)
        heads = learned_field(output.heads, sample, track.view, track.frames(sample))
        field, optics = track.looming(), track.optics()
        by_geometry = find_threats(field, film.size, optics, settings)
        for row, rule in zip(rows, rules, strict=True):
            found = judge(field, heads, film.size, track.grey_size, optics, settings, rule)
            row.append((*(contact_within(h, heads, by_geometry, rule) for h in HORIZONS_S),
                        found.threat.course_rate, found.believed))
    tables = [np.array(row, float) for row in rows]
    return truth, [Said(t[:, :-2], t[:, -2], t[:, -1]) for t in tables]


def figures(truth: ClipTruth, said: Said, rule: Rule, settings: Settings) -> dict[str, Any]:
    """What a rule is good for.

    Returns
    -------
    dict
        ``auc_1s``, ``auc_3s``, ``calibration_error`` and ``log_loss`` of the probability (an
        unknown one counts as one half in the loss); ``ttc_error``: median relative error of the
        time to contact within 3 s; ``warned`` and ``false_warnings``: part of the clips at
        WARNING or above, of those with a contact within its time and of those with none within
        `FAR` times that; ``cautioned``: part of the first at CAUTION or above; and the times
        [s] of `timing`.
    """
    with np.errstate(divide='ignore', invalid='ignore'):
        ttc = np.where(said.rate > 0, 1.0 / said.rate, np.where(np.isnan(said.rate), np.nan,
                                                                np.inf))
    ranked = clip_figures(truth, ClipOutcome(said.hazard, ttc))
    happened = truth.contact_time[:, None] <= np.array(HORIZONS_S)
    p = np.clip(np.nan_to_num(said.hazard, nan=0.5), LEAST_P, 1 - LEAST_P)
    near = truth.contact_time <= settings.warning_ttc
    far = truth.contact_time > FAR * settings.warning_ttc
    warned = said.believed >= 1 / settings.warning_ttc
    cautioned = said.believed >= 1 / settings.caution_ttc
    return {
        'auc_1s': ranked['collision_auc']['1'], 'auc_3s': ranked['collision_auc']['3'],
        'calibration_error': ranked['expected_calibration_error'],
        'log_loss': float(-np.where(happened, np.log(p), np.log(1 - p)).mean()),
        'ttc_error': ranked['ttc_median_relative_error'],
        'warned': _part(warned, near), 'false_warnings': _part(warned, far),
        'cautioned': _part(cautioned, near), **timing(rule, settings)}


def timing(rule: Rule, settings: Settings) -> dict[str, float | None]:
    """How the level follows what is not believed, through smoothing and hysteresis.

    ``caution_after_s``: from CLEAR to CAUTION; ``warning_left_after_s``: from a WARNING that is
    believed no more to CAUTION. None for never.
    """
    doubted = 1.0 / (settings.caution_ttc ** rule.cautious
                     * settings.warning_ttc ** (1.0 - rule.cautious))
    sure = 1.0 / settings.danger_ttc
    return {'caution_after_s': _until(lambda level: level >= Level.CAUTION, 0.0, doubted,
                                      settings),
            'warning_left_after_s': _until(lambda level: level < Level.WARNING, sure, doubted,
                                           settings)}


def _until(reached: Any, before: float, after: float, settings: Settings) -> float | None:
    assessor, stamp_s = Assessor(), 100.0

    def level(rate: float) -> Level:
        threat = replace(UNKNOWN, course_rate=rate, obstacle_score=0.0, known_fraction=1.0)
        return assessor.update(threat, 0.0, round(stamp_s * 1e9), Quality(0), settings).level

    for _ in range(40):
        level(before)
        stamp_s += STEP_S
    for step in range(round(MOST_S / STEP_S)):
        if reached(level(after)):
            return round(step * STEP_S, 3)
        stamp_s += STEP_S
    return None


def merged(parts: Sequence[list[Said]]) -> list[Said]:
    """What each rule said of the clips of all parts."""
    return [Said(*(np.concatenate([getattr(p, name) for p in same])
                   for name in ('hazard', 'rate', 'believed')))
            for same in zip(*parts, strict=True)]


def _part(what: np.ndarray, among: np.ndarray) -> float | None:
    share = float(what[among].mean()) if among.any() else math.nan
    return None if math.isnan(share) else share

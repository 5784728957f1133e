# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge what the heads say of clips: what is on course, and how probable contact is.

Where the time by which contact is as likely as not (of the clip head) is less than that of the
patches on course, it counts instead: what is in the way is met before the camera is where it
stands. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.perception.collision import PatchVerdict, UNKNOWN, judge_patches
from vjepa_ros.perception.danger import (
    LIKELY,
    believed_rate,
    clip_counts,
    contact_within,
    probability_when_unobserved,
)
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Region, Threat


@dataclass(frozen=True)
class Judgement:
    """What is known about contact from one clip; without valid heads nothing."""

    threat: Threat = UNKNOWN  # what is on course
    probability: float = math.nan  # of contact within ``collision_horizon``, NaN unknown
    believed: float = math.nan  # looming rate on course that the level follows [1/s]
    obstacle_score: float = math.nan  # how much comes nearer within the horizon, 0..1
    regions: tuple[Region, ...] = ()  # what comes nearer, most urgent first


class Said(NamedTuple):
    """What the heads say of the clip of one camera."""

    learned: LearnedField | None  # None where there are no heads, not valid ones, or not wanted
    optics: Optics  # of the source image


def judge(cameras: Sequence[Said], settings: Settings) -> list[Judgement]:
    """Judge clips of one model, all at once."""
    known = [(one.learned, one.optics) for one in cameras if one.learned is not None]
    verdicts = iter(judge_patches(known, settings))
    return [Judgement() if one.learned is None else
            _judged(one.learned, one.optics, next(verdicts), settings) for one in cameras]


def _judged(learned: LearnedField, optics: Optics, verdict: PatchVerdict,
            settings: Settings) -> Judgement:
    threat = _with_clip(verdict.threat, learned, optics, settings)
    believed = believed_rate(threat.course_rate, learned, settings)
    probability = contact_within(settings.collision_horizon, learned)
    if math.isnan(believed):
        probability = probability_when_unobserved(probability, learned, settings)
    return Judgement(threat, probability, believed, verdict.obstacle_score(), verdict.regions())


def _with_clip(threat: Threat, learned: LearnedField, optics: Optics,
               settings: Settings) -> Threat:
    """Return the threat with the time of the clip head, where that counts."""
    if not clip_counts(learned.time_to_contact, threat.course_rate):
        return threat
    bearing, elevation = threat.bearing, threat.elevation
    if math.isnan(bearing):
        # The danger has no place of its own: point at what is most probably on course.
        likely = np.where(learned.known(settings.min_confidence), learned.on_course, 0.0)
        x, y = learned.view.patch_centers.reshape(-1, 2)[int(np.argmax(likely))]
        bearing, elevation = optics.direction(float(x), float(y))
    return replace(threat, course_rate=1.0 / learned.time_to_contact, bearing=bearing,
                   elevation=elevation)


def without_sight(found: Judgement, learned: LearnedField | None,
                  settings: Settings) -> Judgement | None:
    """Return what is left of a judgement where the middle of the view shows nothing.

    None where something comes, which counts however little is seen. That nothing comes is not
    told: what is met comes from the middle.
    """
    threat, probability = found.threat, found.probability
    if probability >= LIKELY or any(rate * settings.caution_ttc > 1.0 for rate in (
            threat.course_rate, found.believed)):    # false with NaN
        return None
    if learned is not None:
        probability = probability_when_unobserved(probability, learned, settings)
    return replace(
        found, probability=probability, believed=math.nan,
        threat=replace(threat, course_rate=math.nan, bearing=math.nan, elevation=math.nan))

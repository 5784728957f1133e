# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Assess one clip as a pure function, then smooth scores and level over the clips of a camera."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.danger import (
    age_problem,
    approaches,
    contact_probability,
    measured_flags,
    reported_level,
    time_to_contact,
    wanted_level,
)
from vjepa_ros.perception.fusion import Judgement, judge
from vjepa_ros.perception.learned_field import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Assessment, Level, Quality, Threat

NS = 1e9
SETTLE_RESULTS = 3     # results after a reset that carry the warming-up flag


@dataclass(frozen=True)
class Measured:
    """What is known of a clip before it is assessed.

    Attributes
    ----------
    camera, sample
        Name of the camera; its clip.
    view, grey_size, optics
        Geometry of the encoder's input; size of the image that looming is measured in [px];
        intrinsics of the source image.
    looming
        Geometric looming at the newest frame; None when unknown or not wanted.
    by_geometry
        `find_threats` of it.
    learned
        Heads of the clip; None without heads, where they are not valid, or are not wanted.
    motion_score
        How much of the view moves, 0..1; NaN unknown.
    age_s
        Age of the newest frame [s]; NaN when unknown.
    flags
        Flags of the model (untrained, fallback).
    frozen
        Whether the picture has stopped changing.
    geometry_failed
        Whether an error prevented looming from being measured.
    heads_problem
        Why the heads are not valid for the clip; '' when they are or there are none.
    clearance
        Free way ahead by the heads [m]; NaN unknown.
    """

    camera: str
    sample: Sample
    view: View
    grey_size: tuple[int, int]
    optics: Optics
    looming: LoomingField | None
    by_geometry: Threat
    learned: LearnedField | None
    motion_score: float
    age_s: float
    flags: Quality
    frozen: bool = False
    geometry_failed: bool = False
    heads_problem: str = ''
    clearance: float = math.nan


def assess(known: Measured, settings: Settings) -> tuple[Judgement, Assessment]:
    """Return what a clip says about contact, and its assessment before smoothing.

    The assessment has no level and no probability yet; those follow from `Assessor.smooth`.
    """
    found = judge(known.looming, known.learned, known.view.source_size, known.grey_size,
                  known.optics, settings, known.by_geometry)
    flags, sample, threat = known.flags, known.sample, found.threat
    for flag, is_set in (
            (Quality.GEOMETRY_FAILED, known.geometry_failed),
            (Quality.PARTIAL_VIEW, known.view.coverage < 0.999),
            (Quality.STALE, bool(age_problem(known.age_s, settings.max_frame_age))),
            (Quality.SLOW_CAMERA, sample.distinct < len(sample.slots)),
            (Quality.ASSUMED_INTRINSICS, known.optics.assumed),
            (Quality.FROZEN, known.frozen),
            (Quality.HEADS_OUT_OF_RANGE, bool(known.heads_problem)),
            (Quality.DISAGREEMENT, found.disagrees)):
        if is_set:
            flags |= flag
    return found, Assessment(
        camera=known.camera, stamp_ns=sample.newest_ns, frame_id=sample.frame_id,
        motion_score=known.motion_score, obstacle_score=threat.obstacle_score,
        collision_probability=math.nan, time_to_contact=math.nan,
        looming_rate=threat.course_rate, bearing=threat.bearing, elevation=threat.elevation,
        level=Level.UNKNOWN, flags=flags, regions=threat.regions,
        clip_span_s=sample.span_s, clip_rate_hz=sample.rate_hz,
        known_fraction=threat.known_fraction, clearance=known.clearance)


class Smoother:
    """Smooth scalars over time (asymmetric exponential or median), each by itself."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}     # smoothed value and its stamp [ns]
        self._recent: dict[str, deque[float]] = {}

    def update(self, values: Mapping[str, float], stamp_ns: int,
               settings: Settings) -> dict[str, float]:
        """Take raw values by name and return the smoothed ones.

        Unknown input (NaN) gives unknown output at once: an old value is never shown as current.
        The exponential keeps its state, which fades with time; the window of the median would
        bring old values back as new ones, so it starts anew.
        """
        smoothed, method = dict(values), settings.smoothing_method
        for name, value in values.items():
            if math.isnan(value):
                self._recent.pop(name, None)
                continue
            if method == 'median':
                recent = self._recent.setdefault(name, deque(maxlen=99))
                recent.append(value)
                window = sorted(list(recent)[-settings.smoothing_window:])
                smoothed[name] = window[len(window) // 2]
                continue
            if method != 'none' and name in self._last:
                last, last_ns = self._last[name]
                tau = settings.smoothing_rise if value > last else settings.smoothing_fall
                keep = math.exp(-max(0.0, (stamp_ns - last_ns) / NS) / tau) if tau > 0 else 0.0
                value = keep * last + (1.0 - keep) * value
            smoothed[name] = value
            self._last[name] = value, stamp_ns
        return smoothed


class Assessor:
    """Smoothing and level of one camera. Keeps its state when the model changes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the past (new scene, time jump)."""
        self._smoother = Smoother()
        self._direction = (math.nan, math.nan)
        self._level = Level.UNKNOWN
        self._since_ns = 0
        self._results = 0

    def smooth(self, raw: Assessment, found: Judgement, settings: Settings) -> Assessment:
        """Return the assessment of the newest clip with smoothed scores and its level.

        Parameters
        ----------
        raw
            Unsmoothed scores (NaN = unknown) and flags so far, see `assess`.
        found
            Gives the probability of contact, None when it follows from the smoothed looming
            rate, and the looming rate that the level follows, None for that of `raw`.
        settings
            Live settings.
        """
        stamp_ns, flags = raw.stamp_ns, raw.flags
        self._results += 1
        if self._results <= SETTLE_RESULTS:
            flags |= Quality.WARMING_UP
        scores = {
            'rate': raw.looming_rate, 'obstacle': raw.obstacle_score, 'motion': raw.motion_score,
            'believed': raw.looming_rate if found.believed is None else found.believed}
        if found.probability is not None:
            scores['probability'] = found.probability
        scores = self._smoother.update(scores, stamp_ns, settings)
        rate, obstacle, motion = scores['rate'], scores['obstacle'], scores['motion']
        flags |= measured_flags(rate, raw.known_fraction)
        closing = approaches(rate, settings)
        # While a danger fades in the smoothed rate, it keeps the direction it was last seen in.
        if not math.isnan(raw.bearing):
            self._direction = (raw.bearing, raw.elevation)
        elif not closing:
            self._direction = (math.nan, math.nan)
        bearing, elevation = self._direction if closing else (math.nan, math.nan)
        level = self._next_level(time_to_contact(scores['believed'], settings), obstacle, motion,
                                 stamp_ns, settings)
        probability = scores.get('probability')
        if probability is None:
            probability = contact_probability(rate, settings.collision_horizon)
        return replace(
            raw, motion_score=motion, obstacle_score=obstacle, collision_probability=probability,
            time_to_contact=time_to_contact(rate, settings), looming_rate=rate, bearing=bearing,
            elevation=elevation, level=reported_level(level, flags), flags=flags)

    def _next_level(self, ttc: float, obstacle: float, motion: float, stamp_ns: int,
                    settings: Settings) -> Level:
        wanted = wanted_level(ttc, obstacle, motion, settings)
        if wanted == Level.UNKNOWN:
            # A danger that vanishes from sight (too near, too dark) has not gone away: UNKNOWN
            # outranks every level, and the held level resumes afterwards.
            return Level.UNKNOWN
        if self._level == Level.UNKNOWN or wanted > self._level:
            self._level, self._since_ns = wanted, stamp_ns
        elif wanted < self._level:
            eased = wanted_level(ttc, obstacle, motion, settings, 1.0 + settings.hysteresis)
            held_s = (stamp_ns - self._since_ns) / NS
            if eased < self._level and held_s >= settings.level_hold:
                self._level, self._since_ns = eased, stamp_ns
        else:
            self._since_ns = stamp_ns
        return self._level

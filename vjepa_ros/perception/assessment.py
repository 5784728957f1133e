# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Assess one clip, then smooth over the clips of a camera.

`assess` is a pure function: it adds scores and flags to what `vjepa_ros.perception.judgement`
says. `LevelFilter` keeps the only state, smoothing and the hold of a level, which follows from
`vjepa_ros.perception.danger`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.perception.danger import (
    Contact,
    NOTHING,
    age_problem,
    agreed_contact,
    approaches,
    collision_if_ahead,
    level_beside,
    measured_flags,
    time_to_contact,
)
from vjepa_ros.perception.judgement import Judgement, Said, without_sight
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Assessment, BLIND, Level, Quality

NS = 1e9
LEAST_SIGHT = 0.2      # part of the middle of the view that shows detail, for a CLEAR
SETTLE_RESULTS = 3     # results after a reset that carry the warming-up flag
WHOLE = 0.999          # part of a picture from which heads count as seeing all of it


def assess(camera: str, sample: Sample, view: View, said: Said, found: Judgement,
           settings: Settings, *, motion_score: float, age_s: float, flags: Quality,
           still_s: float = math.nan, sight: float = math.nan) -> tuple[Judgement, Assessment]:
    """Return what a clip says about contact, and its assessment before smoothing.

    `found`: by `judge`; `motion_score`: how much of the view moves, 0..1; `age_s`: of the newest
    frame [s]; `flags`: of the model, of its output, and of the camera; `still_s`: how long the
    view has stood [s], 0: it moved; `sight`: how much of its middle shows detail, 0..1. NaN:
    unknown. The assessment has no level and no probability yet; those follow from
    `LevelFilter.smooth`.
    """
    heads = said.learned
    if sight < LEAST_SIGHT and (left := without_sight(found, heads, settings)) is not None:
        found, heads, flags = left, None, flags | Quality.LOW_TEXTURE
    threat = found.threat
    for flag, is_set in (
            (Quality.PARTIAL_VIEW, view.coverage < WHOLE),
            (Quality.STALE, bool(age_problem(age_s, settings.max_frame_age))),
            (Quality.SLOW_CAMERA, sample.slow),
            (Quality.ASSUMED_INTRINSICS, said.optics.assumed)):
        if is_set:
            flags |= flag
    return found, Assessment(
        camera=camera, stamp_ns=sample.newest_ns, frame_id=sample.frame_id,
        motion_score=motion_score, obstacle_score=found.obstacle_score,
        collision_probability=math.nan, time_to_contact=math.nan,
        looming_rate=threat.course_rate, bearing=threat.bearing, elevation=threat.elevation,
        level=Level.UNKNOWN, flags=flags, regions=found.regions,
        clip_span_s=sample.span_s, clip_rate_hz=sample.rate_hz,
        known_fraction=threat.observed_fraction,
        clearance=math.nan if heads is None else heads.free_way,
        collision_if_ahead=math.nan if heads is None else collision_if_ahead(heads, settings),
        approach_speed=settings.approach_speed, collision_horizon=settings.collision_horizon,
        still_s=still_s)


class LevelFilter:
    """Smoothing and level of one camera. Keeps its state when the model changes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the past (new scene, time jump)."""
        self._smoothed: dict[str, tuple[float, int]] = {}     # last values and their stamps [ns]
        self._direction = (math.nan, math.nan)
        self._level = Level.UNKNOWN
        self._since_ns = 0
        self._results = 0

    def smooth(self, raw: Assessment, found: Judgement, settings: Settings) -> Assessment:
        """Return the assessment of the newest clip with smoothed scores and its level.

        `raw`: unsmoothed scores (NaN = unknown) and flags so far, see `assess`; `found`: gives
        the probability of contact, and the looming rate that the level follows.
        """
        stamp_ns, flags = raw.stamp_ns, raw.flags
        self._results += 1
        if self._results <= SETTLE_RESULTS:
            flags |= Quality.WARMING_UP
        # Looming rates are smoothed on the patches; again, robots would stop too late.
        scores = {'motion': raw.motion_score, 'ahead': raw.collision_if_ahead,
                  'probability': found.probability}
        scores = {name: self._smooth(name, value, stamp_ns, settings.smoothing)
                  for name, value in scores.items()}
        probability = scores['probability']
        if math.isnan(raw.looming_rate):     # what it was while something was measured counts less
            probability = max(probability, found.probability)
        contact = NOTHING if flags & BLIND else Contact(
            raw.looming_rate, found.believed, probability)
        level = self._next_level(contact, stamp_ns, settings)
        contact = agreed_contact(contact, level, settings)
        # Without heads it is not the picture that shows too little.
        flags |= measured_flags(
            contact.rate, 1.0 if Quality.HEADS_OUT_OF_RANGE in flags else raw.known_fraction)
        if contact.doubted:
            flags |= Quality.DISAGREEMENT
        closing = approaches(contact.rate, settings)
        # While a danger fades in the smoothed rate, it keeps the direction it was last seen in.
        if not math.isnan(raw.bearing):
            self._direction = (raw.bearing, raw.elevation)
        elif not closing:
            self._direction = (math.nan, math.nan)
        bearing, elevation = self._direction if closing else (math.nan, math.nan)
        clearance, ahead = raw.clearance, scores['ahead']
        if flags & BLIND:
            clearance = ahead = math.nan
        return replace(
            raw, motion_score=scores['motion'],
            collision_probability=contact.probability, collision_if_ahead=ahead,
            clearance=clearance,
            time_to_contact=time_to_contact(contact.rate, settings), looming_rate=contact.rate,
            bearing=bearing, elevation=elevation, level=level, flags=flags)

    def _smooth(self, name: str, value: float, stamp_ns: int, tau_s: float) -> float:
        """Smooth a score; NaN stays NaN at once: an old value is never shown as current."""
        if math.isnan(value):
            return value
        if tau_s > 0 and name in self._smoothed:
            last, last_ns = self._smoothed[name]
            keep = math.exp(-max(0.0, (stamp_ns - last_ns) / NS) / tau_s)
            value = keep * last + (1.0 - keep) * value
        self._smoothed[name] = value, stamp_ns
        return value

    def _next_level(self, contact: Contact, stamp_ns: int, settings: Settings) -> Level:
        wanted = level_beside(contact, settings)
        if wanted == Level.UNKNOWN:
            # A danger that vanishes from sight (too near, too dark) has not gone away: UNKNOWN
            # outranks every level, and the held level resumes afterwards.
            return Level.UNKNOWN
        if self._level == Level.UNKNOWN or wanted > self._level:
            self._level, self._since_ns = wanted, stamp_ns
        elif wanted < self._level:
            eased = level_beside(contact, settings, 1.0 + settings.hysteresis)
            held_s = (stamp_ns - self._since_ns) / NS
            if eased < self._level and held_s >= settings.level_hold:
                self._level, self._since_ns = eased, stamp_ns
        else:
            self._since_ns = stamp_ns
        return self._level

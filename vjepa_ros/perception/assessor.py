# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn the raw measurements of one camera into smoothed scores and a level with hysteresis."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from vjepa_ros.perception.danger import (
    approaches,
    contact_probability,
    measured_flags,
    reported_level,
    time_to_contact,
    wanted_level,
)
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality, Threat

NS = 1e9
SETTLE_RESULTS = 3     # results after a reset that carry the warming-up flag


class Smoother:
    """One scalar over time: asymmetric exponential or running median; NaN passes through."""

    def __init__(self) -> None:
        self._value = math.nan
        self._stamp_ns = 0
        self._recent: deque[float] = deque(maxlen=99)

    def update(self, value: float, stamp_ns: int, settings: Settings) -> float:
        """Take one raw value and give the smoothed one.

        Unknown input gives unknown output at once: an old value is never shown as current. The
        exponential one keeps its state, which time makes fade; the window of the median would
        bring old values back as if they were new, so it starts anew.
        """
        if math.isnan(value):
            self._recent.clear()
            return value
        if settings.smoothing_method == 'median':
            self._recent.append(value)
            window = sorted(list(self._recent)[-settings.smoothing_window:])
            return window[len(window) // 2]
        if settings.smoothing_method == 'none' or math.isnan(self._value):
            self._value = value
        else:
            dt = max(0.0, (stamp_ns - self._stamp_ns) / NS)
            tau = settings.smoothing_rise if value > self._value else settings.smoothing_fall
            keep = math.exp(-dt / tau) if tau > 0 else 0.0
            self._value = keep * self._value + (1.0 - keep) * value
        self._stamp_ns = stamp_ns
        return self._value


@dataclass(frozen=True)
class Scores:
    """Smoothed scores of one moment, in the terms of `Assessment`."""

    motion_score: float
    obstacle_score: float
    collision_probability: float
    time_to_contact: float
    looming_rate: float
    bearing: float
    elevation: float
    level: Level
    flags: Quality


class Assessor:
    """Smoothing and level of one camera. Keeps its state when the model is swapped."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the past (new scene, time jump)."""
        self._motion, self._obstacle, self._rate = Smoother(), Smoother(), Smoother()
        self._probability, self._believed = Smoother(), Smoother()
        self._direction = (math.nan, math.nan)
        self._level = Level.UNKNOWN
        self._since_ns = 0
        self._results = 0

    def update(self, threat: Threat, motion: float, stamp_ns: int, flags: Quality,
               settings: Settings, probability: float | None = None,
               believed: float | None = None) -> Scores:
        """Scores and level for the newest measurements (NaN = unknown).

        Parameters
        ----------
        threat
            What is on course.
        motion
            Motion score.
        stamp_ns
            Stamp of the newest frame [ns].
        flags
            Flags so far.
        settings
            Live settings.
        probability
            Probability of contact within the horizon; None when it follows from the threat.
        believed
            Looming rate on course that the level follows [1/s]; None for that of the threat.
        """
        self._results += 1
        if self._results <= SETTLE_RESULTS:
            flags |= Quality.WARMING_UP
        rate = self._rate.update(threat.course_rate, stamp_ns, settings)
        obstacle = self._obstacle.update(threat.obstacle_score, stamp_ns, settings)
        motion = self._motion.update(motion, stamp_ns, settings)
        flags |= measured_flags(rate, threat.known_fraction)
        closing = approaches(rate, settings)
        # While a danger fades in the smoothed rate, it keeps the direction it was last seen in.
        if not math.isnan(threat.bearing):
            self._direction = (threat.bearing, threat.elevation)
        elif not closing:
            self._direction = (math.nan, math.nan)
        bearing, elevation = self._direction if closing else (math.nan, math.nan)
        ttc = time_to_contact(rate, settings)
        believed = self._believed.update(
            threat.course_rate if believed is None else believed, stamp_ns, settings)
        level = reported_level(self._next_level(time_to_contact(believed, settings), obstacle,
                                                motion, stamp_ns, settings), flags)
        if probability is None:
            probability = contact_probability(rate, settings.collision_horizon)
        else:
            probability = self._probability.update(probability, stamp_ns, settings)
        return Scores(motion, obstacle, probability, ttc, rate, bearing, elevation, level, flags)

    def _next_level(self, ttc: float, obstacle: float, motion: float, stamp_ns: int,
                    settings: Settings) -> Level:
        wanted = wanted_level(ttc, obstacle, motion, settings)
        if wanted == Level.UNKNOWN:
            # A danger that vanishes from sight (too near, too dark) has not gone away: UNKNOWN
            # outranks every level, and the held level is taken up again afterwards.
            return Level.UNKNOWN
        if self._level == Level.UNKNOWN or wanted > self._level:
            self._set(wanted, stamp_ns)
        elif wanted < self._level:
            eased = wanted_level(ttc, obstacle, motion, settings, 1.0 + settings.hysteresis)
            held_s = (stamp_ns - self._since_ns) / NS
            if eased < self._level and held_s >= settings.level_hold:
                self._set(eased, stamp_ns)
        else:
            self._since_ns = stamp_ns
        return self._level

    def _set(self, level: Level, stamp_ns: int) -> None:
        self._level, self._since_ns = level, stamp_ns

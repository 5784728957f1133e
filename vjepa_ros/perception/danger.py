# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The danger law: level, time to contact and probability as functions of what was measured.

Functions of numbers alone: no images, no fields, no state. `vjepa_ros.perception.collision`
reduces patches to a `Threat`, `vjepa_ros.perception.judgement` sets it beside the clip head, and
`vjepa_ros.perception.assessment` smooths the result and holds levels.

Level
    DANGER, WARNING and CAUTION begin below ``danger_ttc`` < ``warning_ttc`` < ``caution_ttc``.
    UNKNOWN where the time to contact is unknown or the newest frame is stale: unknown is never
    CLEAR.

Unknown
    Where less than ``min_known`` of the region of interest can be observed and nothing is seen
    coming, the looming rate on course is unknown, and with it the time to contact. A probability
    is then given only where the heads see something coming (`probability_when_unobserved`).

Probability of contact within a time
    The calibrated hazard of the heads, at most 0.9933. None where the newest frame shows no
    structure (a covered lens, a white-out, a plain wall that fills the view). Even then a hazard
    of 0.5 or more counts if an earlier frame of the clip showed structure: what fills the view has
    not gone away, but a blind frame never says that nothing comes.

Belief
    The level follows the looming on course as far as contact is probable: WARNING and DANGER need
    a probability of 0.6 that it comes within their time. What is not believed becomes CAUTION,
    never CLEAR. So neither patches nor the clip head alone raise an alarm that the other surely
    contradicts, and neither is dropped in silence.

Collision if ahead
    The heads also estimate the free way ahead: the probability that it is shorter than what the
    robot would cover within ``collision_horizon`` at ``approach_speed``. It raises no level: a
    robot that stands before a wall is in no danger.

Consistency
    The numbers of an assessment do not contradict each other, smoothed or not:

    - UNKNOWN: time to contact, looming rate and direction are NaN. So is the probability, unless
      the heads see something coming. A stale frame says nothing at all.
    - CLEAR: the time is at least ``caution_ttc``, and the probability below 0.5 (unless
      ``collision_horizon`` exceeds ``caution_ttc``: later contacts are not urgent yet).
    - WARNING, DANGER: the time is at most that of the level, with its hysteresis. Where that lies
      within ``collision_horizon``, the probability is at least 0.5.
    - A probability of 0.5 or more: the time is at most twice the horizon.
    - A time below that of a higher alarm, or of less than half the horizon beside a probability
      below 0.5: flagged DISAGREEMENT. What the patches show is not believed.

    Time and probability are smoothed separately and levels are held, so they fade at different
    speeds. `level_beside` keeps a level from falling too early, `agreed_contact` keeps time and
    probability consistent with a level that is held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality

if TYPE_CHECKING:
    from vjepa_ros.perception.learned import LearnedField

# Looming rate from which a time to contact is reported [1/s], 25 s: slower than what counts as
# approaching, because what is far off can be measured long before it has to be shown.
REPORTED_RATE = 0.04
LEAST_RATE = 1e-3        # of a region [1/s], 1000 s: what is slower has no time to contact
LOW_TEXTURE = 0.25       # known part of the region of interest below which a result is flagged
SUREST = 0.9933          # no probability of heads is greater, or less than the rest of it
# Probability from which contact is likelier than not. Such a hazard counts even when the newest
# frame shows nothing.
LIKELY = 0.5
# Probability of a contact within the time of CAUTION from which a view does not pass for free.
RISKY = 0.2
STEP = 1.05              # factor between the times that `believed_rate` tries
# Factor between times to contact that contradict each other: twice the error of either.
APART_TIME = 2.0
# How far a stamp may lie ahead of the clock [s]. Clocks that NTP or PTP keep together differ by
# milliseconds, and simulated time lags behind the stamps by up to a tick, at most 0.1 s at 10 Hz.
# An approach is not seen late for it: looming comes from the time between stamps.
AHEAD_S = 0.1
BELIEVED = 0.6           # probability of contact that an alarm needs
CAUTIOUS = 0.75          # where between WARNING, 0, and CAUTION, 1, what is not believed stands


# -- levels ---------------------------------------------------------------------------------------

@lru_cache(16)
def level_times(settings: Settings) -> tuple[tuple[Level, float], ...]:
    """Return levels with the time to contact [s] below which each begins, most urgent first."""
    return ((Level.DANGER, settings.danger_ttc), (Level.WARNING, settings.warning_ttc),
            (Level.CAUTION, settings.caution_ttc))


@lru_cache(16)
def level_rates(settings: Settings) -> tuple[float, ...]:
    """Return looming rates from which each level has regions [1/s], most urgent first."""
    least = max(settings.looming_threshold, LEAST_RATE)
    return tuple(max(1 / time, least) for _, time in level_times(settings))


def wanted_level(time_to_contact: float, settings: Settings, ease: float = 1.0) -> Level:
    """Return the level of a time to contact [s]; NaN: unknown, inf: nothing comes nearer."""
    if math.isnan(time_to_contact):
        return Level.UNKNOWN
    for level, time in level_times(settings):
        if time_to_contact < time * ease:
            return level
    return Level.CLEAR


def is_alarm(time_to_contact: float, settings: Settings) -> bool:
    """Return whether a time to contact [s] is one of WARNING or DANGER; False for NaN."""
    return time_to_contact < settings.warning_ttc


# -- what is known --------------------------------------------------------------------------------

def age_problem(age_s: float, max_age_s: float) -> str:
    """Return why something of this age does not count as current, '' when it does.

    `age_s`: now minus stamp [s]; NaN when the clock has not started; `max_age_s`: greatest age
    [s].
    """
    if math.isnan(age_s):
        return 'of unknown age'
    if age_s < -AHEAD_S:
        return f'{-age_s:.2f} s in the future'
    return f'{age_s:.2f} s old' if age_s > max_age_s else ''


def measured_flags(rate: float, observed_fraction: float) -> Quality:
    """Return the flags of a looming rate on course [1/s] and the observed part of the region."""
    flags = Quality.LOOMING_UNKNOWN if math.isnan(rate) else Quality(0)
    return flags | Quality.LOW_TEXTURE if observed_fraction < LOW_TEXTURE else flags


# -- time to contact ------------------------------------------------------------------------------

def approaches(rate: float, settings: Settings) -> bool:
    """Return whether a looming rate [1/s] counts as approaching; False for NaN."""
    return rate > settings.looming_threshold


def time_to_contact(rate: float, settings: Settings) -> float:
    """Return the time to contact [s] of a rate [1/s]; inf: nothing closes; NaN: unknown."""
    if math.isnan(rate):
        return math.nan
    return 1.0 / rate if rate > min(REPORTED_RATE, settings.looming_threshold) else math.inf


def clip_counts(clip_time_s: float, course_rate: float) -> bool:
    """Return whether the time of the clip head [s] replaces the looming rate on course [1/s].

    It does where it is shorter, and never where no patch is known.
    """
    return 1.0 / clip_time_s > course_rate     # false with NaN


# -- probability ----------------------------------------------------------------------------------

def contact_within(time_s: float, learned: LearnedField) -> float:
    """Return the probability of contact within a time above 0 [s], 0..1, NaN unknown."""
    hazard = learned.contact.below(time_s)
    if not (learned.sees or (learned.saw and hazard >= LIKELY)):
        return math.nan
    return max(1.0 - SUREST, min(hazard, SUREST))


def probability_when_unobserved(probability: float, learned: LearnedField,
                                settings: Settings) -> float:
    """Return what is told of a probability where nothing on course can be measured; NaN: nothing.

    That something comes is told: what is likelier than not, and where the newest frame shows
    structure all that the heads say of a contact that they do not rule out within ``caution_ttc``.
    That nothing comes is not.

    `probability`: of contact within ``collision_horizon``, 0..1; NaN stays NaN.
    """
    risky = learned.sees and learned.contact.below(settings.caution_ttc) >= RISKY
    return probability if risky or probability >= LIKELY else math.nan


def collision_if_ahead(learned: LearnedField, settings: Settings) -> float:
    """Compute the probability of contact if the robot went ahead, whatever it does now, 0..1.

    Ahead means at ``approach_speed`` along the optical axis for ``collision_horizon``. NaN where
    the newest frame shows no structure, with an ``approach_speed`` of 0, and where the way is
    longer than the heads tell and nothing is likely to block what they tell.
    """
    way = settings.approach_speed * settings.collision_horizon
    if not learned.sees or way <= 0:
        return math.nan
    blocked = learned.clearance.below(way)
    return blocked if way <= learned.clearance.edges[-1] or blocked >= LIKELY else math.nan


def believed_rate(rate: float, learned: LearnedField, settings: Settings) -> float:
    """Return what the level follows of a looming rate on course [1/s]; NaN stays NaN."""
    # Within CAUTION, which needs no belief, by enough to outlast the smoothing.
    least = 1.0 / (settings.caution_ttc ** CAUTIOUS * settings.warning_ttc ** (1.0 - CAUTIOUS))
    while rate > least and contact_within(1.0 / rate, learned) < BELIEVED:
        rate = max(least, rate / STEP)
    return rate


# -- one story ------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Contact:
    """What is told about contact at one moment, smoothed."""

    rate: float  # looming rate on course [1/s], NaN unknown
    believed: float  # what of it the level follows, at most `rate` [1/s]
    probability: float  # of contact within ``collision_horizon``, 0..1, NaN unknown
    doubted: bool = False  # whether `rate` is higher than level or probability stand for


NOTHING = Contact(math.nan, math.nan, math.nan)      # is known


def level_beside(contact: Contact, settings: Settings, ease: float = 1.0) -> Level:
    """Return the level of one moment beside a contact: CAUTION where CLEAR would contradict it."""
    level = wanted_level(time_to_contact(contact.believed, settings), settings, ease)
    if level != Level.CLEAR:
        return level
    soon = settings.collision_horizon <= settings.caution_ttc
    doubtful = (contact.rate * settings.caution_ttc * ease > 1.0
                or (soon and contact.probability >= LIKELY / ease))
    return Level.CAUTION if doubtful else level


def agreed_contact(contact: Contact, level: Level, settings: Settings) -> Contact:
    """Return a contact that contradicts neither itself nor the level, which may be held."""
    probability, horizon, least = contact.probability, settings.collision_horizon, -math.inf
    if level == Level.UNKNOWN:
        return replace(NOTHING, probability=probability)     # see `probability_when_unobserved`
    if probability >= LIKELY:
        least = 1.0 / (APART_TIME * horizon)
    if level >= Level.WARNING:
        longest = dict(level_times(settings))[level] * (1.0 + settings.hysteresis)
        least = max(least, 1.0 / longest, 1.01 * REPORTED_RATE)
    believed = max(contact.believed, least)
    if level >= Level.WARNING and probability < LIKELY and believed * horizon >= 1.0:
        probability = LIKELY
    rate = max(contact.rate, least)
    doubted = rate * horizon > APART_TIME and probability < LIKELY
    for higher, time in level_times(settings):
        doubted |= higher > level and rate * time > 1.0
    return Contact(rate, believed, probability, doubted)

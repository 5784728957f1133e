# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How probable a contact is by geometry and heads together, and which alarm that supports.

Points 4, 5 and 7 of the rule in `vjepa_ros.perception.fusion`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.perception.collision import Threat, contact_probability
from vjepa_ros.perception.learned_field import LearnedField
from vjepa_ros.perception.settings import Settings

MOST_LOG_ODDS = 5.0           # no source is surer than 0.9933
LIKELY = 0.5                  # hazard that is told even when the newest frame shows nothing
STEP = 1.05                   # factor between times that are tried


@dataclass(frozen=True)
class Rule:
    """Numbers of the rule. docs/notebook/fusion.md shows what each of them decides.

    Attributes
    ----------
    geometry_weight
        Of the geometric log odds, relative to those of the heads.
    most_geometric
        Geometric log odds beside heads are cut here; 2 is a probability of 0.88.
    known_well
        Known part of the region of interest from which geometry has its full weight.
    believed
        Probability of contact that an alarm needs.
    cautious
        Where between WARNING, 0, and CAUTION, 1, that stands which is not believed.
    on_course
        Learned probability from which a cell counts as on course, and from which it counts whole.
    """

    geometry_weight: float = 0.3
    most_geometric: float = 2.0
    known_well: float = 0.5
    believed: float = 0.6
    cautious: float = 0.75
    on_course: tuple[float, float] = (0.3, 0.6)


RULE = Rule()


def believed_rate(threats: tuple[Threat, Threat, Threat], learned: LearnedField,
                  settings: Settings, rule: Rule = RULE) -> float:
    """Looming rate on course for the level, point 5 of the rule [1/s]; NaN when unknown.

    Parameters
    ----------
    threats
        By both together, by geometry, by the heads.
    learned
        What the heads say.
    settings
        Live settings.
    rule
        Numbers of the rule.
    """
    _, by_geometry, _ = threats
    rate = max((t.course_rate for t in threats if not math.isnan(t.course_rate)),
               default=math.nan)
    # Within CAUTION, which needs no belief, by enough to outlast the smoothing.
    least = 1.0 / (settings.caution_ttc ** rule.cautious
                   * settings.warning_ttc ** (1.0 - rule.cautious))
    while rate > least and contact_within(1.0 / rate, learned, by_geometry,
                                          rule) < rule.believed:
        rate = max(least, rate / STEP)
    return rate


def contact_within(time_s: float, learned: LearnedField, by_geometry: Threat,
                   rule: Rule = RULE) -> float:
    """Point 4 of the rule, 0..1; NaN when neither knows."""
    geometric = contact_probability(by_geometry.course_rate, time_s)
    hazard = learned.hazard(time_s)
    if not (learned.sees or (learned.saw and hazard >= LIKELY)):
        return geometric
    odds = _log_odds(hazard, MOST_LOG_ODDS)
    if not math.isnan(geometric):
        odds += (rule.geometry_weight * min(1.0, by_geometry.known_fraction / rule.known_well)
                 * _log_odds(geometric, rule.most_geometric))
    return 1.0 / (1.0 + math.exp(-odds))


def collision_probability(learned: LearnedField, by_geometry: Threat, settings: Settings,
                          rule: Rule = RULE) -> float:
    """Point 7 of the rule; NaN when neither knows."""
    horizon = settings.collision_horizon
    moving = contact_within(horizon, learned, by_geometry, rule)
    if not learned.sees:
        return moving
    return max(moving, learned.clearance.below(settings.approach_speed * horizon))


def _log_odds(probability: float, most: float) -> float:
    if not 0.0 < probability < 1.0:
        return math.copysign(most, probability - 0.5)
    return min(most, max(-most, math.log(probability / (1.0 - probability))))

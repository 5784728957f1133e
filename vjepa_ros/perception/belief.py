# SPDX-License-Identifier: Apache-2.0
"""How probable a contact is by geometry and heads together, and which alarm that supports.

Points 4, 5 and 7 of the rule in `vjepa_ros.perception.fusion`.
"""

from __future__ import annotations

import math

from vjepa_ros.perception.collision import Threat, contact_probability
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings

GEOMETRY_WEIGHT = 0.7         # of the geometric log odds, relative to those of the heads
KNOWN_WELL = 0.5              # known part of the region of interest that gives the full weight
MOST_LOG_ODDS = 5.0           # no source is surer than 0.9933
MOST_GEOMETRIC = 2.0          # log odds of geometry beside heads: 0.88
BELIEVED = 0.6                # probability of contact that an alarm needs
CAUTIOUS = 0.75               # from WARNING, 0, to CAUTION, 1: what is not believed
STEP = 1.05                   # factor between times that are tried


def believed_rate(threats: tuple[Threat, Threat, Threat], learned: LearnedField,
                  settings: Settings) -> float:
    """Looming rate on course for the level, point 5 of the rule [1/s]; NaN when unknown.

    Parameters
    ----------
    threats
        By both together, by geometry, by the heads.
    learned
        What the heads say.
    settings
        Live settings.
    """
    _, by_geometry, by_heads = threats
    rate = max((t.course_rate for t in threats if not math.isnan(t.course_rate)),
               default=math.nan)
    # Within CAUTION, which needs no belief, by enough to outlast the smoothing.
    least = 1.0 / (settings.caution_ttc ** CAUTIOUS * settings.warning_ttc ** (1.0 - CAUTIOUS))
    while rate > least and contact_within(1.0 / rate, learned, by_heads, by_geometry) < BELIEVED:
        rate = max(least, rate / STEP)
    return rate


def contact_within(time_s: float, learned: LearnedField, by_heads: Threat,
                   by_geometry: Threat) -> float:
    """Point 4 of the rule, 0..1; NaN when neither knows."""
    geometric = contact_probability(by_geometry.course_rate, time_s)
    if math.isnan(by_heads.course_rate):
        return geometric
    odds = _log_odds(learned.hazard(time_s), MOST_LOG_ODDS)
    if not math.isnan(geometric):
        odds += (GEOMETRY_WEIGHT * min(1.0, by_geometry.known_fraction / KNOWN_WELL)
                 * _log_odds(geometric, MOST_GEOMETRIC))
    return 1.0 / (1.0 + math.exp(-odds))


def collision_probability(learned: LearnedField, by_heads: Threat, by_geometry: Threat,
                          settings: Settings) -> float:
    """Point 7 of the rule; NaN when neither knows."""
    horizon = settings.collision_horizon
    moving = contact_within(horizon, learned, by_heads, by_geometry)
    if math.isnan(by_heads.course_rate):
        return moving
    return max(moving, learned.clearance.below(settings.approach_speed * horizon))


def _log_odds(probability: float, most: float) -> float:
    if not 0.0 < probability < 1.0:
        return math.copysign(most, probability - 0.5)
    return min(most, max(-most, math.log(probability / (1.0 - probability))))

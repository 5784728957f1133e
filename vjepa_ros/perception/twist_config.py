# SPDX-License-Identifier: Apache-2.0
"""The robot for which twists are chosen, and what was chosen (see `TwistPlanner`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TwistConfig:
    """The robot, and how it chooses.

    Attributes
    ----------
    half_width, height, length, clearance
        Of the robot; it passes over what is lower than ``clearance`` [m].
    camera_height, camera_ahead
        Of the camera above ground, and ahead of the point the robot turns about [m].
    margin
        Room to keep on all sides [m].
    speeds
        Candidate speeds as parts of the commanded one.
    turns
        Candidate turn rates, added to the commanded one [rad/s].
    max_turn
        Greatest turn rate [rad/s].
    horizon_s
        How far twists are rolled forward [s].
    reaction_s
        Time to contact at which the risk of a twist is one half [s].
    accepted
        Greatest risk of a twist that is taken, 0..1.
    memory_s
        How long points are kept [s].
    least_speed
        Slower than this the robot's own motion tells no distance [m/s].
    reach
        Points farther off are left out [m].
    evidence
        Sum of the confidences of points that count as an obstacle.
    """

    half_width: float = 0.3
    height: float = 0.5
    length: float = 0.6
    clearance: float = 0.05
    camera_height: float = 0.4
    camera_ahead: float = 0.3
    margin: float = 0.15
    speeds: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.0)
    turns: tuple[float, ...] = (-1.0, -0.7, -0.45, -0.2, 0.0, 0.2, 0.45, 0.7, 1.0)
    max_turn: float = 1.2
    horizon_s: float = 3.0
    reaction_s: float = 1.4
    accepted: float = 0.3
    memory_s: float = 3.0
    least_speed: float = 0.3
    reach: float = 6.0
    evidence: float = 2.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            bad = [v for v in (value if isinstance(value, tuple) else (value,))
                   if not math.isfinite(v)]
            if bad:
                raise ValueError(f'{name} is {value}, must be finite')
        for name in ('half_width', 'height', 'length', 'camera_height', 'horizon_s',
                     'reaction_s', 'memory_s', 'least_speed', 'reach', 'evidence', 'max_turn'):
            if getattr(self, name) <= 0:
                raise ValueError(f'{name} is {getattr(self, name)}, must be more than 0')
        if 0.0 not in self.turns or not self.speeds or not all(
                0 <= part <= 1 for part in self.speeds):
            raise ValueError('turns must hold 0, and speeds parts of 0..1 of the commanded speed')


@dataclass(frozen=True)
class TwistPlan:
    """What was chosen, and from what.

    Attributes
    ----------
    speed, turn
        Chosen [m/s], [rad/s], the turn positive to the left.
    risk
        Of it, 0..1.
    candidates
        (C, 4): speed, turn, risk, and time to contact [s] (inf for none) of each.
    points
        Number of points it was judged by.
    """

    speed: float
    turn: float
    risk: float
    candidates: np.ndarray
    points: int

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The robot for which twists are chosen, its cameras, and what was chosen (see `TwistPlanner`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Twist(NamedTuple):
    """A velocity of the robot: x ahead, y left [m/s], omega counter-clockwise [rad/s]."""

    vx: float = 0.0
    vy: float = 0.0
    omega: float = 0.0

    @property
    def speed(self) -> float:
        """Of the point it turns about [m/s]."""
        return math.hypot(self.vx, self.vy)


@dataclass(frozen=True)
class Mount:
    """Where a camera is on the robot, and where it looks: level, along ``yaw``.

    Attributes
    ----------
    yaw
        Of the optical axis, 0 ahead, left positive [rad].
    x, y
        Ahead and left of the point that the robot turns about [m].
    height
        Above the ground [m].
    """

    yaw: float = 0.0
    x: float = 0.3
    y: float = 0.0
    height: float = 0.4

    def __post_init__(self) -> None:
        _check_finite(self)
        if self.height <= 0:
            raise ValueError(f'height is {self.height}, must be more than 0')

    def speed(self, twist: Twist) -> tuple[float, float]:
        """Speed of the camera along its optical axis and to the right of it [m/s]."""
        vx, vy = twist.vx - twist.omega * self.y, twist.vy + twist.omega * self.x
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return c * vx + s * vy, s * vx - c * vy


@dataclass(frozen=True)
class TwistConfig:
    """The robot, and how it chooses.

    Attributes
    ----------
    half_width, height, length, clearance
        Of the robot, which turns about its middle; it passes over what is lower than
        ``clearance`` [m].
    margin
        Room to keep on all sides [m].
    speeds
        Candidate speeds as parts of the commanded one, 0 among them.
    turns
        Candidate turn rates, added to the commanded one, 0 among them [rad/s].
    max_turn
        Greatest turn rate that is proposed [rad/s].
    horizon_s
        How far twists are rolled forward [s].
    reaction_s
        Time to contact at which the risk of a twist is one half [s].
    accepted
        Greatest risk of a twist that is taken, 0..1.
    memory_s
        How long points are kept [s].
    window_s
        Time before a picture that looming is measured over [s].
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
    margin: float = 0.15
    speeds: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.0)
    turns: tuple[float, ...] = (-1.0, -0.7, -0.45, -0.2, 0.0, 0.2, 0.45, 0.7, 1.0)
    max_turn: float = 1.2
    horizon_s: float = 3.0
    reaction_s: float = 1.4
    accepted: float = 0.3
    memory_s: float = 3.0
    window_s: float = 0.4
    least_speed: float = 0.3
    reach: float = 6.0
    evidence: float = 2.5

    def __post_init__(self) -> None:
        _check_finite(self)
        for name in ('half_width', 'height', 'length', 'horizon_s', 'reaction_s', 'memory_s',
                     'window_s', 'least_speed', 'reach', 'evidence', 'max_turn'):
            if getattr(self, name) <= 0:
                raise ValueError(f'{name} is {getattr(self, name)}, must be more than 0')
        if not all(0 <= part <= 1 for part in self.speeds):
            raise ValueError(f'speeds is {list(self.speeds)}, must hold parts of 0..1 of the '
                             'commanded speed')
        for name, why in (('speeds', 'to stop must always be a candidate'),
                          ('turns', 'the commanded turn must always be a candidate')):
            if 0.0 not in getattr(self, name):
                raise ValueError(f'{name} is {list(getattr(self, name))}, must hold 0.0 ({why}); '
                                 'add it')


# What is known of one candidate; see `TwistPlan.candidates`.
CANDIDATE = np.dtype([('vx', '<f4'), ('vy', '<f4'), ('omega', '<f4'), ('cost', '<f4'),
                      ('risk', '<f4'), ('time_to_contact', '<f4'), ('rank', '<u2'),
                      ('accepted', 'u1'), ('reserved', 'u1')])


@dataclass(frozen=True)
class TwistPlan:
    """What was chosen, and from what.

    Attributes
    ----------
    twist
        Chosen.
    risk
        Of it, 0..1; NaN where it was not judged.
    candidates
        (C,) `CANDIDATE`, that of the command first: its distance from the command is ``cost``;
        the risk 0..1; the time to contact with what was seen [s], inf for none; rank 0 is the
        chosen one. Accepted ones (of little risk) rank before others, by cost; others by risk,
        then speed. Empty where nothing was judged.
    points
        Number of points they were judged by.
    covered
        Whether a camera looks where the command leads; otherwise it is passed on.
    unmeasured
        Why "no points" does not mean "nothing there": nobody has measured distances where the
        command leads within ``memory_s``, or the newest picture is flagged; '' otherwise.
    """

    twist: Twist
    risk: float
    candidates: np.ndarray
    points: int
    covered: bool
    unmeasured: str

    @property
    def measured(self) -> bool:
        """Whether something is known of the way that the command leads."""
        return not self.unmeasured


def _check_finite(config: object) -> None:
    for name, value in vars(config).items():
        if not all(map(math.isfinite, value if isinstance(value, tuple) else (value,))):
            raise ValueError(f'{name} is {value}, must be finite')

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Inputs and outputs of the velocity guard. All times are on one clock [s]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from vjepa_ros.perception.types import Assessment, Level, Quality, problem_of

NS = 1e9
NO_FLAGS = Quality(0)
MAX_VELOCITY = 1e3      # m/s and rad/s; what is larger is a mistake, and may overflow
# Half the angle of the middle third of a picture with the assumed field of view of 65 degrees, so
# that `side` agrees with the regions of the perception: an assessment has an angle but no lens.
CENTER_ANGLE = math.atan(math.tan(math.radians(65.0 / 2)) / 3)


class Motion(NamedTuple):
    """A velocity of the robot: x forward, y left [m/s], omega counter-clockwise [rad/s]."""

    vx: float = 0.0
    vy: float = 0.0
    omega: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether all three components are numbers of a possible size."""
        return all(abs(value) < MAX_VELOCITY for value in self)

    @property
    def speed(self) -> float:
        """Speed of the point that the robot turns about [m/s]."""
        return math.hypot(self.vx, self.vy)

    def along(self, yaw: float) -> float:
        """Return the speed [m/s] towards a direction: a yaw in the frame of the robot [rad]."""
        return self.vx * math.cos(yaw) + self.vy * math.sin(yaw)


STILL = Motion()


@dataclass(frozen=True)
class SourceReport:
    """The assessment of one camera. Unknown numbers are NaN."""

    source: str                     # name of the camera
    stamp_s: float                  # time of its newest frame [s]
    received_s: float               # time of arrival [s]
    level: Level
    # Of the most urgent surface on collision course [s]; inf: nothing approaches
    time_to_contact: float
    # Of contact within the horizon of perception as things move now, 0..1
    collision_probability: float = math.nan
    flags: Quality = NO_FLAGS
    bearing: float = math.nan       # direction of that surface, right positive [rad]
    clearance: float = math.nan     # free path ahead of the camera by the learned heads [m]
    # Probability of contact within the same horizon if the robot went ahead, at `approach_speed`
    collision_if_ahead: float = math.nan
    approach_speed: float = math.nan
    still_s: float = math.nan       # how long the view has stood [s]; 0: it moved at the last look

    @classmethod
    def of(cls, seen: Assessment, received_s: float, age_s: float | None = None,
           source: str = '') -> SourceReport:
        """Make a report from an assessment that arrived at a time on the clock of the guard [s].

        `age_s`: age of its newest frame then, None when stamps are on that clock.
        """
        stamp_s = seen.stamp_ns / NS if age_s is None else received_s - age_s
        return cls(source or seen.camera, stamp_s, received_s, seen.level, seen.time_to_contact,
                   seen.collision_probability, seen.flags, seen.bearing, seen.clearance,
                   seen.collision_if_ahead, seen.approach_speed, seen.still_s)

    @property
    def still_from(self) -> float:
        """Time since which the view has not moved [s]; NaN unknown."""
        return self.stamp_s - self.still_s

    @property
    def problem(self) -> str:
        """Why it cannot be meant, with field and value; '' when it can."""
        for name in ('stamp_s', 'received_s'):
            if not math.isfinite(getattr(self, name)):
                return f'{name} is {getattr(self, name)}, must be a time'
        return problem_of(self.flags, {name: getattr(self, name) for name in (
            'time_to_contact', 'collision_probability', 'bearing', 'clearance',
            'collision_if_ahead', 'approach_speed')} | {'still': self.still_s})

    @property
    def side(self) -> str:
        """Side of the view with the danger: 'LEFT', 'CENTER' or 'RIGHT'; '' without one."""
        if math.isnan(self.bearing):
            return ''
        if abs(self.bearing) <= CENTER_ANGLE:
            return 'CENTER'
        return 'RIGHT' if self.bearing > 0 else 'LEFT'


@dataclass(frozen=True)
class RangeReading:
    """Distance to the nearest object in the direction of a range sensor."""

    sensor: str
    stamp_s: float                  # time of measurement [s]
    received_s: float               # time of arrival [s]
    # Free path [m]; inf: no object; 0: too near to measure; NaN: invalid, counts as no reading
    distance: float
    reach: float = math.inf         # it does not clear obstacles beyond [m]


@dataclass(frozen=True)
class Limit:
    """The speed that a source allows towards its direction [m/s]; inf: no limit."""

    source: str
    # 'free', 'caution', 'contact' (time to contact or distance), 'clearance' (by the heads),
    # 'unseen', 'release', 'stop', 'blocked', 'fault' or 'uncovered'
    kind: str
    speed: float
    reason: str


@dataclass(frozen=True)
class Decision:
    """The answer of the guard to a command."""

    motion: Motion | None     # for the robot; None: publish nothing (the controller is silent)
    asked: Motion             # the command of the controller
    state: str      # 'idle' (no command), 'free', 'slowed', 'stopped', 'fault' or 'override'
    reason: str = ''          # as text, '' when free
    limits: tuple[Limit, ...] = ()     # that changed the motion, the lowest first

    @property
    def blind(self) -> bool:
        """Whether the command leads where no source looks."""
        return any(limit.kind == 'uncovered' for limit in self.limits)

    @property
    def warns(self) -> bool:
        """Whether it is a warning in a log."""
        return self.state in ('fault', 'override') or self.blind

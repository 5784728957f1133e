# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Inputs and outputs of the velocity guard. All times are on one clock [s]."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.perception.types import Assessment, Level, Quality, problem_of

NS = 1e9
NO_FLAGS = Quality(0)
MAX_VELOCITY = 1e3      # m/s and rad/s; what is larger is a mistake, and may overflow
# Half the angle of the middle third of a picture with the assumed field of view of 65 degrees, so
# that `side` agrees with the regions of the perception: an assessment has an angle but no lens.
CENTER_ANGLE = math.atan(math.tan(math.radians(65.0 / 2)) / 3)


@dataclass(frozen=True)
class Motion:
    """A velocity of the robot: x forward, y left [m/s], omega counter-clockwise [rad/s]."""

    vx: float = 0.0
    vy: float = 0.0
    omega: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether all three components are numbers of a possible size."""
        return all(abs(value) < MAX_VELOCITY for value in (self.vx, self.vy, self.omega))

    def along(self, yaw: float) -> float:
        """Return the speed [m/s] towards a direction: a yaw in the frame of the robot [rad]."""
        return self.vx * math.cos(yaw) + self.vy * math.sin(yaw)


STILL = Motion()


@dataclass(frozen=True)
class SourceReport:
    """The assessment of one camera. Unknown numbers are NaN.

    Attributes
    ----------
    source
        Name of the camera.
    stamp_s
        Time of its newest frame [s].
    received_s
        Time of arrival [s].
    level, flags
        Danger level, and quality flags.
    time_to_contact
        Time to contact of the most urgent surface on collision course [s]; inf: nothing
        approaches.
    collision_probability
        Probability of contact within the horizon of perception as things move now, 0..1.
    bearing
        Direction of that surface, right positive [rad].
    clearance
        Free path ahead of the camera by the learned heads [m].
    collision_if_ahead
        Probability of contact within the same horizon if the robot went ahead, 0..1.
    approach_speed
        Speed that it assumes [m/s].
    still_s
        How long the view has not moved [s].
    """

    source: str
    stamp_s: float
    received_s: float
    level: Level
    time_to_contact: float
    collision_probability: float = math.nan
    flags: Quality = NO_FLAGS
    bearing: float = math.nan
    clearance: float = math.nan
    collision_if_ahead: float = math.nan
    approach_speed: float = math.nan
    still_s: float = math.nan

    @classmethod
    def of(cls, seen: Assessment, received_s: float, age_s: float | None = None,
           source: str = '') -> SourceReport:
        """Make a report from an assessment.

        Parameters
        ----------
        seen
            The assessment.
        received_s
            Time of arrival on the clock of the guard [s].
        age_s
            Age of its newest frame at that time [s]; None when stamps are on the clock of the
            guard.
        source
            Name of the source; '' takes the name of the camera.
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
            'collision_if_ahead', 'approach_speed')})

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
    """Distance to the nearest object in the direction of a range sensor.

    Attributes
    ----------
    sensor
        Name of the sensor.
    stamp_s, received_s
        Time of measurement and of arrival [s].
    distance
        Free path [m]; inf: no object; 0: too near to measure; NaN: invalid, counts as no reading.
    reach
        Largest distance that it can measure [m]: it does not clear obstacles beyond.
    """

    sensor: str
    stamp_s: float
    received_s: float
    distance: float
    reach: float = math.inf


@dataclass(frozen=True)
class Limit:
    """The speed that a source allows towards its direction.

    Attributes
    ----------
    source
        Name of the source.
    kind
        'free', 'caution', 'contact' (time to contact or distance), 'clearance' (by the heads),
        'unseen', 'release', 'stop', 'blocked', 'fault' or 'uncovered'.
    speed
        Largest speed towards it [m/s]; inf: no limit.
    reason
        The reason as text.
    """

    source: str
    kind: str
    speed: float
    reason: str


@dataclass(frozen=True)
class Decision:
    """The answer of the guard to a command.

    Attributes
    ----------
    motion
        The command for the robot; None: publish nothing (the controller is silent).
    asked
        The command of the controller.
    state
        'idle' (no command), 'free', 'slowed', 'stopped', 'fault' or 'override'.
    reason
        The reason as text, '' when free.
    limits
        Limits that changed the motion, the lowest first.
    reaction_s
        Time since the stamp of the oldest assessment that is used here for the first time [s];
        NaN without a new assessment.
    """

    motion: Motion | None
    asked: Motion
    state: str
    reason: str = ''
    limits: tuple[Limit, ...] = ()
    reaction_s: float = math.nan

    @property
    def blind(self) -> bool:
        """Whether the command leads where no source looks."""
        return any(limit.kind == 'uncovered' for limit in self.limits)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What goes into the velocity guard and what comes out. All times are on one clock [s]."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.perception.types import Assessment, Level, Quality

NS = 1e9
NO_FLAGS = Quality(0)
MOST = 1e6              # of a velocity; what is more is a mistake, and overflows
# Half of the middle third of a picture with the field of view that the perception assumes, 65
# degrees: there `side` is that of the regions. An assessment tells an angle, and no lens.
MIDDLE = math.atan(math.tan(math.radians(65.0 / 2)) / 3)


@dataclass(frozen=True)
class Motion:
    """A velocity of the robot: x forward, y left [m/s], omega counter-clockwise [rad/s]."""

    vx: float = 0.0
    vy: float = 0.0
    omega: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether all three are numbers that any robot could mean."""
        return all(abs(value) < MOST for value in (self.vx, self.vy, self.omega))

    def along(self, yaw: float) -> float:
        """Speed towards a direction [m/s], given as yaw in the robot's frame [rad]."""
        return self.vx * math.cos(yaw) + self.vy * math.sin(yaw)


STILL = Motion()


@dataclass(frozen=True)
class SourceReport:
    """What one camera said. Unknown numbers are NaN.

    Attributes
    ----------
    source
        Name of the camera.
    stamp_s
        When its newest frame was taken [s].
    received_s
        When the report came [s].
    level, flags
        Urgency, and what limits the trust in it.
    time_to_contact
        Of the most urgent surface on collision course [s]; inf: nothing comes nearer.
    collision_probability
        Probability of contact within the horizon of perception, 0..1.
    bearing
        Direction of that surface, right positive [rad].
    clearance
        Free way ahead of the camera, as the learned heads see it [m].
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

    @classmethod
    def of(cls, seen: Assessment, received_s: float, age_s: float | None = None,
           source: str = '') -> SourceReport:
        """From an assessment.

        Parameters
        ----------
        seen
            The assessment.
        received_s
            Now, on the clock of the guard [s].
        age_s
            Age of its newest frame now [s]; None when the stamps are on the clock of the guard.
        source
            Name of the source; '' takes that of the camera.
        """
        stamp_s = seen.stamp_ns / NS if age_s is None else received_s - age_s
        return cls(source or seen.camera, stamp_s, received_s, seen.level, seen.time_to_contact,
                   seen.collision_probability, seen.flags, seen.bearing, seen.clearance)

    @property
    def side(self) -> str:
        """'LEFT', 'CENTER' or 'RIGHT' of the view, where the danger is seen; '' when nowhere."""
        if math.isnan(self.bearing):
            return ''
        return 'CENTER' if abs(self.bearing) <= MIDDLE else 'RIGHT' if self.bearing > 0 else 'LEFT'


@dataclass(frozen=True)
class RangeReading:
    """The nearest thing that a range sensor sees towards its direction.

    Attributes
    ----------
    sensor
        Name of the sensor.
    stamp_s, received_s
        When it was measured and when it came [s].
    distance
        Free way [m]; inf: nothing there; 0: too near to measure; NaN: invalid, counts as no
        reading.
    reach
        How far it can see at all [m]: farther than this it makes nothing forgotten.
    """

    sensor: str
    stamp_s: float
    received_s: float
    distance: float
    reach: float = math.inf


@dataclass(frozen=True)
class Limit:
    """What a source allows towards its direction.

    Attributes
    ----------
    source
        Its name.
    kind
        'free', 'caution', 'contact' (time to contact or distance), 'unseen', 'release', 'stop',
        'blocked', 'fault' or 'uncovered'.
    speed
        Greatest speed towards it [m/s]; inf: no limit.
    reason
        In words.
    """

    source: str
    kind: str
    speed: float
    reason: str


@dataclass(frozen=True)
class Decision:
    """What the guard makes of a command.

    Attributes
    ----------
    motion
        The command for the robot; None: say nothing (the controller is silent).
    asked
        The command of the controller.
    state
        'idle' (no command), 'free', 'slowed', 'stopped', 'fault' or 'override'.
    reason
        In words, '' when free.
    limits
        What held motion back, the strongest first.
    reaction_s
        Time from the stamp of the oldest assessment that is used for the first time here to now
        [s]; NaN when there was no news.
    """

    motion: Motion | None
    asked: Motion
    state: str
    reason: str = ''
    limits: tuple[Limit, ...] = ()
    reaction_s: float = math.nan

    @property
    def blind(self) -> bool:
        """Whether the robot is asked to go where no source looks."""
        return any(limit.kind == 'uncovered' for limit in self.limits)

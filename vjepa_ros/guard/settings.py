# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Settings of the velocity guard, validated on construction, and constants of its law."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from vjepa_ros.perception.types import Level

# Faults of a source besides the flags of its assessments.
ALWAYS = ('missing', 'timeout', 'clock', 'malformed', 'unknown', 'frozen')
# Flags of `Quality` that can count as a fault.
FLAGS = ('untrained', 'low_texture', 'partial_view', 'stale', 'warming_up', 'slow_camera',
         'assumed_intrinsics', 'looming_unknown', 'device_fallback', 'disagreement',
         'heads_out_of_range', 'geometry_failed', 'not_finite')
UNCOVERED = ('free', 'slow', 'stop')

HORIZON_S = 6.0          # longest time to contact that is used: looming is noise beyond
MEASURING_SPEED = 0.1    # slower [m/s], a view where nothing approaches shows no free path
RELEASE_HOLD_S = 1.0     # without danger before motion is released: looming fails for moments
FAULT_SPEED = 0.1        # limit at faults that only slow [m/s]: a bumper can stop the robot
CLOCK_TOLERANCE_S = 0.1  # a stamp may lie so far in the future: clocks of computers differ
SILENCE_S = 0.5          # after which a range sensor is at fault, and odometry does not count


@dataclass(frozen=True)
class GuardSettings:
    """Settings of `VelocityGuard`; every length is along the direction of a source.

    Attributes
    ----------
    min_time_to_contact
        Time to contact that the speed limit keeps [s].
    stop_time_to_contact
        Time to contact below which the robot stops [s].
    stop_distance
        Distance that is always kept to an obstacle [m].
    braking
        Deceleration that the robot is sure to reach [m/s^2].
    reaction
        Delay between a command and the response of the robot, without the age of the assessment
        [s].
    stop_level
        Lowest level at which the robot stops.
    unseen_speed
        Speed limit where nothing is known about the path [m/s].
    release_speed
        Speed limit after a stop until a measurement while driving confirms the path [m/s].
    release_acceleration
        Rate at which a limit may rise [m/s^2]. Limits fall at once.
    source_timeout
        Largest age of an assessment [s].
    command_timeout
        Silence after which the command ends [s].
    stop_on, slow_on
        Faults of a source that stop motion towards it, or slow it to `FAULT_SPEED`. 'missing',
        'timeout', 'clock', 'malformed', 'unknown' and 'frozen' must be in one of them.
    uncovered
        Treatment of motion where no source looks: 'free', 'slow' (to `FAULT_SPEED`) or 'stop'.
    """

    min_time_to_contact: float = 1.6
    stop_time_to_contact: float = 0.8
    stop_distance: float = 0.3
    braking: float = 2.0
    reaction: float = 0.1
    stop_level: Level = Level.DANGER
    unseen_speed: float = 0.6
    release_speed: float = 0.3
    release_acceleration: float = 1.0
    source_timeout: float = 0.5
    command_timeout: float = 0.5
    stop_on: tuple[str, ...] = (*ALWAYS, 'untrained', 'partial_view', 'stale', 'warming_up',
                                'looming_unknown', 'not_finite')
    slow_on: tuple[str, ...] = ('low_texture', 'geometry_failed')
    uncovered: str = 'free'

    def __post_init__(self) -> None:
        if problem := self.problem():
            raise ValueError(problem)

    def problem(self) -> str:
        """Return the first problem with setting, value and allowed range; '' without one."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not (math.isfinite(value) and value >= 0):
                return f'{field.name} is {value}, must be a finite number, at least 0'
        for name in ('stop_time_to_contact', 'braking', 'release_acceleration', 'source_timeout',
                     'command_timeout'):
            if getattr(self, name) <= 0:
                return f'{name} is {getattr(self, name)}, must be above 0'
        if not self.stop_time_to_contact < self.min_time_to_contact < HORIZON_S:
            return (f'stop_time_to_contact is {self.stop_time_to_contact}, min_time_to_contact '
                    f'{self.min_time_to_contact}; must be in this order, and below {HORIZON_S}')
        if self.release_speed <= MEASURING_SPEED:
            return (f'release_speed is {self.release_speed}, must be above {MEASURING_SPEED} m/s: '
                    'any slower, the camera cannot confirm the path')
        if self.uncovered not in UNCOVERED:
            return f"uncovered is '{self.uncovered}', must be one of {', '.join(UNCOVERED)}"
        return self._faults_problem()

    def _faults_problem(self) -> str:
        named = (*self.stop_on, *self.slow_on)
        for name in named:
            if name not in (*ALWAYS, *FLAGS):
                return (f"stop_on or slow_on contains '{name}', must be among "
                        f'{", ".join((*ALWAYS, *FLAGS))}')
        for name in ALWAYS:
            if name not in named:
                return f"neither stop_on nor slow_on contains '{name}': add it to one of them"
        return ''

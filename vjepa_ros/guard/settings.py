# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Settings of the velocity guard, validated on construction."""

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
    caution_factor
        Fraction of the commanded speed that remains at levels CAUTION and WARNING, 0..1.
    caution_probability
        Collision probability below which a CAUTION is doubtful: either geometry or heads see
        something that the other contradicts. 0: never. An unknown probability is no doubt.
    doubted_factor
        Fraction of the commanded speed that remains at a doubtful CAUTION, 0..1.
    stop_level
        Lowest level at which the robot stops.
    believe_level
        Lowest level at which the time to contact is used as it is; CLEAR: always. Below it the
        time counts as at least 1.5 times `min_time_to_contact`, because geometry and heads do
        not agree on a contact.
    hysteresis
        Fraction by which the time to contact must exceed its threshold before a stop ends.
    horizon
        Longest time to contact that is used [s]; longer ones count as this.
    measurement_window
        Time before its stamp over which a time to contact is measured [s].
    measuring_speed
        Lowest speed at which a view where nothing approaches means a free path [m/s].
    unseen_speed
        Speed limit where nothing is known about the path [m/s].
    memory
        How long the path counts as free after it was last measured while driving [s].
    release_hold
        Time without danger before motion is released after a stop or a fault [s].
    release_speed
        Speed limit after a stop until a measurement while driving confirms the path [m/s].
    release_acceleration
        Rate at which a limit may rise [m/s^2]. Limits fall at once.
    release_turn
        Heading change after which remembered measurements no longer apply [rad].
    forget
        Standing time after which a remembered obstacle is dropped [s]; 0: never.
    clearance_releases
        Whether a free path beyond a remembered obstacle, by the learned heads, clears it.
    range_releases
        Whether a range sensor that measures beyond a remembered obstacle clears it.
    source_timeout
        Largest age of an assessment [s].
    range_timeout
        Largest age of a range reading [s].
    command_timeout
        Silence after which the command ends [s].
    odometry_timeout
        Silence of the odometry after which the commands sent count as speed [s].
    override_timeout
        Duration of an override [s].
    clock_tolerance
        Largest time that a stamp may lie in the future [s].
    frozen_travel
        Distance driven [m], or angle turned [rad], with bitwise equal pictures after which the
        camera counts as frozen.
    fault_speed
        Speed limit at the faults in `slow_on` and, with `uncovered` 'slow', where no source
        looks [m/s].
    stop_on, slow_on
        Faults of a source that stop or slow motion towards it. 'missing', 'timeout', 'clock',
        'malformed', 'unknown' and 'frozen' must be in one of them.
    uncovered
        Treatment of motion where no source looks: 'free', 'slow' (to `fault_speed`) or 'stop'.
    """

    min_time_to_contact: float = 1.6
    stop_time_to_contact: float = 0.8
    stop_distance: float = 0.3
    braking: float = 2.0
    reaction: float = 0.1
    caution_factor: float = 0.7
    caution_probability: float = 0.5
    doubted_factor: float = 0.95
    stop_level: Level = Level.DANGER
    believe_level: Level = Level.CLEAR
    hysteresis: float = 0.25
    horizon: float = 6.0
    measurement_window: float = 0.4
    measuring_speed: float = 0.1
    unseen_speed: float = 0.6
    memory: float = 2.0
    release_hold: float = 1.0
    release_speed: float = 0.3
    release_acceleration: float = 1.0
    release_turn: float = 0.35
    forget: float = 0.0
    clearance_releases: bool = True
    range_releases: bool = True
    source_timeout: float = 0.5
    range_timeout: float = 0.5
    command_timeout: float = 0.5
    odometry_timeout: float = 0.5
    override_timeout: float = 10.0
    clock_tolerance: float = 0.1
    frozen_travel: float = 0.05
    fault_speed: float = 0.1
    stop_on: tuple[str, ...] = (*ALWAYS, 'untrained', 'partial_view', 'stale', 'warming_up',
                                'looming_unknown', 'not_finite')
    slow_on: tuple[str, ...] = ('low_texture', 'geometry_failed')
    uncovered: str = 'free'

    def __post_init__(self) -> None:
        problem = self.problem()
        if problem:
            raise ValueError(problem)

    def problem(self) -> str:
        """Return the first problem with setting, value and allowed range; '' without one."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not (math.isfinite(value) and value >= 0):
                return f'{field.name} is {value}, must be a finite number, at least 0'
        for name in ('min_time_to_contact', 'stop_time_to_contact', 'braking', 'horizon',
                     'measurement_window', 'measuring_speed', 'release_speed',
                     'release_acceleration', 'source_timeout', 'range_timeout',
                     'command_timeout', 'odometry_timeout', 'override_timeout'):
            if getattr(self, name) <= 0:
                return f'{name} is {getattr(self, name)}, must be above 0'
        if not self.stop_time_to_contact < self.min_time_to_contact < self.horizon:
            return (f'stop_time_to_contact is {self.stop_time_to_contact}, min_time_to_contact '
                    f'{self.min_time_to_contact}, horizon {self.horizon}; must be in this order')
        for name in ('caution_factor', 'caution_probability', 'doubted_factor'):
            if getattr(self, name) > 1:
                return f'{name} is {getattr(self, name)}, must be 0..1'
        if self.release_speed <= self.measuring_speed:
            return (f'release_speed is {self.release_speed}, must be above measuring_speed '
                    f'({self.measuring_speed}): any slower, the camera cannot confirm the path')
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

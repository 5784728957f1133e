# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The numbers of the velocity guard, checked when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from vjepa_ros.perception.types import Level

# What can be wrong with a source beside the flags of its assessments.
ALWAYS = ('missing', 'timeout', 'clock', 'malformed', 'unknown', 'frozen')
# Flags of `Quality` that can be made a fault.
FLAGS = ('untrained', 'low_texture', 'partial_view', 'stale', 'warming_up', 'slow_camera',
         'assumed_intrinsics', 'looming_unknown', 'device_fallback', 'disagreement',
         'heads_out_of_range', 'geometry_failed')
UNCOVERED = ('free', 'slow', 'stop')


@dataclass(frozen=True)
class GuardSettings:
    """Settings of `VelocityGuard`; every length is along the direction of a source.

    Attributes
    ----------
    min_time_to_contact
        The speed is scaled so that the time to contact stays above this [s].
    stop_time_to_contact
        Below this the robot stops [s].
    stop_distance
        Free way that is always left to what was seen [m].
    braking
        Deceleration the robot surely reaches [m/s^2].
    reaction
        Time from a command to the robot following it, beyond the age of the assessment [s].
    caution_factor
        Part of the commanded speed that is left at level CAUTION and WARNING, 0..1.
    caution_probability
        Collision probability below which CAUTION is doubted: geometry or heads alone see
        something that the other contradicts. 0: it never is, nor where the probability is
        unknown.
    doubted_factor
        Part of the commanded speed that is left at a CAUTION that is doubted, 0..1.
    stop_level
        The robot stops from this level on.
    believe_level
        The time to contact counts as told from this level on, CLEAR: always. Below it counts as
        at least 1.5 times `min_time_to_contact`, for then geometry and heads do not agree that
        contact comes.
    hysteresis
        A stop ends when the time to contact exceeds its threshold by this part.
    horizon
        Times to contact beyond this count as this [s]: so far the way is taken as seen.
    measurement_window
        Time before its stamp that a time to contact is measured over [s].
    measuring_speed
        From this speed on, a view in which nothing comes nearer says that the way is free [m/s].
    unseen_speed
        Speed allowed where nothing is known about the way [m/s].
    memory
        How long the way counts as free after it was last measured while driving [s].
    release_hold
        Time without danger before motion is released after a stop or a fault [s].
    release_speed
        Speed allowed after a stop until a measurement while driving confirms the way [m/s].
    release_acceleration
        How fast a limit may rise [m/s^2]. Limits fall at once.
    release_turn
        Heading change after which what was seen lies elsewhere [rad].
    forget
        Standing time after which a remembered obstacle is no longer believed [s]; 0: never.
    clearance_releases
        Whether a free way that learned heads see beyond a remembered obstacle counts.
    range_releases
        Whether range sensors that see beyond a remembered obstacle make it forgotten.
    source_timeout
        Age from which an assessment is too old [s].
    range_timeout
        Age from which a range reading is too old [s].
    command_timeout
        Silence after which the command counts as ended: zero once, then silence [s].
    odometry_timeout
        Silence of the odometry after which the own commands count as speed [s].
    override_timeout
        How long an override lasts [s].
    clock_tolerance
        How far a stamp may lie in the future [s].
    frozen_travel
        Way driven while the picture does not change by a bit, from which the camera counts as
        frozen [m] (or the same number in radians turned).
    fault_speed
        Speed left by the faults in `slow_on` and, with `uncovered` 'slow', where no source
        looks [m/s].
    stop_on, slow_on
        Faults of a source that stop or slow motion towards it. 'missing', 'timeout', 'clock',
        'malformed', 'unknown' and 'frozen' must be in one of them.
    uncovered
        What happens to motion that no source looks at: 'free', 'slow' (to `fault_speed`) or
        'stop'.
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
                                'looming_unknown')
    slow_on: tuple[str, ...] = ('low_texture', 'geometry_failed')
    uncovered: str = 'free'

    def __post_init__(self) -> None:
        problem = self.problem()
        if problem:
            raise ValueError(problem)

    def problem(self) -> str:
        """What is wrong, naming the setting, its value and what is allowed; '' for nothing."""
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
                    f'({self.measuring_speed}): slower, the camera could not confirm the way')
        if self.uncovered not in UNCOVERED:
            return f"uncovered is '{self.uncovered}', must be one of {', '.join(UNCOVERED)}"
        return self._faults_problem()

    def _faults_problem(self) -> str:
        named = (*self.stop_on, *self.slow_on)
        for name in named:
            if name not in (*ALWAYS, *FLAGS):
                return (f"stop_on or slow_on holds '{name}', must be among "
                        f'{", ".join((*ALWAYS, *FLAGS))}')
        for name in ALWAYS:
            if name not in named:
                return f"neither stop_on nor slow_on holds '{name}', which must be in one"
        return ''

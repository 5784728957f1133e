# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Settings of the velocity guard, validated on construction, and constants of its law."""

from __future__ import annotations

from dataclasses import dataclass

from vjepa_ros.parameter import check_ranges, parameter
from vjepa_ros.perception.types import KNOWN_FLAGS

# Faults of a source besides the flags of its assessments.
ALWAYS = ('missing', 'timeout', 'clock', 'malformed', 'unknown', 'frozen')
# Faults that slow motion where `stop_on` leaves them out; other flags are then no faults.
SLOWING = (*ALWAYS, 'low_texture')

HORIZON_S = 6.0          # longest time to contact that is used: looming is noise beyond
MEASURING_SPEED = 0.1    # slower [m/s], a view where nothing approaches shows no free path
RELEASE_HOLD_S = 1.0     # without danger before motion is released: looming fails for moments
# Limit after a stop or a fault until the path is measured again [m/s]: fast enough to measure it
# in a second, and slow enough to stop for what is seen then.
RELEASE_SPEED = 0.3
RELEASE_ACCELERATION = 1.0  # at which a limit rises [m/s^2]: what any base follows
FAULT_SPEED = 0.1        # limit at faults that only slow [m/s]: a bumper can stop the robot
CLOCK_TOLERANCE_S = 0.1  # a stamp may lie so far in the future: clocks of computers differ
SILENCE_S = 0.5          # after which a range sensor is at fault, and odometry does not count


@dataclass(frozen=True)
class GuardSettings:
    """Settings of `VelocityGuard`; every length is along the direction of a source."""

    min_time_to_contact: float = parameter(
        1.6, 'Time to contact that the speed limit keeps', low=0.1, high=5.9, unit='s')
    stop_time_to_contact: float = parameter(
        0.8, 'Time to contact below which the robot stops', low=0.05, high=5.9, unit='s')
    stop_distance: float = parameter(
        0.3, 'Distance from the camera that is always kept to an obstacle; add how far the robot '
        'extends in front of the camera', low=0.0, high=60.0, unit='m')
    braking: float = parameter(2.0, 'Deceleration that the robot is sure to reach', low=0.01,
                               high=60.0, unit='m/s^2')
    reaction: float = parameter(
        0.1, 'Delay between a command and the response of the robot, without the age of the '
        'assessment', low=0.0, high=60.0, unit='s')
    unseen_speed: float = parameter(
        0.6, 'Speed limit where nothing is known about the path: after a start, after turning on '
        'the spot', low=0.0, high=20.0, unit='m/s')
    source_timeout: float = parameter(0.5, 'Largest age of a message of a camera', low=0.05,
                                      high=60.0, unit='s')
    command_timeout: float = parameter(
        0.5, 'Silence after which the command ends: zeros for 0.3 s, then nothing', low=0.05,
        high=60.0, unit='s')
    stop_on: tuple[str, ...] = parameter(
        (*ALWAYS, 'untrained', 'partial_view', 'stale', 'warming_up', 'looming_unknown',
         'not_finite'),
        'Faults of a source that stop motion towards it: missing, timeout, clock, malformed, '
        'unknown, frozen and flags of the assessment; of these six and '
        'low_texture, what is left out slows motion to 0.1 m/s')
    uncovered: str = parameter(
        'free', 'Treatment of motion where no source looks, such as reversing with one camera '
        'ahead; free: pass it, blind, with a warning; slow: at most 0.1 m/s; stop: none',
        choices=('free', 'slow', 'stop'))

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.stop_time_to_contact < self.min_time_to_contact:
            raise ValueError(
                f'stop_time_to_contact is {self.stop_time_to_contact}, min_time_to_contact '
                f'{self.min_time_to_contact}; must be in this order')
        known = {*ALWAYS, *KNOWN_FLAGS.names}
        for name in self.stop_on:
            if name not in known:
                raise ValueError(f"stop_on contains '{name}', must be among "
                                 f'{", ".join(sorted(known))}')

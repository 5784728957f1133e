# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How obstacles are placed in metres: the live settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.parameter import parameter

AT_REST = ('withhold', 'publish')


@dataclass(frozen=True)
class ObstacleSettings:
    """How obstacles are placed."""

    # min_height, max_height: band above the ground that points lie in [m]; obstacles reach above
    # the lower one, which the error of the pitch of a camera leaves
    min_height: float = 0.05
    max_height: float = parameter(0.5, 'Upper end of the height band of points', low=0.01,
                                  high=10.0, unit='m')
    max_range: float = parameter(5.0, 'Largest distance of obstacles', low=0.3, high=50.0,
                                 unit='m')
    # Least part of the patches that look where the robot drives that must be known
    min_known: float = 0.25
    min_sight: float = parameter(
        1.5, 'Measured distance straight ahead below which nothing is published, unless the path '
        'is blocked or the heads know it', low=0.0, high=20.0, unit='m')
    # Whether to publish while the camera stands and no head estimates the free way: then only
    # what moves can be seen. 'withhold' or 'publish'.
    at_rest: str = 'withhold'
    # Standard error of the camera's pitch while driving [rad]
    pitch_error: float = math.radians(1.0)
    caution: float = 1.0  # points are placed nearer than the estimate by so many standard errors
    spacing: float = 0.05  # between points, sideways [m]

    def __post_init__(self) -> None:
        if self.at_rest not in AT_REST:
            raise ValueError(f"at_rest is '{self.at_rest}', must be one of {AT_REST}")
        if not 0 <= self.min_height < self.max_height:
            raise ValueError(f'min_height is {self.min_height} and max_height {self.max_height}, '
                             'must be 0 <= min_height < max_height')

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decide before which robots others wait, as people do.

For a robot that stands everybody waits. For one that drives those wait who are not meant to be in
its way.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from torch import Tensor

from vjepa_ros.lab.world.rendering.truth import Robot

STANDS_M_S = 0.1            # a robot that is slower than this stands
WAIT_M, WAIT_S = 0.6, 0.4   # how far before it others wait: at least, and per speed
_BESIDE_M = 0.1             # of the room a mover keeps beside itself
Number = TypeVar('Number', float, np.ndarray, Tensor)


def reach_of(robot: Robot) -> float:
    """Return the greatest distance of its outline from its middle [m]."""
    return float(np.hypot(robot.half_width, 0.5 * robot.length))


def meets(ahead: Number, side: Number, half_length: Number, half_width: Number, pace: Number,
          robot: Robot) -> Number:
    """Return whether a mover is about to meet a robot, bool of the shape of its inputs.

    `ahead, side`: of the middle of the robot: how far along the way of the mover [m], and how far
    beside it [m], not negative; `half_length, half_width`: of the mover, along its way and across
    [m]; `pace`: its speed [m/s].
    """
    reach = reach_of(robot)
    near = half_length + reach + WAIT_M + WAIT_S * pace
    return (ahead > 0) & (ahead < near) & (side < half_width + reach + _BESIDE_M)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What one camera told a `TwistPlanner` last, and which directions that speaks of."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.types import Quality
from vjepa_ros.planning.twist_config import Mount, Twist
from vjepa_ros.planning.twist_points import NO_POINTS

SURE = 0.3              # confidence from which a cell becomes a point
# Of a picture whose looming was not measured, or of too little of what lies ahead.
BLIND = Quality.LOW_TEXTURE | Quality.GEOMETRY_FAILED
_LEAST_KNOWN = 0.25     # part of the cells of a picture that has measured the way
_COVERS = math.cos(math.radians(60))     # a camera covers motion so far beside its axis


class Eye:
    """One camera.

    Attributes
    ----------
    points, barrier
        (P, 6) of the newest picture, around the robot now.
    hazard
        Probability of contact that it believes in, 0..1.
    blind
        Which of `BLIND` the newest picture is flagged.
    kept_s
        Time since points of it were kept [s].
    """

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.points = self.barrier = NO_POINTS
        self.hazard = 0.0
        self.blind = Quality(0)
        self.kept_s = math.inf
        self.measured_s = math.inf       # age of the newest picture that told distances
        self._view = (0.0, 0.0)          # where it did: from right to left of the axis [rad]
        self._turned = 0.0               # by the robot since then [rad]

    def move(self, twist: Twist, dt: float) -> None:
        """Let time pass, with the robot in motion; its points are carried by the planner."""
        self.kept_s += dt
        self.measured_s += dt
        self._turned += twist.omega * dt

    def covers(self, heading: float) -> bool:
        """Whether it looks where motion leads [rad]."""
        return math.cos(heading - self.mount.yaw) >= _COVERS

    def measure(self, cells: LoomingCells, age_s: float,
                since: Iterable[tuple[float, Twist]]) -> None:
        """Note where a picture tells distances: one that shows little has measured nothing.

        Parameters
        ----------
        cells
            The measured field, taken by a robot that drove.
        age_s
            Of the picture [s].
        since
            How the robot has moved in that time: for how long [s], and how.
        """
        known = np.isfinite(cells.rate) & (cells.confidence >= SURE)
        if self.blind or not known.any() or known.mean() < _LEAST_KNOWN:
            return
        left = -np.arctan(cells.across[known])
        self._view = float(left.min()), float(left.max())
        self.measured_s = age_s
        self._turned = sum(dt * twist.omega for dt, twist in since)

    def measured(self, heading: float, memory_s: float) -> bool:
        """Whether it told distances where motion leads [rad], be it before the robot turned."""
        right, left = self._view
        there = math.remainder(heading + self._turned - self.mount.yaw, 2 * math.pi)
        return self.measured_s <= memory_s and right <= there <= left

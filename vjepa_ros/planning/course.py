# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where a robot is to go: a goal, or along a path, in the frame of its odometry."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BEHIND = math.pi / 2     # a first target farther round than this is behind the robot [rad]
FARTHEST = 1e8           # place in coordinates of anything on Earth [m]


class Pose(NamedTuple):
    """A pose on the ground: x + 1j y [m], and heading [rad], left positive."""

    place: complex
    yaw: float

    def seen(self, points: np.ndarray | complex) -> np.ndarray | complex:
        """Return points from here: ahead + 1j left [m]."""
        return (points - self.place) * cmath.exp(-1j * self.yaw)

    def told(self, points: np.ndarray) -> np.ndarray:
        """Return points that are given from here in the frame of the pose."""
        return self.place + points * cmath.exp(1j * self.yaw)


def on_earth(place: complex) -> bool:
    """Whether both coordinates are numbers of a possible size [m]."""
    return abs(place.real) < FARTHEST and abs(place.imag) < FARTHEST


class Course:
    """A goal or a path that a robot follows.

    Parameters
    ----------
    points
        (P,) complex x + 1j y, in the frame of the odometry [m]: one is a goal, more are a path.
    tolerance
        Distance from the last point at which the robot has arrived [m].
    """

    def __init__(self, points: np.ndarray, tolerance: float) -> None:
        self._points, self._tolerance = np.asarray(points, complex), tolerance
        gaps = np.abs(np.diff(self._points))
        self._gone = np.concatenate(([0.0], np.cumsum(gaps)))
        self._at = 0.0                   # length of the path that lies behind [m]

    def left(self, pose: Pose) -> float:
        """Return the length from the robot to the end, along the path where there is one [m]."""
        self._advance(pose)
        return float(abs(self._place(self._at) - pose.place) + self._gone[-1] - self._at)

    def arrived(self, pose: Pose) -> bool:
        """Whether the robot is at the end."""
        return self.left(pose) <= self._tolerance

    def target(self, pose: Pose, reach: float) -> complex:
        """Return the point to drive for, seen from the robot: ahead + 1j left [m].

        `reach`: how far ahead along the path it may lie [m].
        """
        self._advance(pose)
        return complex(pose.seen(self._place(self._at + reach)))

    def _advance(self, pose: Pose) -> None:
        """Go on to the point of the path nearest to the robot; never back, nor far at once."""
        ahead = np.linspace(self._at, min(self._gone[-1], self._at + 2.0), 41)
        away = np.abs(np.array([self._place(gone) for gone in ahead]) - pose.place)
        self._at = float(ahead[int(np.argmin(away))])

    def _place(self, gone: float) -> complex:
        return complex(np.interp(gone, self._gone, np.real(self._points)),
                       np.interp(gone, self._gone, np.imag(self._points)))


def course_problem(points: Sequence[complex], what: str, pose: Pose, reach: float,
                   tolerance: float) -> str:
    """Return why a robot cannot follow a goal or a path, with the remedy; '' when it can.

    `points`: of the goal or path, in the frame of the odometry [m].
    """
    if what == 'path' and len(points) < 2:
        return f'it has {len(points)} points, a path needs 2 or more; send a goal instead'
    if not all(map(on_earth, points)):
        return 'it contains what is not a number, or no place on Earth [m]'
    target = Course(np.array(points), tolerance).target(pose, reach)
    turn = cmath.phase(target)
    if abs(target) > tolerance and abs(turn) > BEHIND:
        side = 'left' if turn > 0 else 'right'
        return (f'it leads {abs(target):.1f} m behind the robot ({math.degrees(abs(turn)):.0f} '
                f'degrees to the {side}), where no way was seen; turn the robot first')
    return ''

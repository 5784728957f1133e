# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Points around a robot: where they go as it moves, and when it meets them.

They are (P, 6): ahead and left [m], own speed ahead and left [m/s], weight, age [s].
"""

from __future__ import annotations

import math

import numpy as np

from vjepa_ros.planning.twist_config import Mount, Twist, TwistConfig

NO_POINTS = np.empty((0, 6))
_STEP_S = 0.2           # of a rolled path, at most
_MOST_STEPS = 100       # of it; what is too fast for them counts as longer
_STANDS = 0.05          # a robot that is slower stands [m/s]
_AGES_STANDING = 0.3    # how fast points grow old while the robot stands


def placed(mount: Mount, depth: np.ndarray, right: np.ndarray, own: np.ndarray,
           weight: np.ndarray) -> np.ndarray:
    """(P, 6) points in the frame of the robot, of some before a camera.

    ``own`` are (P, 2) speeds along the optical axis and to the right of it.
    """
    c, s = math.cos(mount.yaw), math.sin(mount.yaw)
    return np.column_stack((
        mount.x + c * depth + s * right, mount.y + s * depth - c * right,
        c * own[:, 0] + s * own[:, 1], s * own[:, 0] - c * own[:, 1],
        weight, np.zeros(len(depth)))).astype(float)


def carried(points: np.ndarray, twist: Twist, dt: float, can: TwistConfig) -> np.ndarray:
    """Points in the frame of the robot after a motion; those that are too old or far go."""
    if not len(points) or not dt:
        return points
    points = points.copy()
    angle = twist.omega * dt
    c, s = math.cos(angle), math.sin(angle)
    gone = _chord(np.array([[twist.vx, twist.vy, twist.omega]]), np.array([dt]))[0, 0]
    points[:, :2] += points[:, 2:4] * dt - (gone.real, gone.imag)
    for x, y in ((0, 1), (2, 3)):     # it has turned to the left: what is ahead goes right
        points[:, x], points[:, y] = (c * points[:, x] + s * points[:, y],
                                      c * points[:, y] - s * points[:, x])
    points[:, 5] += dt * (1.0 if twist.speed > _STANDS else _AGES_STANDING)
    near = np.hypot(points[:, 0], points[:, 1]) < 2 * can.reach
    return points[near & (points[:, 5] <= can.memory_s)]


def time_to_contact(twists: np.ndarray, points: np.ndarray, can: TwistConfig) -> np.ndarray:
    """Time [s] until enough points are inside the outline of a robot on arcs (C, 3), (C,).

    inf for never within the horizon.
    """
    if not len(points):
        return np.full(len(twists), np.inf)
    # What stands across the way must not lie between two steps.
    fastest = float(np.hypot(twists[:, 0], twists[:, 1]).max())
    half = 0.5 * can.length + can.margin
    step = max(min(_STEP_S, half / max(fastest, _STANDS)), can.horizon_s / _MOST_STEPS)
    half = max(half, 0.5 * fastest * step)
    times = np.arange(1, math.ceil(can.horizon_s / step) + 1) * step
    at = _chord(twists, times)[..., None]                          # C J 1
    there = (points[:, 0] + 1j * points[:, 1]) + times[:, None] * (
        points[:, 2] + 1j * points[:, 3])                          # J P
    turned = np.exp(-1j * twists[:, 2:] * times)[..., None]
    inside = (there - at) * turned                                 # C J P
    inside = (np.abs(inside.imag) < can.half_width + can.margin) & (
        np.abs(inside.real) < half)
    fades = 1 - 0.7 * points[:, 5] / can.memory_s
    weight = inside @ (points[:, 4] * fades)                       # C J
    hit = weight >= can.evidence
    return np.where(hit.any(-1), times[np.argmax(hit, -1)], np.inf)


def _chord(twists: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Way from the start of arcs, ahead + 1j left: (C, 3) twists, (J,) times to (C, J) [m]."""
    half = 0.5 * twists[:, 2:] * times
    speed = twists[:, :1] + 1j * twists[:, 1:2]
    return speed * times * np.sinc(half / math.pi) * np.exp(1j * half)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where the rays of a camera go: lens, pose on the robot, and the plane that the robot stands on.

Base frame: x ahead, y left, z up, z = 0 on the ground (REP 103). Optical frame: x right, y down,
z along the optical axis. A ray is scaled so that its part along the optical axis is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from vjepa_ros.clip.optics import Optics

_OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])   # to x ahead, z up


@dataclass(frozen=True)
class Mount:
    """Pose of a camera in the base frame.

    Attributes
    ----------
    rotation
        (3, 3) turns vectors of the optical frame into the base frame.
    position
        (3,) of the optical centre [m]; its z is the height above the ground.

    Raises
    ------
    ValueError
        When the camera is not above the ground or looks straight up or down.
    """

    rotation: np.ndarray
    position: np.ndarray
    heading: np.ndarray = field(init=False)    # (3,) level unit vector the camera looks along

    def __post_init__(self) -> None:
        height = float(self.position[2])
        if not (math.isfinite(height) and height > 0):
            raise ValueError(f'the camera is {height:g} m above the ground of the base frame, '
                             'must be above 0; the ground is at z = 0 there')
        level = np.array([*self.rotation[:2, 2], 0.0])
        if np.linalg.norm(level) < 0.2:
            raise ValueError('the camera looks straight up or down; obstacles ahead need one '
                             'that looks less than 78 degrees up or down')
        object.__setattr__(self, 'heading', level / np.linalg.norm(level))

    @classmethod
    def from_angles(cls, height: float, x: float = 0.0, y: float = 0.0, pitch: float = 0.0,
                    yaw: float = 0.0, roll: float = 0.0) -> Mount:
        """Make a pose of position [m] and angles [rad]: pitch down, yaw left, roll clockwise."""
        cy, sy = math.cos(yaw), math.sin(yaw)
        cp, sp = math.cos(pitch), math.sin(pitch)
        cr, sr = math.cos(roll), math.sin(roll)
        turn = (np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
                @ np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
                @ np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]]))
        return cls(turn @ _OPTICAL, np.array([x, y, height], float))

    @classmethod
    def from_transform(cls, translation: tuple[float, float, float],
                       quaternion: tuple[float, float, float, float]) -> Mount:
        """Make a pose of a transform from the optical to the base frame; quaternion x, y, z, w."""
        q = np.array(quaternion, float)
        length = float(np.linalg.norm(q))
        if not 0.9 < length < 1.1:
            raise ValueError(f'the quaternion {tuple(quaternion)} has length {length:g}, '
                             'must be 1')
        x, y, z, w = q / length
        return cls(np.array([
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]]),
            np.array(translation, float))

    @property
    def height(self) -> float:
        """Of the optical centre above the ground [m]."""
        return float(self.position[2])

    def directions(self, rays: np.ndarray) -> np.ndarray:
        """Turn rays (..., 2) into the base frame (..., 3); their depth along the axis is 1."""
        return np.concatenate((rays, np.ones((*rays.shape[:-1], 1))), -1) @ self.rotation.T

    def to_camera(self, points: np.ndarray) -> np.ndarray:
        """Transform points (N, 3) of the base frame into the optical frame."""
        return (points - self.position) @ self.rotation

    def closing_speed(self, linear: tuple[float, float, float],
                      angular: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> float:
        """Compute the speed of the camera along its axis [m/s] from that of the base frame."""
        speed = np.asarray(linear, float) + np.cross(angular, self.position)
        return float(speed @ self.rotation[:, 2])


@dataclass(frozen=True)
class RobotCamera:
    """A camera on a robot: width and height of its image [px], its lens, and its pose."""

    size: tuple[int, int]
    optics: Optics
    mount: Mount

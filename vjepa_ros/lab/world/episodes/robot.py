# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Robots that drive like a unicycle: forward speed and turn, both within limits.

World axes as in `vjepa_ros.lab.world.scenes.scene`: x right, z ahead, yaw 0 looks along z and
grows to the right. Commands are those of a ROS Twist: forward speed [m/s] and turn rate [rad/s],
positive to the left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vjepa_ros.lab.world.rendering.truth import Robot


@dataclass(frozen=True)
class Drive:
    """What the base can do.

    Attributes
    ----------
    speed, turn
        Greatest forward speed [m/s] and turn rate [rad/s]; backward as fast as forward.
    acceleration, braking
        Greatest change of speed away from and towards zero [m/s^2].
    turn_acceleration
        Greatest change of the turn rate [rad/s^2].
    """

    speed: float = 2.0
    turn: float = 1.2
    acceleration: float = 1.0
    braking: float = 2.5
    turn_acceleration: float = 4.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f'{name} is {value}, must be a positive number')


class Unicycles:
    """N robots, their poses and speeds.

    Parameters
    ----------
    count
        N.
    drive
        What their bases can do.

    Attributes
    ----------
    place
        (N, 2) x and z of the point about which they turn, the middle of the robot [m].
    yaw
        (N,) [rad].
    speed, turn
        (N,) forward [m/s], and turn rate, positive to the left [rad/s].
    """

    def __init__(self, count: int, drive: Drive | None = None) -> None:
        self.drive = drive or Drive()
        self.place = np.zeros((count, 2))
        self.yaw = np.zeros(count)
        self.speed = np.zeros(count)
        self.turn = np.zeros(count)

    def step(self, speed: np.ndarray, turn: np.ndarray, dt: float) -> None:
        """Move for a time towards commanded speeds.

        Parameters
        ----------
        speed, turn
            (N,) commands [m/s], [rad/s]; clipped to what the base can do.
        dt
            Time [s].

        Raises
        ------
        ValueError
            When a command is not a finite number.
        """
        if not (np.isfinite(speed).all() and np.isfinite(turn).all()):
            raise ValueError(f'commands must be finite numbers, got speed {speed}, turn {turn}')
        can = self.drive
        speed = np.clip(speed, -can.speed, can.speed)
        turn = np.clip(turn, -can.turn, can.turn)
        # Towards zero the base brakes, also on its way to the other direction.
        slows = (np.abs(speed) < np.abs(self.speed)) | (speed * self.speed < 0)
        most = np.where(slows, can.braking, can.acceleration) * dt
        old_speed, old_turn = self.speed, self.turn
        self.speed = old_speed + np.clip(speed - old_speed, -most, most)
        self.turn = old_turn + np.clip(turn - old_turn, -can.turn_acceleration * dt,
                                       can.turn_acceleration * dt)
        gone = 0.5 * (old_speed + self.speed) * dt
        bend = -0.5 * (old_turn + self.turn) * dt       # yaw grows to the right
        # An arc: its chord leads in the mean direction.
        middle = self.yaw + 0.5 * bend
        chord = gone * np.sinc(bend / (2 * np.pi))
        self.place = self.place + chord[:, None] * np.stack((np.sin(middle), np.cos(middle)), -1)
        self.yaw = self.yaw + bend

    def front(self, robot: Robot) -> np.ndarray:
        """(N, 2) x and z of the middle of the front, where the camera sits [m]."""
        ahead = np.stack((np.sin(self.yaw), np.cos(self.yaw)), -1)
        return self.place + 0.5 * robot.length * ahead


def footprint(place: np.ndarray, yaw: np.ndarray, robot: Robot, margin: float = 0.0,
              ahead: float = 0.0) -> np.ndarray:
    """Corners of robots on the ground, in order around.

    Parameters
    ----------
    place, yaw
        (..., 2) middle [m] and (...) [rad].
    robot
        Its size.
    margin, ahead
        How much wider on each side, and longer in front [m].

    Returns
    -------
    np.ndarray (..., 4, 2)
        x and z [m].
    """
    side = robot.half_width + margin
    half = 0.5 * robot.length
    own = np.array([(-side, -half - margin), (side, -half - margin),
                    (side, half + margin + ahead), (-side, half + margin + ahead)])
    sine, cosine = np.sin(yaw)[..., None], np.cos(yaw)[..., None]
    x = own[:, 0] * cosine + own[:, 1] * sine
    z = own[:, 1] * cosine - own[:, 0] * sine
    return np.asarray(place)[..., None, :] + np.stack((x, z), -1)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Inputs and results of `LocalPlanner`: the robot, its cameras, and plans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.guard.types import Motion
from vjepa_ros.parameter import check_ranges, parameter

SENT, ODOMETRY = 'sent', 'odometry'              # sources of the speed
STOP, PASS, SILENT = 'stop', 'pass', 'silent'        # what is sent at a fault


@dataclass(frozen=True)
class Mount:
    """Pose of a camera on the robot; its optical axis is level."""

    yaw: float = parameter(
        0.0, 'Direction of its optical axis seen from above, left positive', low=-math.pi,
        high=math.pi, unit='rad')
    x: float = parameter(0.3, 'Position ahead of the middle of the robot', low=-10.0, high=10.0,
                         unit='m')
    y: float = parameter(0.0, 'Position left of the middle of the robot', low=-10.0, high=10.0,
                         unit='m')
    height: float = parameter(0.4, 'Height above the ground; its optical axis is level', low=0.02,
                              high=10.0, unit='m')

    def __post_init__(self) -> None:
        check_ranges(self)

    def speed(self, twist: Motion) -> tuple[float, float]:
        """Return the speed of the camera along its optical axis and to the right of it [m/s]."""
        vx, vy = twist.vx - twist.omega * self.y, twist.vy + twist.omega * self.x
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return c * vx + s * vy, s * vx - c * vy


@dataclass(frozen=True)
class LocalConfig:
    """The robot, and how it drives. Raises ValueError with the name of what is out of range."""

    half_width: float = parameter(0.3, 'Half the width of the robot', name='robot.half_width',
                                  low=0.01, high=10.0, unit='m')
    length: float = parameter(0.6, 'Length of the robot, which turns about its middle',
                              name='robot.length', low=0.01, high=20.0, unit='m')
    height: float = parameter(0.5, 'Height of the robot; higher objects are ignored',
                              name='robot.height', low=0.01, high=10.0, unit='m')
    clearance: float = parameter(
        0.05, 'Ground clearance of the robot; lower objects are ignored', name='robot.clearance',
        low=0.0, high=5.0, unit='m')
    margin: float = parameter(
        0.15, 'Distance to keep on all sides; half of it where it is narrow', low=0.0, high=5.0,
        unit='m')
    max_speed: float = parameter(2.0, 'Greatest speed of the robot; faster commands are refused',
                                 low=0.01, high=50.0, unit='m/s')
    max_turn: float = parameter(
        1.2, 'Greatest turn rate of the robot; faster commands are refused', low=0.01, high=10.0,
        unit='rad/s')
    acceleration: float = parameter(
        1.0, 'How fast the robot changes its speed on the way to a goal', low=0.01, high=60.0,
        unit='m/s^2')
    cruise: float = parameter(0.5, 'Speed on the way to a goal', low=0.05, high=50.0, unit='m/s')
    backing: float = parameter(0.3, 'Greatest speed back, where no camera looks; 0: never',
                               low=0.0, high=10.0, unit='m/s')
    tolerance: float = parameter(0.3, 'Distance from the goal at which the robot has arrived',
                                 low=0.05, high=10.0, unit='m')
    memory_s: float = parameter(20.0, 'How long measured points are kept', name='memory',
                                low=0.1, high=60.0, unit='s')

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class DecisionConfig:
    """What `LocalDecider` knows of its robot; all but cameras and source of speed may change."""

    twist: LocalConfig  # the robot, and how it drives
    watch: GuardSettings  # faults of cameras
    mounts: Mapping[str, Mount]  # poses of the cameras by name
    speed_from: str = parameter(
        SENT, 'Source of the speed of the robot; sent: topic cmd_vel_sent, remapped to what the '
        'base gets (from the guard, or without one from this node); odometry: topic odom',
        choices=(SENT, ODOMETRY))
    on_fault: str = parameter(
        STOP, 'What is sent for a command towards a camera at fault; stop: only the turn of the '
        'command; pass: the command unchanged; silent: nothing', choices=(STOP, PASS, SILENT))


# One candidate; see `LocalPlan.candidates`.
CANDIDATE = np.dtype([('vx', '<f4'), ('vy', '<f4'), ('omega', '<f4'), ('cost', '<f4'),
                      ('risk', '<f4'), ('time_to_contact', '<f4'), ('rank', '<u2'),
                      ('accepted', 'u1'), ('reserved', 'u1')])


@dataclass(frozen=True)
class LocalPlan:
    """The chosen twist, and the candidates."""

    twist: Motion  # the chosen twist
    risk: float  # its risk, 0..1; NaN where it was not judged
    # (C,) `CANDIDATE`, the command first: distance from the command (``cost``), risk 0..1, time
    # to contact with points [s] (inf: none), and rank (0 is chosen). Accepted ones rank first,
    # by cost; the others by risk, then speed. Empty where nothing was judged.
    candidates: np.ndarray
    points: int  # number of points they were judged by
    covered: bool  # whether a camera looks where the command leads; otherwise it passes unchanged
    # Why "no points" does not mean "nothing there": no distances were measured there within
    # ``memory_s``, or the newest picture is flagged; '' otherwise
    unmeasured: str
    twists: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))

    @property
    def measured(self) -> bool:
        """Whether the path of the command was measured."""
        return not self.unmeasured

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of obstacles in metres: what ``~/NAME/obstacle_points`` and ``scan`` need.

This module imports no ROS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.obstacles.config import AT_REST, DISTANCES, ObstacleSettings
from vjepa_ros.obstacles.geometry import Mount
from vjepa_ros.ros.common.parameter import CONFIGURE, Param, make, setting

_setting = partial(setting, ObstacleSettings)

OBSTACLE_ROWS: tuple[Param, ...] = (
    Param('obstacles.base_frame', str, '', 'Frame of the robot on the ground, such as base_link: '
          'asked of tf for the pose of cameras without NAME.mount.height, and the frame of '
          '~/NAME/scan; empty: tf is not used', CONFIGURE),
    Param('obstacles.points_frame', str, 'auto', 'Frame of ~/NAME/obstacle_points: camera: that '
          'of the image; base: obstacles.base_frame; auto: base where that is named', CONFIGURE,
          choices=('auto', 'camera', 'base')),
    Param('obstacles.scan', bool, False, 'Publish ~/NAME/scan, too; needs obstacles.base_frame',
          CONFIGURE),
    Param('obstacles.odometry', str, '', 'Topic of nav_msgs/Odometry with the speed of the robot; '
          'empty: none', CONFIGURE),
    Param('obstacles.odometry_timeout', float, 0.5, 'Older odometry counts as none', low=0.02,
          high=10.0, unit='s'),
    _setting('obstacles.distance', 'Where distances come from: odometry, the ground plane alone, '
             'or auto: odometry while there is some, else the ground', choices=DISTANCES),
    _setting('obstacles.min_height', 'Lower end of the band that points lie in; lower things are '
             'no obstacles', low=0.0, high=5.0, unit='m'),
    _setting('obstacles.max_height', 'Upper end of that band', low=0.01, high=10.0, unit='m'),
    _setting('obstacles.max_range', 'Obstacles farther away are left out', low=0.3, high=50.0,
             unit='m'),
    _setting('obstacles.min_known', 'Nothing is published when less of what lies ahead could be '
             'measured', low=0.0, high=1.0),
    _setting('obstacles.min_sight', 'Nothing is published while the way straight ahead is not '
             'measured that far, nor blocked, and no heads tell it', low=0.0, high=20.0, unit='m'),
    _setting('obstacles.at_rest', 'Whether to publish what moves while the camera stands and no '
             'heads tell the free way; still things can not be seen then', choices=AT_REST),
    _setting('obstacles.pitch_error', 'Standard error of the pitch of a camera while driving',
             low=0.0, high=10.0, unit='deg'),
    _setting('obstacles.caution', 'Points are placed nearer than estimated by so many standard '
             'errors', low=0.0, high=3.0),
    _setting('obstacles.spacing', 'Greatest distance of points side by side', low=0.01, high=0.5,
             unit='m'),
)


@dataclass(frozen=True)
class ObstacleConfig:
    """All parameters of obstacles at one moment.

    Attributes
    ----------
    settings
        How they are placed.
    base_frame, points_frame, scan, odometry
        As the parameters.
    odometry_timeout
        Oldest odometry [s].
    mounts
        Pose of each camera by its name; None where tf has to tell it.
    """

    settings: ObstacleSettings
    base_frame: str
    points_frame: str
    scan: bool
    odometry: str
    odometry_timeout: float
    mounts: Mapping[str, Mount | None]

    @property
    def in_base(self) -> bool:
        """Whether points are published in the base frame.

        New versions of Nav2 compare the height band with z as it was published, older ones with
        z in their base frame (`pointcloud.cpp`): only a cloud in the base frame suits both.
        """
        return self.points_frame == 'base' or (self.points_frame == 'auto'
                                               and bool(self.base_frame))


def mount_rows(camera: str) -> tuple[Param, ...]:
    """Rows of the pose of a camera on the robot."""
    def row(name: str, text: str, high: float, unit: str, low: float | None = None) -> Param:
        return Param(f'{camera}.mount.{name}', float, 0.0, text, CONFIGURE,
                     low=-high if low is None else low, high=high, unit=unit)

    return (row('height', 'Height of the optical centre above the ground; 0: the pose of the '
                'camera comes from tf', 10.0, 'm', 0.0),
            row('x', 'How far the camera is ahead of the base frame', 20.0, 'm'),
            row('y', 'How far it is to the left', 20.0, 'm'),
            row('pitch', 'How far it looks down', 75.0, 'deg'),
            row('yaw', 'How far it looks to the left', 180.0, 'deg'),
            row('roll', 'How far it leans clockwise', 180.0, 'deg'))


def make_obstacle_settings(values: Mapping[str, Any]) -> ObstacleSettings:
    """How obstacles are placed, of a set of parameter values (ValueError if illegal)."""
    if values['obstacles.points_frame'] == 'base' and not values['obstacles.base_frame']:
        raise ValueError("obstacles.points_frame is 'base', but obstacles.base_frame is empty; "
                         'name the frame, such as base_link')
    if values['obstacles.scan'] and not values['obstacles.base_frame']:
        raise ValueError('obstacles.scan is true, but obstacles.base_frame is empty; rays of a '
                         'scan lie in the plane of that frame: name it, such as base_link')
    return make(ObstacleSettings, OBSTACLE_ROWS, values)


def make_obstacle_config(values: Mapping[str, Any]) -> ObstacleConfig:
    """All of it, of a set of parameter values (ValueError if illegal)."""
    mounts: dict[str, Mount | None] = {}
    for camera in values['cameras']:
        at = {name: values[f'{camera}.mount.{name}'] for name in ('height', 'x', 'y')}
        turned = {name: math.radians(values[f'{camera}.mount.{name}'])
                  for name in ('pitch', 'yaw', 'roll')}
        mounts[camera] = Mount.from_angles(**at, **turned) if at['height'] > 0 else None
    return ObstacleConfig(make_obstacle_settings(values), **{
        name: values[f'obstacles.{name}'] for name in (
            'base_frame', 'points_frame', 'scan', 'odometry', 'odometry_timeout')},
        mounts=mounts)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the local planner and its configuration (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.planning.local_config import (
    DecisionConfig,
    LocalConfig,
    Mount,
    ODOMETRY,
    OWN,
    PASS,
    SENT,
    SILENT,
    STOP,
)
from vjepa_ros.ros.collision_guard.parameters import COMMAND_TIMEOUT, SOURCES, SOURCE_TIMEOUT
from vjepa_ros.ros.common.parameter import (
    AUTOSTART,
    CONFIGURE,
    MESSAGES,
    Param,
    Schema,
    make,
    setting,
)

_choice = partial(setting, LocalConfig)

SECTIONS: dict[str, tuple[Param, ...]] = {
    'Topics': (
        SOURCES,
        Param('message', str, 'twist', 'Type of cmd_vel_in, cmd_vel_out and cmd_vel_sent',
              CONFIGURE, choices=MESSAGES),
        Param('speed_from', str, SENT, 'Source of the speed of the robot; sent: topic '
              'cmd_vel_sent, remapped to what the guard sends to the base; odometry: topic odom '
              '(needs nav_msgs); own: the commands of this node, if nothing behind it changes '
              'them', CONFIGURE, choices=(SENT, ODOMETRY, OWN)),
        Param('base_frame', str, 'base_link', 'frame_id of ~/candidates', CONFIGURE),
        AUTOSTART,
    ),
    'Faults': (
        Param('on_fault', str, STOP, 'What is sent for a command towards a camera at fault; stop: '
              'only the turn of the command; pass: the command unchanged; silent: nothing',
              choices=(STOP, PASS, SILENT)),
        SOURCE_TIMEOUT,
        COMMAND_TIMEOUT,
    ),
    'Robot': (
        _choice('robot.half_width', 'Half the width of the robot', low=0.01, high=10.0, unit='m'),
        _choice('robot.length', 'Length of the robot, which turns about its middle', low=0.01,
                high=20.0, unit='m'),
        _choice('robot.height', 'Height of the robot; higher objects are ignored', low=0.01,
                high=10.0, unit='m'),
        _choice('robot.clearance', 'Ground clearance of the robot; lower objects are ignored',
                low=0.0, high=5.0, unit='m'),
        _choice('margin', 'Distance to keep on all sides; half of it where it is narrow', low=0.0,
                high=5.0, unit='m'),
        _choice('max_speed', 'Greatest speed of the robot; faster commands are refused', low=0.01,
                high=50.0, unit='m/s'),
        _choice('max_turn', 'Greatest turn rate of the robot; faster commands are refused',
                low=0.01, high=10.0, unit='rad/s'),
        _choice('acceleration', 'How fast the robot changes its speed on the way to a goal',
                low=0.01, high=60.0, unit='m/s^2'),
    ),
    'Driving': (
        _choice('cruise', 'Speed on the way to a goal', low=0.05, high=50.0, unit='m/s'),
        _choice('backing', 'Greatest speed back, where no camera looks; 0: never', low=0.0,
                high=10.0, unit='m/s'),
        _choice('tolerance', 'Distance from the goal at which the robot has arrived', low=0.05,
                high=10.0, unit='m'),
        _choice('memory', 'How long measured points are kept', low=0.1, high=60.0, unit='s',
                sets='memory_s'),
    ),
}


def source_rows(name: str) -> tuple[Param, ...]:
    """Return the rows of one camera."""
    mount = partial(setting, Mount, effect=CONFIGURE)
    return (
        Param(f'{name}.topic', str, '', 'Prefix of its topics assessment and looming_field; '
              'empty: vjepa_node/NAME', CONFIGURE),
        mount(f'{name}.yaw', 'Direction of its optical axis seen from above, left positive',
              low=-math.pi, high=math.pi, unit='rad'),
        mount(f'{name}.x', 'Position ahead of the middle of the robot', low=-10.0, high=10.0,
              unit='m'),
        mount(f'{name}.y', 'Position left of the middle of the robot', low=-10.0, high=10.0,
              unit='m'),
        mount(f'{name}.height', 'Height above the ground; its optical axis is level', low=0.02,
              high=10.0, unit='m'),
    )


@dataclass(frozen=True)
class LocalNodeConfig(DecisionConfig):
    """Configuration of the node."""

    topics: Mapping[str, str]  # prefix of the topics of each camera
    stamped: bool  # whether commands are TwistStamped
    base_frame: str  # frame of the candidates


def make_config(values: Mapping[str, Any]) -> LocalNodeConfig:
    """Return the configuration for parameter values; ValueError when inconsistent."""
    names = values['sources']
    return LocalNodeConfig(
        *check(values), {name: make(Mount, source_rows(name), values) for name in names},
        values['speed_from'], values['on_fault'],
        {name: (values[f'{name}.topic'] or f'vjepa_node/{name}').rstrip('/') for name in names},
        values['message'] == 'twist_stamped', values['base_frame'])


def check(values: Mapping[str, Any]) -> tuple[LocalConfig, GuardSettings]:
    """Return robot and faults of cameras; ValueError when values of the node are inconsistent."""
    return (make(LocalConfig, SCHEMA.rows, values),
            make(GuardSettings, SCHEMA.rows, values, slow_on=()))


SCHEMA = Schema(SECTIONS, make_config, check, {'sources': source_rows})

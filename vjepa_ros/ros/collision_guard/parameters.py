# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the collision guard and its configuration (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjepa_ros.guard.guard import DIRECTIONS
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.parameter import (
    AUTOSTART,
    CAMERAS,
    CONFIGURE,
    FIXED,
    MESSAGES,
    NAME,
    NAMES,
    Param,
    Schema,
    make,
    rows_of,
)

FROM_TF = 'tf'
BASE_FRAME = 'base_link'    # as REP 105 names the frame of a robot
# What is a constant now. Of `rate`, which other nodes have, nothing is said.
GONE = ('caution_factor caution_probability doubted_factor believe_level horizon '
        'measurement_window measuring_speed release.hold release.turn forget clearance_releases '
        'range_releases range_timeout odometry_timeout override.timeout clock_tolerance '
        'frozen_travel fault_speed release.acceleration memory hysteresis')
BOND = 'the guard makes no bond any more: set bond_timeout of the lifecycle manager to 0.0'

SOURCES = Param('sources', tuple[str, ...], CAMERAS, 'Names of the cameras of the perception node',
                CONFIGURE, pattern=NAME, allowed=NAMES)

SECTIONS: dict[str, tuple[Param, ...]] = {
    'Topics': (
        SOURCES,
        Param('ranges', tuple[str, ...], (), 'Names of range sensors', CONFIGURE, pattern=NAME,
              allowed='ROS names such as sonar'),
        Param('message', str, 'twist', 'Type of cmd_vel_in and cmd_vel_out', CONFIGURE,
              choices=MESSAGES),
        Param('odometry', bool, False, 'Read the speed from odom; without it the commands sent '
              'count as the speed', CONFIGURE),
        Param('heartbeat', float, 0.0, 'Longest silence of a guard that lives: it offers deadline '
              'and liveliness of this length on cmd_vel_out, and beats four times as often on '
              '~/heartbeat; 0: neither', CONFIGURE, low=0.0, high=60.0, unit='s'),
        Param('watchdog', bool, False, 'Drive only while command_watchdog confirms that it hears '
              'this guard and that its zeros reach the base (needs heartbeat)', CONFIGURE),
        AUTOSTART,
    ),
    'Law and faults': rows_of(GuardSettings),
}


def source_rows(name: str) -> tuple[Param, ...]:
    return (
        Param(f'{name}.topic', str, '', 'Topic of its assessments; empty: '
              'vjepa_node/NAME/assessment', CONFIGURE),
        Param(f'{name}.direction', str, 'forward', 'Where it looks; yaw: along the next '
              'parameter; tf: by tf, from the frame of its images', CONFIGURE,
              choices=(*DIRECTIONS, 'yaw', FROM_TF)),
        Param(f'{name}.yaw', float, 0.0, 'Direction of its optical axis seen from above, left '
              'positive', CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
    )


def range_rows(name: str) -> tuple[Param, ...]:
    return (
        Param(f'{name}.type', str, 'range', 'sensor_msgs/Range or sensor_msgs/LaserScan',
              CONFIGURE, choices=('range', 'scan')),
        Param(f'{name}.direction', str, 'forward', 'Where it looks (scan: along which corridor); '
              'yaw: along the next parameter', CONFIGURE, choices=(*DIRECTIONS, 'yaw')),
        Param(f'{name}.yaw', float, 0.0, 'Direction in the frame of the robot, left positive',
              CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
        Param(f'{name}.mounting', float, 0.0, 'Scan: yaw of its frame in the frame of the robot',
              CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
        Param(f'{name}.half_width', float, 0.3, 'Scan: half the width of the corridor', CONFIGURE,
              low=0.01, high=10.0, unit='m'),
    )


@dataclass(frozen=True)
class Source:
    """A camera: name, topic, yaw [rad], and whether tf gives the yaw."""

    name: str
    topic: str
    yaw: float
    from_tf: bool


@dataclass(frozen=True)
class Ranger:
    """A range sensor; the last two are for scans: yaw of the frame [rad], corridor [m]."""

    name: str       # also its topic
    yaw: float
    kind: str
    mounting: float
    half_width: float


@dataclass(frozen=True)
class GuardConfig:
    settings: GuardSettings
    sources: tuple[Source, ...]
    ranges: tuple[Ranger, ...]
    stamped: bool
    odometry: bool
    heartbeat: float
    watchdog: bool


def make_settings(values: Mapping[str, Any]) -> GuardSettings:
    return make(GuardSettings, SCHEMA.rows, values)


def make_config(values: Mapping[str, Any]) -> GuardConfig:
    if values['watchdog'] and not values['heartbeat']:
        raise ValueError('watchdog is true, but heartbeat is 0, so that a watchdog hears nothing: '
                         'set heartbeat, such as to 0.4, or watchdog to false')
    sources = tuple(Source(name, values[f'{name}.topic'] or f'vjepa_node/{name}/assessment',
                           _yaw(values, name), values[f'{name}.direction'] == FROM_TF)
                    for name in values['sources'])
    ranges = tuple(Ranger(name, _yaw(values, name), values[f'{name}.type'],
                          values[f'{name}.mounting'], values[f'{name}.half_width'])
                   for name in values['ranges'])
    return GuardConfig(make_settings(values), sources, ranges,
                       values['message'] == 'twist_stamped', values['odometry'],
                       values['heartbeat'], values['watchdog'])


def _yaw(values: Mapping[str, Any], name: str) -> float:
    """Return the direction of a camera or sensor [rad]; 0 until tf gives it."""
    direction = values[f'{name}.direction']
    return values[f'{name}.yaw'] if direction == 'yaw' else DIRECTIONS.get(direction, 0.0)


SCHEMA = Schema(SECTIONS, make_config, make_settings,
                {'sources': source_rows, 'ranges': range_rows}, gone={
                    **dict.fromkeys(GONE.split(), FIXED), 'bond': BOND,
                    'release.speed': 'it is 0.3 m/s; let the controller send less for less',
                    'slow_on': 'leave a fault out of stop_on, and it slows',
                    'stop_level': 'the robot stops at DANGER; raise stop_time_to_contact to stop '
                                  'earlier',
                    'base_frame': f'the frame of the robot is {BASE_FRAME} (REP 105)',
                    'RANGE.topic': 'remap the topic that has the name of the sensor',
                    'NAME.blank': 'rays without a reading are never free: set the driver to send '
                                  'inf (REP 117)'})

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the collision guard and its configuration (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.guard.guard import DIRECTIONS
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.parameter import (
    AUTOSTART,
    CAMERAS,
    CONFIGURE,
    MESSAGES,
    NAME,
    NAMES,
    Param,
    Schema,
    make,
    parameter,
    rows_of,
)

FROM_TF = 'tf'
BASE_FRAME = 'base_link'    # as REP 105 names the frame of a robot

SOURCES = Param('sources', tuple[str, ...], CAMERAS, 'Names of the cameras of the perception node',
                CONFIGURE, pattern=NAME, allowed=NAMES)
_angle = partial(parameter, 0.0, low=-math.pi, high=math.pi, unit='rad')


@dataclass(frozen=True)
class Looking:
    """A camera or range sensor, by its name."""

    name: str

    @property
    def yaw(self) -> float:
        """Where it looks [rad]; 0 until tf tells."""
        given: Any = self
        return given.angle if given.direction == 'yaw' else DIRECTIONS.get(given.direction, 0.0)


@dataclass(frozen=True)
class Source(Looking):
    """A camera."""

    topic: str = parameter('', 'Topic of its assessments; empty: vjepa_node/NAME/assessment')
    direction: str = parameter(
        'forward', 'Where it looks; yaw: along the next parameter; tf: by tf, from the frame of '
        'its images', choices=(*DIRECTIONS, 'yaw', FROM_TF))
    angle: float = _angle('Direction of its optical axis seen from above, left positive',
                          name='yaw')


@dataclass(frozen=True)
class Ranger(Looking):
    """A range sensor; its name is also its topic."""

    kind: str = parameter('range', 'sensor_msgs/Range or sensor_msgs/LaserScan', name='type',
                          choices=('range', 'scan'))
    direction: str = parameter(
        'forward', 'Where it looks (scan: along which corridor); yaw: along the next parameter',
        choices=(*DIRECTIONS, 'yaw'))
    angle: float = _angle('Direction in the frame of the robot, left positive', name='yaw')
    mounting: float = _angle('Scan: yaw of its frame in the frame of the robot')
    half_width: float = parameter(0.3, 'Scan: half the width of the corridor', low=0.01,
                                  high=10.0, unit='m')


@dataclass(frozen=True)
class GuardConfig:
    """Configuration of the node."""

    settings: GuardSettings
    sources: tuple[Source, ...]
    ranges: tuple[Ranger, ...]
    message: str = parameter('twist', 'Type of cmd_vel_in and cmd_vel_out', choices=MESSAGES)
    odometry: bool = parameter(False, 'Read the speed from odom; without it the commands sent '
                               'count as the speed')
    heartbeat: float = parameter(
        0.0, 'Longest silence of a guard that lives: it offers deadline and liveliness of this '
        'length on cmd_vel_out, and beats four times as often on ~/heartbeat; 0: neither',
        low=0.0, high=60.0, unit='s')
    watchdog: bool = parameter(
        False, 'Drive only while command_watchdog confirms that it hears this guard and that its '
        'zeros reach the base (needs heartbeat)')


def source_rows(name: str) -> tuple[Param, ...]:
    return rows_of(Source, CONFIGURE, f'{name}.')


def range_rows(name: str) -> tuple[Param, ...]:
    return rows_of(Ranger, CONFIGURE, f'{name}.')


def make_settings(values: Mapping[str, Any]) -> GuardSettings:
    return make(GuardSettings, SCHEMA.rows, values)


def make_config(values: Mapping[str, Any]) -> GuardConfig:
    if values['watchdog'] and not values['heartbeat']:
        raise ValueError('watchdog is true, but heartbeat is 0, so that a watchdog hears nothing: '
                         'set heartbeat, such as to 0.4, or watchdog to false')
    sources = tuple(make(Source, source_rows(name), values, name=name, topic=(
        values[f'{name}.topic'] or f'vjepa_node/{name}/assessment')) for name in values['sources'])
    ranges = tuple(make(Ranger, range_rows(name), values, name=name) for name in values['ranges'])
    return make(GuardConfig, SCHEMA.rows, values, settings=make_settings(values), sources=sources,
                ranges=ranges)


SCHEMA = Schema({
    'Topics': (SOURCES,
               Param('ranges', tuple[str, ...], (), 'Names of range sensors', CONFIGURE,
                     pattern=NAME, allowed='ROS names such as sonar'),
               *rows_of(GuardConfig, CONFIGURE), AUTOSTART),
    'Law and faults': rows_of(GuardSettings)},
    make_config, make_settings, {'sources': source_rows, 'ranges': range_rows})

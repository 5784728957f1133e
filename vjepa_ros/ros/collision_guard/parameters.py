# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the collision guard and its configuration (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.guard.settings import UNCOVERED, GuardSettings
from vjepa_ros.perception.types import Level
from vjepa_ros.ros.common.parameter import (
    AUTOSTART,
    CAMERAS,
    CONFIGURE,
    MESSAGES,
    NAME,
    NAMES,
    Param,
    Schema,
    make,
    setting,
)

DIRECTIONS = {'forward': 0.0, 'backward': math.pi, 'left': math.pi / 2, 'right': -math.pi / 2}
DIRECTION_NAMES = (*DIRECTIONS, 'yaw')
FROM_TF = 'tf'
SENSORS = ('range', 'scan')
BLANKS = ('unknown', 'free')
LEVELS = {level.name.lower(): level for level in (Level.CAUTION, Level.WARNING, Level.DANGER)}
BELIEVED = {'clear': Level.CLEAR, **LEVELS}
_setting = partial(setting, GuardSettings)

SECTIONS: dict[str, tuple[Param, ...]] = {
    'Wiring': (
        Param('sources', tuple[str, ...], CAMERAS, 'Names of the cameras of the perception '
              'node', CONFIGURE, pattern=NAME, allowed=NAMES),
        Param('ranges', tuple[str, ...], (), 'Names of range sensors', CONFIGURE, pattern=NAME,
              allowed='ROS names such as sonar'),
        Param('message', str, 'twist', 'Type of cmd_vel_in and cmd_vel_out', CONFIGURE,
              choices=MESSAGES),
        Param('odometry', bool, False, 'Read the speed from odom (needs nav_msgs); without it the '
              'own commands count as the speed', CONFIGURE),
        Param('base_frame', str, 'base_link', 'Frame of the robot, for sources with direction: '
              'tf', CONFIGURE),
        Param('rate', float, 50.0, 'How often limits and timeouts are looked at without news',
              CONFIGURE, low=20.0, high=500.0, unit='Hz'),
        AUTOSTART,
    ),
    'Law': (
        _setting('min_time_to_contact', 'The speed is scaled so that the time to contact stays '
                 'above this', low=0.1, high=60.0, unit='s'),
        _setting('stop_time_to_contact', 'Time to contact below which the robot stops', low=0.05,
                 high=60.0, unit='s'),
        _setting('stop_distance', 'Free way that is always left to what was seen; from the '
                 'camera, so add how far the robot reaches in front of it', low=0.0, high=60.0,
                 unit='m'),
        _setting('braking', 'Deceleration that the robot surely reaches', low=0.01, high=60.0,
                 unit='m/s^2'),
        _setting('reaction', 'Time from a command until the robot follows it', low=0.0, high=60.0,
                 unit='s'),
        _setting('caution_factor', 'Part of the commanded speed that is left at levels CAUTION '
                 'and WARNING', low=0.0, high=1.0),
        _setting('caution_probability', 'Collision probability below which CAUTION is doubted, '
                 'for geometry or heads alone see what the other contradicts; 0: it never is',
                 low=0.0, high=1.0),
        _setting('doubted_factor', 'Part of the commanded speed that is left at a CAUTION that is '
                 'doubted', low=0.0, high=1.0),
        _setting('stop_level', 'Level from which the robot stops', choices=LEVELS),
        _setting('believe_level', 'Level from which the time to contact counts as told; below, as '
                 'at least 1.5 times min_time_to_contact', choices=BELIEVED),
        _setting('hysteresis', 'A stop ends when the time to contact exceeds its threshold by '
                 'this part', low=0.0, high=2.0),
        _setting('horizon', 'Longest time to contact that is trusted: the way counts as seen so '
                 'far', low=0.2, high=60.0, unit='s'),
        _setting('measurement_window', 'Time before its stamp that a time to contact is measured '
                 'over', low=0.02, high=5.0, unit='s'),
        _setting('measuring_speed', 'Speed from which a view in which nothing comes nearer says '
                 'that the way is free', low=0.01, high=5.0, unit='m/s'),
        _setting('unseen_speed', 'Speed where nothing is known about the way: after a start, '
                 'after turning on the spot', low=0.0, high=20.0, unit='m/s'),
        _setting('memory', 'How long the way counts as free after it was last measured', low=0.0,
                 high=60.0, unit='s'),
    ),
    'Release': (
        _setting('release.hold', 'Time without danger before motion is released', low=0.0,
                 high=60.0, unit='s'),
        _setting('release.speed', 'Speed after a stop or a fault until the way is measured again',
                 low=0.02, high=20.0, unit='m/s'),
        _setting('release.acceleration', 'How fast a limit may rise; limits fall at once',
                 low=0.01, high=60.0, unit='m/s^2'),
        _setting('release.turn', 'Heading change after which what was seen lies elsewhere',
                 low=0.05, high=6.3, unit='rad'),
        _setting('forget', 'Standing time after which a remembered obstacle is no longer '
                 'believed; 0: never', low=0.0, high=3600.0, unit='s'),
        _setting('clearance_releases', 'Whether learned heads that see a longer free way make a '
                 'remembered obstacle forgotten while the robot stands'),
        _setting('range_releases', 'Whether a range sensor that sees farther makes a remembered '
                 'obstacle forgotten'),
    ),
    'Faults': (
        _setting('source_timeout', 'Age from which an assessment is too old', low=0.05, high=60.0,
                 unit='s'),
        _setting('range_timeout', 'Age from which a range reading is too old', low=0.02, high=60.0,
                 unit='s'),
        _setting('command_timeout', 'Silence after which the command has ended: zero once, then '
                 'silence', low=0.05, high=60.0, unit='s'),
        _setting('odometry_timeout', 'Silence of the odometry after which the own commands count '
                 'as the speed', low=0.02, high=60.0, unit='s'),
        _setting('override.timeout', 'How long an override lasts', low=0.1, high=3600.0, unit='s'),
        _setting('clock_tolerance', 'How far a stamp may lie in the future', low=0.0, high=60.0,
                 unit='s'),
        _setting('frozen_travel', 'Way driven under a picture that does not change by a bit, from '
                 'which the camera counts as frozen', low=0.0, high=10.0, unit='m'),
        _setting('fault_speed', 'Speed that is left by the faults in slow_on, and with uncovered: '
                 'slow', low=0.0, high=20.0, unit='m/s'),
        _setting('stop_on', 'Faults of a source that stop motion towards it: missing, timeout, '
                 'clock, malformed, unknown, frozen (each must stand here or in slow_on) and '
                 'flags of the assessment'),
        _setting('slow_on', 'Faults that slow it to fault_speed instead'),
        _setting('uncovered', 'Motion that no source looks at, such as reversing with one camera '
                 'ahead. free: all, blind, and told so; slow: at most fault_speed; stop: none',
                 choices=UNCOVERED),
    ),
}


def source_rows(name: str) -> tuple[Param, ...]:
    """Return the rows of one camera."""
    return (
        Param(f'{name}.topic', str, '', 'Topic of its assessments; empty: '
              'vjepa_node/NAME/assessment', CONFIGURE),
        Param(f'{name}.direction', str, 'forward', 'Where it looks; yaw: as the next parameter '
              'says; tf: as tf says of the frame of its images', CONFIGURE,
              choices=(*DIRECTION_NAMES, FROM_TF)),
        Param(f'{name}.yaw', float, 0.0, 'Direction of its optical axis seen from above, left '
              'positive', CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
    )


def range_rows(name: str) -> tuple[Param, ...]:
    """Return the rows of one range sensor."""
    return (
        Param(f'{name}.type', str, 'range', 'sensor_msgs/Range or sensor_msgs/LaserScan',
              CONFIGURE, choices=SENSORS),
        Param(f'{name}.topic', str, '', 'Its topic; empty: NAME', CONFIGURE),
        Param(f'{name}.direction', str, 'forward', 'Where it looks (scan: which corridor of it '
              'counts); yaw: as the next parameter says', CONFIGURE, choices=DIRECTION_NAMES),
        Param(f'{name}.yaw', float, 0.0, 'Direction in the frame of the robot, left positive',
              CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
        Param(f'{name}.mounting', float, 0.0, 'Scan: yaw of its frame in the frame of the robot',
              CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
        Param(f'{name}.half_width', float, 0.3, 'Scan: half the width of the corridor', CONFIGURE,
              low=0.01, high=10.0, unit='m'),
        Param(f'{name}.blank', str, 'unknown', 'Scan: what rays with NaN, 0 or less than '
              'range_min say. unknown: nothing (REP 117), and many side by side stop; free: that '
              'nothing is there, for drivers that send these instead of inf', CONFIGURE,
              choices=BLANKS),
    )


@dataclass(frozen=True)
class Source:
    """A camera: name, topic, yaw [rad], and whether tf gives the yaw."""

    name: str
    topic: str
    yaw: float
    from_tf: bool = False


@dataclass(frozen=True)
class Ranger:
    """A range sensor: name, topic, yaw [rad], kind.

    A scan also has a mounting [rad], half the width of its corridor [m], and whether rays without
    a reading are free.
    """

    name: str
    topic: str
    yaw: float
    kind: str
    mounting: float
    half_width: float
    blank_free: bool = False


@dataclass(frozen=True)
class GuardConfig:
    """Configuration of the node."""

    settings: GuardSettings
    sources: tuple[Source, ...]
    ranges: tuple[Ranger, ...]
    stamped: bool
    odometry: bool
    rate: float
    base_frame: str


def make_settings(values: Mapping[str, Any]) -> GuardSettings:
    """Return the settings of the guard for parameter values; ValueError when inconsistent."""
    return make(GuardSettings, SCHEMA.rows, values)


def make_config(values: Mapping[str, Any]) -> GuardConfig:
    """Return the configuration for parameter values; ValueError when inconsistent."""
    sources = tuple(Source(name, values[f'{name}.topic'] or f'vjepa_node/{name}/assessment',
                           _yaw(values, name), values[f'{name}.direction'] == FROM_TF)
                    for name in values['sources'])
    ranges = tuple(Ranger(name, values[f'{name}.topic'] or name, _yaw(values, name),
                          values[f'{name}.type'], values[f'{name}.mounting'],
                          values[f'{name}.half_width'], values[f'{name}.blank'] == 'free')
                   for name in values['ranges'])
    return GuardConfig(make_settings(values), sources, ranges,
                       values['message'] == 'twist_stamped', values['odometry'], values['rate'],
                       values['base_frame'])


def _yaw(values: Mapping[str, Any], name: str) -> float:
    direction = values[f'{name}.direction']
    if direction == FROM_TF:
        return 0.0                              # until tf gives it
    return DIRECTIONS[direction] if direction in DIRECTIONS else values[f'{name}.yaw']


SCHEMA = Schema(SECTIONS, make_config, make_settings,
                {'sources': source_rows, 'ranges': range_rows})

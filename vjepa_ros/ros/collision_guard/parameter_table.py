# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the collision_guard node (this module needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjepa_ros.guard.settings import UNCOVERED, GuardSettings
from vjepa_ros.perception.types import Level
from vjepa_ros.ros.perception_node.parameter_table import CONFIGURE, LIVE, NAME, STARTUP, Param

DIRECTIONS = {'forward': 0.0, 'backward': math.pi, 'left': math.pi / 2, 'right': -math.pi / 2}
DIRECTION_NAMES = (*DIRECTIONS, 'yaw')
FROM_TF = 'tf'
MESSAGES = ('twist', 'twist_stamped')
SENSORS = ('range', 'scan')
BLANKS = ('unknown', 'free')
LEVELS = {level.name.lower(): level for level in (Level.CAUTION, Level.WARNING, Level.DANGER)}
BELIEVED = {'clear': Level.CLEAR, **LEVELS}
DEFAULT = GuardSettings()


def _setting(name: str, text: str, unit: str = '', high: float = 60.0, low: float = 0.0) -> Param:
    default = getattr(DEFAULT, _field(name))
    return Param(name, float, default, text, LIVE, low=low, high=high, unit=unit)


def _field(name: str) -> str:
    """Name of the setting that a parameter sets."""
    return name.replace('.', '_')


SETTINGS: tuple[Param, ...] = (
    _setting('min_time_to_contact', 'The speed is scaled so that the time to contact stays above '
             'this', 's', low=0.1),
    _setting('stop_time_to_contact', 'Time to contact below which the robot stops', 's', low=0.05),
    _setting('stop_distance', 'Free way that is always left to what was seen; from the camera, '
             'so add how far the robot reaches in front of it', 'm'),
    _setting('braking', 'Deceleration that the robot surely reaches', 'm/s^2', low=0.01),
    _setting('reaction', 'Time from a command until the robot follows it', 's'),
    _setting('caution_factor', 'Part of the commanded speed that is left at levels CAUTION and '
             'WARNING', high=1.0),
    _setting('caution_probability', 'Collision probability below which CAUTION is doubted, for '
             'geometry or heads alone see what the other contradicts; 0: it never is', high=1.0),
    _setting('doubted_factor', 'Part of the commanded speed that is left at a CAUTION that is '
             'doubted', high=1.0),
    Param('stop_level', str, 'danger', 'Level from which the robot stops', LIVE,
          choices=tuple(LEVELS)),
    Param('believe_level', str, DEFAULT.believe_level.name.lower(), 'Level from which the time to '
          'contact counts as told; below, as at least 1.5 times min_time_to_contact', LIVE,
          choices=tuple(BELIEVED)),
    _setting('hysteresis', 'A stop ends when the time to contact exceeds its threshold by this '
             'part', high=2.0),
    _setting('horizon', 'Longest time to contact that is trusted: the way counts as seen so far',
             's', low=0.2),
    _setting('measurement_window', 'Time before its stamp that a time to contact is measured over',
             's', low=0.02, high=5.0),
    _setting('measuring_speed', 'Speed from which a view in which nothing comes nearer says that '
             'the way is free', 'm/s', low=0.01, high=5.0),
    _setting('unseen_speed', 'Speed where nothing is known about the way: after a start, after '
             'turning on the spot', 'm/s', high=20.0),
    _setting('memory', 'How long the way counts as free after it was last measured', 's'),
    _setting('release.hold', 'Time without danger before motion is released', 's'),
    _setting('release.speed', 'Speed after a stop or a fault until the way is measured again',
             'm/s', low=0.02, high=20.0),
    _setting('release.acceleration', 'How fast a limit may rise; limits fall at once', 'm/s^2',
             low=0.01),
    _setting('release.turn', 'Heading change after which what was seen lies elsewhere', 'rad',
             low=0.05, high=6.3),
    _setting('forget', 'Standing time after which a remembered obstacle is no longer believed; '
             '0: never', 's', high=3600.0),
    Param('clearance_releases', bool, DEFAULT.clearance_releases, 'Whether learned heads that see '
          'a longer free way make a remembered obstacle forgotten while the robot stands'),
    Param('range_releases', bool, DEFAULT.range_releases, 'Whether a range sensor that sees '
          'farther makes a remembered obstacle forgotten'),
    _setting('source_timeout', 'Age from which an assessment is too old', 's', low=0.05),
    _setting('range_timeout', 'Age from which a range reading is too old', 's', low=0.02),
    _setting('command_timeout', 'Silence after which the command has ended: zero once, then '
             'silence', 's', low=0.05),
    _setting('odometry_timeout', 'Silence of the odometry after which the own commands count as '
             'the speed', 's', low=0.02),
    _setting('override.timeout', 'How long an override lasts', 's', low=0.1, high=3600.0),
    _setting('clock_tolerance', 'How far a stamp may lie in the future', 's'),
    _setting('frozen_travel', 'Way driven under a picture that does not change by a bit, from '
             'which the camera counts as frozen', 'm', high=10.0),
    _setting('fault_speed', 'Speed that is left by the faults in slow_on, and with '
             'uncovered: slow', 'm/s', high=20.0),
    Param('stop_on', tuple[str, ...], DEFAULT.stop_on, 'Faults of a source that stop motion '
          'towards it: missing, timeout, clock, malformed, unknown, frozen (each must stand here '
          'or in slow_on) and flags of the assessment'),
    Param('slow_on', tuple[str, ...], DEFAULT.slow_on, 'Faults that slow it to fault_speed '
          'instead'),
    Param('uncovered', str, DEFAULT.uncovered, 'Motion that no source looks at, such as reversing '
          'with one camera ahead. free: all, blind, and told so; slow: at most fault_speed; stop: '
          'none', LIVE, choices=UNCOVERED),
)

GUARD_TABLE: tuple[Param, ...] = (
    Param('sources', tuple[str, ...], ('camera',), 'Names of the cameras of the perception node',
          CONFIGURE, pattern=NAME, allowed='ROS names such as front or left/eye'),
    Param('ranges', tuple[str, ...], (), 'Names of range sensors', CONFIGURE, pattern=NAME,
          allowed='ROS names such as sonar'),
    Param('message', str, 'twist', 'Type of cmd_vel_in and cmd_vel_out', CONFIGURE,
          choices=MESSAGES),
    Param('odometry', bool, False, 'Read the speed from odom (needs nav_msgs); without it the own '
          'commands count as the speed', CONFIGURE),
    Param('base_frame', str, 'base_link', 'Frame of the robot, for sources with direction: tf',
          CONFIGURE),
    Param('rate', float, 50.0, 'How often limits and timeouts are looked at without news',
          CONFIGURE, low=20.0, high=500.0, unit='Hz'),
    Param('autostart', bool, False, 'Configure and activate without a lifecycle manager', STARTUP),
    *SETTINGS,
)


def source_rows(name: str) -> tuple[Param, ...]:
    """Rows of one camera."""
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
    """Rows of one range sensor."""
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


ROWS = {row.name: row for row in GUARD_TABLE}


@dataclass(frozen=True)
class Source:
    """A camera: name, topic, yaw [rad], and whether tf is to tell the yaw."""

    name: str
    topic: str
    yaw: float
    from_tf: bool = False


@dataclass(frozen=True)
class Ranger:
    """A range sensor: name, topic, yaw [rad].

    Of a scan also its mounting [rad], half the width of the corridor [m], and whether rays without
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
    """All parameters at one moment."""

    settings: GuardSettings
    sources: tuple[Source, ...]
    ranges: tuple[Ranger, ...]
    stamped: bool
    odometry: bool
    rate: float
    base_frame: str


def check_guard(values: Mapping[str, Any]) -> str:
    """What is wrong across several parameters, '' when nothing is."""
    names = (*values['sources'], *values['ranges'])
    if not names:
        return "parameters 'sources' and 'ranges' are empty, name at least one camera"
    if len(set(names)) != len(names):
        return f"parameters 'sources' and 'ranges' are {list(names)}, must name each once"
    taken = sorted({name.split('.')[0] for name in ROWS} & set(names))
    if taken:
        return f"parameters 'sources' or 'ranges' hold {taken}, names of other parameters"
    try:
        make_settings(values)
    except ValueError as error:
        return f'parameters do not fit together: {error}'
    return ''


def make_settings(values: Mapping[str, Any]) -> GuardSettings:
    """The settings of the guard in a set of parameter values (ValueError if illegal)."""
    found = {_field(row.name): values[row.name] for row in SETTINGS}
    for name in ('stop_level', 'believe_level'):
        found[name] = BELIEVED[found[name]]
    return GuardSettings(**found)


def make_config(values: Mapping[str, Any]) -> GuardConfig:
    """Everything in a set of parameter values."""
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
        return 0.0                              # until tf tells
    return DIRECTIONS.get(direction, values[f'{name}.yaw'])


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
from vjepa_ros.planning.local_config import LocalConfig, Mount
from vjepa_ros.ros.command.parameters import (
    CLOCK_TOLERANCE,
    COMMAND_TIMEOUT,
    FROZEN_TRAVEL,
    SOURCES,
    SOURCE_TIMEOUT,
)
from vjepa_ros.ros.common.parameter import (
    AUTOSTART,
    CONFIGURE,
    MESSAGES,
    Param,
    Schema,
    make,
    setting,
)

SENT, ODOMETRY, OWN = 'sent', 'odometry', 'own'
STOP, PASS, SILENT = 'stop', 'pass', 'silent'
_choice = partial(setting, LocalConfig)
_watch = partial(setting, GuardSettings)

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
        Param('rate', float, 20.0, 'Rate of decisions without new inputs', CONFIGURE, low=5.0,
              high=200.0, unit='Hz'),
        AUTOSTART,
    ),
    'Faults': (
        Param('on_fault', str, STOP, 'What is sent for a command towards a camera at fault; stop: '
              'only the turn of the command; pass: the command unchanged; silent: nothing',
              choices=(STOP, PASS, SILENT)),
        _watch('stop_on', 'Faults of a source to which on_fault applies: missing, timeout, clock, '
               'malformed, unknown, frozen (always) and flags of the assessment'),
        SOURCE_TIMEOUT,
        COMMAND_TIMEOUT,
        Param('speed_timeout', float, GuardSettings.odometry_timeout, 'Silence after which the '
              'speed is unknown (odometry), or the robot counts as standing (sent)', low=0.02,
              high=60.0, unit='s'),
        CLOCK_TOLERANCE,
        FROZEN_TRAVEL,
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
    'Goals and paths': (
        _choice('cruise', 'Speed on the way to a goal', low=0.05, high=50.0, unit='m/s'),
        _choice('backing', 'Greatest speed back, where no camera looks; 0: never', low=0.0,
                high=10.0, unit='m/s'),
        _choice('tolerance', 'Distance from the goal at which the robot has arrived', low=0.05,
                high=10.0, unit='m'),
    ),
    'Choice': (
        _choice('speeds', 'Candidate speeds, as fractions of the commanded one; must contain 0',
                low=0.0, high=1.0),
        _choice('turns', 'Candidate turn rates, added to the commanded one; must contain 0',
                low=-10.0, high=10.0, unit='rad/s'),
        _choice('samples', 'Sampled sequences of twists, besides arcs; 0: arcs alone', low=0,
                high=4096),
        _choice('horizon', 'Time over which twists are rolled forward', low=0.4, high=20.0,
                unit='s', sets='horizon_s'),
        _choice('reaction', 'Time to contact at which the risk of a twist is one half', low=0.1,
                high=20.0, unit='s', sets='reaction_s'),
        _choice('accepted', 'Largest risk of an accepted twist', low=0.0, high=1.0),
        _choice('memory', 'How long measured points are kept', low=0.1, high=60.0, unit='s',
                sets='memory_s'),
        _choice('measurement_window', 'Time before a picture over which looming is measured; the '
                'speed for it is the mean over this time', low=0.02, high=5.0, unit='s',
                sets='window_s'),
        _choice('measuring_speed', 'Lowest speed along the axis of a camera at which looming '
                'gives distances', low=0.02, high=5.0, unit='m/s', sets='least_speed'),
        _choice('reach', 'Distance beyond which points are ignored', low=0.5, high=50.0, unit='m'),
        _choice('evidence', 'Sum of the confidences of points that count as an obstacle', low=0.1,
                high=100.0),
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
class PlannerSource:
    """A camera: name, prefix of its topics, and pose."""

    name: str
    topic: str
    mount: Mount


@dataclass(frozen=True)
class LocalNodeConfig:
    """Configuration of the node."""

    twist: LocalConfig  # the robot, and how it chooses
    watch: GuardSettings  # faults of sources
    speed_timeout: float  # largest silence of the speed [s]
    on_fault: str  # what is sent at a fault: 'stop', 'pass' or 'silent'
    sources: tuple[PlannerSource, ...]  # the cameras
    stamped: bool  # whether commands are TwistStamped
    speed_from: str  # source of the speed: 'sent', 'odometry' or 'own'
    base_frame: str  # frame of the candidates
    rate: float  # rate of decisions without new inputs [Hz]

    @property
    def mounts(self) -> dict[str, Mount]:
        """Poses of the cameras by name."""
        return {source.name: source.mount for source in self.sources}


def make_twist(values: Mapping[str, Any]) -> LocalConfig:
    """Return robot and choice for parameter values; ValueError when inconsistent."""
    return make(LocalConfig, SCHEMA.rows, values)


def make_watch(values: Mapping[str, Any]) -> GuardSettings:
    """Return the faults of sources for parameter values; ValueError when inconsistent."""
    return make(GuardSettings, SCHEMA.rows, values, slow_on=())


def make_config(values: Mapping[str, Any]) -> LocalNodeConfig:
    """Return the configuration for parameter values; ValueError when inconsistent."""
    sources = tuple(PlannerSource(
        name, (values[f'{name}.topic'] or f'vjepa_node/{name}').rstrip('/'),
        make(Mount, source_rows(name), values))
        for name in values['sources'])
    return LocalNodeConfig(
        make_twist(values), make_watch(values), values['speed_timeout'], values['on_fault'],
        sources, values['message'] == 'twist_stamped', values['speed_from'],
        values['base_frame'], values['rate'])


def check(values: Mapping[str, Any]) -> None:
    """Raise ValueError when values of the node as a whole are inconsistent."""
    make_twist(values)
    make_watch(values)


SCHEMA = Schema(SECTIONS, make_config, check, {'sources': source_rows})

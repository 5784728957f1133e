# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the twist planner and its configuration (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.planning.twist_config import Mount, TwistConfig
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

SENT, ODOMETRY, OWN = 'sent', 'odometry', 'own'
STOP, PASS, SILENT = 'stop', 'pass', 'silent'
_choice = partial(setting, TwistConfig)
_watch = partial(setting, GuardSettings)

SECTIONS: dict[str, tuple[Param, ...]] = {
    'Wiring': (
        Param('sources', tuple[str, ...], CAMERAS, 'Names of the cameras of the perception '
              'node', CONFIGURE, pattern=NAME, allowed=NAMES),
        Param('message', str, 'twist', 'Type of cmd_vel_in, cmd_vel_out and cmd_vel_sent',
              CONFIGURE, choices=MESSAGES),
        Param('speed_from', str, SENT, 'Where the speed of the robot comes from: sent, the topic '
              'cmd_vel_sent, to be remapped to what the guard sends to the base; odometry, the '
              'topic odom (needs nav_msgs); own, what this node sends, where nothing stands '
              'behind it', CONFIGURE, choices=(SENT, ODOMETRY, OWN)),
        Param('base_frame', str, 'base_link', 'frame_id of ~/candidates', CONFIGURE),
        Param('rate', float, 20.0, 'How often a standing command is judged anew', CONFIGURE,
              low=5.0, high=200.0, unit='Hz'),
        AUTOSTART,
    ),
    'What cannot be trusted': (
        Param('on_fault', str, STOP, 'What is sent for a command towards a camera that cannot be '
              'trusted: stop, only the turn of the command; pass, the command as it is; silent, '
              'nothing', choices=(STOP, PASS, SILENT)),
        _watch('stop_on', 'Faults of a source that on_fault speaks of: missing, timeout, clock, '
               'malformed, unknown, frozen (always) and flags of the assessment'),
        _watch('source_timeout', 'Age from which assessment or looming field are too old',
               low=0.05, high=60.0, unit='s'),
        _watch('command_timeout', 'Silence after which the command has ended: zero once, then '
               'silence', low=0.05, high=60.0, unit='s'),
        Param('speed_timeout', float, GuardSettings.odometry_timeout, 'Silence after which the '
              'speed is not known (odometry), or the robot counts as standing (sent)', low=0.02,
              high=60.0, unit='s'),
        _watch('clock_tolerance', 'How far a stamp may lie in the future', low=0.0, high=60.0,
               unit='s'),
        _watch('frozen_travel', 'Way driven under a picture that does not change by a bit, from '
               'which the camera counts as frozen', low=0.0, high=10.0, unit='m'),
    ),
    'The robot': (
        _choice('robot.half_width', 'Half the width of the robot', low=0.01, high=10.0, unit='m'),
        _choice('robot.length', 'Its length; it turns about its middle', low=0.01, high=20.0,
                unit='m'),
        _choice('robot.height', 'Its height: what is higher counts not', low=0.01, high=10.0,
                unit='m'),
        _choice('robot.clearance', 'It passes over what is lower', low=0.0, high=5.0, unit='m'),
        _choice('margin', 'Room to keep on all sides', low=0.0, high=5.0, unit='m'),
    ),
    'The choice': (
        _choice('speeds', 'Speeds that are tried, as parts of the commanded one; must hold 0',
                low=0.0, high=1.0),
        _choice('turns', 'Turn rates that are tried, added to the commanded one; must hold 0',
                low=-10.0, high=10.0, unit='rad/s'),
        _choice('max_turn', 'Greatest turn rate that is proposed', low=0.01, high=10.0,
                unit='rad/s'),
        _choice('horizon', 'How far twists are rolled forward', low=0.4, high=20.0, unit='s',
                sets='horizon_s'),
        _choice('reaction', 'Time to contact at which the risk of a twist is one half', low=0.1,
                high=20.0, unit='s', sets='reaction_s'),
        _choice('accepted', 'Greatest risk of a twist that is taken', low=0.0, high=1.0),
        _choice('memory', 'How long what was seen is kept', low=0.1, high=60.0, unit='s',
                sets='memory_s'),
        _choice('measurement_window', 'Time before a picture that looming is measured over: the '
                'speed that belongs to it is the mean of that time', low=0.02, high=5.0, unit='s',
                sets='window_s'),
        _choice('measuring_speed', 'Speed along the axis of a camera from which looming tells '
                'distances', low=0.02, high=5.0, unit='m/s', sets='least_speed'),
        _choice('reach', 'What is farther is left out', low=0.5, high=50.0, unit='m'),
        _choice('evidence', 'Sum of the confidences of cells that count as an obstacle', low=0.1,
                high=100.0),
    ),
}


def source_rows(name: str) -> tuple[Param, ...]:
    """Return the rows of one camera."""
    mount = partial(setting, Mount, effect=CONFIGURE)
    return (
        Param(f'{name}.topic', str, '', 'Below which its topics assessment and looming_field '
              'stand; empty: vjepa_node/NAME', CONFIGURE),
        mount(f'{name}.yaw', 'Direction of its optical axis seen from above, left positive',
              low=-math.pi, high=math.pi, unit='rad'),
        mount(f'{name}.x', 'Where it is ahead of the middle of the robot', low=-10.0, high=10.0,
              unit='m'),
        mount(f'{name}.y', 'Where it is left of it', low=-10.0, high=10.0, unit='m'),
        mount(f'{name}.height', 'Its height above the ground; it looks level', low=0.02,
              high=10.0, unit='m'),
    )


@dataclass(frozen=True)
class TwistSource:
    """A camera: name, prefix of its topics, and pose."""

    name: str
    topic: str
    mount: Mount


@dataclass(frozen=True)
class TwistNodeConfig:
    """Configuration of the node.

    Attributes
    ----------
    twist
        The robot, and how it chooses.
    watch
        Faults of sources.
    speed_timeout
        Largest silence of the speed [s].
    on_fault
        What is sent at a fault: 'stop', 'pass' or 'silent'.
    sources
        The cameras.
    stamped
        Whether commands are TwistStamped.
    speed_from
        Source of the speed: 'sent', 'odometry' or 'own'.
    base_frame
        Frame of the candidates.
    rate
        Rate of decisions without new inputs [Hz].
    """

    twist: TwistConfig
    watch: GuardSettings
    speed_timeout: float
    on_fault: str
    sources: tuple[TwistSource, ...]
    stamped: bool
    speed_from: str
    base_frame: str
    rate: float

    @property
    def mounts(self) -> dict[str, Mount]:
        """Poses of the cameras by name."""
        return {source.name: source.mount for source in self.sources}


def make_twist(values: Mapping[str, Any]) -> TwistConfig:
    """Return robot and choice for parameter values; ValueError when inconsistent."""
    return make(TwistConfig, SCHEMA.rows, values)


def make_watch(values: Mapping[str, Any]) -> GuardSettings:
    """Return the faults of sources for parameter values; ValueError when inconsistent."""
    return make(GuardSettings, SCHEMA.rows, values, slow_on=())


def make_config(values: Mapping[str, Any]) -> TwistNodeConfig:
    """Return the configuration for parameter values; ValueError when inconsistent."""
    sources = tuple(TwistSource(
        name, (values[f'{name}.topic'] or f'vjepa_node/{name}').rstrip('/'),
        make(Mount, source_rows(name), values))
        for name in values['sources'])
    return TwistNodeConfig(
        make_twist(values), make_watch(values), values['speed_timeout'], values['on_fault'],
        sources, values['message'] == 'twist_stamped', values['speed_from'],
        values['base_frame'], values['rate'])


def check(values: Mapping[str, Any]) -> None:
    """Raise ValueError when values of the node as a whole are inconsistent."""
    make_twist(values)
    make_watch(values)


SCHEMA = Schema(SECTIONS, make_config, check, {'sources': source_rows})

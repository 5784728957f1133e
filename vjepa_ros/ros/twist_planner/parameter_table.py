# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the twist_planner node (this module needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.planning.twist_config import Mount, TwistConfig
from vjepa_ros.ros.perception_node.parameter_table import CONFIGURE, LIVE, NAME, STARTUP, Param

MESSAGES = ('twist', 'twist_stamped')
SENT, ODOMETRY, OWN = 'sent', 'odometry', 'own'
STOP, PASS, SILENT = 'stop', 'pass', 'silent'
DEFAULT, WATCH, MOUNT = TwistConfig(), GuardSettings(), Mount()
# Parameters that are called otherwise than the fields of `TwistConfig`.
FIELDS = {'robot.half_width': 'half_width', 'robot.height': 'height', 'robot.length': 'length',
          'robot.clearance': 'clearance', 'horizon': 'horizon_s', 'reaction': 'reaction_s',
          'memory': 'memory_s', 'measurement_window': 'window_s',
          'measuring_speed': 'least_speed'}

WATCHED = ('stop_on', 'source_timeout', 'command_timeout', 'clock_tolerance', 'frozen_travel')


def _choice(name: str, text: str, unit: str = '', low: float = 0.0, high: float = 60.0) -> Param:
    default = getattr(DEFAULT, FIELDS.get(name, name))
    return Param(name, type(default) if isinstance(default, float) else tuple[float, ...],
                 default, text, LIVE, low=low, high=high, unit=unit)


def _watch(name: str, text: str, unit: str = '', low: float = 0.0, high: float = 60.0) -> Param:
    return Param(name, float, getattr(WATCH, name), text, LIVE, low=low, high=high, unit=unit)


CHOICE: tuple[Param, ...] = (
    _choice('robot.half_width', 'Half the width of the robot', 'm', 0.01, 10.0),
    _choice('robot.length', 'Its length; it turns about its middle', 'm', 0.01, 20.0),
    _choice('robot.height', 'Its height: what is higher counts not', 'm', 0.01, 10.0),
    _choice('robot.clearance', 'It passes over what is lower', 'm', 0.0, 5.0),
    _choice('margin', 'Room to keep on all sides', 'm', 0.0, 5.0),
    _choice('speeds', 'Speeds that are tried, as parts of the commanded one; must hold 0',
            high=1.0),
    _choice('turns', 'Turn rates that are tried, added to the commanded one; must hold 0',
            'rad/s', -10.0, 10.0),
    _choice('max_turn', 'Greatest turn rate that is proposed', 'rad/s', 0.01, 10.0),
    _choice('horizon', 'How far twists are rolled forward', 's', 0.4, 20.0),
    _choice('reaction', 'Time to contact at which the risk of a twist is one half', 's', 0.1,
            20.0),
    _choice('accepted', 'Greatest risk of a twist that is taken', high=1.0),
    _choice('memory', 'How long what was seen is kept', 's', 0.1, 60.0),
    _choice('measurement_window', 'Time before a picture that looming is measured over: the '
            'speed that belongs to it is the mean of that time', 's',
            0.02, 5.0),
    _choice('measuring_speed', 'Speed along the axis of a camera from which looming tells '
            'distances', 'm/s', 0.02, 5.0),
    _choice('reach', 'What is farther is left out', 'm', 0.5, 50.0),
    _choice('evidence', 'Sum of the confidences of cells that count as an obstacle', '', 0.1,
            100.0),
)

TWIST_TABLE: tuple[Param, ...] = (
    Param('sources', tuple[str, ...], ('camera',), 'Names of the cameras of the perception node',
          CONFIGURE, pattern=NAME, allowed='ROS names such as front or left/eye'),
    Param('message', str, 'twist', 'Type of cmd_vel_in, cmd_vel_out and cmd_vel_sent', CONFIGURE,
          choices=MESSAGES),
    Param('speed_from', str, SENT, 'Where the speed of the robot comes from: sent, the topic '
          'cmd_vel_sent, to be remapped to what the guard sends to the base; odometry, the topic '
          'odom (needs nav_msgs); own, what this node sends, where nothing stands behind it',
          CONFIGURE, choices=(SENT, ODOMETRY, OWN)),
    Param('base_frame', str, 'base_link', 'frame_id of ~/candidates', CONFIGURE),
    Param('rate', float, 20.0, 'How often a standing command is judged anew', CONFIGURE, low=5.0,
          high=200.0, unit='Hz'),
    Param('autostart', bool, False, 'Configure and activate without a lifecycle manager', STARTUP),
    Param('on_fault', str, STOP, 'What is sent for a command towards a camera that cannot be '
          'trusted: stop, only the turn of the command; pass, the command as it is; silent, '
          'nothing', LIVE, choices=(STOP, PASS, SILENT)),
    Param('stop_on', tuple[str, ...], WATCH.stop_on, 'Faults of a source that on_fault speaks of: '
          'missing, timeout, clock, malformed, unknown, frozen (always) and flags of the '
          'assessment', LIVE),
    _watch('source_timeout', 'Age from which assessment or looming field are too old', 's', 0.05),
    _watch('command_timeout', 'Silence after which the command has ended: zero once, then silence',
           's', 0.05),
    Param('speed_timeout', float, WATCH.odometry_timeout, 'Silence after which the speed is not '
          'known (odometry), or the robot counts as standing (sent)', LIVE, low=0.02, high=60.0,
          unit='s'),
    _watch('clock_tolerance', 'How far a stamp may lie in the future', 's'),
    _watch('frozen_travel', 'Way driven under a picture that does not change by a bit, from which '
           'the camera counts as frozen', 'm', high=10.0),
    *CHOICE,
)
ROWS = {row.name: row for row in TWIST_TABLE}


def source_rows(name: str) -> tuple[Param, ...]:
    """Rows of one camera."""
    return (
        Param(f'{name}.topic', str, '', 'Below which its topics assessment and looming_field '
              'stand; empty: vjepa_node/NAME', CONFIGURE),
        Param(f'{name}.yaw', float, MOUNT.yaw, 'Direction of its optical axis seen from above, '
              'left positive', CONFIGURE, low=-math.pi, high=math.pi, unit='rad'),
        Param(f'{name}.x', float, MOUNT.x, 'Where it is ahead of the middle of the robot',
              CONFIGURE, low=-10.0, high=10.0, unit='m'),
        Param(f'{name}.y', float, MOUNT.y, 'Where it is left of it', CONFIGURE, low=-10.0,
              high=10.0, unit='m'),
        Param(f'{name}.height', float, MOUNT.height, 'Its height above the ground; it looks '
              'level', CONFIGURE, low=0.02, high=10.0, unit='m'),
    )


@dataclass(frozen=True)
class TwistSource:
    """A camera: name, what its topics begin with, and where it is mounted."""

    name: str
    topic: str
    mount: Mount


@dataclass(frozen=True)
class TwistNodeConfig:
    """All parameters at one moment.

    Attributes
    ----------
    twist
        The robot, and how it chooses.
    watch
        When a source is not trusted.
    speed_timeout
        Silence of the speed [s].
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
        """Where the cameras are, by name."""
        return {source.name: source.mount for source in self.sources}


def check_twist(values: Mapping[str, Any]) -> str:
    """What is wrong across several parameters, '' when nothing is."""
    names = values['sources']
    if not names:
        return "parameter 'sources' is [], must name at least one camera"
    if len(set(names)) != len(names):
        return f"parameter 'sources' is {list(names)}, must name each camera once"
    taken = sorted({name.split('.')[0] for name in ROWS} & set(names))
    if taken:
        return f"parameter 'sources' holds {taken}, names of other parameters"
    try:
        make_twist(values)
        make_watch(values)
    except ValueError as error:
        return f'parameters do not fit together: {error}'
    return ''


def make_twist(values: Mapping[str, Any]) -> TwistConfig:
    """The robot and its choice in a set of parameter values (ValueError if illegal)."""
    return TwistConfig(**{FIELDS.get(row.name, row.name): values[row.name] for row in CHOICE})


def make_watch(values: Mapping[str, Any]) -> GuardSettings:
    """When sources are not trusted (ValueError if illegal)."""
    return GuardSettings(**{name: values[name] for name in WATCHED}, slow_on=())


def make_config(values: Mapping[str, Any]) -> TwistNodeConfig:
    """Everything in a set of parameter values."""
    sources = tuple(TwistSource(
        name, (values[f'{name}.topic'] or f'vjepa_node/{name}').rstrip('/'),
        Mount(*(values[f'{name}.{part}'] for part in ('yaw', 'x', 'y', 'height'))))
        for name in values['sources'])
    return TwistNodeConfig(
        make_twist(values), make_watch(values), values['speed_timeout'], values['on_fault'],
        sources, values['message'] == 'twist_stamped', values['speed_from'],
        values['base_frame'], values['rate'])

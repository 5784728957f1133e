# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the local planner and its configuration (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.parameter import AUTOSTART, CONFIGURE, FIXED, MESSAGES, Param, Schema, make, rows_of
from vjepa_ros.planning.local_config import (
    DecisionConfig,
    LocalConfig,
    Mount,
    ODOMETRY,
    PASS,
    SENT,
    SILENT,
    STOP,
)
from vjepa_ros.ros.collision_guard.parameters import SOURCES

# What is a constant now. Of `rate`, which other nodes have, nothing is said.
GONE = ('speed_timeout clock_tolerance frozen_travel speeds turns samples horizon accepted '
        'measurement_window measuring_speed reach evidence stop_on reaction')

SECTIONS: dict[str, tuple[Param, ...]] = {
    'Topics': (
        SOURCES,
        Param('message', str, 'twist', 'Type of cmd_vel_in, cmd_vel_out and cmd_vel_sent',
              CONFIGURE, choices=MESSAGES),
        Param('speed_from', str, SENT, 'Source of the speed of the robot; sent: topic '
              'cmd_vel_sent, remapped to what the base gets (from the guard, or without one from '
              'this node); odometry: topic odom', CONFIGURE,
              choices=(SENT, ODOMETRY)),
        Param('base_frame', str, 'base_link', 'frame_id of ~/candidates', CONFIGURE),
        AUTOSTART,
    ),
    'Faults': (
        Param('on_fault', str, STOP, 'What is sent for a command towards a camera at fault; stop: '
              'only the turn of the command; pass: the command unchanged; silent: nothing',
              choices=(STOP, PASS, SILENT)),
        *rows_of(GuardSettings, only=('source_timeout', 'command_timeout')),
    ),
    'Robot': rows_of(LocalConfig),
}


def source_rows(name: str) -> tuple[Param, ...]:
    return (
        Param(f'{name}.topic', str, '', 'Prefix of its topics assessment and looming_field; '
              'empty: vjepa_node/NAME', CONFIGURE),
        *rows_of(Mount, CONFIGURE, f'{name}.'),
    )


@dataclass(frozen=True)
class LocalNodeConfig(DecisionConfig):
    topics: Mapping[str, str]  # prefix of the topics of each camera
    stamped: bool  # whether commands are TwistStamped
    base_frame: str  # frame of the candidates


def make_config(values: Mapping[str, Any]) -> LocalNodeConfig:
    names = values['sources']
    return LocalNodeConfig(
        *check(values), {name: make(Mount, source_rows(name), values) for name in names},
        values['speed_from'], values['on_fault'],
        {name: (values[f'{name}.topic'] or f'vjepa_node/{name}').rstrip('/') for name in names},
        values['message'] == 'twist_stamped', values['base_frame'])


def check(values: Mapping[str, Any]) -> tuple[LocalConfig, GuardSettings]:
    return (make(LocalConfig, SCHEMA.rows, values),
            make(GuardSettings, SCHEMA.rows, values))


SCHEMA = Schema(SECTIONS, make_config, check, {'sources': source_rows},
                gone=dict.fromkeys(GONE.split(), FIXED))

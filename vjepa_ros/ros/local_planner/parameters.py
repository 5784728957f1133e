# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the local planner and its configuration (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.parameter import (
    AUTOSTART,
    CONFIGURE,
    MESSAGES,
    Param,
    Schema,
    make,
    parameter,
    rows_of,
)
from vjepa_ros.planning.decision import DecisionConfig
from vjepa_ros.planning.obstacle_memory import LocalConfig, Mount
from vjepa_ros.ros.collision_guard.parameters import SOURCES


@dataclass(frozen=True, kw_only=True)
class LocalNodeConfig(DecisionConfig):
    """Configuration of the node."""

    heartbeat: ClassVar[float] = 0.0     # it offers none
    topics: Mapping[str, str]  # prefix of the topics of each camera
    message: str = parameter('twist', 'Type of cmd_vel_in, cmd_vel_out and cmd_vel_sent',
                             choices=MESSAGES)
    base_frame: str = parameter('base_link', 'frame_id of ~/candidates')


def source_rows(name: str) -> tuple[Param, ...]:
    return (
        Param(f'{name}.topic', str, '', 'Prefix of its topics assessment and looming_field; '
              'empty: vjepa_node/NAME', CONFIGURE),
        *rows_of(Mount, CONFIGURE, f'{name}.'),
    )


def make_config(values: Mapping[str, Any]) -> LocalNodeConfig:
    names = values['sources']
    twist, watch = check(values)
    return make(
        LocalNodeConfig, SCHEMA.rows, values, twist=twist, watch=watch,
        mounts={name: make(Mount, source_rows(name), values) for name in names},
        topics={name: (values[f'{name}.topic'] or f'vjepa_node/{name}').rstrip('/')
                for name in names})


def check(values: Mapping[str, Any]) -> tuple[LocalConfig, GuardSettings]:
    return make(LocalConfig, SCHEMA.rows, values), make(GuardSettings, SCHEMA.rows, values)


SCHEMA = Schema({
    'Topics': (SOURCES, *rows_of(LocalNodeConfig, CONFIGURE, only=('message', 'speed_from',
                                                                   'base_frame')), AUTOSTART),
    'Faults': (*rows_of(LocalNodeConfig, only=('on_fault',)),
               *rows_of(GuardSettings, only=('source_timeout', 'command_timeout'))),
    'Robot': rows_of(LocalConfig)},
    make_config, check, {'sources': source_rows})

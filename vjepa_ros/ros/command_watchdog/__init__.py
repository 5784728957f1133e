# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The node `command_watchdog`: stops a base when the guard before it falls silent."""

from __future__ import annotations

from vjepa_ros.parameter import MESSAGES, Param, STARTUP, Schema

SCHEMA = Schema({'Watchdog': (
    Param('timeout', float, 0.3, 'Silence of an active guard after which zeros are sent; more '
          'than twice the interval of its heartbeats, a quarter of its parameter heartbeat',
          STARTUP, low=0.02, high=60.0, unit='s'),
    Param('message', str, 'twist', 'Type of cmd_vel', STARTUP, choices=MESSAGES),
)}, dict, dict)

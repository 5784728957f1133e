# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters that the nodes between controller and base have in common (needs no ROS)."""

from __future__ import annotations

from functools import partial

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.ros.common.parameter import (
    CAMERAS,
    CONFIGURE,
    NAME,
    NAMES,
    Param,
    setting,
)

_watch = partial(setting, GuardSettings)

SOURCES = Param('sources', tuple[str, ...], CAMERAS, 'Names of the cameras of the perception node',
                CONFIGURE, pattern=NAME, allowed=NAMES)
SOURCE_TIMEOUT = _watch('source_timeout', 'Largest age of a message of a camera', low=0.05,
                        high=60.0, unit='s')
COMMAND_TIMEOUT = _watch('command_timeout', 'Silence after which the command ends: zeros for '
                         '0.3 s, then nothing', low=0.05, high=60.0, unit='s')
CLOCK_TOLERANCE = _watch('clock_tolerance', 'Largest time that a stamp may lie in the future',
                         low=0.0, high=60.0, unit='s')
FROZEN_TRAVEL = _watch('frozen_travel', 'Distance driven with bitwise equal pictures after which '
                       'the camera counts as frozen', low=0.0, high=10.0, unit='m')

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Declare, validate and read the parameters of the collision_guard node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node

from vjepa_ros.ros.collision_guard.parameter_table import (
    GUARD_TABLE,
    GuardConfig,
    check_guard,
    make_config,
    range_rows,
    source_rows,
)
from vjepa_ros.ros.common.declared_parameters import Declared


class GuardParameters(Declared):
    """The parameters of the guard, see `Declared`."""

    lists = {'sources': source_rows, 'ranges': range_rows}

    def __init__(self, node: Node, changed: Callable[[bool], None],
                 is_active: Callable[[], bool]) -> None:
        super().__init__(node, GUARD_TABLE, changed, is_active)

    def check_together(self, values: Mapping[str, Any]) -> str:
        """What is wrong across several parameters, '' when nothing is."""
        return check_guard(values)

    def read(self) -> GuardConfig:
        """All parameters as one object.

        Raises
        ------
        ValueError
            Naming the parameter, its value and what is allowed.
        """
        return make_config(self.values())

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Declare, validate and read the parameters of the twist_planner node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node

from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.twist_planner.parameter_table import (
    TWIST_TABLE,
    TwistNodeConfig,
    check_twist,
    make_config,
    source_rows,
)


class TwistParameters(Declared):
    """The parameters of the twist planner, see `Declared`."""

    lists = {'sources': source_rows}

    def __init__(self, node: Node, changed: Callable[[bool], None],
                 is_active: Callable[[], bool]) -> None:
        super().__init__(node, TWIST_TABLE, changed, is_active)

    def check_together(self, values: Mapping[str, Any]) -> str:
        """What is wrong across several parameters, '' when nothing is."""
        return check_twist(values)

    def read(self) -> TwistNodeConfig:
        """All parameters as one object.

        Raises
        ------
        ValueError
            Naming the parameter, its value and what is allowed.
        """
        return make_config(self.values())

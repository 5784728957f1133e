# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Declare, validate and read the parameters of the action planner from its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node

from vjepa_ros.ros.action_planner.parameter_table import (
    PLANNER_TABLE,
    PlannerConfig,
    check_planner,
    planner_config,
)
from vjepa_ros.ros.common.declared_parameters import Declared


class PlannerParameters(Declared):
    """The parameters of one planner node, see `Declared`. Live ones count from the next plan on.

    Parameters
    ----------
    node
        The node to declare them on.
    is_configured
        Whether rows that need a new configure must be refused now: each plan reads all of them.
    """

    busy = 'configured'

    def __init__(self, node: Node, is_configured: Callable[[], bool]) -> None:
        super().__init__(node, PLANNER_TABLE, lambda structural: None, is_configured)
        self._fetched = self.fetched('weights', 'predictor')

    def check_together(self, values: Mapping[str, Any]) -> str:
        """What is wrong across several parameters, '' when nothing is."""
        return check_planner(values)

    def read(self) -> PlannerConfig:
        """All parameters as one object; ValueError names what is wrong and what is allowed."""
        return planner_config(self.values(), self._fetched)

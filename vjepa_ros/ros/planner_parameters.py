# SPDX-License-Identifier: Apache-2.0
"""Declare, validate and read the parameters of the action planner from its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter

from vjepa_ros.ros.declared import descriptor_of
from vjepa_ros.ros.planner_table import (
    PLANNER_ROWS,
    PlannerConfig,
    check_planner,
    planner_config,
)
from vjepa_ros.ros.table import CONFIGURE, STARTUP, Param


class PlannerParameters:
    """The parameters of one planner node. Live ones count from the next plan on.

    Parameters
    ----------
    node
        The node to declare them on.
    is_configured
        Whether rows that need a new configure must be refused now.
    """

    def __init__(self, node: Node, is_configured: Callable[[], bool]) -> None:
        self._node = node
        self._is_configured = is_configured
        self._bad: dict[str, str] = {}   # overrides that could not be taken, with the reason
        for row in PLANNER_ROWS.values():
            self._declare(row)
        node.add_on_set_parameters_callback(self._on_set)

    def get(self, name: str) -> Any:
        """Value of one parameter in the type of its row."""
        value, problem = PLANNER_ROWS[name].check(self._node.get_parameter(name).value)
        if problem:
            raise ValueError(problem)
        return value

    def read(self) -> PlannerConfig:
        """All parameters as one object; ValueError names what is wrong and what is allowed."""
        if self._bad:
            raise ValueError('; '.join(self._bad.values()))
        return planner_config({name: self.get(name) for name in PLANNER_ROWS})

    def _declare(self, row: Param) -> None:
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        try:
            self._node.declare_parameter(row.name, default, descriptor_of(row))
            self.get(row.name)
        except (ParameterException, ValueError) as error:
            # A bad value in a file must not kill the node: configure fails with the reason, until
            # somebody sets a good one.
            override = self._node._parameter_overrides.get(row.name)
            shown = override.value if override is not None else None
            self._bad[row.name] = row.check(shown)[1] or str(error)
            if self._node.has_parameter(row.name):
                self._node.undeclare_parameter(row.name)
            self._node.declare_parameter(row.name, default, descriptor_of(row),
                                         ignore_override=True)
            self._node.get_logger().error(f'{self._bad[row.name]}; fix it with "ros2 param set" '
                                          'or in the file, then configure again')

    def _on_set(self, params: Sequence[Parameter]) -> SetParametersResult:
        """Validate only: a set that passes here can still be refused elsewhere."""
        ours = [p for p in params if p.name in PLANNER_ROWS]
        after = {name: self.get(name) for name in PLANNER_ROWS if self._node.has_parameter(name)}
        for param in ours:
            row = PLANNER_ROWS[param.name]
            value, problem = row.check(param.value)
            if not problem and value != after.get(param.name):
                problem = self._untimely(row)
            if problem:
                return SetParametersResult(successful=False, reason=problem)
            after[param.name] = value
        problem = check_planner(after) if ours and len(after) == len(PLANNER_ROWS) else ''
        if problem:
            return SetParametersResult(successful=False, reason=problem)
        for param in ours:
            self._bad.pop(param.name, None)
        return SetParametersResult(successful=True)

    def _untimely(self, row: Param) -> str:
        if row.effect == STARTUP:
            return f"parameter '{row.name}' is read when the node starts; restart it to change it"
        if row.effect == CONFIGURE and self._is_configured():
            return (f"parameter '{row.name}' can not change while the node is configured; "
                    'deactivate and clean up, set it, then configure')
        return ''

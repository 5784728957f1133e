# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find parameters that were given to a node and that nothing reads, such as misspelt ones.

This module imports no ROS.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from vjepa_ros.ros.common.parameter import Param

Rows = Callable[[str], Iterable[Param]]
# ROS declares them itself, some of them later.
OF_ROS = re.compile(r'use_sim_time|qos_overrides\..+|start_type_description_service')
OWNED = re.compile(r'([\w/]+)(\..+)')   # a parameter of one camera or sensor


def unread(given: Iterable[str], declared: Collection[str], lists: Mapping[str, Rows]
           ) -> dict[str, str]:
    """
    Say of each name that nothing reads what is probably meant.

    A file for ``/**`` may serve several nodes: names of the other nodes of this package are left
    out.

    Parameters
    ----------
    given
        Names in files and on the command line.
    declared
        Names that the node has.
    lists
        Parameters that list names, such as `cameras`, with the rows that each name brings.

    Returns
    -------
    dict
        A remark, which can be '', by each name.
    """
    found = {}
    for name in sorted(set(given) - set(declared)):
        if OF_ROS.fullmatch(name):
            continue
        owned = OWNED.fullmatch(name)
        places = [f"'{place}'" for place, rows in lists.items()
                  if owned and name in {row.name for row in rows(owned[1])}]
        if places:
            found[name] = f"'{owned[1]}' is not in {' or '.join(places)}"
        elif not _elsewhere(name, owned):
            near = difflib.get_close_matches(name, declared, 1)
            found[name] = f"do you mean '{near[0]}'?" if near else ''
    return found


def warn_of_unread(node: Any, lists: Mapping[str, Rows]) -> None:
    """
    Warn of each parameter that was given to a node and that it does not have.

    Parameters
    ----------
    node
        A node of rclpy that has declared its parameters.
    lists
        Parameters that list names, such as `cameras`, with the rows that each name brings.
    """
    for name, remark in unread(node._parameter_overrides, node._parameters, lists).items():
        node.get_logger().warning(
            f"parameter '{name}' is ignored: this node has none of that name"
            + (f'; {remark}' if remark else ''))


def _elsewhere(name: str, owned: re.Match[str] | None) -> bool:
    """Whether another node of this package has a parameter of this name."""
    # Only now: most nodes are given nothing that they do not have.
    from vjepa_ros.ros.collision_guard import parameter_table
    from vjepa_ros.ros.common import source_table
    from vjepa_ros.ros.perception_node import parameter_table as table
    from vjepa_ros.ros.twist_planner import parameter_table as twist_table

    rows = [*table.TABLE, *parameter_table.GUARD_TABLE, *twist_table.TWIST_TABLE,
            *source_table.SOURCE_TABLE]
    if owned:
        rows += [row for make in (table.camera_rows, parameter_table.source_rows,
                                  parameter_table.range_rows, twist_table.source_rows)
                 for row in make(owned[1])]
    try:
        from vjepa_ros.ros.action_planner import parameter_table as planner_table
    except ModuleNotFoundError:     # without PyTorch this machine runs no planner
        pass
    else:
        rows += planner_table.PLANNER_TABLE
    return name in source_table.ROBOT or any(row.name == name for row in rows)

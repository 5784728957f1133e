# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find parameters that were given to a node and that nothing reads, such as misspelt ones.

This module imports no ROS.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from pkgutil import resolve_name
from typing import Any

from vjepa_ros.ros.common.parameter import Rows, Schema

# Where each executable declares its parameters.
SCHEMAS = {'collision_guard': 'collision_guard.parameters:SCHEMA',
           'local_planner': 'local_planner.parameters:SCHEMA',
           'camera_source': 'sim.parameters:SOURCE', 'simulated_robot': 'sim.parameters:ROBOT',
           'vjepa_node': 'perception_node.parameters:SCHEMA',
           'command_watchdog': 'command_watchdog.parameters:SCHEMA'}
LONGEST = 100            # more of a name is not compared
# ROS declares them itself, some of them later.
OF_ROS = re.compile(r'use_sim_time|qos_overrides\..+|start_type_description_service')
OWNED = re.compile(r'([\w/]+)(\..+)')   # a parameter of one camera or sensor


def schema_of(executable: str) -> Schema:
    """Return the parameters of an executable of this package."""
    return resolve_name(f'vjepa_ros.ros.{SCHEMAS[executable]}')


def unread(given: Iterable[str], declared: Collection[str], lists: Mapping[str, Rows]
           ) -> dict[str, str]:
    """Say of each name that nothing reads what is probably meant.

    A file for ``/**`` may serve several nodes: names of the other nodes of this package are left
    out.
    """
    found = {}
    for name in sorted(set(given) - set(declared)):
        if OF_ROS.fullmatch(name):
            continue
        owned = OWNED.fullmatch(name)
        places = [] if owned is None else [
            f"'{place}'" for place, rows in lists.items()
            if name in {row.name for row in rows(owned[1])}]
        if owned is not None and places:
            found[name] = f"'{owned[1]}' is not in {' or '.join(places)}"
        elif not _elsewhere(name):
            found[name] = nearest(name, declared)
    return found


def nearest(name: str, declared: Iterable[str]) -> str:
    """Return which of the declared names is probably meant, as a question, or ''."""
    near = difflib.get_close_matches(name[:LONGEST], list(declared), 1)
    return f"do you mean '{near[0]}'?" if near else ''


def warn_of_unread(node: Any, lists: Mapping[str, Rows]) -> None:
    """Warn of each parameter that was given to a node and that it does not have."""
    for name, remark in unread(node._parameter_overrides, node._parameters, lists).items():
        node.get_logger().warning(
            f"parameter '{name}' is ignored: this node has none of that name"
            + (f'; {remark}' if remark else ''))


def _elsewhere(name: str) -> bool:
    """Whether another node of this package has a parameter of this name."""
    # Only now: most nodes are given nothing that they do not have.
    for executable in SCHEMAS:
        try:
            schema = schema_of(executable)
        except ModuleNotFoundError:     # without PyTorch this machine runs no such node
            continue
        if schema.row(name) is not None:
            return True
    return False

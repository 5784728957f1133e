# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""All parameters of a node, and those that were given to it and that nothing reads (no ROS)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

from vjepa_ros.parameter import Param, STARTUP

# Where each executable declares its parameters.
SCHEMAS = {'collision_guard': 'collision_guard.parameters:SCHEMA',
           'local_planner': 'local_planner.parameters:SCHEMA',
           'camera_source': 'sim.parameters:SOURCE', 'simulated_robot': 'sim.parameters:ROBOT',
           'vjepa_node': 'perception_node.parameters:SCHEMA',
           'command_watchdog': 'command_watchdog:SCHEMA'}
LONGEST = 100            # more of a name is not compared
# ROS declares them itself, some of them later.
OF_ROS = re.compile(r'use_sim_time|qos_overrides\..+|start_type_description_service')
FIXED = 'it is no parameter any more: its value is fixed; remove it'
Rows = Callable[[str], tuple[Param, ...]]

AUTOSTART = Param('autostart', bool, False, 'Configure and activate without a lifecycle manager',
                  STARTUP)


@dataclass(frozen=True)
class Schema:
    """All parameters of one node."""

    # Rows by the title of their section in the YAML file
    sections: Mapping[str, tuple[Param, ...]]
    # Makes the configuration of the node from values. With `hub` it also takes ``fetched``: the
    # names that may be fetched from the Hugging Face hub, None for any.
    read: Callable[..., Any]
    # Raises ValueError when the values of `sections` do not fit together
    check: Callable[[Mapping[str, Any]], object]
    # Parameters that list names, such as that of cameras, with the rows that each name brings
    lists: Mapping[str, Rows] = field(default_factory=dict)
    hub: tuple[str, ...] = ()  # parameters that can name something on the hub
    # What to do instead of each parameter that earlier versions had; NAME is any camera or sensor,
    # RANGE a name that is listed, whose kind has no such parameter
    gone: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Param, ...]:
        """Return the rows of all sections."""
        return tuple(row for rows in self.sections.values() for row in rows)

    def rows_of(self, name: str) -> tuple[Param, ...]:
        """Return the rows of a name in any list."""
        return tuple(row for make_rows in self.lists.values() for row in make_rows(name))

    def row(self, name: str) -> Param | None:
        """Return the row of a name, also of a camera or sensor that may be listed; or None."""
        owner = name.partition('.')[0]
        return next((row for row in (*self.rows, *(self.rows_of(owner) if owner != name else ()))
                     if row.name == name), None)

    def problem(self, values: Mapping[str, Any]) -> str:
        """Return what is wrong across several parameters, '' for nothing."""
        listed = [name for parameter in self.lists for name in values[parameter]]
        where = ' and '.join(f"'{parameter}'" for parameter in self.lists)
        taken = sorted({row.name.split('.')[0] for row in self.rows} & set(listed))
        if self.lists and not listed:
            return f'{where}: empty, must name at least one'
        if len(set(listed)) != len(listed):
            return f'{where}: {listed}, must name each once'
        if taken:
            return f'{where}: {taken}, which are names of other parameters'
        try:
            self.check(values)
        except ValueError as error:
            return f'parameters do not fit together: {error}'
        return ''

    def unread(self, given: Iterable[str], declared: Collection[str]) -> dict[str, str]:
        """Say of each name that nothing reads what to do, or what is probably meant.

        A file for ``/**`` may serve several nodes: names of the other nodes of this package are
        left out.
        """
        found = {}
        for name in sorted(set(given) - set(declared)):
            owner, _, rest = name.partition('.')
            places = [f"'{place}'" for place, rows in self.lists.items()
                      if rest and name in {row.name for row in rows(owner)}]
            listed = any(other.startswith(f'{owner}.') for other in declared)
            gone = (self.gone.get(name) or self.gone.get(f'NAME.{rest}')
                    or (self.gone.get(f'RANGE.{rest}') if listed else None))
            if OF_ROS.fullmatch(name):
                continue
            if places and not (gone and listed):
                found[name] = f"'{owner}' is not in {' or '.join(places)}"
            elif gone:
                found[name] = gone
            elif not _elsewhere(name):
                found[name] = nearest(name, declared)
        return found


def schema_of(executable: str) -> Schema:
    """Return the parameters of an executable of this package."""
    return resolve_name(f'vjepa_ros.ros.{SCHEMAS[executable]}')


def schemas() -> dict[str, Schema]:
    """Return the schemas of the nodes of this package that can be loaded here, by node."""
    found = {}
    for executable in SCHEMAS:
        try:
            found[executable] = schema_of(executable)
        except ModuleNotFoundError:     # without PyTorch this machine runs no such node
            continue
    return found


def nearest(name: str, declared: Iterable[str]) -> str:
    """Return which of the declared names is probably meant, as a question, or ''."""
    near = difflib.get_close_matches(name[:LONGEST], list(declared), 1)
    return f"do you mean '{near[0]}'?" if near else ''


def _elsewhere(name: str) -> bool:
    """Whether another node of this package has a parameter of this name, or had one."""
    # Only now: most nodes are given nothing that they do not have.
    places = {name, f'NAME.{name.partition(".")[2]}'}
    return any(schema.row(name) is not None or places & schema.gone.keys()
               for schema in schemas().values())

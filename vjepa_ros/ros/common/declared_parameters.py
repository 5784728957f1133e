# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Declare and validate the parameters of a node from its `Schema`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from vjepa_ros.parameter import BACKGROUND, CONFIGURE, KINDS, Param, STARTUP, Schema
from vjepa_ros.ros.common.node import ManagedNode


class Declared:
    """The parameters of one node; `changed` takes whether a changed one needs a new model."""

    def __init__(self, node: ManagedNode, schema: Schema, changed: Callable[[bool], None]
                 ) -> None:
        self._node, self._schema = node, schema
        self._rows: dict[str, Param] = {}
        self._bad: dict[str, str] = {}   # overrides that could not be taken, with the reason
        for row in schema.rows:
            self._rows[row.name] = row
            self._declare(row)
        self.declare_more()
        _warn_of_unread(node, schema)
        # The names given at the start may be fetched from the hub, or all where that is allowed.
        self._fetched = {'fetched': None if self.get('allow_download') else tuple(
            map(self.get, schema.hub))} if schema.hub else {}
        # Work after a change runs from a guard condition: inside the set call another callback can
        # still refuse the change, and Humble has no callback for afterwards.
        self._changed = changed
        self._structural = False
        self._guard = node.create_guard_condition(self._after_set)
        node.add_on_set_parameters_callback(self._on_set)
        if hasattr(node, 'add_pre_set_parameters_callback'):      # Humble has none
            node.add_pre_set_parameters_callback(self._in_own_types)

    def declare_more(self) -> None:
        """Declare the rows that are new: those of each name in a list, such as that of cameras."""
        for parameter, rows in self._schema.lists.items():
            for row in (row for name in self.get(parameter) for row in rows(name)):
                if row.name not in self._rows:
                    self._rows[row.name] = row
                    self._declare(row)

    def get(self, name: str) -> Any:
        """Return the value of one parameter in the type of its row."""
        value, problem = self._rows[name].check(self._node.get_parameter(name).value)
        if problem:
            raise ValueError(problem)
        return value

    def read(self) -> Any:
        """Return all parameters as one object, the configuration of the node."""
        if self._bad:
            raise ValueError('; '.join(self._bad.values()))
        self.declare_more()
        values = {name: self.get(name) for name in self._rows}
        problem = self._schema.problem(values)
        if problem:
            raise ValueError(problem)
        return self._schema.read(values, **self._fetched)

    def _declare(self, row: Param) -> None:
        value, problem = _given(self._node, row)
        if problem:
            # A bad value in a file must not kill the node: keep the default, and let configure
            # fail with the reason until somebody sets a good one.
            self._bad[row.name], value = problem, row.default
            self._node.get_logger().error(
                f'{problem}; fix it with "ros2 param set" or in the file, then configure again')
        self._node.declare_parameter(row.name, list(value) if isinstance(value, tuple) else value,
                                     descriptor_of(row), ignore_override=True)

    def _in_own_types(self, params: list[Parameter]) -> list[Parameter]:
        """Return parameters with legal values in the types of their rows, as they are stored."""
        converted = []
        for param in params:
            row = self._rows.get(param.name)
            value, problem = row.check(param.value) if row else (None, 'unknown')
            converted.append(param if problem or row is None else Parameter(
                param.name, Parameter.Type(_TYPES[KINDS[row.kind]]),
                list(value) if isinstance(value, tuple) else value))
        return converted

    def _on_set(self, params: Sequence[Parameter]) -> SetParametersResult:
        """Validate only: a set that passes here can still be refused elsewhere."""
        after = {name: self.get(name) for name in self._rows if self._node.has_parameter(name)}
        ours = [p for p in params if p.name in self._rows]
        for param in ours:
            row = self._rows[param.name]
            value, problem = row.check(param.value)
            if not problem and value != after.get(param.name):
                problem = self._untimely(row)
            if problem:
                return SetParametersResult(successful=False, reason=problem)
            after[param.name] = value
        problem = self._schema.problem(after) if ours else ''
        if problem:
            return SetParametersResult(successful=False, reason=problem)
        for param in ours:
            self._bad.pop(param.name, None)
        if ours:
            self._structural |= any(self._rows[p.name].effect == BACKGROUND for p in ours)
            self._guard.trigger()
        return SetParametersResult(successful=True)

    def _after_set(self) -> None:
        structural, self._structural = self._structural, False
        self._changed(structural)

    def _untimely(self, row: Param) -> str:
        if row.effect == STARTUP:
            return f"parameter '{row.name}' is read when the node starts; restart it to change it"
        if row.effect == CONFIGURE and self._node.state == 'active':
            return (f"parameter '{row.name}' can not change while the node is active; "
                    'deactivate and clean up, set it, then configure')
        return ''


def read_once(node: Node, schema: Schema) -> Any:
    """Declare parameters that nobody can change while the node runs, and read them."""
    values = {}
    for row in schema.rows:
        descriptor = descriptor_of(row)
        descriptor.read_only = True
        values[row.name], problem = _given(node, row)
        if problem:
            raise ValueError(problem)
        node.declare_parameter(row.name, values[row.name], descriptor, ignore_override=True)
    _warn_of_unread(node, schema)
    problem = schema.problem(values)
    if problem:
        raise ValueError(problem)
    return schema.read(values)


def _warn_of_unread(node: Node, schema: Schema) -> None:
    """Warn of each parameter that was given to a node and that it does not have."""
    for name, remark in schema.unread(node._parameter_overrides, node._parameters).items():
        node.get_logger().warning(
            f"parameter '{name}' is ignored: this node has none of that name"
            + (f'; {remark}' if remark else ''))


def _given(node: Node, row: Param) -> tuple[Any, str]:
    """(value of a row by file, command line or default, '') or (None, what is wrong with it)."""
    override = node._parameter_overrides.get(row.name)
    if override is None:
        return row.default, ''
    # An empty list in a file has no type, and comes as no value.
    empty = isinstance(row.default, tuple) and override.type_ == Parameter.Type.NOT_SET
    return row.check(() if empty else override.value)


def descriptor_of(row: Param) -> ParameterDescriptor:
    """Return what ROS tools show of a row."""
    unit = f' [{row.unit}]' if row.unit else ''
    descriptor = ParameterDescriptor(
        description=f'{row.text}{unit}. Takes effect: {row.effect}.',
        additional_constraints=row.range_text, type=_TYPES[KINDS[row.kind]],
        # rclpy would refuse 1 for 1.0, and without naming parameter or value; the table does both.
        dynamic_typing=True)
    if row.low is not None and row.high is not None:
        if row.kind is float:
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=float(row.low), to_value=float(row.high))]
        elif row.kind is int:
            descriptor.integer_range = [
                IntegerRange(from_value=int(row.low), to_value=int(row.high), step=row.multiple)]
    return descriptor


_TYPES = {
    'bool': Parameter.Type.BOOL.value, 'int': Parameter.Type.INTEGER.value,
    'double': Parameter.Type.DOUBLE.value, 'string': Parameter.Type.STRING.value,
    'double[]': Parameter.Type.DOUBLE_ARRAY.value, 'string[]': Parameter.Type.STRING_ARRAY.value,
}

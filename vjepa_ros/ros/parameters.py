# SPDX-License-Identifier: Apache-2.0
"""Declare, validate and read the node's parameters, all from the one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter

from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.track import TrackConfig
from vjepa_ros.ros.obstacle_table import ObstacleConfig, make_obstacle_config
from vjepa_ros.ros.table import (
    BACKGROUND,
    CONFIGURE,
    KINDS,
    ROWS,
    STARTUP,
    TABLE,
    Param,
    camera_rows,
    check_together,
    make_settings,
)
from vjepa_ros.runtime.engine import EngineConfig


@dataclass(frozen=True)
class NodeConfig:
    """All parameters at one moment, in the terms of the rooms that use them."""

    engine: EngineConfig
    track: TrackConfig
    settings: Settings
    cameras: tuple[str, ...]
    transports: tuple[str, ...]
    max_rate: float
    no_frame_timeout: float
    features_reduce: str
    overlay_width: int
    calibration_seconds: float
    calibration_sigma: float
    obstacles: ObstacleConfig


class Parameters:
    """The parameters of one node.

    Parameters
    ----------
    node
        The node to declare them on.
    changed
        Called on the executor after parameters have changed; its argument says whether one of
        them needs a new model.
    is_active
        Whether rows that need a new configure must be refused now.
    """

    def __init__(self, node: Node, changed: Callable[[bool], None],
                 is_active: Callable[[], bool]) -> None:
        self._node = node
        self._is_active = is_active
        self._rows = dict(ROWS)
        self._bad: dict[str, str] = {}   # overrides that could not be taken, with the reason
        for row in TABLE:
            self._declare(row)
        self.declare_cameras()
        # Work after a change runs from a guard condition: inside the set call the change can
        # still be refused by somebody else, and Humble has no callback for afterwards.
        self._changed = changed
        self._structural = False
        self._guard = node.create_guard_condition(self._after_set)
        node.add_on_set_parameters_callback(self._on_set)

    def declare_cameras(self) -> None:
        """Declare the rows of cameras that are new."""
        for camera in self.get('cameras'):
            for row in camera_rows(camera):
                if row.name not in self._rows:
                    self._rows[row.name] = row
                    self._declare(row)

    def get(self, name: str) -> Any:
        """Value of one parameter in the type of its row."""
        value, problem = self._rows[name].check(self._node.get_parameter(name).value)
        if problem:
            raise ValueError(problem)
        return value

    def read(self) -> NodeConfig:
        """All parameters as one object.

        Raises
        ------
        ValueError
            Naming the parameter, its value and what is allowed.
        """
        if self._bad:
            raise ValueError('; '.join(self._bad.values()))
        self.declare_cameras()
        value = {name: self.get(name) for name in self._rows}
        problem = check_together(value)
        if problem:
            raise ValueError(problem)
        engine = EngineConfig(**{key: value[key] for key in (
            'model_size', 'model_version', 'weights', 'weights_part', 'heads',
            'allow_random_weights', 'num_frames', 'image_size', 'device', 'require_device',
            'precision', 'compile', 'seed', 'cpu_threads')})
        track = TrackConfig(
            num_frames=value['num_frames'], image_size=value['image_size'],
            clip_fps=value['clip_fps'], resize_mode=value['resize_mode'],
            max_frame_gap=value['max_frame_gap'], looming_width=value['looming.width'],
            geometry=value['geometry'], horizontal_fov=math.radians(value['assumed_fov']))
        cameras = value['cameras']
        return NodeConfig(
            engine, track, make_settings(value), cameras,
            tuple(value[f'{camera}.transport'] for camera in cameras),
            value['max_rate'], value['no_frame_timeout'], value['features.reduce'],
            value['overlay.width'], value['calibration.seconds'], value['calibration.sigma'],
            make_obstacle_config(value))

    def _declare(self, row: Param) -> None:
        descriptor = _descriptor(row)
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        try:
            self._node.declare_parameter(row.name, default, descriptor)
            self.get(row.name)
        except (ParameterException, ValueError) as error:
            # A bad value in a file must not kill the node: keep the default, and let configure
            # fail with the reason until somebody sets a good one.
            override = self._node._parameter_overrides.get(row.name)
            shown = override.value if override is not None else None
            reason = row.check(shown)[1] or str(error)
            self._bad[row.name] = reason
            if self._node.has_parameter(row.name):
                self._node.undeclare_parameter(row.name)
            self._node.declare_parameter(row.name, default, descriptor, ignore_override=True)
            self._node.get_logger().error(
                f'{reason}; fix it with "ros2 param set" or in the file, then configure again')

    def _on_set(self, params: Sequence[Parameter]) -> SetParametersResult:
        """Validate only: a set that passes here can still be refused elsewhere."""
        after = {}
        for name in self._rows:
            if self._node.has_parameter(name):
                after[name] = self.get(name)
        ours = [p for p in params if p.name in self._rows]
        for param in ours:
            row = self._rows[param.name]
            value, problem = row.check(param.value)
            if not problem and value != after.get(param.name):
                problem = self._untimely(row)
            if problem:
                return SetParametersResult(successful=False, reason=problem)
            after[param.name] = value
        problem = check_together(after) if ours else ''
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
        if row.effect == CONFIGURE and self._is_active():
            return (f"parameter '{row.name}' can not change while the node is active; deactivate "
                    'and clean up, set it, then configure')
        return ''


def _descriptor(row: Param) -> ParameterDescriptor:
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

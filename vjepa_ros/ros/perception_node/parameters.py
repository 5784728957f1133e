# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Declare, validate and read the node's parameters, all from the one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rclpy.node import Node

from vjepa_ros.perception.camera_track import TrackConfig
from vjepa_ros.perception.settings import Settings
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.perception_node.obstacle_table import ObstacleConfig, make_obstacle_config
from vjepa_ros.ros.perception_node.parameter_table import (
    TABLE,
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
    max_image_pixels: int


class Parameters(Declared):
    """The parameters of the perception node, see `Declared`."""

    lists = {'cameras': camera_rows}

    def __init__(self, node: Node, changed: Callable[[bool], None],
                 is_active: Callable[[], bool]) -> None:
        super().__init__(node, TABLE, changed, is_active)
        self._fetched = self.fetched('weights')

    def check_together(self, values: Mapping[str, Any]) -> str:
        """What is wrong across several parameters, '' when nothing is."""
        return check_together(values)

    def read(self) -> NodeConfig:
        """All parameters as one object.

        Raises
        ------
        ValueError
            Naming the parameter, its value and what is allowed.
        """
        value = self.values()
        engine = EngineConfig(fetched=self._fetched, **{key: value[key] for key in (
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
            make_obstacle_config(value), value['max_image_pixels'])

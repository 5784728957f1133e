# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the perception node and its configuration (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjepa_ros.obstacles import Mount, ObstacleSettings
from vjepa_ros.parameter import (
    AUTOSTART,
    BACKGROUND,
    CAMERAS,
    CONFIGURE,
    NAME,
    NAMES,
    Param,
    STARTUP,
    Schema,
    TRANSPORTS,
    make,
    named,
    parameter,
    rows_of,
)
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.runtime.model import ModelConfig


@dataclass(frozen=True)
class CameraConfig:
    """How one camera is read, and its place on the robot."""

    transport: str = parameter(
        'auto', 'Image topic to read; auto: the first of raw, compressed and ffmpeg (H.264 and '
        'H.265) that delivers', choices=TRANSPORTS)
    height: float = parameter(
        0.0, 'Height of the optical centre above the ground; 0: pose by tf', name='mount.height',
        low=0.0, high=10.0, unit='m')
    x: float = parameter(0.0, 'Position ahead of the base frame', name='mount.x', low=-20.0,
                         high=20.0, unit='m')
    pitch: float = parameter(0.0, 'Downward tilt', name='mount.pitch', low=-75.0, high=75.0,
                             unit='deg')
    yaw: float = parameter(0.0, 'Rotation to the left', name='mount.yaw', low=-180.0, high=180.0,
                           unit='deg')

    @property
    def mount(self) -> Mount | None:
        """Pose of the camera on the robot; None where it comes from tf."""
        return Mount.from_angles(self.height, self.x, pitch=self.pitch, yaw=self.yaw) \
            if self.height > 0 else None


@dataclass(frozen=True)
class ObstacleConfig:
    """Configuration of obstacles in metres."""

    settings: ObstacleSettings  # how they are placed
    mounts: Mapping[str, Mount | None]  # pose of each camera by name; None where it comes from tf
    base_frame: str = parameter(
        '', 'Frame of the robot on the ground, such as base_link, of ~/NAME/obstacle_points and '
        '~/NAME/scan, and for the pose of cameras without NAME.mount.height (by tf); empty: '
        'points are in the frame of the image, and tf is not used', name='obstacles.base_frame')
    scan: bool = parameter(
        False, 'Also publish ~/NAME/scan; needs obstacles.base_frame', name='obstacles.scan')
    odometry: str = parameter(
        '', 'Topic of nav_msgs/Odometry with the speed of the robot; empty: none',
        name='obstacles.odometry')

    def __post_init__(self) -> None:
        if self.scan and not self.base_frame:
            raise ValueError('obstacles.scan is true, but obstacles.base_frame is empty; rays of '
                             'a scan lie in the plane of that frame: name it, such as base_link')


@dataclass(frozen=True)
class NodeConfig:
    """Configuration of the node."""

    engine: ModelConfig
    track: TrackConfig
    settings: Settings
    obstacles: ObstacleConfig
    by_camera: Mapping[str, CameraConfig]
    cameras: tuple[str, ...] = parameter(
        CAMERAS, 'Names of the cameras; each reads NAME/image_raw (or NAME/image_raw/compressed) '
        'and NAME/camera_info', effect=CONFIGURE, pattern=NAME, allowed=NAMES)
    allow_download: bool = parameter(
        False, 'Also download weights from the Hugging Face hub that are named while the node '
        'runs; those named at its start are always downloaded', effect=STARTUP)
    on_out_of_memory: str = parameter(
        'fail', 'When not even a single clip fits into memory; fail: give no results, but the '
        'reason; degrade: use half precision, then fewer frames, then smaller images, flagged '
        'device_fallback, until there is room again', choices=('fail', 'degrade'))
    max_rate: float = parameter(15.0, 'Largest rate of results for each camera', low=0.1,
                                high=240.0, unit='Hz')
    max_image_pixels: int = parameter(
        4096 * 4096, 'Largest accepted image; larger ones are refused before decoding and '
        'counted, because few bytes can contain a picture that takes minutes and gigabytes',
        low=4096, high=10**8, unit='px')
    overlay_width: int = parameter(
        640, 'Width of the overlay, at least 480; 0: that of the camera', name='overlay.width',
        low=0, high=3840, unit='px')

    @property
    def degrades(self) -> bool:
        """Whether less is served when memory runs out."""
        return self.on_out_of_memory == 'degrade'

    @property
    def silence_s(self) -> float:
        """Silence of a camera after which the node warns: no clip outlives such a gap [s]."""
        return max(0.5, 2.0 * self.track.max_frame_gap)


SECTIONS: dict[str, tuple[Param, ...]] = {
    'Model': (*rows_of(ModelConfig, BACKGROUND), *rows_of(TrackConfig, BACKGROUND)),
    'Node': (AUTOSTART, *rows_of(NodeConfig)),
    'Perception': rows_of(Settings),
    'Obstacles in metres, for planners': (*rows_of(ObstacleConfig, CONFIGURE),
                                          *rows_of(ObstacleSettings, before='obstacles.')),
}
_CAMERA = rows_of(CameraConfig, CONFIGURE, before='NAME.')


def camera_rows(camera: str) -> tuple[Param, ...]:
    """Return the rows of one camera."""
    return named(_CAMERA, camera)


def make_camera(value: Mapping[str, Any], camera: str) -> CameraConfig:
    """Return the configuration of a camera."""
    return make(CameraConfig, camera_rows(camera), value)


def make_config(value: Mapping[str, Any], fetched: tuple[str, ...] | None = None) -> NodeConfig:
    """Return the configuration; `fetched`: names on the hub that may be downloaded."""
    rows, cameras = SCHEMA.rows, {name: make_camera(value, name) for name in value['cameras']}
    return make(
        NodeConfig, rows, value, by_camera=cameras, settings=make(Settings, rows, value),
        engine=make(ModelConfig, rows, value, fetched=fetched),
        track=make(TrackConfig, rows, value, num_frames=value['num_frames'],
                   image_size=value['image_size']),
        obstacles=make(ObstacleConfig, rows, value, settings=make(ObstacleSettings, rows, value),
                       mounts={name: camera.mount for name, camera in cameras.items()}))


def check(value: Mapping[str, Any]) -> None:
    """Raise ValueError when values of the node as a whole are inconsistent."""
    # What a camera has is declared after the camera is named.
    make_config({**{row.name: row.default for camera in value['cameras']
                    for row in camera_rows(camera)}, **value})


SCHEMA = Schema(SECTIONS, make_config, check, {'cameras': camera_rows}, hub=('weights',))

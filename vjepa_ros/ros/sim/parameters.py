# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of camera_source and simulated_robot, read once at the start (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.parameter import (
    MOST_SEED,
    NAME,
    ONE_NAME,
    STARTUP,
    Schema,
    make,
    parameter,
    rows_of,
)
from vjepa_ros.sources import PlayOptions

_count = partial(parameter, low=0, high=MOST_SEED)


@dataclass(frozen=True)
class SourceConfig:
    """What camera_source plays and publishes."""

    source: str = parameter(
        'synthetic', 'What to play: synthetic, a camera index (0), /dev/videoN, a stream address, '
        'or the path of a video, picture, image folder, recording folder, rosbag2 folder, .mcap '
        'or .db3 file')
    topic: str = parameter('', 'Image topic of a bag; empty: the first')
    camera: str = parameter('camera', 'Prefix of the topics of the camera', pattern=NAME,
                            allowed=ONE_NAME)
    transport: str = parameter('raw', 'Image topics to publish',
                               choices=('raw', 'compressed', 'both'))
    rate: float = parameter(
        0.0, 'Frames per second; 0: the rate of the source; recordings are only thinned, pictures '
        'without stamps need it', low=0.0, high=1000.0, unit='Hz')
    loop: bool = parameter(False, 'Start again at the end')
    max_frames: int = _count(0, 'Number of frames to play; 0: all')
    stamp: str = parameter(
        'now', 'Stamps of the frames; now: current time with the exact spacing of the source; '
        'source: as recorded', choices=('now', 'source'))
    width: int = parameter(0, 'Width to resize to, with height; 0 keeps the own', low=0, high=8192,
                           unit='px')
    height: int = parameter(0, 'Height to resize to, with width; 0 keeps the own', low=0,
                            high=8192, unit='px')
    truth: bool = parameter(False, 'Publish the ground truth on NAME/truth')
    wait_for_subscribers: bool = parameter(False, 'Wait for a subscriber of an image topic')

    def __post_init__(self) -> None:
        if (self.width == 0) != (self.height == 0):
            raise ValueError(f'width is {self.width} and height {self.height}: set both or none')

    @property
    def play(self) -> PlayOptions:
        return PlayOptions(
            rate=self.rate or None, loop=self.loop, topic=self.topic or None,
            size=(self.width, self.height) if self.width else None,
            max_frames=self.max_frames or None)


@dataclass(frozen=True)
class RobotConfig:
    """The episode that simulated_robot drives, and its topics."""

    seed: int = _count(1, 'Of the episodes')
    episode: int = _count(0, 'Number of the episode')
    set: str = parameter('stop', 'Episodes about stopping in time, or about getting to the goal',
                         choices=('stop', 'get_past'))
    goal: bool = parameter(False, 'Send a planner the goal, instead of commands that follow the '
                           'route')
    film: str = parameter('', 'Folder for the pictures as PNG files; beside it FILM_map gets '
                          'views from above; empty: none are written')
    rate: float = parameter(10.0, 'Pictures per second', low=0.1, high=240.0, unit='Hz')
    width: int = parameter(384, 'Of the pictures', low=16, high=8192, unit='px')
    settle: float = parameter(4.0, 'Standing time before the robot drives', low=0.0, high=3600.0,
                              unit='s')
    wait_for_camera: bool = parameter(True, 'Wait for a subscriber of the pictures')
    publish_clock: bool = parameter(False, 'Simulate time, and publish it on /clock')


def _schema(config: type) -> Schema:
    rows = rows_of(config, STARTUP)

    def read(values: Mapping[str, Any]) -> Any:
        return make(config, rows, values)

    return Schema({config.__name__: rows}, read, read)


SOURCE = _schema(SourceConfig)
ROBOT = _schema(RobotConfig)

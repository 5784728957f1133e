# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of camera_source and simulated_robot, read once at the start (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vjepa_ros.ros.common.parameter import MOST_SEED, NAME, ONE_NAME, Param, STARTUP, Schema


def _row(name: str, default: Any, text: str, **more: Any) -> Param:
    return Param(name, type(default), default, text, STARTUP, numbers=type(default) is str, **more)


SOURCE_ROWS: tuple[Param, ...] = (
    _row('source', 'synthetic', 'What to play: synthetic, a camera index (0), /dev/videoN, a '
         'stream address, or the path of a video, picture, image folder, recording folder, '
         'rosbag2 folder, .mcap or .db3 file'),
    _row('topic', '', 'Image topic of a bag; empty: the first'),
    _row('camera', 'camera', 'Prefix of the topics of the camera', pattern=NAME, allowed=ONE_NAME),
    _row('transport', 'raw', 'Image topics to publish', choices=('raw', 'compressed', 'both')),
    _row('encoding', 'rgb8', 'Encoding of the raw image', choices=('rgb8', 'bgr8', 'mono8')),
    _row('reliability', 'reliable', 'QoS of the image topics; reliable serves both kinds of '
         'subscriber', choices=('reliable', 'best_effort')),
    _row('rate', 0.0, 'Frames per second; 0: the rate of the source; recordings are only thinned, '
         'pictures without stamps need it', low=0.0, high=1000.0, unit='Hz'),
    _row('loop', False, 'Start again at the end'),
    _row('start', 0.0, 'Time at the beginning to skip', low=0.0, high=86400.0, unit='s'),
    _row('max_frames', 0, 'Number of frames to play; 0: all', low=0, high=MOST_SEED),
    _row('stamp', 'now', 'Stamps of the frames; now: current time with the exact spacing of the '
         'source; source: as recorded', choices=('now', 'source')),
    _row('frame_id', '', 'Optical frame of the header; empty keeps that of the source'),
    _row('width', 0, 'Width to resize to; 0 keeps the own (set both or none)', low=0, high=8192,
         unit='px'),
    _row('height', 0, 'Height to resize to; 0: that of the source', low=0, high=8192, unit='px'),
    _row('jpeg_quality', 90, 'Quality of the compressed topic; stored jpeg and png pictures are '
         'passed on unchanged', low=1, high=100),
    _row('truth', False, 'Publish the ground truth on NAME/truth'),
    _row('start_delay', 0.0, 'Pause before the first frame', low=0.0, high=3600.0, unit='s'),
    _row('wait_for_subscribers', False, 'Wait for a subscriber of an image topic'),
    _row('wait_timeout', 60.0, 'Longest wait for subscribers; 0: no limit', low=0.0, high=86400.0,
         unit='s'),
    _row('exit_at_end', True, 'End the process when the source ends'),
)

ROBOT_ROWS: tuple[Param, ...] = (
    _row('seed', 1, 'Of the episodes', low=0, high=MOST_SEED),
    _row('episode', 0, 'Number of the episode', low=0, high=MOST_SEED),
    _row('set', 'stop', 'Episodes about stopping in time, or about getting to the goal',
         choices=('stop', 'get_past')),
    _row('goal', False, 'Send a planner the goal, instead of commands that follow the route'),
    _row('film', '', 'Folder for the pictures as PNG files; beside it FILM_map gets views from '
         'above; empty: none are written'),
    _row('camera', 'camera', 'Prefix of the topics of the camera', pattern=NAME, allowed=ONE_NAME),
    _row('frame_id', 'camera', 'Optical frame of the pictures'),
    _row('rate', 10.0, 'Frames per second; 0: the rate of the source; recordings are only thinned',
         low=0.1, high=240.0, unit='Hz'),
    _row('width', 384, 'Of the pictures', low=16, high=8192, unit='px'),
    _row('settle', 4.0, 'Standing time before the robot drives', low=0.0, high=3600.0, unit='s'),
    _row('command_topic', 'cmd_vel_out', 'Topic of the commands that the robot follows'),
    _row('guard', 'collision_guard', 'Name of the guard whose state is recorded'),
    _row('planner', 'local_planner', 'Name of the planner whose time to choose is recorded'),
    _row('assessment_topic', 'vjepa_node/camera/assessment', 'Topic of the assessments to record'),
    _row('wait_for_camera', True, 'Wait for a subscriber of the pictures'),
    _row('publish_clock', False, 'Simulate time, and publish it on /clock'),
)


def check_source(value: Mapping[str, Any]) -> None:
    """Raise ValueError when the values of `SOURCE` are inconsistent."""
    if (value['width'] == 0) != (value['height'] == 0):
        raise ValueError(f"width is {value['width']} and height {value['height']}: set both or "
                         'none')


SOURCE = Schema({'Source': SOURCE_ROWS}, dict, check_source)
ROBOT = Schema({'Robot': ROBOT_ROWS}, dict, dict)

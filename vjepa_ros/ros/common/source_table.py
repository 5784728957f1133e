# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of camera_source and simulated_robot, and the truth record (needs no ROS)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vjepa_ros.ros.perception_node.parameter_table import NAME, STARTUP, Param

TRUTH = np.dtype([(name, '<f4') for name in (
    'ttc', 'looming_rate', 'distance', 'speed', 'yaw_rate', 'collision', 'clearance')])


# Of simulated_robot, with their defaults.
ROBOT: dict[str, Any] = {
    'seed': 1, 'episode': 0, 'camera': 'camera', 'frame_id': 'camera', 'rate': 10.0,
    'width': 384, 'settle': 4.0, 'command_topic': 'cmd_vel_out', 'guard': 'collision_guard',
    'assessment_topic': 'vjepa_node/camera/assessment', 'wait_for_camera': True,
    'publish_clock': False}


def _row(name: str, default: Any, text: str, **more: Any) -> Param:
    return Param(name, type(default), default, text, STARTUP, **more)


SOURCE_TABLE: tuple[Param, ...] = (
    _row('source', 'synthetic', 'What to play: synthetic, a camera index (0), /dev/videoN, a '
         'stream address, or the path of a video, picture, image folder, recording folder, '
         'rosbag2 folder, .mcap or .db3 file'),
    _row('topic', '', 'Image topic of a bag; empty takes the first'),
    _row('camera', 'camera', 'Name in front of the topics that are published', pattern=NAME,
         allowed='a ROS name such as front or left/eye'),
    _row('transport', 'raw', 'Image topics that are published',
         choices=('raw', 'compressed', 'both')),
    _row('encoding', 'rgb8', 'Pixels of the raw image', choices=('rgb8', 'bgr8', 'mono8')),
    _row('reliability', 'reliable', 'QoS of the image topics; reliable serves both kinds of '
         'subscriber', choices=('reliable', 'best_effort')),
    _row('rate', 0.0, 'Frames per second; 0 keeps the own rate; recordings are only thinned',
         low=0.0, high=1000.0, unit='Hz'),
    _row('loop', False, 'Start again at the end'),
    _row('loop_mode', 'continue', 'Stamps of a source that starts again: they go on, or jump '
         'back as in a looped bag (with stamp: source)', choices=('continue', 'jump_back')),
    _row('start', 0.0, 'Leave out the first seconds', low=0.0, high=86400.0, unit='s'),
    _row('max_frames', 0, 'End after so many frames; 0 plays all', low=0, high=2**31 - 1),
    _row('stamp', 'now', 'now: the present, with the exact spacing of the source; source: as '
         'recorded', choices=('now', 'source')),
    _row('frame_id', '', 'Optical frame of the header; empty keeps that of the source'),
    _row('width', 0, 'Width to resize to; 0 keeps the own (set both or none)', low=0, high=8192,
         unit='px'),
    _row('height', 0, 'Height to resize to; 0 keeps the own', low=0, high=8192, unit='px'),
    _row('jpeg_quality', 90, 'Of the compressed topic; stored jpeg and png pictures are passed '
         'on as they are', low=1, high=100),
    _row('truth', False, 'Publish what is known to be true on NAME/truth'),
    _row('seed', 0, 'Look of a synthetic scene', low=0, high=2**31 - 1),
    _row('start_delay', 0.0, 'Pause before the first frame', low=0.0, high=3600.0, unit='s'),
    _row('wait_for_subscribers', False, 'Begin when somebody subscribes to an image'),
    _row('wait_timeout', 60.0, 'Begin anyway after this time; 0 waits for ever', low=0.0,
         high=86400.0, unit='s'),
    _row('exit_at_end', True, 'End the process when the source ends'),
)


def truth_record(truth: dict[str, Any] | None) -> np.ndarray:
    """One `TRUTH` record, shape (1,); NaN where nothing is known, collision is 0 or 1."""
    known = truth or {}
    collision = known.get('collision')
    values = [known.get(key, math.nan) for key in (
        'time_to_contact_s', 'looming_rate', 'distance_m', 'speed', 'yaw_rate')]
    return np.array([(*values, math.nan if collision is None else float(collision),
                      known.get('clearance_m', math.nan))], TRUTH)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish frames of a source as image, compressed image, camera_info and truth messages."""

from __future__ import annotations

import math
import os
from typing import Any

import cv2
import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2
from std_msgs.msg import Header

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.ros.common.message_conversion import cloud, image, jpeg, to_bytes
from vjepa_ros.sources import Source, SourceFrame
from vjepa_ros.sources.base import Intrinsics

JPEG_QUALITY = 90       # of the compressed topic
LARGE_BYTES = 400_000  # the shared memory of the default transports has 512 kB
TRUTH_FIELDS = ('ttc', 'looming_rate', 'distance', 'speed', 'yaw_rate', 'collision', 'clearance')
TRUTH = np.dtype([(name, '<f4') for name in TRUTH_FIELDS])


class SourceOutput:
    """The publishers of one camera; only topics with subscribers are computed."""

    def __init__(self, node: Node, camera: str, transport: str, truth: bool) -> None:
        # Reliable: it serves best-effort subscribers, too.
        def publisher(kind: type, topic: str, wanted: bool = True) -> Publisher | None:
            return node.create_publisher(kind, f'{camera}/{topic}', 2) if wanted else None

        self._raw = publisher(Image, 'image_raw', transport != 'compressed')
        self._compressed = publisher(CompressedImage, 'image_raw/compressed', transport != 'raw')
        self._info = publisher(CameraInfo, 'camera_info')
        self._truth = publisher(PointCloud2, 'truth', truth)

    @property
    def topics(self) -> list[str]:
        """Names of the topics."""
        return [p.topic_name for p in (self._raw, self._compressed, self._info, self._truth)
                if p is not None]

    def has_image_subscriber(self) -> bool:
        """Return whether an image topic has a subscriber."""
        return _wanted(self._raw) or _wanted(self._compressed)

    def publish(self, frame: SourceFrame, header: Header, source: Source) -> None:
        """Publish one frame, every message with the given header."""
        # Small messages first: the truth arrives before its image.
        if self._truth is not None and _wanted(self._truth):
            self._truth.publish(cloud(header, truth_record(frame.truth)))
        if self._info is not None and _wanted(self._info):
            self._info.publish(camera_info(header, frame.rgb, source.intrinsics,
                                           source.distortion))
        if self._raw is not None and _wanted(self._raw):
            self._raw.publish(image(header, frame.rgb, 'rgb8'))
        if self._compressed is not None and _wanted(self._compressed):
            self._compressed.publish(_compressed(frame, header))

    def flush(self) -> None:
        """Wait until reliable subscribers have everything, at most a second for each topic."""
        for publisher in (self._raw, self._compressed, self._truth):
            # Not in every supported distribution; without it the last frames may be lost.
            wait = getattr(publisher, 'wait_for_all_acked', None)
            if wait is not None:
                wait(Duration(seconds=1.0))

    def transport_problem(self, size: tuple[int, int]) -> str:
        """Return why raw images of a size are lost in this environment, '' if they are not."""
        size_bytes = 3 * size[0] * size[1]
        rmw = os.environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
        if self._raw is None or size_bytes < LARGE_BYTES or not rmw.startswith('rmw_fastrtps'):
            return ''
        for name, value in (('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST'),
                            ('ROS_LOCALHOST_ONLY', '1')):
            if os.environ.get(name, '').upper() == value:
                return (f'raw images of {size_bytes // 1000} kB are lost on the way to '
                        f'best-effort subscribers, because {name}={value} makes Fast DDS ignore '
                        'FASTDDS_BUILTIN_TRANSPORTS; set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET '
                        'for this process, or transport:=compressed')
        return ''


def _wanted(publisher: Publisher | None) -> bool:
    return publisher is not None and publisher.get_subscription_count() > 0


def _compressed(frame: SourceFrame, header: Header) -> CompressedImage:
    """Return a frame as it was stored, where that was a picture, else as JPEG."""
    if frame.encoded is None:
        return jpeg(header, cv2.cvtColor(frame.rgb, cv2.COLOR_RGB2BGR), JPEG_QUALITY)
    data = np.frombuffer(frame.encoded, np.uint8)
    return CompressedImage(header=header, format=frame.encoding, data=to_bytes(data))


def camera_info(header: Header, rgb: np.ndarray, intrinsics: Intrinsics | None,
                distortion: Distortion | None = None) -> CameraInfo:
    """Make a CameraInfo; k is zero without intrinsics."""
    info = CameraInfo(header=header, height=rgb.shape[0], width=rgb.shape[1],
                      distortion_model='plumb_bob', d=[0.0] * 5)
    if distortion is not None:
        info.distortion_model, info.d = distortion.model, list(distortion.coefficients)
    if intrinsics is not None:
        fx, fy, cx, cy = intrinsics
        info.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
        info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        info.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info


def truth_record(truth: dict[str, Any] | None) -> np.ndarray:
    """Return one `TRUTH` record, shape (1,); unknown values are NaN, collision is 0 or 1."""
    known = truth or {}
    collision = known.get('collision')
    values = [known.get(key, math.nan) for key in (
        'time_to_contact_s', 'looming_rate', 'distance_m', 'speed', 'yaw_rate')]
    return np.array([(*values, math.nan if collision is None else float(collision),
                      known.get('clearance_m', math.nan))], TRUTH)

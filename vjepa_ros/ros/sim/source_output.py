# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish frames of a source as image, compressed image, camera_info and truth messages."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2, PointField
from std_msgs.msg import Header

from vjepa_ros.ros.common.message_conversion import image, to_bytes
from vjepa_ros.sources import Source, SourceFrame

LARGE_BYTES = 400_000  # the shared memory of the default transports has 512 kB
TRUTH_FIELDS = ('ttc', 'looming_rate', 'distance', 'speed', 'yaw_rate', 'collision', 'clearance')
TRUTH = np.dtype([(name, '<f4') for name in TRUTH_FIELDS])


@dataclass(frozen=True)
class OutputOptions:
    """What camera_source publishes, and how."""

    camera: str
    transport: str
    encoding: str
    reliability: str
    jpeg_quality: int
    truth: bool


class SourceOutput:
    """The publishers of one camera; only topics with subscribers are computed."""

    def __init__(self, node: Node, options: OutputOptions) -> None:
        self._options = options
        name = options.camera
        self._reliable = options.reliability == 'reliable'
        qos = QoSProfile(depth=2, reliability=(
            ReliabilityPolicy.RELIABLE if self._reliable else ReliabilityPolicy.BEST_EFFORT))
        self._raw: Publisher | None = None
        self._compressed: Publisher | None = None
        self._truth: Publisher | None = None
        if options.transport != 'compressed':
            self._raw = node.create_publisher(Image, f'{name}/image_raw', qos)
        if options.transport != 'raw':
            self._compressed = node.create_publisher(
                CompressedImage, f'{name}/image_raw/compressed', qos)
        self._info = node.create_publisher(CameraInfo, f'{name}/camera_info', qos)
        if options.truth:
            self._truth = node.create_publisher(PointCloud2, f'{name}/truth', qos)

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
            self._truth.publish(_truth_cloud(header, truth_record(frame.truth)))
        if _wanted(self._info):
            self._info.publish(_camera_info(header, frame, source))
        if self._raw is not None and _wanted(self._raw):
            encoding = self._options.encoding
            self._raw.publish(image(header, _pixels(frame.rgb, encoding), encoding))
        if self._compressed is not None and _wanted(self._compressed):
            self._compressed.publish(self._compress(frame, header))

    def flush(self) -> None:
        """Wait until reliable subscribers have everything, at most a second for each topic."""
        for publisher in (self._raw, self._compressed, self._truth):
            # Not in every supported distribution; without it the last frames may be lost.
            wait = getattr(publisher, 'wait_for_all_acked', None)
            if wait is not None and self._reliable:
                wait(Duration(seconds=1.0))

    def transport_problem(self, size: tuple[int, int]) -> str:
        """Return why raw images of a size are lost in this environment, '' if they are not."""
        channels = 1 if self._options.encoding == 'mono8' else 3
        size_bytes = size[0] * size[1] * channels
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

    def _compress(self, frame: SourceFrame, header: Header) -> CompressedImage:
        encoding = self._options.encoding
        if frame.encoded is not None and encoding != 'mono8':
            data = np.frombuffer(frame.encoded, np.uint8)
            return CompressedImage(header=header, format=frame.encoding, data=to_bytes(data))
        inner = 'mono8' if encoding == 'mono8' else 'bgr8'
        _, data = cv2.imencode('.jpg', _pixels(frame.rgb, inner),
                               (cv2.IMWRITE_JPEG_QUALITY, self._options.jpeg_quality))
        return CompressedImage(header=header, format=f'{encoding}; jpeg compressed {inner}',
                               data=to_bytes(data))


def _wanted(publisher: Publisher | None) -> bool:
    return publisher is not None and publisher.get_subscription_count() > 0


def _pixels(rgb: np.ndarray, encoding: str) -> np.ndarray:
    if encoding == 'rgb8':
        return rgb
    return cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR if encoding == 'bgr8' else cv2.COLOR_RGB2GRAY)


def _camera_info(header: Header, frame: SourceFrame, source: Source) -> CameraInfo:
    info = CameraInfo(header=header, height=frame.rgb.shape[0], width=frame.rgb.shape[1],
                      distortion_model='plumb_bob', d=[0.0] * 5)
    if source.distortion is not None:
        info.distortion_model = source.distortion.model
        info.d = list(source.distortion.coefficients)
    if source.intrinsics is not None:
        fx, fy, cx, cy = source.intrinsics
        info.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
        info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        info.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info


def _truth_cloud(header: Header, record: np.ndarray) -> PointCloud2:
    fields = [PointField(name=name, offset=4 * number, datatype=PointField.FLOAT32, count=1)
              for number, name in enumerate(TRUTH_FIELDS)]
    values = record.view('<f4')
    return PointCloud2(header=header, height=1, width=1, fields=fields, is_bigendian=False,
                       point_step=TRUTH.itemsize, row_step=TRUTH.itemsize,
                       is_dense=bool(np.isfinite(values).all()), data=to_bytes(record))


def truth_record(truth: dict[str, Any] | None) -> np.ndarray:
    """Return one `TRUTH` record, shape (1,); unknown values are NaN, collision is 0 or 1."""
    known = truth or {}
    collision = known.get('collision')
    values = [known.get(key, math.nan) for key in (
        'time_to_contact_s', 'looming_rate', 'distance_m', 'speed', 'yaw_rate')]
    return np.array([(*values, math.nan if collision is None else float(collision),
                      known.get('clearance_m', math.nan))], TRUTH)

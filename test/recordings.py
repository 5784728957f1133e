# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Bags of drives for tests, written with the rosbags library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

S = 1_000_000_000


def video_packets(frames: Sequence[np.ndarray], codec: str, group: int = 10,
                  **options: str) -> list[bytes]:
    """Encode RGB frames as H.264 or H.265, a packet each, with a key frame in every group."""
    av = pytest.importorskip('av')
    encoder = av.CodecContext.create({'h264': 'libx264', 'hevc': 'libx265'}[codec], 'w')
    encoder.height, encoder.width = frames[0].shape[:2]
    encoder.pix_fmt, encoder.framerate, encoder.gop_size = 'yuv420p', 10, group
    encoder.options = {'tune': 'zerolatency', 'x265-params': 'log-level=none', **options}
    pictures = [av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format='rgb24')
                for frame in frames]
    packets = [bytes(packet) for picture in (*pictures, None)
               for packet in encoder.encode(picture)]
    assert len(packets) == len(frames)
    return packets


class BagMaker:
    """Writes a small bag with the rosbags library; leaving the block closes it."""

    def __init__(self, path: Path, storage: str = 'MCAP'):
        pytest.importorskip('rosbags')
        from rosbags.rosbag2 import StoragePlugin, Writer
        from rosbags.typesys import Stores, get_typestore
        self.store = get_typestore(Stores.ROS2_HUMBLE)
        self.types = self.store.types
        self.writer = Writer(path, version=9, storage_plugin=StoragePlugin[storage])
        self.connections = {}

    def __enter__(self):
        self.writer.open()
        return self

    def __exit__(self, *exc):
        self.writer.close()

    def header(self, stamp_ns: int):
        time = self.types['builtin_interfaces/msg/Time'](*divmod(stamp_ns, S))
        return self.types['std_msgs/msg/Header'](stamp=time, frame_id='eye')

    def add(self, topic: str, kind: str, recorded_ns: int, **fields) -> None:
        if topic not in self.connections:
            self.connections[topic] = self.writer.add_connection(topic, kind,
                                                                 typestore=self.store)
        raw = self.store.serialize_cdr(self.types[kind](**fields), kind)
        self.writer.write(self.connections[topic], recorded_ns, raw)

    def image(self, topic: str, stamp_ns: int, rgb: np.ndarray, encoding: str = 'rgb8',
              recorded_ns: int | None = None) -> None:
        self.add(topic, 'sensor_msgs/msg/Image', recorded_ns or stamp_ns,
                 header=self.header(stamp_ns), height=rgb.shape[0], width=rgb.shape[1],
                 encoding=encoding, is_bigendian=0, step=rgb.shape[1] * 3, data=rgb.reshape(-1))

    def jpeg(self, topic: str, stamp_ns: int, rgb: np.ndarray) -> None:
        self.add(topic, 'sensor_msgs/msg/CompressedImage', stamp_ns,
                 header=self.header(stamp_ns), format='jpeg',
                 data=cv2.imencode('.jpg', rgb[..., ::-1])[1].reshape(-1))

    def info(self, stamp_ns: int, size: tuple[int, int] = (32, 24), focal: float = 33.0,
             model: str = 'plumb_bob', d: Sequence[float] = (0.0,) * 5,
             p: Sequence[float] = (0.0,) * 12) -> None:
        k = np.array([focal, 0, 15.5, 0, focal, 11.5, 0, 0, 1.0])
        roi = self.types['sensor_msgs/msg/RegionOfInterest'](0, 0, 0, 0, do_rectify=False)
        self.add('/eye/camera_info', 'sensor_msgs/msg/CameraInfo', stamp_ns,
                 header=self.header(stamp_ns), height=size[1], width=size[0],
                 distortion_model=model, d=np.array(d), k=k, r=np.eye(3).reshape(-1),
                 p=np.array(p, float), binning_x=0, binning_y=0, roi=roi)


def write_drive(path: Path, frames: Iterable, shift_ns: int = 0) -> Path:
    """A bag of the frames of a source on /eye/image_raw, with camera_info."""
    with BagMaker(path) as bag:
        for number, frame in enumerate(frames):
            stamp_ns = frame.stamp_ns + shift_ns
            if number == 0:
                height, width = frame.rgb.shape[:2]
                bag.info(stamp_ns, (width, height), 0.8 * width)
            bag.image('/eye/image_raw', stamp_ns, frame.rgb)
    return path

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write messages of ROS 2 as MCAP, without ROS: pictures, numbers and states."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import cv2
import numpy as np

from vjepa_ros.sources.video_packets import MESSAGES

VIDEO, JPEG = 'foxglove_msgs/msg/CompressedVideo', 'sensor_msgs/msg/CompressedImage'
IMAGE, FLOAT = 'sensor_msgs/msg/Image', 'std_msgs/msg/Float32'
ARRAY = 'diagnostic_msgs/msg/DiagnosticArray'
NEEDS = "MCAP files need the Python package 'rosbags': pip install rosbags"
QUALITY = 90             # of jpeg
CONSTANT_QUALITY = '23'  # of H.264; lower is better, 23 is what x264 takes itself
KEY_FRAME_S = 1.0        # time between two pictures that refer to no other


class BagWriter:
    """A rosbag2 with MCAP storage that is being written, as a context manager.

    Parameters
    ----------
    folder
        Of the bag; must not exist.

    Attributes
    ----------
    writer
        The ``rosbags.rosbag2.Writer``.

    Raises
    ------
    ValueError
        With the remedy, where the library is missing.
    """

    def __init__(self, folder: Path) -> None:
        try:
            rosbag2 = importlib.import_module('rosbags.rosbag2')
            typesys = importlib.import_module('rosbags.typesys')
        except ImportError as error:
            raise ValueError(f'{NEEDS} ({error})') from error
        self._store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
        self._store.register(typesys.get_types_from_msg(MESSAGES[VIDEO], VIDEO))
        self.writer = rosbag2.Writer(folder, version=9,
                                     storage_plugin=rosbag2.StoragePlugin.MCAP)
        self._connections: dict[str, Any] = {}

    def __enter__(self) -> BagWriter:
        self.writer.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.writer.close()

    def add(self, topic: str, kind: str, stamp_ns: int, **fields: Any) -> None:
        """Write a message of a type; its time of recording is its stamp [ns]."""
        if topic not in self._connections:
            self._connections[topic] = self.writer.add_connection(topic, kind,
                                                                  typestore=self._store)
        raw = self._store.serialize_cdr(self._store.types[kind](**fields), kind)
        self.writer.write(self._connections[topic], stamp_ns, raw)

    def jpeg(self, topic: str, stamp_ns: int, data: np.ndarray, frame_id: str = '') -> None:
        """Write a picture from the bytes of a JPEG file, (N,) uint8."""
        self.add(topic, JPEG, stamp_ns, header=self._header(stamp_ns, frame_id),
                 format='rgb8; jpeg compressed bgr8', data=data)

    def video(self, topic: str, stamp_ns: int, packet: bytes) -> None:
        """Write a picture as a packet of a stream of H.264."""
        self.add(topic, VIDEO, stamp_ns, timestamp=self._time(stamp_ns), frame_id='',
                 data=np.frombuffer(packet, np.uint8), format='h264')

    def grid(self, topic: str, stamp_ns: int, values: np.ndarray) -> None:
        """Write a map (H, W) of numbers as an image of encoding 32FC1."""
        height, width = values.shape
        data = np.frombuffer(np.ascontiguousarray(values, '<f4').tobytes(), np.uint8)
        self.add(topic, IMAGE, stamp_ns, header=self._header(stamp_ns), height=height,
                 width=width, encoding='32FC1', is_bigendian=0, step=4 * width, data=data)

    def diagnostics(self, topic: str, stamp_ns: int, name: str,
                    values: Mapping[str, str]) -> None:
        """Write the values of one status."""
        types = self._store.types
        pairs = [types['diagnostic_msgs/msg/KeyValue'](key, value)
                 for key, value in values.items()]
        one = types['diagnostic_msgs/msg/DiagnosticStatus'](
            level=0, name=name, message='', hardware_id='', values=pairs)
        self.add(topic, ARRAY, stamp_ns, header=self._header(stamp_ns), status=[one])

    def _time(self, stamp_ns: int) -> Any:
        return self._store.types['builtin_interfaces/msg/Time'](*divmod(stamp_ns, 10**9))

    def _header(self, stamp_ns: int, frame_id: str = '') -> Any:
        return self._store.types['std_msgs/msg/Header'](stamp=self._time(stamp_ns),
                                                        frame_id=frame_id)


class PictureWriter:
    """Writes the pictures of one topic: as H.264 where PyAV has an encoder, else as JPEG.

    Each packet is one picture, in annex B form, and refers to none that comes later, as
    foxglove_msgs/CompressedVideo wants it.

    Parameters
    ----------
    bag, topic
        Where they go.
    fps
        Their rate [Hz].
    """

    def __init__(self, bag: BagWriter, topic: str, fps: float) -> None:
        self._bag, self._topic, self._fps = bag, topic, fps
        self._encoder: Any = None
        self._count = 0
        try:
            self._av: Any = importlib.import_module('av')
            self._av.Codec('libx264', 'w')
        except (ImportError, ValueError):     # PyAV says ValueError for a codec it lacks
            self._av = None

    def add(self, stamp_ns: int, bgr: np.ndarray) -> None:
        """Write a picture, (H, W, 3) uint8; those of other size than the first are scaled."""
        if self._av is None:
            data = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
            self._bag.jpeg(self._topic, stamp_ns, data.reshape(-1))
            return
        if self._encoder is None:
            self._encoder = self._open(bgr.shape[1] // 2 * 2, bgr.shape[0] // 2 * 2)
        size = self._encoder.width, self._encoder.height
        if bgr.shape[1::-1] != size:
            bgr = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(bgr), format='bgr24')
        frame.pts = self._count
        self._count += 1
        for packet in self._encoder.encode(frame):
            self._bag.video(self._topic, stamp_ns, bytes(packet))

    def _open(self, width: int, height: int) -> Any:
        encoder = self._av.CodecContext.create('libx264', 'w')
        encoder.width, encoder.height, encoder.pix_fmt = width, height, 'yuv420p'
        encoder.framerate = Fraction(self._fps).limit_denominator(1000)
        encoder.time_base = 1 / encoder.framerate
        encoder.gop_size = max(1, round(KEY_FRAME_S * self._fps))
        # Without delay: a packet leaves for each picture that comes, and there are no B frames.
        encoder.options = {'preset': 'veryfast', 'tune': 'zerolatency', 'crf': CONSTANT_QUALITY}
        return encoder

# SPDX-License-Identifier: Apache-2.0
"""Play the images of a rosbag2 recording through the `rosbags` library, without ROS."""

from __future__ import annotations

import importlib
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.sources.base import (
    Intrinsics,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
)
from vjepa_ros.sources.encodings import compressed_kind, decode_compressed, decode_raw

BAG_SUFFIXES = ('.mcap', '.db3')
_IMAGE, _COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
_INFO = 'sensor_msgs/msg/CameraInfo'
_log = logging.getLogger(__name__)


def is_bag_folder(folder: Path) -> bool:
    return (folder / 'metadata.yaml').is_file() or bool(_storage_files(folder))


def _storage_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in BAG_SUFFIXES)


class BagSource(Source):
    """Images of one topic; stamps and frame_id are those of the message headers.

    A header without a stamp takes the time of recording. Without ``topic`` the first image
    topic is played, and the others are named in the log.
    """

    def __init__(self, path: Path, options: PlayOptions):
        try:
            highlevel = importlib.import_module('rosbags.highlevel')
            typesys = importlib.import_module('rosbags.typesys')
        except ImportError as error:
            raise SourceError(f"bag '{path}' needs the Python package 'rosbags' "
                              f'(pip install rosbags): {error}') from error
        self._path = path
        self._reader_error = highlevel.AnyReaderError
        whole = path.is_file() or (path / 'metadata.yaml').is_file()
        try:
            self._reader = highlevel.AnyReader(
                [path] if whole else _storage_files(path),
                default_typestore=typesys.get_typestore(typesys.Stores.ROS2_HUMBLE))
            self._reader.open()
        except (highlevel.AnyReaderError, OSError, ValueError, KeyError) as error:
            raise SourceError(f"bag '{path}' cannot be opened: {error}") from error
        try:
            topic = self._choose(options.topic)
            self._connections = [c for c in self._reader.connections if c.topic == topic]
            self.topic = topic
            count, rate = self._measure()
            first = next(self._play(), None)
            if first is None:
                raise SourceError(f"bag '{path}' has no messages on '{topic}'")
            height, width = first[1]().rgb.shape[:2]
            super().__init__(f"bag '{path}' topic '{topic}'", options, (width, height), rate,
                             count, self._intrinsics(topic, (width, height)))
        except SourceError:
            self._reader.close()
            raise

    def close(self) -> None:
        if self._reader.stack is not None:
            self._reader.close()

    def _choose(self, wanted: str | None) -> str:
        images = {}
        for connection in self._reader.connections:
            if connection.msgtype in (_IMAGE, _COMPRESSED) \
                    and not connection.topic.endswith('/compressedDepth'):
                images.setdefault(connection.topic, connection.msgtype)
        listing = ', '.join(f'{name} ({kind.rsplit("/", 1)[-1]})'
                            for name, kind in images.items())
        if wanted:
            match = [t for t in images if t == wanted or t == '/' + wanted.lstrip('/')]
            if not match:
                raise SourceError(f"bag '{self._path}' has no image topic '{wanted}'; it has: "
                                  f'{listing or self._topics()}')
            return match[0]
        if not images:
            raise SourceError(f"bag '{self._path}' has no image topic (Image or CompressedImage);"
                              f' it has: {self._topics()}')
        topic = next(iter(images))
        if len(images) > 1:
            _log.warning("bag '%s' has several image topics (%s): playing '%s'; set a topic to "
                         'choose another', self._path, listing, topic)
        return topic

    def _topics(self) -> str:
        return ', '.join(sorted(f'{c.topic} ({c.msgtype})' for c in self._reader.connections)) \
            or 'no topics'

    def _measure(self) -> tuple[int, float]:
        """Number of messages and their mean rate, from the times of recording."""
        times = [t for _, t, _ in self._reader.messages(connections=self._connections)]
        span = (times[-1] - times[0]) / 1e9 if times else 0.0
        return len(times), (len(times) - 1) / span if span > 0 else math.nan

    def _play(self) -> Play:
        for connection, recorded_ns, raw in self._reader.messages(connections=self._connections):
            where = f"bag '{self._path}' topic '{connection.topic}' at {recorded_ns} ns"
            try:
                message = self._reader.deserialize(raw, connection.msgtype)
            except (ValueError, self._reader_error) as error:
                raise SourceError(f'{where}: {error}') from error
            at = message.header.stamp
            stamp = at.sec * 1_000_000_000 + at.nanosec or recorded_ns
            yield stamp, partial(_frame, message, connection.msgtype, stamp, where)

    def _intrinsics(self, topic: str, size: tuple[int, int]) -> Intrinsics | None:
        """From the CameraInfo beside the image topic, else from the only one of the bag."""
        infos = {c.topic: c for c in self._reader.connections if c.msgtype == _INFO}
        base = topic[:-len('/compressed')] if topic.endswith('/compressed') else topic
        beside = f'{base.rsplit("/", 1)[0]}/camera_info'
        chosen = infos.get(beside) or (next(iter(infos.values())) if len(infos) == 1 else None)
        if chosen is None:
            return None
        for connection, _, raw in self._reader.messages(connections=[chosen]):
            info = self._reader.deserialize(raw, connection.msgtype)
            k = np.asarray(info.k, float)
            if k[0] > 0 and k[4] > 0 and (info.width, info.height) == size:
                return float(k[0]), float(k[4]), float(k[2]), float(k[5])
            _log.warning("bag '%s': '%s' describes %dx%d px with focal length %g, which does not "
                         'fit the %dx%d images: ignored', self._path, connection.topic,
                         info.width, info.height, k[0], *size)
            return None
        return None


def _frame(message: Any, kind: str, stamp_ns: int, where: str) -> SourceFrame:
    data = encoding = None
    try:
        if kind == _COMPRESSED:
            encoding = compressed_kind(message.format)
            rgb = decode_compressed(message.data)
            data = bytes(memoryview(np.ascontiguousarray(message.data)))
        else:
            rgb = decode_raw(message.data, message.width, message.height, message.encoding,
                             message.step, bool(message.is_bigendian))
    except ValueError as error:
        raise SourceError(f'{where}: {error}') from error
    return SourceFrame(stamp_ns, rgb, message.header.frame_id or 'camera', encoded=data,
                       encoding=encoding)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play the images of a rosbag2 recording with the `rosbags` library, without ROS."""

from __future__ import annotations

import importlib
import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.sources.base import (
    Intrinsics,
    Load,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
    inside,
)
from vjepa_ros.sources.camera_info import lens
from vjepa_ros.sources.encodings import compressed_kind, read_compressed, read_raw
from vjepa_ros.sources.video_packets import MESSAGES, PacketDecoder, pixels_of

BAG_SUFFIXES = ('.mcap', '.db3')
_IMAGE, _COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
IMAGES = (_IMAGE, _COMPRESSED, *MESSAGES)
_INFO = 'sensor_msgs/msg/CameraInfo'
TRIED_FIRST = 300             # images, to learn their size
MAX_METADATA = 4 << 20        # bytes; long bags with many files have some hundred thousand
_log = logging.getLogger(__name__)


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """Turn every error from the content of a bag into a SourceError; `what` names the bag."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # rosbags and its readers of YAML, SQLite and zstd have their own
        reason = (str(error).splitlines() or [''])[0][:200]
        raise SourceError(f'{what}: {type(error).__name__}: {reason}; copy the bag again, or '
                          'repair it: `mcap recover` (.mcap), `sqlite3 FILE .recover` (.db3), '
                          '`ros2 bag reindex` (metadata.yaml)') from error


def bag_files(bag: Path) -> list[Path]:
    """Return what to open: the bag, or the files of a folder without metadata.

    Raises
    ------
    SourceError
        When a file is a link to another folder, or the metadata is implausibly large.
    """
    if bag.is_file():
        return [bag]
    metadata, files = bag / 'metadata.yaml', _storage_files(bag)
    for path in (metadata, *files):
        if not inside(path, bag):
            raise SourceError(f"bag '{bag}': '{path.name}' leads out of its folder, to "
                              f"'{path.resolve()}'; put the file itself into the folder")
    if not metadata.is_file():
        return files
    if metadata.stat().st_size > MAX_METADATA:
        raise SourceError(f"bag '{bag}': metadata.yaml has {metadata.stat().st_size} bytes, at "
                          f'most {MAX_METADATA} are read; repair it with `ros2 bag reindex`')
    return [bag]


def is_bag_folder(folder: Path) -> bool:
    """Return whether a folder is a rosbag2 recording."""
    return (folder / 'metadata.yaml').is_file() or bool(_storage_files(folder))


def _storage_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in BAG_SUFFIXES)


def open_bag(path: Path) -> Any:
    """Open a bag with the `rosbags` library and return its reader.

    Raises
    ------
    SourceError
        When it cannot be read, or the library is missing.
    """
    try:
        highlevel = importlib.import_module('rosbags.highlevel')
        typesys = importlib.import_module('rosbags.typesys')
    except ImportError as error:
        raise SourceError(f"bag '{path}' needs the Python package 'rosbags' "
                          f'(pip install rosbags): {error}') from error
    with parsing(f"bag '{path}' cannot be opened"):
        store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
        for name, text in MESSAGES.items():
            store.register(typesys.get_types_from_msg(text, name))
        reader = highlevel.AnyReader(bag_files(path), default_typestore=store)
        reader.open()
    return reader


def image_topics(path: Path) -> list[str]:
    """Return the image topics of a bag; `SourceError` when it cannot be read."""
    reader = open_bag(path)
    try:
        return list(_images(reader.connections))
    finally:
        reader.close()


def _images(connections: Iterable[Any]) -> dict[str, str]:
    """Return the types of the image topics by their names."""
    return {c.topic: c.msgtype for c in connections if c.msgtype in IMAGES
            and not c.topic.endswith('/compressedDepth')}


def _raw(topic: str) -> str:
    """Return an image topic without its transport, as the node names it."""
    return topic.removesuffix('/compressed').removesuffix('/ffmpeg')


class BagSource(Source):
    """Images of one topic, with the stamps and frame_id of the message headers.

    A header without a stamp gets the time of recording. Without ``topic`` the first image topic is
    played, and the log names the others.
    """

    def __init__(self, path: Path, options: PlayOptions):
        self._path = path
        self._decoder: PacketDecoder | None = None       # of a video, in the present pass
        self._lost = 0                                   # packets without a picture, as told
        self._reader = open_bag(path)
        try:
            topic = self._choose(options.topic)
            self._connections = [c for c in self._reader.connections if c.topic == topic]
            self.topic = topic
            count, rate = self._measure()
            height, width = self._first_frame().rgb.shape[:2]
            super().__init__(f"bag '{path}' topic '{topic}'", options, (width, height), rate,
                             count, self._intrinsics(topic, (width, height)))
        except SourceError:
            self._reader.close()
            raise

    def _first_frame(self) -> SourceFrame:
        """Return the first frame that can be decoded, if one of the first few can."""
        problem = SourceError(f"bag '{self._path}' has no messages on '{self.topic}'")
        for number, (_, load) in enumerate(islice(self.excerpt(0.0, math.inf), TRIED_FIRST)):
            try:
                return load()
            except SourceError as error:
                problem = error if number == 0 else problem
        raise problem

    def close(self) -> None:
        """Close the files of the bag."""
        if self._reader.stack is not None:
            self._reader.close()

    def _choose(self, wanted: str | None) -> str:
        images = _images(self._reader.connections)
        listing = ', '.join(f'{name} ({kind.rsplit("/", 1)[-1]})'
                            for name, kind in images.items())
        if wanted:
            match = [t for t in images if t == wanted or t == '/' + wanted.lstrip('/')]
            if not match:
                raise SourceError(f"bag '{self._path}' has no image topic '{wanted}'; it has: "
                                  f'{listing or self._topics()}')
            return match[0]
        if not images:
            kinds = ', '.join(kind.rpartition('/')[2] for kind in IMAGES)
            raise SourceError(f"bag '{self._path}' has no image topic ({kinds}); it has: "
                              f'{self._topics()}')
        topic = next(iter(images))
        if len(images) > 1:
            _log.warning("bag '%s' has several image topics (%s): playing '%s'; set a topic to "
                         'choose another', self._path, listing, topic)
        return topic

    def _topics(self) -> str:
        return ', '.join(sorted(f'{c.topic} ({c.msgtype})' for c in self._reader.connections)) \
            or 'no topics'

    def _measure(self) -> tuple[int, float]:
        """Return the number of messages and their mean rate [Hz], by the times of recording.

        Only both ends are read, for long bags.
        """
        count = sum(c.msgcount for c in self._connections)
        first, last = self._time_of(self._messages(self._connections), 0), None
        end_ns, window_ns = self._reader.end_time, 1_000_000_000
        while first is not None and last is None:
            window = self._messages(self._connections, end_ns - window_ns)
            last, window_ns = self._time_of(window, -1), 4 * window_ns
        span = 0.0 if first is None or last is None else (last - first) / 1e9
        return count, (count - 1) / span if span > 0 else math.nan

    @staticmethod
    def _time_of(messages: Iterator[tuple[Any, int, bytes]], which: int) -> int | None:
        """Return the time of recording [ns] of the first (0) or last (-1) message, or None."""
        times = islice(messages, 1) if which == 0 else messages
        return next(iter(deque((t for _, t, _ in times), maxlen=1)), None)

    def _messages(self, connections: list[Any], start_ns: int | None = None,
                  stop_ns: int | None = None) -> Iterator[tuple[Any, int, bytes]]:
        """Yield connection, time of recording [ns] and bytes of each message."""
        messages = self._reader.messages(connections, start_ns, stop_ns)
        while True:
            with parsing(f"bag '{self._path}' cannot be read"):
                found = next(messages, None)
            if found is None:
                return
            yield found

    def _play(self) -> Play:
        self._decoder = None
        lost, first = 0, ''
        for connection, recorded_ns, raw in self._messages(self._connections):
            try:
                stamp, load = self._parsed(connection, recorded_ns, raw)
            except SourceError as error:
                if connection.msgtype not in MESSAGES:
                    raise
                lost, first = lost + 1, first or str(error)
                continue
            yield stamp, load
        for frame in self._rest():
            lost -= 1       # its packet brought another picture, or none
            yield frame.stamp_ns, lambda frame=frame: frame
        if lost > self._lost:        # a loop does not say it again
            _log.warning('%d of %d packets had no picture, the first: %s', lost,
                         sum(c.msgcount for c in self._connections), first)
            self._lost = lost

    @property
    def duration_s(self) -> float:
        """Length of the bag with all its topics [s]."""
        return self._reader.duration / 1e9

    def excerpt(self, begin_s: float, end_s: float) -> Iterator[tuple[float, Load]]:
        """As in the base class, by the times of recording since the start of the bag."""
        start_ns = self._reader.start_time
        begin_ns = start_ns + round(begin_s * 1e9)
        end_ns = None if math.isinf(end_s) else start_ns + round(end_s * 1e9)
        self._decoder, at_s = None, begin_s
        for connection, recorded_ns, raw in self._messages(self._connections, begin_ns, end_ns):
            def load(c: Any = connection, t: int = recorded_ns, r: bytes = raw) -> SourceFrame:
                return self._taken(self._parsed(c, t, r)[1])

            at_s = (recorded_ns - start_ns) / 1e9
            yield at_s, load
        for frame in self._rest():
            yield at_s, lambda frame=frame: self._taken(lambda: frame)

    def _parsed(self, connection: Any, recorded_ns: int, raw: bytes) -> tuple[int, Load]:
        """Return the stamp of a message [ns] and how to get its frame."""
        where = f"bag '{self._path}' topic '{connection.topic}' at {recorded_ns} ns"
        with parsing(where):
            message = self._reader.deserialize(raw, connection.msgtype)
            video = connection.msgtype in MESSAGES
            at = getattr(message, 'timestamp', None) or message.header.stamp
            stamp = int(at.sec) * 1_000_000_000 + int(at.nanosec) or recorded_ns
        if video:
            frame = self._unpacked(message, stamp, where)
            return frame.stamp_ns, lambda: frame
        return stamp, partial(_frame, message, connection.msgtype, stamp, where)

    def _unpacked(self, message: Any, stamp_ns: int, where: str) -> SourceFrame:
        """Decode a packet of a video at once, for those after it need it."""
        try:
            if self._decoder is None:
                self._decoder = PacketDecoder(getattr(message, 'format', '') or message.encoding)
            header = getattr(message, 'header', message)
            return _picture(*self._decoder.picture(np.asarray(message.data).tobytes(),
                                                   (stamp_ns, header.frame_id or 'camera')))
        except ValueError as error:        # also one that is too large
            raise SourceError(f'{where}: {error}') from error

    def _rest(self) -> Iterator[SourceFrame]:
        """Yield the last pictures of a video with B frames."""
        for frame, sender in self._decoder.rest() if self._decoder is not None else ():
            yield _picture(frame, sender)

    def _intrinsics(self, topic: str, size: tuple[int, int]) -> Intrinsics | None:
        """Return those of the CameraInfo beside the images, or of a lone one of a lone camera."""
        infos = {c.topic: c for c in self._reader.connections if c.msgtype == _INFO}
        beside = f'{_raw(topic).rsplit("/", 1)[0]}/camera_info'
        chosen = infos.get(beside) or (next(iter(infos.values())) if len(infos) == 1 else None)
        if chosen is None:
            return None
        cameras = {_raw(name) for name in _images(self._reader.connections)}
        if chosen.topic != beside and len(cameras) > 1:
            _log.warning("bag '%s': '%s' is ignored, it may be of another camera than '%s'; "
                         "record '%s'", self._path, chosen.topic, topic, beside)
            return None
        for connection, _, raw in self._messages([chosen]):
            with parsing(f"bag '{self._path}' topic '{connection.topic}'"):
                info = self._reader.deserialize(raw, connection.msgtype)
                try:
                    found, self.distortion = lens(info, size, topic)
                    return found
                except ValueError as error:
                    _log.warning("bag '%s': '%s' is ignored: %s", self._path, connection.topic,
                                 error)
            return None
        return None


def _picture(frame: Any, sender: tuple[int, str]) -> SourceFrame:
    """Return a picture of a video, whose packet had a stamp [ns] and a frame_id."""
    stamp_ns, frame_id = sender
    return SourceFrame(stamp_ns, pixels_of(frame), frame_id)


def _frame(message: Any, kind: str, stamp_ns: int, where: str) -> SourceFrame:
    data = encoding = None
    with parsing(where):
        try:
            if kind == _COMPRESSED:
                encoding = compressed_kind(message.format)
                rgb = read_compressed(message.data)
                data = np.asarray(message.data).tobytes()
            else:
                rgb = read_raw(message.data, message.width, message.height, message.encoding,
                               message.step, bool(message.is_bigendian))
        except ValueError as error:    # such as an unknown encoding
            raise SourceError(f'{where}: {error}') from error
        return SourceFrame(stamp_ns, rgb, message.header.frame_id or 'camera', encoded=data,
                           encoding=encoding)

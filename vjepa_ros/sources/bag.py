# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play the images of a rosbag2 recording, without ROS; the `rosbags` library knows the types."""

from __future__ import annotations

import heapq
import importlib
import logging
import math
import re
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.sources.bag_storage import (
    MCAP_START,
    MOST_BYTES,
    McapStorage,
    Message,
    ROS1_START,
    SQLITE_START,
    SqliteStorage,
    Topic,
    ZSTD_START,
    most_expanded,
    parts_of,
    unpacked,
)
from vjepa_ros.sources.base import (
    Intrinsics,
    Load,
    Play,
    PlayOptions,
    Source,
    SourceError,
    SourceFrame,
    check_file,
    inside,
    read_file,
)
from vjepa_ros.sources.camera_info import lens
from vjepa_ros.sources.encodings import read_compressed_image, read_raw
from vjepa_ros.sources.video_packets import MESSAGES, PacketDecoder, pixels_of

BAG_SUFFIXES = ('.mcap', '.db3')
COMPRESSED_SUFFIXES = ('.zstd', '.zst')
ROS1_SUFFIX = '.bag'
_IMAGE, _COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
IMAGES = (_IMAGE, _COMPRESSED, *MESSAGES)
_INFO, _IMU = 'sensor_msgs/msg/CameraInfo', 'sensor_msgs/msg/Imu'
BUILT_IN = (*IMAGES, _INFO, _IMU)      # whatever a bag says of them
TRANSPORTS = ('compressed', 'ffmpeg', 'theora', 'zstd', 'foxglove')
VIDEO = re.compile('26[45]|hevc', re.I)       # in the format of a CompressedImage
LISTED = re.compile(r'^\s*- [\'"]?([^\s\'"]+\.(?:mcap|db3)(?:\.zstd)?)[\'"]?\s*$', re.M)
SPARSE = 10                   # times as many messages make another camera the one to play
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
    except Exception as error:  # of rosbags, SQLite and zstd, which have their own
        reason = (str(error).splitlines() or [''])[0][:200]
        raise SourceError(f'{what}: {type(error).__name__}: {reason}; its content is damaged, or '
                          'of another type than its name says') from error


def is_bag(path: Path) -> bool:
    """Return whether a path is that of a rosbag2: a file by its name, or a folder."""
    if path.is_dir():
        return (path / 'metadata.yaml').exists() or bool(_storage_files(path))
    return is_bag_file(path)


def is_bag_file(path: Path) -> bool:
    """Return whether the name is that of a file with messages, perhaps compressed or of ROS 1."""
    suffix = path.suffix.lower()
    return suffix in (*BAG_SUFFIXES, *COMPRESSED_SUFFIXES, ROS1_SUFFIX)


def _storage_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.lower().removesuffix('.zst').removesuffix(
        '.zstd').endswith(BAG_SUFFIXES) and not p.name.startswith('.'))


class Bag:
    """An open rosbag2: a file or folder, with or without metadata.

    Only messages that are asked for are parsed. Images, camera_info, imu and video have built-in
    definitions, other types those that the bag brings.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: dict[str, None] = {}
        self._stack = ExitStack()
        self._stores: dict[str, Any] = {}
        self._told = ''
        try:
            self._types: Any = importlib.import_module('rosbags.typesys')
        except ImportError as error:
            raise SourceError(f"bag '{path}' needs the Python package 'rosbags' "
                              f'(pip install rosbags): {error}') from error
        try:
            with parsing(f"bag '{path}' cannot be opened"):
                self._built_in = self._types.get_typestore(self._types.Stores.ROS2_HUMBLE)
                for name, text in MESSAGES.items():
                    self._built_in.register(self._types.get_types_from_msg(text, name))
                self._files = [self._opened(file) for file in self._names()]
        except BaseException:
            self.close()
            raise
        # Its topics, once for each file.
        self.connections: list[Topic] = [topic for file in self._files
                                         for topic in file.topics.values()]
        spans = [(file.first_ns, file.last_ns) for file in self._files
                 if any(topic.msgcount for topic in file.topics.values())]
        # Time of recording of the first message, and just after the last [ns].
        self.start_time = int(min((first for first, _ in spans), default=0))
        self.end_time = int(max((last + 1 for _, last in spans), default=0))

    def __enter__(self) -> Bag:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its files."""
        self._stack.close()

    @property
    def lost(self) -> str:
        """What could not be read so far, in words; '' for nothing."""
        said = list(self._said)
        more = f' (and {len(said) - 3} more like this)' if len(said) > 3 else ''
        return '; '.join(said[:3]) + more

    def tell(self) -> None:
        """Log what could not be read, if that is more than before."""
        if self.lost != self._told:
            _log.warning("bag '%s': %s", self._path, self.lost)
            self._told = self.lost

    def messages(self, connections: Collection[Topic] | None = None, start: float = -math.inf,
                 stop: float = math.inf) -> Iterator[Message]:
        """Yield the messages of connections (None: of all) from `start` to before `stop` [ns]."""
        wanted = self.connections if connections is None else connections
        with parsing(f"bag '{self._path}' cannot be read"):
            for topic, at_ns, raw in heapq.merge(
                    *(file.messages(wanted, start, stop) for file in self._files),
                    key=lambda message: message[1]):
                if raw.startswith(ZSTD_START):       # as CDR never does: compressed by itself
                    try:
                        raw = unpacked(raw, 'zstd', MOST_BYTES)
                    except ValueError as error:
                        self._lose(f"the message on '{topic.topic}' at {at_ns} ns: {error}")
                yield topic, at_ns, raw

    @property
    def types(self) -> dict[str, str]:
        """Types of its topics by their names."""
        return {c.topic: c.msgtype for c in self.connections}

    def read(self, topics: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Yield topic and message of topics, in the order of recording; say what is lost."""
        for topic, _, raw in self.messages([c for c in self.connections if c.topic in topics]):
            with parsing(f"bag '{self._path}' cannot be read"):
                message = self.deserialize(raw, topic.msgtype)
            yield topic.topic, message
        self.tell()

    def deserialize(self, raw: bytes, msgtype: str) -> Any:
        """Return a message; `SourceError` where its type is not known."""
        if msgtype not in self._stores:
            with parsing(f"bag '{self._path}' type {msgtype}"):
                self._stores[msgtype] = self._store(msgtype)
        return self._stores[msgtype].deserialize_cdr(raw, msgtype)

    def _store(self, msgtype: str) -> Any:
        """Return a type store of rosbags with a type."""
        text, language = next((c.definition for c in self.connections
                               if c.msgtype == msgtype and c.definition[0]), ('', ''))
        store = self._built_in
        if msgtype not in BUILT_IN and language in ('ros2msg', 'ros2idl', 'omgidl'):
            try:
                types = (self._types.get_types_from_msg(text, msgtype)
                         if language == 'ros2msg' else self._of_idl(text))
                store = self._types.get_typestore(self._types.Stores.EMPTY)
                store.register(types)
            except Exception:      # rosbags has its own
                if msgtype not in self._built_in.fielddefs:
                    raise
        if msgtype not in store.fielddefs:
            raise SourceError(f"bag '{self._path}' does not define the type {msgtype}; record "
                              'it where its package is installed')
        return store

    def _of_idl(self, text: str) -> dict[str, Any]:
        """Parse a definition in IDL, which rosbag2 writes in parts with headings."""
        parts = [part.partition('\n')[2] for part in text.split('=' * 80 + '\n')[1:]] or [text]
        return {name: fields for part in parts
                for name, fields in self._types.get_types_from_idl(part).items()}

    # -- files ----------------------------------------------------------------------------------

    def _lose(self, what: str) -> None:
        self._said[what] = None

    def _names(self) -> list[Path]:
        """Return its files, those that its metadata lists where it does."""
        if not self._path.is_dir():
            return [self._path]
        metadata, files = self._path / 'metadata.yaml', _storage_files(self._path)
        for path in (metadata, *files):
            if not inside(path, self._path):
                raise SourceError(f"bag '{self._path}': '{path.name}' leads out of its folder, to "
                                  f"'{path.resolve()}'; put the file itself into the folder")
        if not metadata.exists():
            return files
        text = read_file(metadata, MAX_METADATA).decode(errors='replace')
        listed = [Path(name).name for name in LISTED.findall(text)]
        found: dict[Path, None] = {}
        for name in dict.fromkeys(listed):
            # Some versions of rosbag2 list a compressed file by its name before.
            there = [file for file in files
                     if name.removesuffix('.zstd') in (file.name, file.name.removesuffix('.zstd'))]
            found.update(dict.fromkeys(there[:1]))
            if not there:
                self._lose(f"metadata.yaml lists '{name}', which is not there; copy it, too")
        if found and len(found) < len(files):
            _log.warning("bag '%s': left out is %s, which metadata.yaml does not list",
                         self._path, ', '.join(f.name for f in files if f not in found))
        if not files:
            raise SourceError(f"bag '{self._path}' has no file {' or '.join(BAG_SUFFIXES)}; "
                              'copy these, too')
        return list(found) or files

    def _opened(self, path: Path) -> McapStorage | SqliteStorage:
        """Open a file by its content, whatever its name says."""
        check_file(path)
        with path.open('rb') as file:
            start = file.read(16)
        own = start.startswith(ZSTD_START)
        if own:
            path = self._decompressed(path)
            with path.open('rb') as file:
                start = file.read(16)
        if start.startswith(MCAP_START):
            storage: McapStorage | SqliteStorage = McapStorage(path, self._lose)
        elif start == SQLITE_START:
            copy = path if own else self._with_log(path)
            storage = SqliteStorage(copy, self._lose, own or copy != path)
        else:
            raise SourceError(_what_it_is(path, start))
        self._stack.callback(storage.close)
        return storage

    def _folder(self, path: Path, needed: int) -> Path:
        """Return a temporary folder with room for a number of bytes."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix='vjepa_ros_')))
        if needed > (free := shutil.disk_usage(folder).free // 2):
            raise SourceError(f"'{path}' needs {needed} bytes in '{folder.parent}', where "
                              f'{free} may be used; set TMPDIR to a larger disk')
        return folder

    def _decompressed(self, path: Path) -> Path:
        """Decompress a file that `zstd` has compressed."""
        most = most_expanded(path.stat().st_size)
        copy = self._folder(path, path.stat().st_size) / (path.stem or 'bag')
        room, size = shutil.disk_usage(copy.parent).free // 2, 0
        try:
            with path.open('rb') as file, copy.open('wb') as out:
                for part in parts_of(file, 'zstd'):
                    if not size and not part.startswith((MCAP_START, SQLITE_START)):
                        raise SourceError(f"'{path}' is a file that zstd has compressed, and no "
                                          'bag; decompress it with `zstd -d`')
                    size += len(part)
                    if size > min(most, room):
                        raise SourceError(
                            f"'{path}' expands to more than {min(most, room)} bytes, which are "
                            'not written; decompress it yourself with `zstd -d` if you trust it')
                    out.write(part)
        except EOFError:
            self._lose(f"'{path}' is cut off; what it has up to there is read")
        return copy

    def _with_log(self, path: Path) -> Path:
        """Return a copy of a database whose last changes are in a log beside it, or itself."""
        logs = [log for suffix in ('-wal', '-journal')
                if (log := Path(f'{path}{suffix}')).is_file() and log.stat().st_size]
        if not logs:
            return path
        if not all(inside(log, path.parent) for log in logs):
            raise SourceError(f"'{logs[0]}' leads out of its folder; put the file itself there")
        folder = self._folder(path, sum(file.stat().st_size for file in (path, *logs)))
        for file in (path, *logs):
            shutil.copyfile(file, folder / file.name)
        _log.info("'%s' was not closed: '%s' is read, too", path, logs[0].name)
        return folder / path.name


def _what_it_is(path: Path, start: bytes) -> str:
    """Say of a file that is no bag what it is, and what to do."""
    if start.startswith(ROS1_START):
        return (f"'{path}' is a bag of ROS 1; convert it: pip install rosbags; rosbags-convert "
                f'--src {path.name} --dst {path.stem}')
    if not start:
        return f"'{path}' is empty; copy it again"
    return (f"'{path}' is neither SQLite nor MCAP, it begins with {start!r}; give a file "
            f'{" or ".join(BAG_SUFFIXES)} of rosbag2')


def image_topics(path: Path) -> dict[str, bool]:
    """Return whether each image topic of a bag delivers; `SourceError` when it cannot be read."""
    with Bag(path) as bag:
        chosen = delivering(path, bag.connections)
        return {topic: topic in chosen for topic in _images(bag.connections)}


def delivering(path: Path, connections: Iterable[Topic]) -> list[str]:
    """Return the image topics; of those of a camera only some if others are poor.

    Of a camera that was recorded in several ways, those are left out that have less than half as
    many messages as another, and empty topics where others have messages; the log says so.
    """
    images = _images(connections)
    most = {camera: max(images[topic] for topic in images if _raw(topic) == camera)
            for camera in map(_raw, images)}
    poor = [topic for topic, count in images.items() if 2 * count < most[_raw(topic)]
            or (not count and any(images.values()))]
    if poor:
        said = ', '.join(f"'{topic}' has {images[topic]} messages" for topic in poor)
        taken = ', '.join(f"'{topic}' with {count}" for topic, count in images.items()
                          if topic not in poor)
        _log.warning("bag '%s': %s; taken is %s", path, said, taken)
    return [topic for topic in images if topic not in poor]


def _images(connections: Iterable[Topic]) -> Counter[str]:
    """Return the numbers of messages of the image topics, of a camera the raw one first."""
    found = Counter[str]()
    for c in connections:
        if c.msgtype in IMAGES and c.serialization == 'cdr' and not c.topic.endswith(
                '/compressedDepth'):
            found[c.topic] += c.msgcount
    cameras = {_raw(topic): number for number, topic in reversed(list(enumerate(found)))}
    return Counter({topic: found[topic] for topic in sorted(
        found, key=lambda topic: (cameras[_raw(topic)], topic != _raw(topic)))})


def _raw(topic: str) -> str:
    """Return an image topic without its transport, as the node names it."""
    camera, _, transport = topic.rpartition('/')
    return camera if transport in TRANSPORTS else topic


class BagSource(Source):
    """Images of one topic, with the stamps and frame_id of the message headers.

    A header without a stamp gets the time of recording. Without ``topic`` the first image topic is
    played, and the log names the others.
    """

    def __init__(self, path: Path, options: PlayOptions):
        self._path = path
        self._decoder: PacketDecoder | None = None       # of a video, in the present pass
        self._lost = 0                                   # packets without a picture, as told
        self._reader = Bag(path)
        try:
            self.topic = topic = self._choose(options.topic)
            self._connections = [c for c in self._reader.connections if c.topic == topic]
            count, rate = self._measure()
            height, width = self._first_frame().rgb.shape[:2]
            super().__init__(f"bag '{path}' topic '{topic}'", options, (width, height), rate,
                             count, self._intrinsics(topic, (width, height)))
        except SourceError:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close the files of the bag."""
        self._reader.close()

    def _choose(self, wanted: str | None) -> str:
        connections = self._reader.connections
        images, kinds = _images(connections), self._reader.types
        listing = ', '.join(f'{name} ({kinds[name].rsplit("/", 1)[-1]}) with {count} messages'
                            for name, count in images.items())
        others = ', '.join(sorted(f'{name} ({kind})' for name, kind in kinds.items()))
        if wanted:
            match = [t for t in images if t in (wanted, '/' + wanted.lstrip('/'))]
            if not match:
                raise SourceError(f"bag '{self._path}' has no image topic '{wanted}'; it has: "
                                  f'{listing or others or "no topics"}')
            return match[0]
        if not images:
            known = ', '.join(kind.rpartition('/')[2] for kind in IMAGES)
            ros1 = any(c.serialization == 'ros1' for c in connections)
            raise SourceError(f"bag '{self._path}' has no image topic ({known}); it has: "
                              f'{others or "no topics"}'
                              + ('; convert it from ROS 1: rosbags-convert' if ros1 else ''))
        topic = next(topic for topic in delivering(self._path, connections)
                     if SPARSE * images[topic] >= max(images.values()))
        if len(images) > 1:
            _log.warning("bag '%s' has several image topics (%s): playing '%s'; set a topic to "
                         'choose another', self._path, listing, topic)
        return topic

    def _first_frame(self) -> SourceFrame:
        """Return the first frame that can be decoded, if one of the first few can."""
        problem: SourceError | None = None
        for _, load in islice(self.excerpt(0.0, math.inf), TRIED_FIRST):
            try:
                return load()
            except SourceError as error:
                problem = problem or error
        raise problem or SourceError(f"bag '{self._path}' has no messages on '{self.topic}'")

    def _measure(self) -> tuple[int, float]:
        """Return the number of messages and their mean rate [Hz], by the times of recording."""
        def times(start: float = -math.inf) -> Iterator[int]:
            return (at_ns for _, at_ns, _ in self._reader.messages(self._connections, start))

        count = sum(c.msgcount for c in self._connections)
        first, last, window_ns = next(times(), None), None, 1_000_000_000
        while first is not None and last is None:
            last = next(iter(deque(times(self._reader.end_time - window_ns), maxlen=1)), None)
            window_ns *= 4
        span = 0.0 if first is None or last is None else (last - first) / 1e9
        return count, (count - 1) / span if span > 0 else math.nan

    def _play(self) -> Play:
        played, first = 0, ''
        self._decoder = None
        self._reader.tell()
        for _, parse in self._parts():
            try:
                stamp, load = parse()
            except SourceError as error:
                if self._connections[0].msgtype not in MESSAGES and self._decoder is None:
                    raise
                first = first or str(error)
                continue
            played += 1
            yield stamp, load
        self._reader.tell()
        count = sum(c.msgcount for c in self._connections)
        if first and count - played > self._lost:        # a loop does not say it again
            self._lost = count - played
            _log.warning('%d of %d packets had no picture, the first: %s', self._lost, count,
                         first)

    def _parts(self, begin_ns: float = -math.inf, end_ns: float = math.inf
               ) -> Iterator[tuple[int, Callable[[], tuple[int, Load]]]]:
        """Yield the times of recording of messages [ns], and what reads their stamps."""
        at_ns = 0
        for topic, at_ns, raw in self._reader.messages(self._connections, begin_ns, end_ns):
            yield at_ns, partial(self._parsed, topic, at_ns, raw)
        # The last pictures of a video with B frames, whose packets brought others, or none.
        for frame, sender in self._decoder.rest() if self._decoder is not None else ():
            picture = _picture(frame, sender)
            yield at_ns, lambda picture=picture: (picture.stamp_ns, lambda: picture)

    @property
    def lost(self) -> str:
        """As in the base class."""
        return self._reader.lost

    @property
    def duration_s(self) -> float:
        """Length of the bag with all its topics [s]."""
        return (self._reader.end_time - self._reader.start_time) / 1e9

    def excerpt(self, begin_s: float, end_s: float) -> Iterator[tuple[float, Load]]:
        """As in the base class, by the times of recording since the start of the bag.

        Raises at the end where parts could not be read that were whole when it was opened.
        """
        before, start_ns = self._reader.lost, self._reader.start_time
        end_ns = math.inf if math.isinf(end_s) else start_ns + round(end_s * 1e9)
        self._decoder = None
        for at_ns, parse in self._parts(start_ns + round(begin_s * 1e9), end_ns):
            yield (at_ns - start_ns) / 1e9, lambda parse=parse: self._taken(parse()[1])
        if self._reader.lost != before:
            raise SourceError(f"bag '{self._path}': {self._reader.lost}")

    def _parsed(self, connection: Topic, recorded_ns: int, raw: bytes) -> tuple[int, Load]:
        """Return the stamp of a message [ns] and how to get its frame."""
        where = f"bag '{self._path}' topic '{connection.topic}' at {recorded_ns} ns"
        with parsing(where):
            message = self._reader.deserialize(raw, connection.msgtype)
            # Some drivers send video as CompressedImage.
            video = connection.msgtype in MESSAGES or (
                connection.msgtype == _COMPRESSED and bool(VIDEO.search(message.format)))
            header = getattr(message, 'header', message)
            at = getattr(message, 'timestamp', None) or header.stamp
            stamp = int(at.sec) * 1_000_000_000 + int(at.nanosec) or recorded_ns
        if not video:
            return stamp, partial(_frame, message, connection.msgtype, stamp, where)
        try:           # at once, for the packets after it need it
            if self._decoder is None:
                self._decoder = PacketDecoder(getattr(message, 'format', '') or message.encoding)
            frame = _picture(*self._decoder.picture(np.asarray(message.data).tobytes(),
                                                    (stamp, header.frame_id or 'camera')))
        except ValueError as error:        # also one that is too large
            raise SourceError(f'{where}: {error}') from error
        return frame.stamp_ns, lambda: frame

    def _intrinsics(self, topic: str, size: tuple[int, int]) -> Intrinsics | None:
        """Return those of the CameraInfo beside the images, or of a lone one of a lone camera."""
        infos = {c.topic: c for c in self._reader.connections if c.msgtype == _INFO}
        beside = f'{_raw(topic).rsplit("/", 1)[0]}/camera_info'
        chosen = infos.get(beside) or (next(iter(infos.values())) if len(infos) == 1 else None)
        if chosen is None:
            return None
        if chosen.topic != beside and len({*map(_raw, _images(self._reader.connections))}) > 1:
            _log.warning("bag '%s': '%s' is ignored, it may be of another camera than '%s'; "
                         "record '%s'", self._path, chosen.topic, topic, beside)
            return None
        for connection, _, raw in self._reader.messages([chosen]):
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
                data = np.asarray(message.data).tobytes()
                rgb, encoding = read_compressed_image(message.format, data)
            else:
                rgb = read_raw(message.data, message.width, message.height, message.encoding,
                               message.step, bool(message.is_bigendian))
        except ValueError as error:    # such as an unknown encoding
            raise SourceError(f'{where}: {error}') from error
        return SourceFrame(stamp_ns, rgb, message.header.frame_id or 'camera', encoded=data,
                           encoding=encoding)

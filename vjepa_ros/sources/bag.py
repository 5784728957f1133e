# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Play the images of a rosbag2 recording, without ROS; the `rosbags` library knows the types."""

from __future__ import annotations

import heapq
import importlib
import logging
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vjepa_ros.sources import bag_storage, base
from vjepa_ros.sources.bag_storage import BAG_SUFFIXES, Message, Topic, open_storage
from vjepa_ros.sources.base import Load, PlayOptions, Source, SourceError, SourceFrame
from vjepa_ros.sources.camera_info import lens
from vjepa_ros.sources.encodings import ImageError, read_compressed_image, read_raw
from vjepa_ros.sources.video import MESSAGES, PacketDecoder, pixels_of

SUFFIXES = (*BAG_SUFFIXES, '.zstd', '.zst', '.bag')     # also of compressed ones, and of ROS 1
_IMAGE, _COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
IMAGES = (_IMAGE, _COMPRESSED, *MESSAGES)
_INFO = 'sensor_msgs/msg/CameraInfo'
BUILT_IN = (*IMAGES, _INFO)      # whatever a bag says of them
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
    except ImageError as error:
        raise SourceError(f'{what}: {error}') from error
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
    return path.suffix.lower() in SUFFIXES


def _storage_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.lower().removesuffix('.zst').removesuffix(
        '.zstd').endswith(BAG_SUFFIXES) and not p.name.startswith('.'))


class Bag:
    """An open rosbag2: a file or folder, with or without metadata.

    Only messages that are asked for are parsed. Images, camera_info and video have built-in
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
                self._files = [open_storage(file, self._lose, self._stack)
                               for file in self._names()]
        except BaseException:
            self.close()
            raise
        # Its topics, once for each file.
        self.connections = [topic for file in self._files for topic in file.topics.values()]
        full = [file for file in self._files
                if any(topic.msgcount for topic in file.topics.values())]
        # Time of recording of the first message, and just after the last [ns].
        self.start_time = int(min((file.first_ns for file in full), default=0))
        self.end_time = int(max((file.last_ns + 1 for file in full), default=0))

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
            self._told = self.lost
            _log.warning("bag '%s': %s", self._path, self._told)

    def messages(self, connections: Collection[Topic], start: float = -math.inf,
                 stop: float = math.inf) -> Iterator[Message]:
        """Yield the messages of connections from a time up to before another [ns]."""
        with parsing(f"bag '{self._path}' cannot be read"):
            for topic, at_ns, raw in heapq.merge(
                    *(file.messages(connections, start, stop) for file in self._files),
                    key=lambda message: message[1]):
                if raw.startswith(bag_storage.ZSTD_START):    # as CDR never does: compressed alone
                    try:
                        raw = bag_storage.unpacked(raw, 'zstd', bag_storage.MOST_BYTES)
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
        text = next((c.definition[0] for c in self.connections
                     if c.msgtype == msgtype and c.definition[1] == 'ros2msg'), '')
        store = self._built_in
        if text and msgtype not in BUILT_IN:
            try:
                store = self._types.get_typestore(self._types.Stores.EMPTY)
                store.register(self._types.get_types_from_msg(text, msgtype))
            except Exception:      # rosbags has its own
                if msgtype not in self._built_in.fielddefs:
                    raise
                store = self._built_in
        if msgtype not in store.fielddefs:
            raise SourceError(f"bag '{self._path}' does not define the type {msgtype}; record "
                              'it where its package is installed')
        return store

    # -- files ----------------------------------------------------------------------------------

    def _lose(self, what: str) -> None:
        self._said[what] = None

    def _names(self) -> list[Path]:
        """Return its files, those that its metadata lists where it does."""
        if not self._path.is_dir():
            return [self._path]
        metadata, files = self._path / 'metadata.yaml', _storage_files(self._path)
        for path in (metadata, *files):
            if not base.inside(path, self._path):
                raise SourceError(f"bag '{self._path}': '{path.name}' leads out of its folder, to "
                                  f"'{path.resolve()}'; put the file itself into the folder")
        if not metadata.exists():
            return files
        if not files:
            raise SourceError(f"bag '{self._path}' has no file {' or '.join(BAG_SUFFIXES)}; "
                              'copy these, too')
        found: dict[Path, None] = {}
        text = base.read_file(metadata, MAX_METADATA).decode(errors='replace')
        for listed in LISTED.findall(text):
            # Some versions of rosbag2 list a compressed file by its name before.
            name = Path(listed).name.removesuffix('.zstd')
            there = [file for file in files if name == file.name.removesuffix('.zstd')]
            found.update(dict.fromkeys(there[:1]))
            if not there:
                self._lose(f"metadata.yaml lists '{listed}', which is not there; copy it, too")
        if found and len(found) < len(files):
            _log.warning("bag '%s': left out is %s, which metadata.yaml does not list",
                         self._path, ', '.join(f.name for f in files if f not in found))
        return list(found) or files


def image_topics(path: Path) -> dict[str, bool]:
    """Return whether each image topic of a bag delivers; `SourceError` when it cannot be read."""
    with Bag(path) as bag:
        images = _images(bag)
        chosen = _delivering(path, images)
        return {topic: topic in chosen for topic in images}


def _images(bag: Bag) -> Counter[str]:
    """Return the numbers of messages of the image topics, of a camera the raw one first."""
    found = Counter[str]()
    for c in bag.connections:
        if c.msgtype in IMAGES and c.serialization == 'cdr' and not c.topic.endswith(
                '/compressedDepth'):
            found[c.topic] += c.msgcount
    cameras = list(dict.fromkeys(map(_raw, found)))
    return Counter({topic: found[topic] for topic in sorted(
        found, key=lambda topic: (cameras.index(_raw(topic)), topic != _raw(topic)))})


def _raw(topic: str) -> str:
    """Return an image topic without its transport, as the node names it."""
    camera, _, transport = topic.rpartition('/')
    return camera if transport in TRANSPORTS else topic


def _delivering(path: Path, images: Counter[str]) -> list[str]:
    """Return the image topics; of those of a camera only some if others are poor.

    Of a camera that was recorded in several ways, those are left out that have less than half as
    many messages as another, and empty topics where others have messages; the log says so.
    """
    most = {camera: max(images[topic] for topic in images if _raw(topic) == camera)
            for camera in map(_raw, images)}
    poor = [topic for topic, count in images.items() if 2 * count < most[_raw(topic)]
            or (not count and any(images.values()))]
    rich = [topic for topic in images if topic not in poor]
    if poor:
        said, taken = (', '.join(f"'{topic}' with {images[topic]} messages" for topic in topics)
                       for topics in (poor, rich))
        _log.warning("bag '%s': left out is %s; taken is %s", path, said, taken)
    return rich


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
            self._messages = sum(c.msgcount for c in self._connections)
            height, width = self._first_frame().rgb.shape[:2]
            super().__init__(f"bag '{path}' topic '{topic}'", options, (width, height),
                             self._rate(), self._messages,
                             self._intrinsics(topic, (width, height)))
        except SourceError:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close the files of the bag."""
        self._reader.close()

    def _choose(self, wanted: str | None) -> str:
        images, kinds = _images(self._reader), self._reader.types
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
            ros1 = any(c.serialization == 'ros1' for c in self._reader.connections)
            raise SourceError(f"bag '{self._path}' has no image topic ({known}); it has: "
                              f'{others or "no topics"}'
                              + '; convert it from ROS 1: rosbags-convert' * ros1)
        topic = next(topic for topic in _delivering(self._path, images)
                     if SPARSE * images[topic] >= max(images.values()))
        if len(images) > 1:
            _log.warning("bag '%s' has several image topics (%s): playing '%s'; set a topic to "
                         'choose another', self._path, listing, topic)
        return topic

    def _first_frame(self) -> SourceFrame:
        """Return the first frame that can be decoded, if one of the first few can."""
        problem = SourceError(f"bag '{self._path}' has no messages on '{self.topic}'")
        for number, (_, parse) in enumerate(islice(self._parts(), TRIED_FIRST)):
            try:
                return parse()[1]()
            except SourceError as error:
                problem = error if number == 0 else problem
        raise problem

    def _rate(self) -> float:
        """Return the mean rate of the messages by their times of recording [Hz]."""
        def times(start: float = -math.inf) -> Iterator[int]:
            return (at_ns for _, at_ns, _ in self._reader.messages(self._connections, start))

        first, last, window_ns = next(times(), None), None, 1_000_000_000
        while first is not None and last is None:
            last = next(iter(deque(times(self._reader.end_time - window_ns), maxlen=1)), None)
            window_ns *= 4
        span = 0.0 if first is None or last is None else (last - first) / 1e9
        return (self._messages - 1) / span if span > 0 else math.nan

    def _play(self) -> base.Play:
        played, first = 0, ''
        self._reader.tell()
        for _, parse in self._parts():
            try:
                stamp, load = parse()
            except SourceError as error:
                if self._decoder is None and self._connections[0].msgtype not in MESSAGES:
                    raise
                first = first or str(error)
                continue
            played += 1
            yield stamp, load
        self._reader.tell()
        if first and self._messages - played > self._lost:        # a loop does not say it again
            self._lost = self._messages - played
            _log.warning('%d of %d packets had no picture, the first: %s', self._lost,
                         self._messages, first)

    def _parts(self, begin_ns: float = -math.inf, end_ns: float = math.inf
               ) -> Iterator[tuple[int, Callable[[], tuple[int, Load]]]]:
        """Yield the times of recording of messages [ns], and what reads their stamps."""
        self._decoder = None
        for topic, at_ns, raw in self._reader.messages(self._connections, begin_ns, end_ns):
            yield at_ns, partial(self._parsed, topic, at_ns, raw)

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
            rgb = pixels_of(self._decoder.picture(np.asarray(message.data).tobytes()))
        except ValueError as error:        # also one that is too large
            raise SourceError(f'{where}: {error}') from error
        return stamp, partial(SourceFrame, stamp, rgb, header.frame_id or 'camera')

    def _intrinsics(self, topic: str, size: tuple[int, int]) -> base.Intrinsics | None:
        """Return those of the CameraInfo beside the images, or of a lone one of a lone camera."""
        infos = {c.topic: c for c in self._reader.connections if c.msgtype == _INFO}
        beside = f'{_raw(topic).rsplit("/", 1)[0]}/camera_info'
        lone = len(infos) == 1 and len({*map(_raw, _images(self._reader))}) == 1
        chosen = infos.get(beside) or (next(iter(infos.values())) if lone else None)
        if chosen is None:
            if infos:
                _log.warning("bag '%s': %s may be of other cameras than '%s'; record '%s'",
                             self._path, ', '.join(infos), topic, beside)
            return None
        for _, _, raw in islice(self._reader.messages([chosen]), 1):
            with parsing(f"bag '{self._path}' topic '{chosen.topic}'"):
                info = self._reader.deserialize(raw, chosen.msgtype)
                try:
                    found, self.distortion = lens(info, size, topic)
                    return found
                except ValueError as error:
                    _log.warning("bag '%s': '%s' is ignored: %s", self._path, chosen.topic, error)
        return None


def _frame(message: Any, kind: str, stamp_ns: int, where: str) -> SourceFrame:
    data = encoding = None
    with parsing(where):
        if kind == _COMPRESSED:
            data = np.asarray(message.data).tobytes()
            rgb, encoding = read_compressed_image(message.format, data)
        else:
            rgb = read_raw(message.data, message.width, message.height, message.encoding,
                           message.step, bool(message.is_bigendian))
        return SourceFrame(stamp_ns, rgb, message.header.frame_id or 'camera', encoded=data,
                           encoding=encoding)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read messages from the files of a rosbag2, SQLite and MCAP, also where these are damaged.

Definitions of types are only kept as text. What cannot be read is left out and noted. No file
makes this need more memory than a chunk or message of `MOST_BYTES`.
"""

from __future__ import annotations

import importlib
import io
import math
import shutil
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from vjepa_ros.sources.base import SourceError, check_file, inside

BAG_SUFFIXES = ('.mcap', '.db3')
SQLITE_START, MCAP_START = b'SQLite format 3\0', b'\x89MCAP0\r\n'
ZSTD_START, ROS1_START = b'\x28\xb5\x2f\xfd', b'#ROSBAG V'
MOST_BYTES = 512 << 20       # of a message or chunk; the largest picture in 16 bit has 400 MiB
EXPANDED = 1 << 30, 300      # bytes of any compressed file, or so many times its size
MOST_TEXT = 100_000          # characters of a definition with all that it refers to
DAMAGED = ('damaged ({}), messages are missing; save what is left with `sqlite3 FILE .recover | '
           'sqlite3 NEW`')
STEP = 1 << 20               # bytes to decompress at once
# Kinds of records, see https://mcap.dev/spec.
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, CHUNK_INDEX, STATISTICS, DATA_END = (
    2, 3, 4, 5, 6, 8, 11, 15)
LAST_KIND = 0x7F             # that the format or a program can define
DEFINED = (SCHEMA, CHANNEL, MESSAGE)
_HEAD, _MESSAGE = struct.Struct('<BQ'), struct.Struct('<HIQQ')
TAIL = 37                    # bytes of footer and end mark
Message = tuple['Topic', int, bytes]         # with its time of recording [ns]
# Of an MCAP file: first and last time, first byte and that after the last, and the channels of a
# chunk (empty: not known); None for records beside chunks.
Part = tuple[float, float, int, int, 'frozenset[int] | None']


@dataclass(eq=False)
class Topic:
    """A topic in a file."""

    topic: str
    msgtype: str
    definition: tuple[str, str] = ('', '')       # of its type, and in what language; '': not known
    serialization: str = 'cdr'
    msgcount: int = 0


class Storage:
    """A file with messages; `lost` is called with what cannot be read, in words."""

    def __init__(self, path: Path, lost: Callable[[str], None]) -> None:
        self.path, self.lost = path, lost
        self.topics: dict[int, Topic] = {}       # by their numbers in the file
        # Times of recording [ns]; without messages of no meaning.
        self.first_ns, self.last_ns = math.inf, -math.inf

    def _count(self, number: int, time_ns: int) -> None:
        if number in self.topics:
            self.topics[number].msgcount += 1
        self.first_ns, self.last_ns = min(self.first_ns, time_ns), max(self.last_ns, time_ns)


class SqliteStorage(Storage):
    """A file of the storage plugin sqlite3; `own` is a copy that SQLite may repair."""

    def __init__(self, path: Path, lost: Callable[[str], None], own: bool) -> None:
        super().__init__(path, lost)
        uri = path.absolute().as_uri() + ('' if own else '?immutable=1')
        self._db = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self.close = self._db.close
        self._db.text_factory = lambda data: data.decode(errors='replace')
        try:
            tables = [name for name, in self._db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'")]
        except sqlite3.DatabaseError as error:      # such as cut off
            raise SourceError(f"'{path}' is {DAMAGED.format(error)}") from error
        if not {'topics', 'messages'} <= set(tables):
            raise SourceError(f"'{path}' is no bag: it has no tables 'topics' and 'messages', "
                              f'but {", ".join(tables[:9]) or "nothing"}')
        definitions = {}
        with suppress(sqlite3.DatabaseError):          # only read where a type is not built in
            definitions = {str(kind): (str(text), str(language)) for kind, text, language in
                           self._db.execute(
                               'SELECT topic_type, encoded_message_definition, encoding FROM '
                               'message_definitions WHERE length(encoded_message_definition) <= ?',
                               (MOST_TEXT,))}
        self.topics = {
            number: Topic(str(topic), str(kind), definitions.get(kind, ('', '')), str(language))
            for number, topic, kind, language in self._db.execute(
                'SELECT id, name, type, serialization_format FROM topics ORDER BY id')}
        self._from, self._order = 'messages', 'timestamp'
        try:
            for number, time_ns in self._db.execute('SELECT topic_id, timestamp FROM messages'):
                self._count(number, time_ns)
        except sqlite3.DatabaseError as error:
            # Its index may name pages that are not there.
            self._from, self._order = 'messages NOT INDEXED', 'rowid'
            self.lost(f"'{path}' is {DAMAGED.format(error)}")

    def messages(self, wanted: Collection[Topic], start_ns: float, stop_ns: float
                 ) -> Iterator[Message]:
        """Yield the messages of topics from a time up to before another [ns], by their times."""
        numbers = [number for number, topic in self.topics.items() if topic in wanted]
        ends = [int(max(-1 << 63, min(end, (1 << 63) - 1))) for end in (start_ns, stop_ns)]
        try:
            for number, time_ns, data in self._db.execute(
                    'SELECT topic_id, timestamp, CASE WHEN length(data) <= ? THEN data END FROM '
                    f'{self._from} WHERE topic_id IN ({", ".join("?" * len(numbers))}) AND '
                    f'timestamp >= ? AND timestamp < ? ORDER BY {self._order}',
                    (MOST_BYTES, *numbers, *ends)):
                if isinstance(data, bytes):
                    yield self.topics[number], time_ns, data
                else:
                    self.lost(f"'{self.path}': the message at {time_ns} ns has more than "
                              f'{MOST_BYTES} bytes, or is none')
        except sqlite3.DatabaseError as error:
            self.lost(f"'{self.path}' is {DAMAGED.format(error)}")


class McapStorage(Storage):
    """A file of the storage plugin mcap, read by its summary, or record by record without one."""

    def __init__(self, path: Path, lost: Callable[[str], None]) -> None:
        super().__init__(path, lost)
        self._file = path.open('rb')
        self.close = self._file.close
        self._size = path.stat().st_size
        self._schemas: dict[int, tuple[str, tuple[str, str]]] = {}
        self._left = 0              # bytes to which chunks may still expand
        self._parts: list[Part] = []
        whole = False
        with suppress(struct.error):
            whole = self._read_summary()
        if not whole:
            self._scan()
        self._parts.sort(key=lambda part: part[0])

    def _read(self, at: int, count: int) -> bytes:
        self._file.seek(at)
        return self._file.read(count)

    def _read_summary(self) -> bool:
        """Read what the end says of the file; False where it does not say enough."""
        end = self._size - TAIL
        tail = self._read(max(0, end), TAIL)
        begin = _Fields(tail[9:]).take('Q')[0]
        if not (tail.startswith(_HEAD.pack(FOOTER, 20)) and tail.endswith(MCAP_START)
                and 0 < begin < end):
            return False
        counts, total, chunks = dict[int, int](), -1, 0
        for kind, at, length in _records(self._read, begin, end):
            fields = _Fields(self._read(at, min(length, STEP)))
            if kind == STATISTICS:
                total, _, _, _, _, chunks, self.first_ns, self.last_ns = fields.take('QHIIIIQQ')
                counts = fields.numbers()
            elif kind == CHUNK_INDEX:
                first, last, at, length = fields.take('QQQQ')
                # Without messages both are 0, and some programs never set them.
                self._parts.append((first, last or math.inf, at, at + length,
                                    frozenset(fields.numbers())))
            elif kind in (SCHEMA, CHANNEL):
                self._define(kind, fields)
        for number, topic in self.topics.items():
            topic.msgcount = counts.get(number, 0)
        whole = bool(self.topics) and sum(counts.values()) == total and len(
            self._parts) == chunks and all(0 < p[2] < p[3] <= begin for p in self._parts)
        self._parts = self._parts or [(-math.inf, math.inf, len(MCAP_START), begin, None)]
        return whole

    def _scan(self) -> None:
        """Read the whole file."""
        self.topics.clear()
        self.first_ns, self.last_ns = math.inf, -math.inf
        self._parts = [(-math.inf, math.inf, len(MCAP_START), self._size, None)]
        self._left = most_expanded(self._size)
        for kind, data in self._entries(len(MCAP_START), self._size, -math.inf, math.inf):
            try:
                if kind == MESSAGE:
                    number, _, time_ns, _ = _MESSAGE.unpack_from(data)
                    self._count(number, time_ns)
                else:
                    self._define(kind, _Fields(data))
            except struct.error as error:
                self._damaged(f'a record is too short ({error})')

    def _define(self, kind: int, fields: _Fields) -> None:
        number, = fields.take('H')
        if kind == SCHEMA:
            name, language, text = fields.text(), fields.text(), fields.text(MOST_TEXT)
            self._schemas[number] = name, (text, language)
        else:
            name, definition = self._schemas.get(fields.take('H')[0], ('', ('', '')))
            self.topics.setdefault(number, Topic(fields.text(), name, definition, fields.text()))

    def _damaged(self, what: str) -> None:
        self.lost(f"'{self.path}': {what}; `mcap recover FILE` keeps what is whole")

    def messages(self, wanted: Collection[Topic], start_ns: float, stop_ns: float
                 ) -> Iterator[Message]:
        """As of SQLite; where the file has no index, in its order."""
        numbers = {number for number, topic in self.topics.items() if topic in wanted}
        self._left = most_expanded(self._size)
        for first, last, begin, end, channels in self._parts:
            if last < start_ns or first >= stop_ns or (channels and not channels & numbers):
                continue
            found = self._found(begin, end, numbers, start_ns, stop_ns)
            # Of a chunk, which is small.
            yield from found if channels is None else sorted(found, key=lambda one: one[1])

    def _found(self, begin: int, end: int, numbers: Collection[int], start_ns: float,
               stop_ns: float) -> Iterator[Message]:
        for kind, data in self._entries(begin, end, start_ns, stop_ns):
            if kind == MESSAGE and len(data) >= _MESSAGE.size:
                number, _, time_ns, _ = _MESSAGE.unpack_from(data)
                if number in numbers and start_ns <= time_ns < stop_ns:
                    yield self.topics[number], time_ns, bytes(data[_MESSAGE.size:])

    def _entries(self, begin: int, end: int, start_ns: float, stop_ns: float
                 ) -> Iterator[tuple[int, Any]]:
        """Yield kind and content of schemas, channels and messages, also of those in chunks."""
        for kind, at, length in _records(self._read, begin, end):
            if kind in (FOOTER, DATA_END):
                return
            if not 0 < kind <= LAST_KIND:
                self._damaged(f'from byte {at} on there are no records')
                return
            if kind == CHUNK:
                yield from self._inner(at, self._chunk(at, start_ns, stop_ns))
            elif at + length > self._size:
                self._damaged(f'it ends within the record at byte {at}')
            elif kind in DEFINED and length > MOST_BYTES:
                self._damaged(f'the record at byte {at} has more than {MOST_BYTES} bytes')
            elif kind in DEFINED:
                yield kind, self._read(at, length)

    def _inner(self, where: int, chunk: bytes) -> Iterator[tuple[int, Any]]:
        data = memoryview(chunk)
        for kind, at, length in _records(lambda at, count: data[at:at + count], 0, len(data)):
            if at + length > len(data):
                self._damaged(f'the chunk at byte {where} is cut off')
            elif kind in DEFINED:
                yield kind, data[at:at + length]

    def _chunk(self, where: int, start_ns: float, stop_ns: float) -> bytes:
        """Return the content of a chunk, as far as it is there; nothing of one of other times."""
        try:
            fields = _Fields(self._read(where, 256))
            first, last, size, checksum = fields.take('QQQI')
            if last < start_ns or first >= stop_ns:
                return b''
            compression, packed = fields.text(), fields.take('Q')[0]
            if max(size, packed) > MOST_BYTES or size > self._left:
                raise ValueError(f'it claims {max(size, packed)} bytes, of a chunk at most '
                                 f'{MOST_BYTES} are read, and of all {most_expanded(self._size)}')
            self._left -= size
            content = self._read(where + fields.at, packed)
            cut = len(content) < packed
            if compression:
                content = unpacked(content, compression, size)
            if cut or len(content) < size:
                self._damaged(f'the chunk at byte {where} is cut off')
            elif checksum and zlib.crc32(content) != checksum:
                raise ValueError('its checksum is wrong')
            return content
        except (ValueError, struct.error) as error:
            self._damaged(f'the chunk at byte {where} cannot be read ({error})')
            return b''


class _Fields:
    """Reads the fields of a record, one after the other."""

    def __init__(self, data: Any) -> None:
        self._data, self.at = data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        """Return numbers, see `struct`."""
        found = struct.unpack_from('<' + layout, self._data, self.at)
        self.at += struct.calcsize('<' + layout)
        return found

    def text(self, most: int = STEP) -> str:
        """Return a text; '' for a longer one."""
        length, = self.take('I')
        self.at += length
        return bytes(self._data[self.at - length:self.at]).decode(errors='replace') \
            if length <= most else ''

    def numbers(self) -> dict[int, int]:
        """Return a map of numbers."""
        length, = self.take('I')
        return dict(self.take('HQ') for _ in range(length // 10))


def _records(read: Callable[[int, int], Any], at: int, end: int
             ) -> Iterator[tuple[int, int, int]]:
    """Yield kind, begin and length of records; the last may end beyond `end`."""
    while at + _HEAD.size <= end:
        kind, length = _HEAD.unpack(read(at, _HEAD.size))
        yield kind, at + _HEAD.size, length
        at += _HEAD.size + length


def most_expanded(size: int) -> int:
    """Return to how many bytes a compressed file of a size [bytes] may expand."""
    return max(EXPANDED[0], EXPANDED[1] * size)


def unpacked(data: bytes, compression: str, most: int) -> bytes:
    """Decompress up to where the data are cut off; ValueError above a number of bytes."""
    out = bytearray()
    with suppress(EOFError):
        for part in parts_of(io.BytesIO(data), compression):
            out += part
            if len(out) > most:
                raise ValueError(f'it expands to more than {most} bytes')
    return bytes(out)


def parts_of(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """Yield the content of a compressed file in parts; EOFError where it is cut off."""
    modules = {'zstd': ('compression.zstd', 'backports.zstd', 'zstandard'), 'lz4': ('lz4.frame',)}
    for name in modules.get(compression, ()):
        with suppress(ImportError):
            opener = importlib.import_module(name).open
            break
    else:
        raise ValueError(f"compression '{compression}' is not supported here: zstd, lz4 (pip "
                         'install rosbags)')
    try:
        with opener(file, 'rb') as stream:
            while part := stream.read(STEP):
                yield part
    except EOFError:
        raise
    except Exception as error:      # both libraries have their own
        raise ValueError(f'{compression}: {error}') from error


# -- files ----------------------------------------------------------------------------------------

def open_storage(path: Path, lost: Callable[[str], None], stack: ExitStack
                 ) -> McapStorage | SqliteStorage:
    """Open a file by its content, whatever its name says; the stack closes it."""
    start = _start(path)
    own = start.startswith(ZSTD_START)
    if own:
        path = _decompressed(path, lost, stack)
        start = _start(path)
    if start.startswith(MCAP_START):
        storage: McapStorage | SqliteStorage = McapStorage(path, lost)
    elif start == SQLITE_START:
        copy = path if own else _with_log(path, stack)
        storage = SqliteStorage(copy, lost, own or copy != path)
    elif start.startswith(ROS1_START):
        raise SourceError(f"'{path}' is a bag of ROS 1; convert it: pip install rosbags; "
                          f'rosbags-convert --src {path.name} --dst {path.stem}')
    elif not start:
        raise SourceError(f"'{path}' is empty; copy it again")
    else:
        raise SourceError(f"'{path}' is neither SQLite nor MCAP, it begins with {start!r}; give a "
                          f'file {" or ".join(BAG_SUFFIXES)} of rosbag2')
    stack.callback(storage.close)
    return storage


def _start(path: Path) -> bytes:
    check_file(path)
    with path.open('rb') as file:
        return file.read(16)


def _folder(path: Path, needed: int, stack: ExitStack) -> tuple[Path, int]:
    """Return a temporary folder with room for a number of bytes, and for how many."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix='vjepa_ros_')))
    if needed > (free := shutil.disk_usage(folder).free // 2):
        raise SourceError(f"'{path}' needs {needed} bytes in '{folder.parent}', where {free} may "
                          'be used; set TMPDIR to a larger disk')
    return folder, free


def _decompressed(path: Path, lost: Callable[[str], None], stack: ExitStack) -> Path:
    """Decompress a file that `zstd` has compressed."""
    size = path.stat().st_size
    folder, free = _folder(path, size, stack)
    most, copy, written = min(free, most_expanded(size)), folder / (path.stem or 'bag'), 0
    try:
        with path.open('rb') as file, copy.open('wb') as out:
            for part in parts_of(file, 'zstd'):
                if not written and not part.startswith((MCAP_START, SQLITE_START)):
                    raise SourceError(f"'{path}' is a file that zstd has compressed, and no bag; "
                                      'decompress it with `zstd -d`')
                written += out.write(part)
                if written > most:
                    raise SourceError(f"'{path}' expands to more than {most} bytes, which are not "
                                      'kept; decompress it with `zstd -d` if you trust it')
    except EOFError:
        lost(f"'{path}' is cut off; what it has up to there is read")
    return copy


def _with_log(path: Path, stack: ExitStack) -> Path:
    """Return a copy of a database whose last changes are in a log beside it, or itself."""
    logs = [log for suffix in ('-wal', '-journal')
            if (log := Path(f'{path}{suffix}')).is_file() and log.stat().st_size]
    if not logs:
        return path
    if not all(inside(log, path.parent) for log in logs):
        raise SourceError(f"'{logs[0]}' leads out of its folder; put the file itself there")
    folder, _ = _folder(path, sum(file.stat().st_size for file in (path, *logs)), stack)
    for file in (path, *logs):
        shutil.copyfile(file, folder / file.name)
    return folder / path.name

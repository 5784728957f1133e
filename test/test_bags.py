# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Bags are read whatever else is in them, damaged ones as far as they go, all within bounds."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from recordings import BagMaker, S

from vjepa_ros.fleet.recordings import find_recordings, looked_at
from vjepa_ros.lab.training.feeds import read_flags
from vjepa_ros.sources import SourceError, bag_storage, open_source

lz4 = pytest.importorskip('lz4.frame')
try:
    from backports import zstd
except ImportError:
    zstd = pytest.importorskip('zstandard')

COUNT = 6
IMAGE, ODD = 'sensor_msgs/msg/Image', 'odd_msgs/srv/Ask_Event'


def picture(value: int) -> np.ndarray:
    return np.full((24, 32, 3), value, np.uint8)


def played(path) -> list[int]:
    """Numbers of the pictures that are played."""
    with open_source(path) as source:
        return [round(frame.rgb.mean() / 10) for frame in source]


def bag(path: Path, storage: str = 'MCAP', count: int = COUNT, mode: str = 'NONE') -> Path:
    from rosbags.rosbag2 import CompressionFormat, CompressionMode
    made = BagMaker(path, storage)
    if mode != 'NONE':
        made.writer.set_compression(CompressionMode[mode], CompressionFormat.ZSTD)
    with made:
        for n in range(count):
            made.image('/eye/image_raw', S + n * S // 10, picture(10 * (n % 20)))
    return path


@pytest.fixture(scope='module')
def images(tmp_path_factory) -> list[bytes]:
    """Serialized messages."""
    path = bag(tmp_path_factory.mktemp('some') / 'bag', 'SQLITE3')
    return [data for data, in sqlite3.connect(path / 'bag.db3').execute(
        'SELECT data FROM messages ORDER BY timestamp')]


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack('<I', len(data)) + data


def record(kind: int, *parts: bytes) -> bytes:
    return struct.pack('<BQ', kind, sum(map(len, parts))) + b''.join(parts)


def chunk(content: bytes, compression: str = '', size: int | None = None, crc: int = 0,
          times: tuple[int, int] = (S, 2 * S)) -> bytes:
    packed = {'': bytes, 'zstd': zstd.compress, 'lz4': lz4.compress}[compression](content)
    return record(6, struct.pack('<QQQI', *times, len(content) if size is None else size, crc),
                  text(compression), struct.pack('<Q', len(packed)), packed)


def mcap(path: Path, images: list[bytes], *, schema: tuple[str, str] = ('ros2msg', 'uint8 x'),
         compression: str | None = '', summary: bool = True, extra: bytes = b'') -> Path:
    """Write a file with an image topic and an odd one, whose schema is anything; three chunks."""
    heads = b''.join([
        record(3, struct.pack('<H', 1), text(ODD), *map(text, schema)),
        record(3, struct.pack('<H', 2), text(IMAGE), text(''), text('')),
        *(record(4, struct.pack('<HH', n, n), text(topic), text('cdr'), text(b''))
          for n, topic in ((1, '/odd'), (2, '/eye/image_raw')))])
    out = bag_storage.MCAP_START + record(1, text('ros2'), text('a test')) + extra
    indexes = b''
    for first in range(0, COUNT, 2):
        begin, times = len(out), (S + first * S // 10, S + (first + 1) * S // 10)
        content = heads * (first == 0) + b''.join(
            record(5, struct.pack('<HIQQ', channel, 0, S + n * S // 10, 0), data)
            for n in (first, first + 1) for channel, data in ((1, bytes(13)), (2, images[n])))
        out += content if compression is None else chunk(content, compression, times=times,
                                                         crc=zlib.crc32(content))
        indexes += record(8, struct.pack('<QQQQI', *times, begin, len(out) - begin, 0),
                          struct.pack('<Q', 0), text(compression or ''), bytes(16))
    out += record(15, bytes(4))
    if summary:
        begin, chunks = len(out), 0 if compression is None else 3
        out += heads + indexes * bool(chunks) + record(
            11, struct.pack('<QHIIIIQQ', 2 * COUNT, 2, 2, 0, 0, chunks, S, S + S // 2),
            struct.pack('<IHQHQ', 20, 1, COUNT, 2, COUNT))
        out += record(2, struct.pack('<QQI', begin, 0, 0)) + bag_storage.MCAP_START
    path.write_bytes(out)
    return path


@pytest.mark.parametrize('how', [
    {'compression': 'zstd'}, {'compression': 'lz4', 'summary': False}, {'compression': None},
    {'schema': ('jsonschema', '{"type": "object"}')},
    {'schema': ('ros2msg', ''.join(f'float64 f{n}\n' for n in range(100_000)))}], ids=range(5))
def test_every_layout_of_mcap_is_read_and_no_type_parsed_that_nobody_reads(tmp_path, images, how):
    path = mcap(tmp_path / 'a.mcap', images, **how)
    assert played(path) == list(range(COUNT))
    with open_source(path) as source:
        assert source.rate_hz == pytest.approx(10.0) and source.duration_s == pytest.approx(0.5)
        assert [round(at, 3) for at, _ in source.excerpt(0.15, 0.45)] == [0.2, 0.3, 0.4]
    with pytest.raises(SourceError, match=r'Ask_Event|odd'):     # but a label has to be
        read_flags(path, '/odd', field='y')


def test_the_log_of_a_database_is_read_and_nothing_is_changed(tmp_path):
    """As after a loss of power: the last messages are in a log beside the file."""
    whole = bag(tmp_path / 'whole', 'SQLITE3') / 'whole.db3'
    db = sqlite3.connect(whole)
    rows = db.execute('SELECT * FROM messages').fetchall()
    db.execute('DELETE FROM messages')
    db.commit()
    db.executescript('PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;')
    db.executemany(f'INSERT INTO messages VALUES ({", ".join("?" * len(rows[0]))})', rows)
    db.commit()
    folder = tmp_path / 'bag'
    folder.mkdir()
    for suffix in ('', '-wal'):
        shutil.copy(f'{whole}{suffix}', folder / f'bag_0.db3{suffix}')
    db.close()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert played(folder) == played(folder / 'bag_0.db3') == list(range(COUNT))
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize('compression', [None, 'zstd'])
def test_a_file_that_was_cut_off_is_read_up_to_there_and_that_is_told(tmp_path, images,
                                                                      compression, caplog):
    path = mcap(tmp_path / 'a.mcap', images, compression=compression, summary=False)
    path.write_bytes(path.read_bytes()[:-60])
    found = played(path)
    assert found == list(range(len(found))) and COUNT > len(found) >= 3
    assert 'a.mcap' in caplog.text and 'mcap recover' in caplog.text
    assert 'mcap recover' in looked_at(path)[1][0]


def test_a_damaged_chunk_loses_only_itself(tmp_path, images, caplog):
    path = mcap(tmp_path / 'a.mcap', images)
    data = path.read_bytes()
    at = data.index(images[3]) + 200
    path.write_bytes(data[:at] + b'~' + data[at + 1:])
    assert played(path) == [0, 1, 4, 5] and 'checksum' in caplog.text
    assert 'checksum' in looked_at(path)[1][0]


@pytest.mark.parametrize('mode', ['FILE', 'MESSAGE', 'STORAGE'])
def test_bags_that_were_compressed_in_any_way_are_read(tmp_path, mode):
    path = bag(tmp_path / 'bag', mode=mode)
    assert played(path) == list(range(COUNT))
    (path / 'metadata.yaml').unlink()
    assert played(path) == list(range(COUNT))


def test_a_damaged_database_is_read_as_far_as_that_goes(tmp_path, caplog):
    file = bag(tmp_path / 'bag', 'SQLITE3', 200) / 'bag.db3'
    size = file.stat().st_size
    with file.open('r+b') as raw:
        raw.seek(size // 8192 * 4096)
        raw.write(b'~' * 40960)
    assert 40 < len(played(file)) < 200 and '.recover' in caplog.text


def test_a_missing_file_of_several_is_named_and_the_others_are_read(tmp_path, images, caplog):
    mcap(tmp_path / 'bag_0.mcap', images)
    (tmp_path / 'metadata.yaml').write_text(
        'rosbag2_bagfile_information:\n  relative_file_paths:\n    - bag_0.mcap\n'
        '    - bag_1.mcap\n  compression_mode: ""\n')
    assert played(tmp_path) == list(range(COUNT)) and "'bag_1.mcap'" in caplog.text


@pytest.mark.parametrize(('content', 'words'), [
    (b'#ROSBAG V2.0\n' + bytes(4096), 'ROS 1.*rosbags-convert'), (b'', 'empty'),
    (zstd.compress(b'something else'), 'zstd -d'), (b'version https://git-lfs', 'neither'),
    (bag_storage.MCAP_START, 'no image topic'), (bag_storage.SQLITE_START, 'a')])
@pytest.mark.parametrize('suffix', ['.bag', '.db3.zstd'])
def test_what_is_no_bag_is_named_as_what_it_is(tmp_path, content, words, suffix):
    path = tmp_path / f'a{suffix}'
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf'(?s)a\{suffix}.*{words}'):
        open_source(path)
    assert looked_at(find_recordings([tmp_path])[0][0])[1]      # not passed over


def test_a_chunk_without_bound_is_left_out_before_it_takes_memory(tmp_path, images):
    """In a process that may not have what the chunk wants."""
    huge = [chunk(b'', size=20 << 30), chunk(bytes(2 << 30), 'zstd', 99),
            chunk(bytes(1 << 30), 'lz4', 99)]
    paths = [str(mcap(tmp_path / f'{summary}.mcap', images, extra=b''.join(huge),
                      summary=summary)) for summary in (True, False)]
    code = (f'import resource; resource.setrlimit(resource.RLIMIT_DATA, ({1 << 30},) * 2)\n'
            'from vjepa_ros.sources import open_source\n'
            f'for path in {paths}: print(len(list(open_source(path))))')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          timeout=120)
    assert done.stdout.split() == [str(COUNT)] * 2, done.stderr
    assert 'False.mcap' in done.stderr and 'claims' in done.stderr


def test_a_compressed_file_without_bound_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(bag_storage, 'EXPANDED', (1 << 20, 100))
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    path = tmp_path / 'a.db3.zstd'
    path.write_bytes(zstd.compress(bag_storage.SQLITE_START + bytes(64 << 20)))
    with pytest.raises(SourceError, match='expands to more than'):
        open_source(str(path))
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize('name', ['a.mcap', 'a.mp4', 'bag/metadata.yaml', 'rec/labels.csv'])
@pytest.mark.parametrize('kind', ['pipe', 'device'])
def test_pipes_and_devices_are_refused_at_once(tmp_path, images, name, kind):
    path, target = tmp_path / name, tmp_path / name.partition('/')[0]
    for folder in ('bag', 'rec/frames'):
        (tmp_path / folder).mkdir(parents=True)
    cv2.imwrite(str(tmp_path / 'rec' / 'frames' / '0.png'), picture(0))
    mcap(tmp_path / 'bag' / 'b.mcap', images)
    if kind == 'pipe':
        os.mkfifo(path)
    else:
        path.symlink_to('/dev/zero')
    with pytest.raises(SourceError, match=r'regular file|leads out of|outside of'):
        open_source(target)
    assert {target, path} & {*find_recordings([tmp_path])[0]}

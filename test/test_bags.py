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

from vjepa_ros.fleet.recordings import cameras_of, find_recordings, looked_at
from vjepa_ros.lab.training.feeds import read_flags
from vjepa_ros.sources import PlayOptions, SourceError, bag_storage, open_source

lz4 = pytest.importorskip('lz4.frame')
try:
    from backports import zstd
except ImportError:
    zstd = pytest.importorskip('zstandard')

CASES = Path(__file__).parents[2] / 'shared' / 'cases'
COUNT = 6
IMAGE, BOOL = 'sensor_msgs/msg/Image', 'std_msgs/msg/Bool'
ODD = 'odd_msgs/srv/Ask_Event'


def picture(value: int) -> np.ndarray:
    return np.full((24, 32, 3), value, np.uint8)


def played(path) -> list[int]:
    """Numbers of the pictures that are played."""
    with open_source(path) as source:
        return [round(frame.rgb.mean() / 10) for frame in source]


@pytest.fixture(scope='module')
def messages(tmp_path_factory) -> dict[str, list[bytes]]:
    """Serialized images and flags."""
    with BagMaker(tmp_path_factory.mktemp('some') / 'bag') as made:
        def image(n: int) -> bytes:
            rgb = picture(10 * n)
            return bytes(made.store.serialize_cdr(made.types[IMAGE](
                header=made.header(S + n * S // 10), height=24, width=32, encoding='rgb8',
                is_bigendian=0, step=96, data=rgb.reshape(-1)), IMAGE))
        made.image('/x', S, picture(0))
        return {IMAGE: [image(n) for n in range(COUNT)], ODD: [b'\0\1\0\0' + bytes(9)] * COUNT,
                BOOL: [bytes(made.store.serialize_cdr(made.types[BOOL](data=True), BOOL))] * COUNT}


# -- files of any kind ----------------------------------------------------------------------------

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


def mcap(path: Path, messages: dict[str, list[bytes]], *, profile: str = 'ros2',
         schema: tuple[str, str] = ('ros2msg', 'uint8 x'), image: tuple[str, str] = ('', ''),
         compression: str | None = '', summary: bool = True, extra: bytes = b'') -> Path:
    """Write a file with an image topic and an odd one, whose schema is anything; three chunks."""
    heads = [record(3, struct.pack('<H', 1), text(ODD), *map(text, schema)),
             record(3, struct.pack('<H', 2), text(IMAGE), *map(text, image)),
             *(record(4, struct.pack('<HH', n, n), text(topic), text('cdr'), text(b''))
               for n, topic in ((1, '/odd'), (2, '/eye/image_raw')))]
    groups = [b''.join(record(5, struct.pack('<HIQQ', channel, 0, S + n * S // 10, 0), data[n])
                       for n in part for channel, data in ((1, messages[ODD]),
                                                           (2, messages[IMAGE])))
              for part in (range(2), range(2, 4), range(4, COUNT))]
    out = bag_storage.MCAP_START + record(1, text(profile), text('a test')) + extra
    indexes = []
    for n, group in enumerate(groups):
        content = (b''.join(heads) if n == 0 else b'') + group
        begin, times = len(out), (S + n * 2 * S // 10, S + (n * 2 + 1) * S // 10)
        out += content if compression is None else chunk(content, compression, times=times,
                                                         crc=zlib.crc32(content))
        indexes.append(record(8, struct.pack('<QQQQI', *times, begin, len(out) - begin, 0),
                              struct.pack('<Q', 0), text(compression or ''), bytes(16)))
    out += record(15, bytes(4))
    if summary:
        begin = len(out)
        chunks = [] if compression is None else indexes
        out += b''.join([*heads, *chunks]) + record(
            11, struct.pack('<QHIIIIQQ', 2 * COUNT, 2, 2, 0, 0, len(chunks), S, S + S // 2),
            struct.pack('<IHQHQ', 20, 1, COUNT, 2, COUNT))
        out += record(2, struct.pack('<QQI', begin, 0, 0)) + bag_storage.MCAP_START
    path.write_bytes(out)
    return path


SCHEMAS = {'json': ('jsonschema', '{"type": "object"}'), 'empty': ('', ''),
           'broken': ('ros2msg', '=== what?'), 'idl': ('ros2idl', 'module {'),
           'many fields': ('ros2msg', ''.join(f'float64 f{n}\n' for n in range(100_000)))}


@pytest.mark.parametrize('schema', SCHEMAS)
def test_types_that_nobody_reads_are_never_parsed(tmp_path, messages, schema):
    path = mcap(tmp_path / 'a.mcap', messages, schema=SCHEMAS[schema])
    assert played(path) == list(range(COUNT))
    with pytest.raises(SourceError, match=r'Ask_Event'):     # but a label has to be
        read_flags(path, '/odd', field='y')


@pytest.mark.parametrize('how', [
    {'profile': ''}, {'profile': 'foxglove'}, {'image': ('jsonschema', '{}')},
    {'image': ('ros2msg', 'uint8 other')}, {'compression': 'zstd'}, {'compression': 'lz4'},
    {'compression': None}, {'compression': None, 'summary': False},
    {'compression': 'zstd', 'summary': False}], ids=str)
def test_every_layout_of_mcap_is_read(tmp_path, messages, how):
    path = mcap(tmp_path / 'a.mcap', messages, **how)
    assert played(path) == list(range(COUNT))
    with open_source(path) as source:
        assert source.rate_hz == pytest.approx(10.0) and source.duration_s == pytest.approx(0.5)
        assert [round(at, 3) for at, _ in source.excerpt(0.15, 0.45)] == [0.2, 0.3, 0.4]


@pytest.mark.parametrize('name', [
    'chunk_no_msgindex.mcap', 'image_definition_missing.mcap', 'jazzy_service.db3',
    'power_off_half.db3', 'profile_empty.mcap', 'raw_empty_compressed_full.mcap',
    'unknown_definition.mcap', 'with_json_channel.mcap', 'fleet4'])
def test_bags_as_people_have_them_are_read(name):
    if not (CASES / name).exists():
        pytest.skip(f'{CASES / name} is absent')
    assert len(played(CASES / name)) == (
        60 if name in ('power_off_half.db3', 'raw_empty_compressed_full.mcap', 'fleet4') else 12)
    found, absent = find_recordings([CASES / name])
    assert len(found) == 1 and not absent and looked_at(found[0])[1] == []


@pytest.mark.parametrize('counts', [(0, 8), (2, 8), (8, 8), (0, 0)])
@pytest.mark.parametrize('storage', ['MCAP', 'SQLITE3'])
def test_of_a_camera_what_delivers_is_taken_and_told(tmp_path, storage, counts, caplog):
    with BagMaker(tmp_path / 'bag', storage) as made:
        for n in range(counts[0]):
            made.image('/eye/image_raw', S + n, picture(10))
        if not counts[0]:
            made.connections['/eye/image_raw'] = made.writer.add_connection(
                '/eye/image_raw', IMAGE, typestore=made.store)
        for n in range(counts[1]):
            made.jpeg('/eye/image_raw/compressed', S + n, picture(20))
        made.info(S)
    if not any(counts):
        with pytest.raises(SourceError, match='no messages'):
            played(tmp_path / 'bag')
        return
    chosen = 2 if counts[0] < 4 else 1
    assert set(played(tmp_path / 'bag')) == {chosen}
    assert ("'/eye/image_raw' has" in caplog.text) == (chosen == 2)
    found, absent = cameras_of(tmp_path / 'bag')
    assert [camera.topic.endswith('compressed') for camera in found] == [chosen == 2]
    assert not absent
    if counts[0]:                   # which can be asked for by its name
        assert len(cameras_of(tmp_path / 'bag', ['/eye/image_raw'])[0]) == 1


# -- damage ---------------------------------------------------------------------------------------

def test_the_log_of_a_database_is_read_and_nothing_is_changed(tmp_path):
    """As after a loss of power: the last messages are in a log beside the file."""
    with BagMaker(tmp_path / 'whole', 'SQLITE3') as made:
        for n in range(COUNT):
            made.image('/eye/image_raw', S + n, picture(10 * n))
    db = sqlite3.connect(tmp_path / 'whole' / 'whole.db3')
    rows = db.execute('SELECT * FROM messages').fetchall()
    db.execute('DELETE FROM messages')
    db.commit()
    db.executescript('PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;')
    db.executemany(f'INSERT INTO messages VALUES ({", ".join("?" * len(rows[0]))})', rows)
    db.commit()
    folder = tmp_path / 'bag'
    folder.mkdir()
    for suffix in ('', '-wal'):
        shutil.copy(tmp_path / 'whole' / f'whole.db3{suffix}', folder / f'bag_0.db3{suffix}')
    db.close()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    folder.chmod(0o555)
    try:
        assert played(folder) == played(folder / 'bag_0.db3') == list(range(COUNT))
    finally:
        folder.chmod(0o755)
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize('compression', [None, '', 'zstd', 'lz4'])
def test_a_file_that_was_cut_off_is_read_up_to_there_and_that_is_told(tmp_path, messages,
                                                                      compression, caplog):
    whole = mcap(tmp_path / 'a.mcap', messages, compression=compression, summary=False)
    data = whole.read_bytes()
    whole.write_bytes(data[:-60])
    found = played(whole)
    assert found == list(range(len(found))) and COUNT > len(found) >= 3
    assert 'a.mcap' in caplog.text and 'mcap recover' in caplog.text
    (_, problem), = [looked_at(whole)]
    assert 'mcap recover' in problem[0]


def test_a_damaged_chunk_loses_only_itself(tmp_path, messages, caplog):
    path = mcap(tmp_path / 'a.mcap', messages)
    data = path.read_bytes()
    at = data.index(messages[IMAGE][3]) + 200
    path.write_bytes(data[:at] + b'~' + data[at + 1:])
    assert played(path) == [0, 1, 4, 5] and 'checksum' in caplog.text
    assert 'checksum' in looked_at(path)[1][0]


@pytest.mark.parametrize('mode', ['FILE', 'MESSAGE', 'STORAGE'])
def test_bags_that_were_compressed_in_any_way_are_read(tmp_path, mode):
    from rosbags.rosbag2 import CompressionFormat, CompressionMode
    made = BagMaker(tmp_path / 'bag')
    made.writer.set_compression(CompressionMode[mode], CompressionFormat.ZSTD)
    with made:
        for n in range(COUNT):
            made.image('/eye/image_raw', S + n, picture(10 * n))
    assert played(tmp_path / 'bag') == list(range(COUNT))
    (tmp_path / 'bag' / 'metadata.yaml').unlink()
    assert played(tmp_path / 'bag') == list(range(COUNT))


def test_a_damaged_database_is_read_as_far_as_that_goes(tmp_path, caplog):
    with BagMaker(tmp_path / 'bag', 'SQLITE3') as made:
        for n in range(200):
            made.image('/eye/image_raw', S + n * S // 10, picture(n % 20))
    file = tmp_path / 'bag' / 'bag.db3'
    size = file.stat().st_size
    with file.open('r+b') as raw:
        raw.seek(size // 8192 * 4096)
        raw.write(b'~' * 40960)
    assert 40 < len(played(file)) < 200 and '.recover' in caplog.text
    os.truncate(file, size // 2)
    with pytest.raises(SourceError, match=r'bag\.db3.*recover'):
        played(file)


def test_a_missing_file_of_several_is_named_and_the_others_are_read(tmp_path, messages, caplog):
    folder = tmp_path / 'bag'
    folder.mkdir()
    mcap(folder / 'bag_0.mcap', messages)
    (folder / 'metadata.yaml').write_text(
        'rosbag2_bagfile_information:\n  relative_file_paths:\n    - bag_0.mcap\n'
        '    - bag_1.mcap\n  compression_mode: ""\n')
    assert played(folder) == list(range(COUNT)) and "'bag_1.mcap'" in caplog.text
    assert "'bag_1.mcap'" in looked_at(folder)[1][0]


@pytest.mark.parametrize(('content', 'words'), [
    (b'#ROSBAG V2.0\n' + bytes(4096), 'ROS 1.*rosbags-convert'), (b'', 'empty'),
    (zstd.compress(b'something else'), 'zstd -d'), (b'version https://git-lfs', 'neither'),
    (bag_storage.MCAP_START, 'no image topic'), (bag_storage.SQLITE_START, 'a')])
@pytest.mark.parametrize('suffix', ['.bag', '.mcap', '.db3.zstd'])
def test_what_is_no_bag_is_named_as_what_it_is(tmp_path, content, words, suffix):
    path = tmp_path / f'a{suffix}'
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf'(?s)a\{suffix}.*{words}'):
        open_source(path)
    assert looked_at(find_recordings([tmp_path])[0][0])[1]      # not passed over


# -- bounds ---------------------------------------------------------------------------------------

def test_a_chunk_without_bound_is_left_out_before_it_takes_memory(tmp_path, messages):
    """In a process that may not have what the chunk wants."""
    huge = [chunk(b'', size=20 << 30), chunk(bytes(2 << 30), 'zstd', 99),
            chunk(bytes(1 << 30), 'lz4', 99)]
    paths = [str(mcap(tmp_path / f'{summary}.mcap', messages, extra=b''.join(huge),
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
    (tmp_path / 'room').mkdir()
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path / 'room'))
    path = tmp_path / 'a.db3.zstd'
    path.write_bytes(zstd.compress(bag_storage.SQLITE_START + bytes(64 << 20)))
    with pytest.raises(SourceError, match='expands to more than'):
        open_source(path)
    assert not list((tmp_path / 'room').iterdir())


@pytest.mark.parametrize('name', [
    'a.mcap', 'a.mp4', 'a.png', 'bag/metadata.yaml', 'bag/a.mcap', 'rec/labels.csv',
    'rec/frames/0.20.png', 'rec/imu.csv', 'tum/rgb.txt'])
@pytest.mark.parametrize('kind', ['pipe', 'device'])
def test_pipes_and_devices_are_refused_at_once(tmp_path, messages, name, kind):
    for folder in ('bag', 'rec/frames', 'tum/rgb'):
        (tmp_path / folder).mkdir(parents=True)
        for number in (0, 1) if folder != 'bag' else ():
            cv2.imwrite(str(tmp_path / folder / f'0.{number}0.png'), picture(0))
    if name == 'bag/metadata.yaml':
        mcap(tmp_path / 'bag' / 'b.mcap', messages)
    (tmp_path / 'rec' / 'labels.csv').write_text(
        'frame,stamp_s\n0.00.png,0\n' + '0.20.png,1\n' * (name == 'rec/frames/0.20.png'))
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == 'pipe':
        os.mkfifo(path)
    else:
        path.symlink_to('/dev/zero')
    target = tmp_path / name.partition('/')[0]
    with pytest.raises(SourceError, match=r'regular file|leads out of|outside of'), \
            open_source(target, PlayOptions(max_frames=9)) as source:
        list(source)
        source.angular_rates()
    assert {target, path} & {*find_recordings([tmp_path])[0]} or target.name == 'a.png'

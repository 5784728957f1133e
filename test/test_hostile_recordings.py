# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recordings that nobody made on purpose are refused as such, and name nothing elsewhere."""

from __future__ import annotations

import os
import random
import shutil
import struct
import zlib

import cv2
import pytest
from test_sources import BagMaker, S, picture, write_recording

from vjepa_ros.lab.training.labels import read_flags
from vjepa_ros.sources import SourceError, open_source

ROUNDS = int(os.environ.get('VJEPA_ROS_ROUNDS', '8'))   # of damage to each kind of file


def play(path):
    with open_source(str(path), max_frames=20) as source:
        return sum(1 for _ in source)


def two(folder, *more):
    """A recording of two frames, and more lines."""
    write_recording(folder, ['00000.png,0.0,0,1.5'])
    with (folder / 'labels.csv').open('ab') as file:
        file.writelines(row + b'\n' for row in more)
    return folder


# -- tables ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(('row', 'problem'), [
    (b'\xff\xfe,0.2,0,1', r'line 3 is no text in UTF-8.*save the file in UTF-8'),
    (b'00001.png,1e300,0,1', "line 3: stamp_s '1e300' is not a finite number of seconds"),
    (b'a' * 5000 + b',0.1,0,1', 'line 3: picture .* correct the name'),
    (b'"' + b'a' * 200_000 + b'",0.1,0,1', 'line 3: field larger than field limit'),
    (b'00001.png', "line 3: stamp_s '' is not a number"),
    (b'../../secret.png,0.1,0,1', 'line 3: picture .* lies outside of the recording; put it'),
    (b'../frames/00001.png,0.1,0,1', 'line 3: picture .* lies outside'),
    (b'%OF%/00001.png,0.1,0,1', 'line 3: picture .* lies outside'),
    (b'link.png,0.1,0,1', 'line 3: picture .* lies outside')], ids=range(9))
def test_a_line_that_cannot_be_is_refused_with_its_number(tmp_path, row, problem):
    frames = tmp_path / 'drive' / 'frames'
    folder = two(tmp_path / 'drive', row.replace(b'%OF%', str(frames).encode()))
    shutil.copy(frames / '00000.png', tmp_path / 'secret.png')
    (frames / 'link.png').symlink_to(tmp_path / 'secret.png')
    with pytest.raises(SourceError, match=rf"'.*labels\.csv' {problem}"):
        play(folder)


def test_links_within_a_recording_and_to_one_are_followed(tmp_path):
    folder = two(tmp_path / 'drive', b'again.png,0.1,0,1')
    (folder / 'frames' / 'again.png').symlink_to(folder / 'frames' / '00000.png')
    (tmp_path / 'linked').symlink_to(folder)
    assert play(folder) == play(tmp_path / 'linked') == 2


@pytest.mark.parametrize(('text', 'problem'), [
    (b'\xff\xfe', 'line 1 is no text in UTF-8'),
    (b'nan 0 16 0 0 33 12 0 0 0 1 0', '12 numbers'),
    (b'5e-324 0 16 0 0 33 12 0 0 0 1 0', r'focal length fx is 4\.94066e-324 px.*correct it'),
    (b'33 0 1e9 0 0 33 12 0 0 0 1 0', r'centre cx is 1e\+09 px')], ids=range(4))
def test_a_calibration_that_cannot_be_is_refused(tmp_path, text, problem):
    folder = two(tmp_path / 'drive')
    (folder / 'calib.txt').write_bytes(text)
    with pytest.raises(SourceError, match=problem):
        play(folder)


def test_any_name_of_a_picture_can_be_sorted(tmp_path):
    folder = two(tmp_path / 'drive')
    (folder / 'frames' / '1\u00b23.png').symlink_to(folder / 'frames' / '00000.png')
    assert play(folder / 'frames') == 5


@pytest.mark.parametrize('name', ['a' * 5000, '~nobody-of-this-name/drive', 'a' * 300 + '/b'],
                         ids=range(3))
def test_a_name_that_is_no_path_is_refused(name):
    with pytest.raises(SourceError, match='supported: '):
        open_source(name)


def test_a_picture_of_a_size_that_no_camera_has_is_refused(tmp_path):
    path = tmp_path / 'a.png'
    assert cv2.imwrite(str(path), picture(90))
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack('>II', 10**6, 10**6)
    data[29:33] = struct.pack('>I', zlib.crc32(data[12:29]))
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"picture '.*a\.png' cannot be read"):
        play(path)


# -- bags -----------------------------------------------------------------------------------------

def bag_of(path, storage='MCAP'):
    bag = BagMaker(path, storage)
    for n in range(3):
        bag.image('/eye/image_raw', S + n * 100_000_000, picture(10 * n))
    bag.info('/eye/camera_info', S, (32, 24), 33.0)
    bag.add('/bumper', 'std_msgs/msg/Bool', S, data=True)
    bag.close()
    return path


def test_a_bag_that_leads_out_of_its_folder_is_refused(tmp_path):
    bag = bag_of(tmp_path / 'bag')
    file, = bag.glob('*.mcap')
    file.rename(tmp_path / 'secret.mcap')
    file.symlink_to(tmp_path / 'secret.mcap')
    for use in (play, lambda path: read_flags(path, '/bumper')):
        with pytest.raises(SourceError, match=r"bag\.mcap' leads out of its folder, to '.*secret"):
            use(bag)


def test_implausible_intrinsics_of_a_bag_are_ignored_with_a_word(tmp_path, caplog):
    bag = BagMaker(tmp_path / 'bag')
    bag.image('/eye/image_raw', S, picture(10))
    bag.info('/eye/camera_info', S, (32, 24), 5e-324)
    bag.close()
    assert open_source(str(tmp_path / 'bag')).intrinsics is None
    assert 'focal length fx is 4.94066e-324 px' in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize('text', [b'\xff\xfe', b'a: [', b'[' * 100_000, b'5', b'{}', b'- 1',
                                  b'rosbag2_bagfile_information: {version: 9}',
                                  b'a: ' + b'x' * (5 << 20)], ids=range(8))
def test_metadata_of_a_bag_that_is_none_is_refused(tmp_path, text):
    bag = bag_of(tmp_path / 'bag')
    (bag / 'metadata.yaml').write_bytes(text)
    with pytest.raises(SourceError, match=r"bag '.*ros2 bag reindex"):
        play(bag)


# -- any damage at all ----------------------------------------------------------------------------

def harm(data, dice):
    """Change, drop or repeat some bytes."""
    data = bytearray(data) * 2 if len(data) < 100 else bytearray(data)
    for _ in range(dice.choice([1, 2, 5])):
        at, other = dice.randrange(len(data)), dice.randrange(len(data))
        how = dice.randrange(3)
        if how == 0:
            data[at] = dice.randrange(256)
        elif how == 1:
            del data[at:at + dice.randrange(1, 20)]
        else:
            data[at:at] = data[other:other + dice.randrange(1, 40)]
    return bytes(data[:dice.randrange(len(data))] if dice.random() < 0.1 else data)


def test_whatever_is_wrong_with_a_recording_it_is_a_source_error(tmp_path):
    table = two(tmp_path / 'table', b'00001.png,0.1,1,')
    (table / 'calib.txt').write_text('P0: 33 0 16 0 0 33 12 0 0 0 1 0\n')
    bags = [bag_of(tmp_path / 'mcap'), bag_of(tmp_path / 'sqlite', 'SQLITE3')]
    file = [next(path for path in bag.iterdir() if path.suffix != '.yaml') for bag in bags]
    film = tmp_path / 'film.avi'
    writer = cv2.VideoWriter(str(film), cv2.VideoWriter_fourcc(*'MJPG'), 10.0, (64, 48))
    for n in range(5):
        writer.write(picture(10 * n, (64, 48)))
    writer.release()
    targets = [(table, table / 'labels.csv'), (table, table / 'calib.txt'),
               (table, table / 'frames' / '00000.png'), (bags[0], file[0]), (bags[1], file[1]),
               (bags[0], bags[0] / 'metadata.yaml'), (film, film)]
    refused = 0
    for number in range(7 * ROUNDS):
        source, path = targets[number % len(targets)]
        whole = path.read_bytes()
        path.write_bytes(harm(whole, random.Random(number)))
        uses = [play, lambda one: read_flags(one, '/bumper')] if source in bags else [play]
        for use in uses:
            try:
                use(source)
            except SourceError:
                refused += 1
            except Exception as error:
                raise AssertionError(f'file {number} ({path.name}): {error!r}') from error
        path.write_bytes(whole)
    assert refused > 3 * ROUNDS

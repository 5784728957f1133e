# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Pictures in folders keep the times at which they were taken; none are made up."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from vjepa_ros.fleet.recordings import find_recordings, looked_at
from vjepa_ros.sources import PlayOptions, SourceError, open_source

NS = [1403636579763555584 + n * 33_333_333 for n in range(5)]
FACTS = [{'n': n, 'ns': ns, 'us': ns // 1000, 'ms': ns // 10**6, 'past': ns - NS[0], 's': n / 30,
          'text': f'{ns // 10**9}.{ns % 10**9:09d}', 'sec': ns // 10**9,
          'nsec': f'{ns % 10**9:09d}', 'early': 9.95 + n / 30} for n, ns in enumerate(NS)]


def write(folder: Path, names) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for n, name in enumerate(names):
        assert cv2.imwrite(str(folder / f'{name}.png'), np.full((24, 32, 3), 10 * n, np.uint8))


def check(path: Path) -> None:
    with open_source(path) as source:
        frames = list(source)
    assert [round(frame.rgb.mean() / 10) for frame in frames] == list(range(5))
    np.testing.assert_allclose([frame.stamp_ns - frames[0].stamp_ns for frame in frames],
                               [n * 33_333_333 for n in range(5)], atol=1e6)


HEAD = '#timestamp [ns],filename\n'
LAYOUTS = {              # folder of the pictures and their names; table, its heading and rows
    'euroc': ('data', '{ns}', 'data.csv', HEAD, '{ns},{ns}.png'),
    'euroc of a simulator': ('data', '{n}', 'data.csv', HEAD, '{past},{n}.png'),
    'tum': ('rgb', '{n:05d}', 'rgb.txt', '# file: "a time.bag"\n# timestamp filename\n',
            '{text} rgb/{n:05d}.png'),
    'kitti': ('data', '{n:010d}', 'timestamps.txt', '', '2014-06-24 19:02:59.{nsec}'),
    'kitti odometry': ('frames', '{n:06d}', 'times.txt', '', '{s:.9e}'),
    'ours': ('frames', '{n:05d}', 'stamps.csv', 'index,seconds\n', '{n},{s}'),
    'labels': ('frames', '{n:05d}', 'labels.csv', 'frame,stamp_s,collision,time_to_contact_s\n',
               '{n:05d}.png,{s:.9f},,')}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_stamps_come_from_the_table_of_a_data_set_wherever_one_points(tmp_path, layout):
    place, name, table, head, row = LAYOUTS[layout]
    root = tmp_path / 'set' / 'cam0'
    write(root / place, [name.format(**each) for each in FACTS])
    write(root / 'depth', [each['text'] for each in FACTS])
    (root / table).write_text(head + ''.join(row.format(**each) + '\n' for each in FACTS))
    check(root)
    check(root / place)
    assert len(list(open_source(root, PlayOptions(rate=15.0)))) == 3         # which thins
    assert find_recordings([tmp_path]) == ([root], [])
    (camera,), problems = looked_at(root)
    assert not problems and camera.duration_s == pytest.approx(5 / 30, rel=1e-3)


@pytest.mark.parametrize('name', [
    '{ns}', 'left_{ns}', '{us}', 'frame-{ms}', '{text}', 'rgb_{text}', '{sec}_{nsec}',
    '{sec}-{nsec}', '{early:.6f}'])
def test_stamps_come_from_names(tmp_path, name):
    write(tmp_path, [name.format(**each) for each in FACTS])
    check(tmp_path)


@pytest.mark.parametrize('names', [
    ['frame_000123', 'frame_000124'], ['0000000010', '0000000011'], ['1', '2'],
    ['2026113012', '2026113013'], ['20261130120000', '20261130120001'],
    ['2026113012000012', '2026113012000013'], ['v1.0', 'v1.1'], ['a', '1403636579763555584']])
def test_counted_pictures_have_no_stamps_and_a_rate_is_asked_for(tmp_path, names):
    write(tmp_path, names)
    assert '--rate' in looked_at(tmp_path)[1][0]
    stamps = [frame.stamp_ns for frame in open_source(tmp_path, PlayOptions(rate=4.0))]
    assert stamps[1] - stamps[0] == 250_000_000
    (camera,), problems = looked_at(tmp_path, rate=4.0)
    assert not problems and camera.duration_s == 0.5


@pytest.mark.parametrize(('rows', 'words'), [
    (['1.0 ../../secret.png'], 'line 2.*outside'), (['1.0 /etc/secret.png'], 'line 2.*outside'),
    (['1.0 link.png'], 'line 2.*outside'), (['nan 0.png'], "line 2: 'nan' is no time"),
    (['2.0 0.png', '1.0 1.png'], 'line 3.*not after'), (['soon 0.png', '1 1.png'], 'no time'),
    (['1.0 none.png'], r'do not belong to.*none\.png'), (['1e400 0.png'], 'no time'),
    ([], 'no rows')])
@pytest.mark.parametrize('name', ['rgb.txt', 'data.csv'])
def test_a_table_that_leads_elsewhere_or_says_no_time_is_refused(tmp_path, name, rows, words):
    root = tmp_path / 'set'
    write(root, ['0', '1'])
    write(tmp_path, ['secret'])
    (root / 'link.png').symlink_to(tmp_path / 'secret.png')
    lines = ['#timestamp,filename', *rows]
    (root / name).write_text('\n'.join(lines).replace(' ', ',') if 'csv' in name
                             else '\n'.join(lines))
    with pytest.raises(SourceError, match=f'{name}.*({words})'):
        open_source(root)

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
SECONDS = [f'{ns // 10**9}.{ns % 10**9:09d}' for ns in NS]


def write(folder: Path, names) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for n, name in enumerate(names):
        assert cv2.imwrite(str(folder / name), np.full((24, 32, 3), 10 * n, np.uint8))


def played(path, **options) -> tuple[list[int], list[int]]:
    with open_source(path, PlayOptions(**options)) as source:
        frames = list(source)
    return ([round(frame.rgb.mean() / 10) for frame in frames],
            [frame.stamp_ns - frames[0].stamp_ns for frame in frames])


def table(folder: Path, name: str, rows, head: str = '') -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(head + ''.join(f'{row}\n' for row in rows))


HEAD = '#timestamp [ns],filename\n'
LAYOUTS = {              # folder of the pictures and their names; table, its heading and rows
    'euroc': ('data', '{ns}', 'data.csv', HEAD, '{ns},{ns}.png'),
    'euroc of a simulator': ('data', '{n}', 'data.csv', HEAD, '{past},{n}.png'),
    'tum': ('rgb', '{n:05d}', 'rgb.txt', '# file: "a time.bag"\n# timestamp filename\n',
            '{text} rgb/{n:05d}.png'),
    'kitti': ('data', '{n:010d}', 'timestamps.txt', '', '2014-06-24 19:02:59.{part}'),
    'kitti odometry': ('frames', '{n:06d}', 'times.txt', '', '{s:.9e}'),
    'ours': ('frames', '{n:05d}', 'stamps.csv', 'index,seconds\n', '{n},{s}'),
    'labels': ('frames', '{n:05d}', 'labels.csv', 'frame,stamp_s,collision,time_to_contact_s\n',
               '{n:05d}.png,{s:.9f},,')}


def lay_out(root: Path, layout: str) -> None:
    place, name, file, head, row = LAYOUTS[layout]
    facts = [{'n': n, 'ns': ns, 'past': ns - NS[0], 'text': SECONDS[n], 's': n / 30,
              'part': 763555584 + n * 33_333_333} for n, ns in enumerate(NS)]
    write(root / place, [f'{name.format(**each)}.png' for each in facts])
    table(root, file, [row.format(**each) for each in facts], head)
    if layout == 'tum':
        write(root / 'depth', [f'{text}.png' for text in SECONDS])


@pytest.mark.parametrize('layout', LAYOUTS)
def test_stamps_come_from_the_table_of_a_data_set_wherever_one_points(tmp_path, layout):
    lay_out(tmp_path / 'set' / 'cam0', layout)
    for path in (tmp_path / 'set' / 'cam0', tmp_path / 'set' / 'cam0' / LAYOUTS[layout][0]):
        numbers, stamps = played(path)
        assert numbers == list(range(5))
        np.testing.assert_allclose(stamps, [n * 33_333_333 for n in range(5)], atol=200)
        assert len(played(path, rate=15.0)[0]) == 3         # which thins, as of a bag
    found = find_recordings([tmp_path])
    assert found == ([tmp_path / 'set' / 'cam0'], [])
    (camera,), problems = looked_at(found[0][0])
    assert not problems and camera.duration_s == pytest.approx(5 / 30, rel=1e-3)


@pytest.mark.parametrize('name', [
    '{ns}', 'left_{ns}', '{us}', 'frame-{ms}', '{s}', 'rgb_{s}', '{sec}_{nsec}', '{sec}-{nsec}',
    '{early}'])
def test_stamps_come_from_names(tmp_path, name):
    names = [name.format(ns=ns, us=ns // 1000, ms=ns // 10**6, s=s, sec=ns // 10**9,
                         nsec=f'{ns % 10**9:09d}', early=f'{9.95 + n / 30:.6f}')
             for n, (ns, s) in enumerate(zip(NS, SECONDS, strict=True))]
    write(tmp_path, [f'{one}.png' for one in names])
    numbers, stamps = played(tmp_path)
    assert numbers == list(range(5))
    np.testing.assert_allclose(stamps, [n * 33_333_333 for n in range(5)], atol=1e6)


@pytest.mark.parametrize('names', [
    ['frame_000123', 'frame_000124'], ['0000000010', '0000000011'], ['1', '2'],
    ['2026113012', '2026113013'], ['20261130120000', '20261130120001'],
    ['2026113012000012', '2026113012000013'], ['v1.0', 'v1.1'], ['a', '1403636579763555584']])
def test_counted_pictures_have_no_stamps_and_a_rate_is_asked_for(tmp_path, names):
    write(tmp_path, [f'{name}.png' for name in names])
    with pytest.raises(SourceError, match=r'--rate'):
        played(tmp_path)
    assert '--rate' in looked_at(tmp_path)[1][0]
    assert played(tmp_path, rate=4.0)[1] == [0, 250_000_000]
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
    write(root, ['0.png', '1.png'])
    write(tmp_path, ['secret.png'])
    (root / 'link.png').symlink_to(tmp_path / 'secret.png')
    table(root, name, (row.replace(' ', ',') if 'csv' in name else row for row in rows),
          '# timestamp,filename\n')
    with pytest.raises(SourceError, match=f'{name}.*({words})'):
        played(root)

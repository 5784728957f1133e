# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Runs as MCAP files: what is read back, and what the layout of Foxglove shows of it."""

from __future__ import annotations

import json
import logging
import math
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('rosbags')

from scenes import texture

from vjepa_ros.lab.drive.figures import write_recordings
from vjepa_ros.lab.drive.loop import Moment, Outcome
from vjepa_ros.lab.report.foxglove import Shown, write_mcap
from vjepa_ros.lab.report.report import write_outputs
from vjepa_ros.sources.bag import Bag
from vjepa_ros.sources.video_packets import PacketDecoder
from vjepa_ros.viewer.messages import readable

LAYOUT = (Path(__file__).resolve().parents[1] / 'config/foxglove.json').read_text()
S = 10**9
OUTPUTS = '/vjepa_node/camera'
OVERLAY = f'{OUTPUTS}/overlay/compressed'
RECORDS = [{'stamp_ns': 100 * S + n * S // 10, 'level': level, 'guard': 'slowed',
            'motion_score': 0.25, 'obstacle_score': 0.5, 'collision_probability': 0.75,
            'collision_if_ahead': 0.125, 'time_to_contact': ttc, 'looming_rate': 1.5}
           for n, (level, ttc) in enumerate([(0, math.inf), (2, 2.5), (255, math.nan)])]


@pytest.fixture
def shown(tmp_path):
    """Five pictures of odd size, maps and assessments."""
    pictures, maps = [], []
    for n in range(5):
        picture = tmp_path / f'{n}.png'
        cv2.imwrite(str(picture), np.roll(texture((161, 121)), 4 * n, 1))
        pictures.append((RECORDS[0]['stamp_ns'] + n * S // 20, picture))
        np.save(tmp_path / f'{n}.npy', np.array([[n, np.nan, 0.5]], np.float32))
        maps.append((pictures[-1][0], tmp_path / f'{n}.npy'))
    return Shown(RECORDS, pictures, maps)


def content(path):
    """Types by topic, and the messages of each topic."""
    with Bag(path) as bag:
        found = {topic: [] for topic in bag.types}
        for topic, message in bag.read(bag.types):
            found[topic].append(message)
        return bag.types, found


@pytest.mark.parametrize('codec', ['h264', 'jpeg'])
def test_what_is_written_is_read_back_and_pictures_are_decoded(codec, shown, tmp_path,
                                                               monkeypatch):
    if codec == 'h264':
        pytest.importorskip('av')
    else:
        monkeypatch.setitem(sys.modules, 'av', None)
    kinds, found = content(write_mcap(tmp_path / 'out' / 'run.mcap', shown))
    assert [p.name for p in (tmp_path / 'out').iterdir()] == ['run.mcap']
    assert {name: kinds[name] for name in (OVERLAY, f'{OUTPUTS}/looming_map')} == {
        OVERLAY: 'foxglove_msgs/msg/CompressedVideo' if codec == 'h264' else
        'sensor_msgs/msg/CompressedImage', f'{OUTPUTS}/looming_map': 'sensor_msgs/msg/Image'}
    packets = [bytes(message.data) for message in found[OVERLAY]]
    if codec == 'h264':
        decoder = PacketDecoder(found[OVERLAY][0].format)
        got = [decoder.decode(packet)[..., ::-1] for packet in packets]
        stamps = [m.timestamp.sec * S + m.timestamp.nanosec for m in found[OVERLAY]]
        assert stamps == [stamp for stamp, _ in shown.pictures]
    else:
        got = [cv2.imdecode(np.frombuffer(packet, np.uint8), 1) for packet in packets]
    assert len(got) == len(shown.pictures)
    for picture, (_, path) in zip(got, shown.pictures, strict=True):
        known = cv2.resize(cv2.imread(str(path)), picture.shape[1::-1],
                           interpolation=cv2.INTER_AREA)
        assert np.abs(picture.astype(int) - known).mean() < 12
    for name in ('motion_score', 'time_to_contact', 'looming_rate'):
        np.testing.assert_array_equal([m.data for m in found[f'{OUTPUTS}/{name}']],
                                      [record[name] for record in RECORDS])
    levels = [readable(m)['status'][0]['values']['level'] for m in found['/diagnostics']]
    assert levels[:2] == ['clear', 'warning'] and math.isnan(levels[2])     # 'unknown'
    assert readable(found[f'{OUTPUTS}/looming_map'][3])['most'] == 3.0


def test_the_layout_shows_every_kind_of_it(shown, tmp_path):
    kinds, found = content(write_mcap(tmp_path / 'run.mcap', shown))
    panels = json.loads(LAYOUT)['configById'].values()
    topics = {panel['imageMode']['imageTopic'] for panel in panels if 'imageMode' in panel}
    paths = [one['value'] for panel in panels for one in panel.get('paths', ())]
    assert topics <= kinds.keys()
    for path in paths:
        if path.startswith('/local_planner'):          # does not run there
            continue
        topic, _, field = path.partition('.')
        if field == 'data':
            assert kinds[topic] == 'std_msgs/msg/Float32'
            continue
        one, = readable(found[topic][0])['status']
        assert f'name=="{one["name"]}"' in path
        assert any(f'key=="{key}"' in path for key in one['values'])


def test_a_driven_episode_becomes_a_file_with_the_newest_of_its_pictures(tmp_path):
    folder = tmp_path / 'film' / 'with_guard' / '0007'
    folder.mkdir(parents=True)
    for n in range(3):                                 # the first is of an earlier drive
        cv2.imwrite(str(folder / f'{n:04d}.png'), np.full((48, 64, 3), 60 * n, np.uint8))
    moments = tuple(Moment(t, 1.0, 1.0, 3.0, 2.0, 3, 'stopped', '') for t in (-0.5, 0.0))
    outcome = Outcome(7, 'wall', 'park', 1.0, False, False, '', 0.5, 1, 0, moments=moments)
    path, = write_recordings(tmp_path / 'out', tmp_path / 'film', {
        'with_guard': [outcome, Outcome(8, 'wall', 'park', 1.0, False, False, '', 1.0, 0, 0)]})
    assert path.name == 'with_guard-0007.mcap'
    _, found = content(path)
    assert len(found[OVERLAY]) == len(found[f'{OUTPUTS}/time_to_contact']) == 2
    states = [readable(m) for m in found['/collision_guard/state']]
    assert [one['stamp_ns'] for one in states] == [S, S + S // 2]
    assert states[0]['status'][0]['values'] == {'action': 'stopped'}


def test_without_the_library_the_rest_is_written_and_the_remedy_said(tmp_path, monkeypatch,
                                                                     caplog):
    pytest.importorskip('matplotlib')
    monkeypatch.setitem(sys.modules, 'rosbags', None)
    monkeypatch.setitem(sys.modules, 'rosbags.rosbag2', None)
    with caplog.at_level(logging.WARNING):
        _, files = write_outputs(tmp_path, [], (), {
            'frames_in': 0, 'device': 'cpu', 'model': 'tiny', 'trained': True})
    assert files == [] and (tmp_path / 'report.html').is_file()
    assert 'pip install rosbags' in caplog.text

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test learning from recordings: labels of topics and tables, clips, and training with them."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from recordings import BagMaker, S

from vjepa_ros.cli import train as tool
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import Recording, RecordingFeed, load_recording, read_flags
from vjepa_ros.lab.training.loop import read_state
from vjepa_ros.lab.world.clips import HORIZONS_S
from vjepa_ros.sources import SourceError

CONFIG = TrainConfig(clips=8, num_frames=4, image_size=32)
BOOL, RANGE = 'std_msgs/msg/Bool', 'sensor_msgs/msg/Range'


def picture(number):
    """A square that grows by the frame."""
    image = np.full((40, 48, 3), 60, np.uint8)
    near = max(0, 18 - number)
    image[near:22 + number, near:] = 200
    return image


def folder(path, rows, frames=20):
    """A recording folder; `rows` gives the labels of a frame as they stand in the table."""
    (path / 'frames').mkdir(parents=True)
    lines = ['frame,stamp_s,collision,time_to_contact_s']
    for number in range(frames):
        cv2.imwrite(str(path / 'frames' / f'{number:03}.png'), picture(number))
        lines.append(f'{number:03}.png,{number / 10},{rows(number)}')
    (path / 'labels.csv').write_text('\n'.join(lines) + '\n')
    return str(path)


def bag(path, label_type, fields):
    """A rosbag2 with images at 10 Hz from 100 s on, and labels at 20 Hz."""
    with BagMaker(path) as made:
        for number in range(20):
            made.image('/eye/image_raw', 100 * S + number * S // 10, picture(number))
        for number in range(39):
            stamp = 100 * S + number * S // 20
            header = {'header': made.header(stamp)} if label_type == RANGE else {}
            made.add('/bumper', label_type, stamp, **header, **fields(number))
    return path


def ranges(path):
    """A distance that falls to nothing after 1.5 s."""
    return bag(path, RANGE, lambda n: {
        'radiation_type': 0, 'field_of_view': 0.1, 'min_range': 0.0, 'max_range': 9.0,
        'range': max(0.0, 1.5 - n / 20)})


def test_a_bumper_and_a_distance_of_a_bag_tell_contacts(tmp_path):
    path = bag(tmp_path / 'bag', BOOL, lambda n: {'data': n >= 30})
    recording = load_recording(str(path), replace(CONFIG, label_topic='/bumper'))
    assert recording.contact_s[:15] == pytest.approx(1.5 - np.arange(15) / 10, abs=0.051)
    assert not recording.contact_s[15:19].any()
    flags = read_flags(ranges(tmp_path / 'ranges'), '/bumper', threshold='0.3')
    assert flags.contact_s(100 * S)[0] == pytest.approx(1.2, abs=0.051)
    flags = read_flags(bag(tmp_path / 'once', BOOL, lambda n: {'data': n == 10}), '/bumper')
    # Afterwards it is known that nothing comes until the labels end.
    assert flags.contact_s(101 * S) == (math.inf, pytest.approx(0.9))
    assert all(map(math.isnan, flags.contact_s(99 * S) + flags.contact_s(109 * S)))


@pytest.mark.parametrize(('topic', 'label_field', 'threshold', 'said'), [
    ('/horn', '', '', r"no label topic '/horn'.*/bumper \(sensor_msgs/msg/Range\)"),
    ('/bumper', 'touch', '', r"no field 'touch'.*range.*label_field"),
    ('/bumper', '', '', 'label_threshold'),
    ('/bumper', '', 'near', "'near' is not a number")])
def test_what_cannot_be_a_label_is_refused(tmp_path, topic, label_field, threshold, said):
    with pytest.raises(SourceError, match=said):
        read_flags(ranges(tmp_path / 'bag'), topic, label_field, threshold)


def test_a_folder_tells_contacts_and_opinions(tmp_path):
    path = folder(tmp_path / 'r', lambda n: f',{1.5 - n / 10}' if n < 8 else
                  ',inf' if n < 12 else '1,' if n < 16 else ',')
    recording = load_recording(path, CONFIG)
    assert recording.frames.shape == (20, 32, 32, 3)
    assert recording.contact_s[:8] == pytest.approx(1.5 - np.arange(8) / 10)
    assert np.isinf(recording.contact_s[8:12]).all()
    assert recording.certain_s[8] == HORIZONS_S[-1]
    assert recording.danger[12:16].tolist() == [1] * 4
    assert np.isnan(recording.contact_s[16:]).all() and np.isnan(recording.danger[16:]).all()


def test_what_has_no_labels_is_refused(tmp_path):
    for path, said in ((folder(tmp_path / 'r', lambda n: ','), 'has no labels'),
                       (str(ranges(tmp_path / 'bag')), 'label topic')):
        with pytest.raises(SourceError, match=said):
            load_recording(path, CONFIG)


def batch_of(contact=math.nan, certain=math.nan, danger=math.nan, hole=30):
    """Random clips of a recording of 30 frames with the same labels, and perhaps a hole."""
    stamps = np.arange(30) * S // 10
    stamps[hole:] += 5 * S
    frames = np.broadcast_to(np.arange(30, dtype=np.uint8)[:, None, None, None], (30, 32, 32, 3))
    made = Recording('made', frames, stamps,
                     *(np.full(30, value) for value in (contact, certain, danger)))
    return RecordingFeed([made], 4, 1.0).batch(200, torch.Generator().manual_seed(0),
                                               torch.device('cpu'))


def test_clips_are_spaced_evenly_and_say_how_far():
    batch = batch_of(danger=1.0)
    steps = batch.frames[:, :, 0, 0, 0].float().diff(dim=1)
    held = steps[:, 0] == 0                        # each frame twice
    assert 0 < held.sum() < len(held) / 2
    assert (steps[~held] == steps[~held][:, :1]).all()
    spaced = 0.1 * steps[~held][:, 0]
    assert torch.allclose(batch.targets.interval_s[~held], spaced, atol=1e-3)
    assert torch.allclose(batch.targets.interval_s[held], torch.tensor(0.05), atol=1e-3)
    assert set(spaced.mul(10).round().int().tolist()) == {1, 2, 3, 4}     # up to 0.5 s
    numbers = batch_of(danger=1.0, hole=15).frames[:, :, 0, 0, 0]
    assert ((numbers < 15).all(1) | (numbers >= 15).all(1)).all()     # none spans a hole


def test_censored_labels_are_known_as_far_as_they_reach():
    targets = batch_of(contact=math.inf, certain=1.6).targets
    assert targets.hazard.sum() == 0
    assert targets.hazard_known[0].tolist() == [True, True, True, False, False]
    assert not targets.contact_known.any() and not targets.danger_known.any()


def test_opinions_of_a_table_are_learned_beside_the_world(tmp_path, tiny_training):
    path = folder(tmp_path / 'walk', lambda n: f'{int(n >= 12)},', frames=24)
    assert tool.main([
        '--out', str(tmp_path / 'out'), '--recording', path, '--clips', '80', '--set',
        'model_size=test', 'batch=8', 'num_frames=4', 'image_size=32', 'precision=fp32',
        'validations=0', 'calibration_clips=0', 'held_out_clips=8', 'progress_s=0',
        'recording_share=0.55', 'lr=3e-3']) == 0
    first, *_, last = read_state(tmp_path / 'out').history
    assert last['losses']['danger'] < 0.9 * first['losses']['danger']
    assert last['losses']['expansion'] != 0

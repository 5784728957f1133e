# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames and looming on a device give what they give on the host, through the whole pipeline."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scenes import synthetic, texture

from vjepa_ros.clip.resize import View
from vjepa_ros.looming.gpu.structure import DeviceStructure
from vjepa_ros.looming.structure import Shown, Structure, coarse
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.gpu_frames import DeviceFrames
from vjepa_ros.perception.pipeline import Perception, on_device
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Quality
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.runtime.model import Model, ModelConfig

pytestmark = pytest.mark.usefixtures('one_thread')
NS = 1_000_000_000
DEVICE = 'cuda:0' if torch.cuda.is_available() else 'cpu'
SHAPE = {'num_frames': 4, 'image_size': 64, 'clip_fps': 10.0}


@pytest.fixture(scope='module')
def engine():
    made = Model.load(ModelConfig(weights='random', allow_random_weights=True, num_frames=4,
                                    image_size=64, device=DEVICE))
    yield made
    made.close()


@pytest.fixture(scope='module')
def drive():
    """Pictures of a drive at an obstacle, 320x240, ten a second."""
    return [frame.rgb for frame in synthetic(start_s=4.5, count=14)]


def show(one, frames, first=0, start=NS):
    """Push frames at 10 Hz, numbered from `first`."""
    for number, frame in enumerate(frames, first):
        one.push(frame, start + number * NS // 10)


def textures(*seeds, size=(160, 120)):
    return [texture(size, seed) for seed in seeds]


def results(engine, frames, geometry, cameras=('cam',)):
    """The last results of the cameras, and the perception."""
    perception = Perception(engine, TrackConfig(geometry=geometry, **SHAPE), cameras)
    for track in perception.tracks.values():
        show(track, frames)
    samples = perception.pending()
    return samples and perception.run(samples, Settings(), dict.fromkeys(samples, Wants()),
                                      lambda stamp: 0.0), perception


def test_a_result_is_that_of_the_host(engine, drive):
    (host,), _ = results(engine, drive, 'host')
    (ours,), perception = results(engine, drive, 'device')
    assert perception.tracks['cam'].geometry.startswith(DEVICE)
    np.testing.assert_allclose(ours.features, host.features, atol=2e-2)
    np.testing.assert_allclose(ours.motion_map, host.motion_map, atol=5e-3)
    known = np.isfinite(host.looming_map) & np.isfinite(ours.looming_map)
    assert known.sum() >= 0.8 * np.isfinite(host.looming_map).sum() > 0
    assert np.median(np.abs(ours.looming_map - host.looming_map)[known]) < 0.02
    a, b = ours.assessment, host.assessment
    assert b.time_to_contact < 10
    assert a.time_to_contact == pytest.approx(b.time_to_contact, rel=0.1)
    assert (a.level, a.flags, a.stamp_ns) == (b.level, b.flags, b.stamp_ns)
    assert set(a.timings) >= {'gather', 'encode', 'motion', 'looming', 'assess'}


def test_the_device_is_the_default_with_cuda_alone(engine, drive, caplog):
    assert TrackConfig().geometry == 'auto'
    with caplog.at_level('INFO', 'vjepa_ros'):
        _, perception = results(engine, drive[:1], 'auto')
    said, = (text for text in caplog.messages if 'frames are resized' in text)
    assert ('on the host' in said) == (DEVICE == 'cpu')
    assert perception.tracks['cam'].geometry.startswith('cuda' if DEVICE != 'cpu' else 'host')
    for name, expected in (('cuda:1', True), ('cpu', False), ('mps', False)):
        assert on_device('auto', torch.device(name)) == expected
        assert not on_device('host', torch.device(name))
    assert on_device('device', torch.device('cpu'))
    with pytest.raises(ValueError, match="geometry is 'device', but mps can not"):
        on_device('device', torch.device('mps'))
    with pytest.raises(ValueError, match="geometry is 'gpu'"):
        TrackConfig(geometry='gpu')


def track(host=False, **more):
    return CameraState('cam', TrackConfig(**{**SHAPE, **more}),
                 stream=None if host else DeviceStream(torch.device(DEVICE)))


def clip_of(one):
    clip = one.place.clip(one.sample().frames)
    torch.cuda.synchronize() if DEVICE != 'cpu' else None
    return torch.stack(clip.frames).cpu().numpy().astype(int)


def test_clips_are_those_of_the_host_while_frames_come_go_and_change_order():
    frames = textures(*range(34))
    ours, host = track(max_frame_gap=0.5), track(host=True, max_frame_gap=0.5)
    order = [*range(12), 13, 12, 13, 14, 15, *range(22, 34)]      # late, repeated, after a gap
    for number in order:
        pushed = {one.push(frames[number], NS + number * NS // 10) for one in (ours, host)}
        assert len(pushed) == 1
        assert (ours.sample() is None) == (host.sample() is None)
        if host.sample() is not None:
            expected = np.stack(host.place.pixels(host.sample().frames))
            assert np.abs(clip_of(ours) - expected).max() <= 1
    assert ours.ring.resets == host.ring.resets


def test_another_size_starts_anew_and_small_images_are_left_to_the_host(caplog):
    one = track()
    show(one, textures(*range(5)))
    assert one.looming() is not None
    show(one, textures(*range(5), size=(200, 160)), start=2 * NS)
    assert clip_of(one).shape == (4, 64, 64, 3)
    assert one.looming().gray_size == (200, 160)
    one.push(texture((60, 200), 0), 3 * NS)
    assert one.geometry == 'host'
    assert one.ring.capacity > 20       # of whole frames now
    assert 'images of 60x200 grow to 64x64' in caplog.text
    assert one.looming() is None


def full(*args, **more):
    raise torch.OutOfMemoryError('CUDA out of memory')


def test_without_memory_for_the_frames_the_host_takes_over(monkeypatch, caplog):
    monkeypatch.setattr('vjepa_ros.perception.gpu_frames.DeviceFrames', full)
    one = track()
    show(one, textures(*range(6)))
    assert one.geometry == 'host'
    assert 'has no memory for' in caplog.text
    assert one.place.clip(one.sample().frames)[0].shape == (64, 64, 3)
    assert one.looming() is not None


@pytest.mark.parametrize('step', ['begin', 'proceed', 'finish'])
def test_an_error_of_looming_costs_no_other_camera_its_own(engine, drive, monkeypatch, step):
    def fail(*args):
        raise ArithmeticError('no flow')

    _, perception = results(engine, drive[:6], 'device', ('bad', 'good'))
    wants, told = dict.fromkeys(perception.tracks, Wants()), []

    def assess(number):
        for track in perception.tracks.values():
            show(track, [drive[number]], number)
        samples = perception.pending()
        seen = perception.observe(samples, wants, Settings(),
                                  lambda name, error: told.append((name, str(error))))
        return [perception.tracks[name].assess(seen[name]) for name in samples]

    with monkeypatch.context() as patch:
        patch.setattr(perception.tracks['bad']._geometry._estimator, step, fail)
        one, other = assess(6)
    assert told == [('bad', 'no flow')]
    assert Quality.GEOMETRY_FAILED in one.assessment.flags and one.looming is None
    assert Quality.GEOMETRY_FAILED not in other.assessment.flags and other.looming is not None
    one, other = assess(7)
    assert len(told) == 1
    np.testing.assert_array_equal(one.looming_map, other.looming_map)


def test_frames_are_uploaded_ahead_by_another_thread(drive):
    ours, host = track(), track(host=True)
    assert ours.prepare(drive[0]) is None           # there is no place for it yet
    for number, frame in enumerate(drive[:6]):
        with ThreadPoolExecutor(1) as other:
            prepared = other.submit(ours.prepare, frame).result()
        # What was uploaded counts, whatever has become of the memory since.
        ours.push(frame if number == 0 else np.zeros_like(frame), NS + number * NS // 10,
                  frame=prepared)
        host.push(frame, NS + number * NS // 10, frame=host.prepare(frame))
    assert np.abs(clip_of(ours) - np.stack(host.place.pixels(host.sample().frames))).max() <= 1


def test_a_frame_that_did_not_arrive_shows_no_other_picture(drive, monkeypatch):
    one = track()
    show(one, drive[:4])
    with monkeypatch.context() as patch:
        patch.setattr(DeviceFrames, 'put', full)
        with pytest.raises(RuntimeError, match='out of memory'):
            show(one, drive[4:5], 4)
    assert one.sample() is None
    show(one, drive[5:6], 5)
    assert one.ring.fill == 1


@pytest.mark.parametrize('size', [(256, 256), (1280, 720), (1000, 30)])
def test_a_device_finds_the_structure_of_pictures_that_the_host_finds(size):
    # The narrowest has too few whole patches for a slope.
    valid = View('letterbox', size, 256).patch_valid
    device = torch.device(DEVICE)
    measure, random = DeviceStructure(256, valid, device), np.random.default_rng(0)
    ramp = np.linspace(0, 200, 256)[None, :, None] * np.ones((256, 1, 3))
    for rgb in (ramp, ramp + random.normal(0, 12, ramp.shape), np.full(ramp.shape, 7.0),
                texture((256, 256), 3)):
        rgb = rgb.clip(0, 255).astype(np.uint8)
        expected = Structure.of(coarse(rgb), valid)
        found = Structure(*measure(torch.from_numpy(rgb).to(device)).cpu().numpy())
        np.testing.assert_allclose(found, expected, atol=0.01, rtol=1e-4)
        ours, theirs = Shown.by(valid, [found]), Shown.by(valid, [expected])
        assert all(map(np.array_equal, vars(ours).values(), vars(theirs).values()))

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Cameras and the model they share, frames on host and device, and motion."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from scenes import synthetic, texture

from vjepa_ros.clip.device_resize import KernelMeans, means_of
from vjepa_ros.clip.resize import MODES, View
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.gpu_frames import DeviceFrames
from vjepa_ros.perception.gpu_structure import DeviceStructure
from vjepa_ros.perception.patch_maps import motion_map, motion_score
from vjepa_ros.perception.pipeline import Perception, on_device
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.structure import Shown, Structure, coarse
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.noise_floor import still_clip

pytestmark = pytest.mark.usefixtures('one_thread')
NS = 1_000_000_000
DEVICE = 'cuda:0' if torch.cuda.is_available() else 'cpu'
on_cuda = pytest.mark.skipif(DEVICE == 'cpu', reason='no CUDA device here')
CONFIG = TrackConfig(num_frames=4, image_size=64, clip_fps=10.0)


@pytest.fixture(scope='module')
def model():
    made = Model.load(ModelConfig(weights='random', allow_random_weights=True, num_frames=4,
                                  image_size=64, device=DEVICE, precision='fp32'))
    yield made
    made.close()


@pytest.fixture(scope='module')
def drive():
    """Pictures of a drive at an obstacle, 320x240, ten a second."""
    return [frame.rgb for frame in synthetic(start_s=4.5, count=14)]


def fill(track: CameraState, frames, rate: float = 10.0, start: float = 10.0, **more) -> None:
    for i, rgb in enumerate(frames):
        track.push(rgb, round((start + i / rate) * NS), **more)


def run(perception: Perception):
    samples = perception.pending()
    results = perception.run(samples, Settings(smoothing=0.0), dict.fromkeys(samples, Wants()),
                             lambda _: 0.01)
    return {r.assessment.camera: r for r in results}


def one(model, frames, rate: float = 10.0, **config):
    """The result of one camera after a few frames."""
    perception = Perception(model, replace(CONFIG, **config), ['cam'])
    fill(perception.tracks['cam'], frames, rate)
    return run(perception)['cam']


def test_a_model_of_another_shape_is_refused(model):
    with pytest.raises(ValueError, match=r'4 frames at 64 px.*6 frames at 64 px'):
        Perception(model, replace(CONFIG, num_frames=6), ['cam'])


def test_cameras_in_one_batch_keep_their_own_results(model):
    still = [texture((96, 96), 1)] * 4
    perception = Perception(model, CONFIG, ['still', 'moving'])
    fill(perception.tracks['still'], still, frame_id='s')
    fill(perception.tracks['moving'], [texture((200, 100), s) for s in range(4)], start=50.0,
         frame_id='m')
    results = run(perception)
    for name, frame_id, stamp in (('still', 's', 10.3), ('moving', 'm', 50.3)):
        a = results[name].assessment
        assert (a.camera, a.frame_id, a.stamp_ns) == (name, frame_id, round(stamp * NS))
        assert (a.clip_span_s, a.clip_rate_hz) == pytest.approx((0.3, 10.0))
    np.testing.assert_allclose(results['still'].features, one(model, still).features, atol=2e-2)
    assert results['moving'].assessment.motion_score > results['still'].assessment.motion_score


def test_bars_of_the_letterbox_are_unknown_and_not_still(model):
    result = one(model, [texture((160, 60))] * 4, resize_mode='letterbox')
    valid = result.view.patch_valid
    assert (valid == 0).any()
    for shown in (result.motion_map, result.looming_map):
        assert np.isnan(shown[valid == 0]).all()
    assert np.isfinite(result.motion_map[valid > 0.5]).all()


@pytest.mark.parametrize('size', [(1, 1), (4000, 2)])
def test_an_image_of_any_size_is_assessed(model, size):
    result = one(model, [texture(size, seed) for seed in range(4)])
    assert result.view.source_size == size
    assert 0 <= result.assessment.motion_score <= 1


def test_without_heads_contact_is_unknown_and_the_reason_is_told(model, drive, caplog):
    result = one(model, drive)
    a = result.assessment
    assert a.level is Level.UNKNOWN and Quality.HEADS_OUT_OF_RANGE in a.flags
    assert Quality.LOW_TEXTURE not in a.flags       # that has another remedy
    assert np.isnan([a.time_to_contact, a.collision_probability, a.looming_rate]).all()
    assert np.isnan(result.looming_map).all() and 0 <= a.motion_score <= 1
    assert 'set `weights` to a file with heads' in result.heads_problem
    assert result.heads_problem in caplog.text


# -- a device gives what the host gives -----------------------------------------------------------

def camera(host: bool = False, **more) -> CameraState:
    return CameraState('cam', replace(CONFIG, **more),
                       stream=None if host else DeviceStream(torch.device(DEVICE)))


def clip_of(track: CameraState) -> np.ndarray:
    """The clip of a camera, (4, 64, 64, 3)."""
    if not track.on_device:
        return np.stack(track.store.pixels(track.sample().frames)).astype(int)
    clip = track.store.clip(track.sample().frames)
    torch.cuda.synchronize() if DEVICE != 'cpu' else None
    return torch.stack(clip.frames).cpu().numpy().astype(int)


def test_a_result_is_that_of_the_host(model, drive):
    ours, host = (one(model, drive, frames_on=place) for place in ('device', 'host'))
    np.testing.assert_allclose(ours.features, host.features, atol=2e-2)
    np.testing.assert_allclose(ours.motion_map, host.motion_map, atol=5e-3)
    a, b = ours.assessment, host.assessment
    assert (a.level, a.flags, a.stamp_ns) == (b.level, b.flags, b.stamp_ns)
    assert set(a.timings) >= {'gather', 'encode', 'motion', 'assess'}


def test_the_device_is_the_default_with_cuda_alone():
    for name, expected in (('cuda:1', True), ('cpu', False), ('mps', False)):
        assert on_device('auto', torch.device(name)) == expected
        assert not on_device('host', torch.device(name))
    with pytest.raises(ValueError, match="frames_on is 'device', but mps can not"):
        on_device('device', torch.device('mps'))
    with pytest.raises(ValueError, match="frames_on is 'gpu'"):
        TrackConfig(frames_on='gpu')


def test_clips_are_those_of_the_host_while_frames_come_go_and_change_order():
    frames = [texture((160, 120), seed) for seed in range(34)]
    ours, host = camera(max_frame_gap=0.5), camera(host=True, max_frame_gap=0.5)
    order = [*range(12), 13, 12, 13, 14, 15, *range(22, 34)]      # late, repeated, after a gap
    for number in order:
        pushed = {track.push(frames[number], NS + number * NS // 10) for track in (ours, host)}
        assert len(pushed) == 1
        assert (ours.sample() is None) == (host.sample() is None)
        if host.sample() is not None:
            assert np.abs(clip_of(ours) - clip_of(host)).max() <= 1
    assert ours.ring.resets == host.ring.resets


def test_another_size_starts_anew_and_small_images_are_left_to_the_host(caplog):
    track = camera()
    for start, size in ((1, (160, 120)), (2, (200, 160))):
        fill(track, [texture(size, seed) for seed in range(5)], start=start)
        assert clip_of(track).shape == (4, 64, 64, 3)
    fill(track, [texture((60, 200))], start=3)
    assert track.where == 'host'
    assert track.ring.capacity > 20       # of whole frames now
    assert 'images of 60x200 grow to 64x64' in caplog.text


def full(*args, **more):
    raise torch.OutOfMemoryError('CUDA out of memory')


def test_without_memory_for_the_frames_the_host_takes_over(monkeypatch, caplog, drive):
    monkeypatch.setattr('vjepa_ros.perception.gpu_frames.DeviceFrames', full)
    track = camera()
    fill(track, drive[:6])
    assert track.where == 'host'
    assert 'has no memory for' in caplog.text


def test_a_frame_that_did_not_arrive_shows_no_other_picture(drive, monkeypatch):
    track = camera()
    fill(track, drive[:4])
    with monkeypatch.context() as patch:
        patch.setattr(DeviceFrames, 'store', full)
        with pytest.raises(RuntimeError, match='out of memory'):
            fill(track, drive[4:5], start=10.4)
    assert track.sample() is None
    fill(track, drive[5:6], start=10.5)
    assert track.ring.fill == 1


@pytest.mark.parametrize('size', [(1280, 720), (1000, 30)])
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


@on_cuda
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('size', [(1280, 720), (1226, 370)])
def test_images_are_resized_to_the_bytes_of_the_host_and_uploads_stay_until_then(mode, size):
    by_kernels = isinstance(means_of(torch.device(DEVICE)), KernelMeans)
    assert by_kernels or not hasattr(torch.cuda, '_compile_kernel')
    view = View(mode, size, 256)
    store = DeviceFrames(view, DeviceStream(torch.device(DEVICE)), 40)
    assert 'graph' in store.where
    rng = np.random.default_rng(0)
    images, held = [rng.integers(0, 256, (*size[::-1], 3), dtype=np.uint8) for _ in range(40)], []
    for image in images:
        frame = store.prepare(image)
        store.place(frame, held)
        store.store(frame, image)       # its upload is let go at once: the memory is wanted
        held.append(frame)
    for pixels, found, image in zip(store.pixels(held), store.structure(held), images,
                                    strict=True):
        difference = np.abs(pixels.astype(int) - view.apply(image))
        assert difference.max() <= (0 if mode in ('hf', 'meta') else 1)
        assert (difference > 0).mean() <= 2e-4
        expected = Structure.of(coarse(pixels), view.patch_valid)
        np.testing.assert_allclose(found, expected, atol=0.01)


# -- motion follows change, and neither texture nor noise -----------------------------------------

FRAMES, SIZE = NUM_FRAMES, IMAGE_SIZE

@pytest.fixture(scope='module')
def two_models():
    """An untrained model and a trained one."""
    made = (Model.load(ModelConfig(device='cpu', weights='random', allow_random_weights=True)),
            Model.load(ModelConfig(device='cpu')))
    yield made
    for model in made:
        model.close()


def motion(model, clip):
    return motion_map(model.encode([clip])[0], model.noise_floor(), clip)


def pattern(cell, low=0, high=255, seed=1):
    """Random texture with details of `cell` pixels."""
    knots = np.random.default_rng(seed).uniform(low, high, (SIZE // cell, SIZE // cell, 3))
    return np.clip(cv2.resize(knots, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC), 0, 255)


def noisy(frames):
    noise = np.random.default_rng(2).normal(0, 2.0, np.shape(frames))
    return np.clip(np.rint(frames + noise), 0, 255).astype(np.uint8)


STILL = {
    'fine': pattern(2), 'faint': pattern(8, 100, 140), 'dark': np.full((SIZE, SIZE, 3), 8.0)}


@pytest.mark.parametrize('name', STILL)
def test_a_still_scene_shows_no_motion_whatever_its_texture_and_noise(two_models, name):
    untrained, trained = two_models
    for sigma in (1.0, 4.0):
        clip = still_clip(STILL[name], FRAMES, np.random.default_rng(5), sigma)
        assert motion_score(motion(untrained, clip)) < 0.01
    # Where there is nothing but noise trained features take it for more than it is.
    assert motion_score(motion(trained, clip)) < (0.8 if name == 'dark' else 0.05)


@pytest.mark.parametrize(('name', 'least', 'least_trained'), [
    ('fine', 0.9, 0.7), ('faint', 0.2, 0.5)])
def test_a_sliding_scene_shows_motion(two_models, name, least, least_trained):
    clip = noisy([np.roll(STILL[name], 4 * k, axis=1) for k in range(FRAMES)])
    found = [motion_score(motion(model, clip)) for model in two_models]
    assert found[0] > least and found[1] > least_trained


def test_the_map_shows_where_a_small_object_moves(two_models):
    frames = np.repeat(pattern(12)[None], FRAMES, axis=0)
    for k in range(FRAMES):
        at = 48 + 28 * k // (FRAMES - 1)
        frames[k, 64:96, at:at + 32] = pattern(4, seed=9)[:32, :32]
    found = motion(two_models[0], noisy(frames))
    crossed = np.zeros((SIZE // PATCH, SIZE // PATCH), dtype=bool)
    crossed[4:6, 3:7] = True
    assert found[crossed].min() > 0.8 and found[~crossed].max() < 0.05

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test tracks and the shared model behind them, with a real (small, untrained) encoder."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scenes import Approach, synthetic, texture

from vjepa_ros.clip.ring import Push
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.pipeline import Perception, known_age
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.prediction import Pass

NS = 1_000_000_000
CONFIG = TrackConfig(num_frames=4, image_size=64, clip_fps=10.0)
SETTINGS = Settings(smoothing=0.0)
EVERYTHING = Wants()


@pytest.fixture(scope='module')
def engine():
    made = Model.load(ModelConfig(weights='random', allow_random_weights=True, num_frames=4,
                                    image_size=64, device='cpu', precision='fp32'))
    yield made
    made.close()


@pytest.fixture(scope='module')
def picture():
    return texture((160, 120))


def fill(track: CameraState, frames, rate: float = 10.0, start: float = 10.0, **more) -> None:
    for i, rgb in enumerate(frames):
        track.push(rgb, round((start + i / rate) * NS), **more)


def run(perception: Perception, wants: Wants = EVERYTHING, settings: Settings = SETTINGS):
    samples = perception.pending()
    results = perception.run(samples, settings, dict.fromkeys(samples, wants), lambda _: 0.01)
    return {r.assessment.camera: r for r in results}


def one(engine, frames, config: TrackConfig = CONFIG, *, wants=EVERYTHING, settings=SETTINGS,
        rate=10.0, **more):
    """The result of one camera after a few frames."""
    perception = Perception(engine, config, ['cam'])
    fill(perception.tracks['cam'], frames, rate, **more)
    return run(perception, wants, settings)['cam']


def test_late_frames_and_engines_of_another_shape_make_no_result(engine, picture):
    perception = Perception(engine, CONFIG, ['cam'])
    track = perception.tracks['cam']
    fill(track, [picture] * 6)
    run(perception)
    assert track.push(picture, round(10.45 * NS)) is Push.REORDERED
    assert perception.pending() == {}
    with pytest.raises(ValueError, match=r'4 frames at 64 px.*6 frames at 64 px'):
        Perception(engine, replace(CONFIG, num_frames=6), ['cam'])


def test_cameras_in_one_batch_keep_their_own_results(engine):
    still = texture((96, 96), 1)
    perception = Perception(engine, CONFIG, ['still', 'moving'])
    fill(perception.tracks['still'], [still] * 4, frame_id='s')
    fill(perception.tracks['moving'], [texture((200, 100), s) for s in range(4)], start=50.0,
         frame_id='m')
    results = run(perception)
    alone = one(engine, [still] * 4)
    for (name, frame_id), stamp in zip({'still': 's', 'moving': 'm'}.items(), (10.3, 50.3),
                                       strict=True):
        a = results[name].assessment
        assert (a.camera, a.frame_id, a.stamp_ns) == (name, frame_id, round(stamp * NS))
        assert (a.clip_span_s, a.clip_rate_hz) == pytest.approx((0.3, 10.0))
    np.testing.assert_allclose(results['still'].features, alone.features, atol=1e-4)
    assert results['moving'].assessment.motion_score > results['still'].assessment.motion_score


def test_all_clips_that_need_features_share_one_forward_pass(engine, picture, monkeypatch):
    passes = []
    run_model = engine.submit
    monkeypatch.setattr(engine, 'submit', lambda clips, **more: passes.append(len(clips))
                        or run_model(clips, **more))
    perception = Perception(engine, CONFIG, ['a', 'b', 'geometric'])
    for track in perception.tracks.values():
        fill(track, [picture] * 4)
    samples = perception.pending()
    wants = {'a': EVERYTHING, 'b': EVERYTHING, 'geometric': Wants(features=False)}
    seen = perception.observe(samples, wants)
    assert passes == [2]
    assert [name for name, one in seen.items() if one.prediction] == ['a', 'b']
    assert 'encode' in seen['a'].times
    assert perception.pending() == {}
    nothing = one(engine, [picture] * 4, wants=Wants(features=False, looming=False, image=False))
    assert passes == [2]
    assert all(getattr(nothing, name) is None for name in (
        'features', 'motion_map', 'looming', 'looming_map', 'image'))
    assert math.isnan(nothing.assessment.motion_score)
    assert nothing.assessment.level is Level.UNKNOWN


@pytest.mark.parametrize('ttc', [1.0, 2.0, 4.0])
def test_an_approach_is_measured_through_the_whole_pipeline(engine, ttc):
    scene = Approach((320, 240), contact_s=ttc + 1.0)
    perception = Perception(engine, CONFIG, ['cam'])
    track = perception.tracks['cam']
    track.intrinsics = (300.0, 300.0, 159.5, 119.5)
    for i in range(31):
        track.push(scene.frame(i / 30), round((100 + i / 30) * NS))
    a = run(perception)['cam'].assessment
    assert a.time_to_contact == pytest.approx(scene.truth(1.0), rel=0.15)
    assert a.looming_rate == pytest.approx(1 / a.time_to_contact)
    assert a.level is (Level.DANGER if ttc == 1.0 else
                       Level.WARNING if ttc == 2.0 else Level.CAUTION)
    assert a.regions[0].on_course


def test_a_textureless_view_is_unknown_and_never_clear(engine):
    a = one(engine, [np.full((120, 160, 3), 127, np.uint8)] * 6).assessment
    assert math.isnan(a.time_to_contact)
    assert a.level is Level.UNKNOWN
    assert Quality.LOW_TEXTURE in a.flags
    assert Quality.LOOMING_UNKNOWN in a.flags


def test_bars_of_the_letterbox_are_unknown_and_not_still(engine, picture):
    result = one(engine, [picture[:60]] * 4, replace(CONFIG, resize_mode='letterbox'))
    outside = result.view.patch_valid == 0
    assert outside.any()
    assert np.isnan(result.motion_map[outside]).all()
    assert np.isnan(result.looming_map[outside]).all()
    assert np.isfinite(result.motion_map[result.view.patch_valid > 0.5]).all()
    assert Quality.PARTIAL_VIEW not in result.assessment.flags


def test_a_clip_of_one_repeated_frame_knows_nothing_of_motion(engine):
    frames = [texture((160, 120), seed) for seed in range(4)]
    result = one(engine, frames, replace(CONFIG, max_frame_gap=5.0), rate=1.0)
    assert Quality.SLOW_CAMERA in result.assessment.flags
    assert math.isnan(result.assessment.motion_score)
    assert np.isnan(result.motion_map).all()


def settled(engine, picture):
    perception = Perception(engine, CONFIG, ['cam'])
    for i in range(10):
        perception.tracks['cam'].push(picture, round((10 + i / 10) * NS))
        results = run(perception)
    assert Quality.WARMING_UP not in results['cam'].assessment.flags
    return perception, perception.tracks['cam']


def test_a_size_change_makes_a_new_view_and_starts_anew(engine, picture):
    perception, track = settled(engine, picture)
    small = texture((96, 72))
    assert track.push(small, round(11 * NS)) is Push.RESET
    assert perception.pending() == {}
    fill(track, [small] * 3, start=11.1)
    result = run(perception)['cam']
    assert result.view.source_size == (96, 72)
    assert result.image.shape == (72, 96, 3)
    assert Quality.WARMING_UP in result.assessment.flags


def test_the_looming_estimate_never_reaches_across_a_break(engine):
    scene = Approach((320, 240), contact_s=4.0)
    perception = Perception(engine, CONFIG, ['cam'])
    track = perception.tracks['cam']
    fill(track, [scene.frame(i / 10) for i in range(10)])
    fill(track, [scene.frame(2.0)], start=0.5)
    assert track.looming() is None


@pytest.mark.parametrize('size', [(1, 1), (2, 3), (8, 8), (15, 400), (400, 15), (4000, 2)])
def test_an_image_of_any_size_is_assessed(engine, size):
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8) for _ in range(4)]
    result = one(engine, frames)
    assert result.view.source_size == size
    assert 0 <= result.assessment.motion_score <= 1


def test_the_age_is_unknown_before_simulated_time_starts():
    assert math.isnan(known_age(0, 5 * NS))
    assert known_age(6 * NS, 5 * NS) == pytest.approx(1.0)


def test_whether_pass_or_looming_is_there_first_changes_no_result(monkeypatch):
    """As on a device; two cameras of one pass."""
    found = {}
    for first in ('pass', 'looming'):
        monkeypatch.setattr(Pass, 'arrived', lambda self, first=first: first == 'pass')
        engine = Model.load(ModelConfig(device='cpu', cpu_threads=1))
        perception = Perception(engine, TrackConfig(geometry='device'), ['left', 'right'])
        results = found[first] = []
        for frame in synthetic(size=(320, 256), start_s=4.2, count=24):
            for track in perception.tracks.values():
                track.push(frame.rgb, frame.stamp_ns)
            samples = perception.pending()
            results += perception.run(samples, Settings(), dict.fromkeys(samples, Wants()),
                                      lambda stamp_ns: 0.0) if samples else []
        assert all(track.on_device for track in perception.tracks.values())
        perception.close()
    assert len(found['pass']) == len(found['looming']) > 6
    for one, other in zip(*found.values(), strict=True):
        told, same = one.assessment, other.assessment
        assert (told.camera, told.stamp_ns, told.level, told.flags) == (
            same.camera, same.stamp_ns, same.level, same.flags)
        assert len(told.regions) == len(same.regions)
        for name in ('time_to_contact', 'collision_probability', 'collision_if_ahead',
                     'looming_rate', 'obstacle_score', 'motion_score', 'clearance'):
            # Sums round by where arrays lie in memory.
            assert getattr(told, name) == pytest.approx(getattr(same, name), rel=1e-4, abs=1e-5,
                                                        nan_ok=True), name
        for name in ('looming_map', 'motion_map'):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-3, abs=1e-4,
                                                       nan_ok=True)

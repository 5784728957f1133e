# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Motion follows change and nothing else: not texture, sensor noise or light."""


import cv2
import numpy as np
import pytest

from vjepa_ros.clip.resize import View
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH
from vjepa_ros.perception.patch_maps import motion_map, motion_of, motion_score
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.noise_floor import (
    Change,
    MIN_STRENGTH,
    NoiseFloor,
    patch_strength,
    random_scene,
    still_clip,
    tubelet_change,
)
from vjepa_ros.sources import open_source

pytestmark = pytest.mark.usefixtures('one_thread')
FRAMES, SIZE = NUM_FRAMES, IMAGE_SIZE
# Recordings in which something moves, from when to when, and which of their frames are held still.
MOVING = {
    'cup.mp4': {'hold': 80}, 'box.mp4': {'begin_s': 1.6, 'end_s': 13.2, 'hold': 160},
    'motorway.mp4': {'hold': 80}, 'donkey_tub_bag': {'hold': 400}, 'himax_2': {'hold': 12},
    'himax_10': {'hold': 12}, 'kitti_street': {'hold': 20}}
FLOOR = NoiseFloor(np.full(3, 0.01, np.float32), np.full(3, 0.05, np.float32), 0.1)


def loaded(**options):
    engine = Engine.load(EngineConfig(device='cpu', **options))
    yield engine
    engine.close()


@pytest.fixture(scope='module')
def engine():
    yield from loaded(weights='random', allow_random_weights=True)


@pytest.fixture(scope='module')
def trained():
    yield from loaded()


def score(engine, clip, valid=None):
    return motion_score(motion_map(engine.encode([clip])[0], engine.noise_floor(), clip, valid))


def texture(cell, low=0, high=255, seed=1, grey=False):
    """Random texture with details of `cell` pixels."""
    rng = np.random.default_rng(seed)
    knots = rng.uniform(low, high, (SIZE // cell, SIZE // cell, 1 if grey else 3))
    knots = np.broadcast_to(knots, (*knots.shape[:2], 3)).astype(np.float32)
    return np.clip(cv2.resize(np.ascontiguousarray(knots), (SIZE, SIZE),
                              interpolation=cv2.INTER_CUBIC), 0, 255)


def noisy(frames, sigma=2.0, seed=2):
    rng = np.random.default_rng(seed)
    frames = np.asarray(frames)
    return np.clip(np.rint(frames + rng.normal(0, sigma, frames.shape)), 0, 255).astype(np.uint8)


def sliding(picture, pixels_per_frame):
    return noisy([np.roll(picture, round(pixels_per_frame * k), axis=1) for k in range(FRAMES)])


STILL = {
    'fine texture': texture(2), 'texture': texture(8), 'grey texture': texture(16, grey=True),
    'faint texture': texture(8, 100, 140), 'dark': np.full((SIZE, SIZE, 3), 8.0),
    'mean grey': np.full((SIZE, SIZE, 3), 118.0),
    'mixed': random_scene(np.random.default_rng(77), SIZE)}


@pytest.mark.parametrize('name', STILL)
def test_a_still_scene_shows_no_motion_whatever_its_texture_and_noise(engine, trained, name):
    for sigma in (1.0, 4.0):
        clip = still_clip(STILL[name], FRAMES, np.random.default_rng(5), sigma)
        assert score(engine, clip) < 0.01
    # Where there is nothing but noise trained features take it for more than it is.
    assert score(trained, clip) < {'dark': 0.8, 'mean grey': 0.8}.get(name, 0.05)


@pytest.mark.parametrize(('name', 'least', 'least_trained'), [
    ('fine texture', 0.9, 0.7), ('grey texture', 0.5, 0.6), ('faint texture', 0.2, 0.5)])
def test_a_sliding_scene_shows_motion(engine, trained, name, least, least_trained):
    assert score(engine, sliding(STILL[name], 4)) > least
    assert score(trained, sliding(STILL[name], 4)) > least_trained


@pytest.mark.parametrize(('name', 'gain'), [('texture', 0.9), ('mixed', 1.2)])
def test_light_that_changes_over_the_whole_view_is_not_motion(engine, name, gain):
    picture = STILL[name] / 1.2
    clip = noisy([picture * (1 + (gain - 1) * k / (FRAMES - 1)) for k in range(FRAMES)])
    assert score(engine, clip) < 0.05


def test_the_map_shows_where_a_small_object_moves(engine):
    frames = np.repeat(texture(12)[None], FRAMES, axis=0)
    for k in range(FRAMES):
        frames[k, 64:96, 48 + 4 * k:80 + 4 * k] = texture(4, seed=9)[:32, :32]
    clip = noisy(frames)
    motion = motion_map(engine.encode([clip])[0], engine.noise_floor(), clip)
    crossed = np.zeros((SIZE // PATCH, SIZE // PATCH), dtype=bool)
    crossed[4:6, 3:7] = True
    assert motion[crossed].min() > 0.8 and motion[~crossed].max() < 0.05


def features(seed=0, tubelets=4, rows=5, cols=6, dim=32):
    return np.random.default_rng(seed).normal(size=(tubelets, rows, cols, dim)).astype(np.float32)


def test_the_map_follows_its_formula():
    f, clip = features(), noisy([texture(8)[:80, :96]] * FRAMES)
    expected = np.zeros((5, 6))
    for row in range(5):
        for col in range(6):
            strength = max(patch_strength(clip)[row, col], MIN_STRENGTH)
            ratios = [np.linalg.norm(f[t + 1, row, col] - f[t, row, col]
                                     - (f[t + 1] - f[t]).mean(axis=(0, 1))) / np.sqrt(32)
                      / (0.01 + 0.05 / strength) for t in range(3)]
            excess = max(0.0, np.sqrt(np.mean(np.square(ratios))) - 2.0)
            expected[row, col] = 1 - np.exp(-excess / 3.0)
    np.testing.assert_allclose(motion_map(f, FLOOR, clip), expected, rtol=1e-4)


def test_patches_that_show_no_image_are_unknown_and_do_not_disturb_the_others():
    f, valid = features(), np.ones((5, 6), bool)
    valid[0] = False
    disturbed = f.copy()
    disturbed[1, 0] += 1e3
    motion = motion_map(disturbed, FLOOR, valid=valid)
    assert np.isnan(motion[0]).all()
    np.testing.assert_array_equal(motion[1:], motion_map(f, FLOOR, valid=valid)[1:])
    assert np.isnan(motion_map(f, FLOOR, valid=np.zeros((5, 6), bool))).all()


def test_the_measured_floor_predicts_the_noise_of_scenes_it_has_not_seen(engine):
    rng = np.random.default_rng(1234)
    for picture in (random_scene(rng, SIZE), texture(8), texture(4, 90, 150)):
        clip = still_clip(picture, FRAMES, rng)
        ratio = (tubelet_change(engine.encode([clip])[0])
                 / engine.noise_floor().expected(patch_strength(clip)))
        assert 0.6 < np.median(ratio) < 1.4
        assert np.percentile(ratio, 99) < 2.0


def real_clips(path, mode, clip_fps, begin_s=0.0, end_s=np.inf, hold=np.inf):
    """Three clips of a recording and clips of single frames held still, with what they show."""
    view, stamps, small, held = None, [], [], []
    rng = np.random.default_rng(0)
    with open_source(str(path)) as source:
        for number, frame in enumerate(source):
            rgb = frame.rgb
            view = view or View(mode, (rgb.shape[1], rgb.shape[0]), SIZE)
            stamps.append(frame.stamp_ns * 1e-9)
            small.append(view.apply(rgb))
            if number % hold == 0:
                grey = (rgb == rgb[..., :1]).all()     # a grey camera has grey noise
                still = still_clip(rgb[..., :1] if grey else rgb, FRAMES, rng, 2.0)
                held.append(np.stack([view.apply(np.broadcast_to(f, rgb.shape)) for f in still]))
    seconds = np.array(stamps) - stamps[0]
    # Frames of a camera slower than that follow each other, none is repeated.
    steps = np.arange(FRAMES) * max(1 / clip_fps, np.median(np.diff(seconds)))
    starts = np.linspace(begin_s, min(end_s, seconds[-1]) - steps[-1], 3)
    picks = np.abs(seconds - (starts[:, None] + steps)[..., None]).argmin(axis=-1)
    clips = [np.stack([small[k] for k in pick]) for pick in np.unique(picks, axis=0)]
    return clips, held, view.patch_valid() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(('mode', 'clip_fps'), [('crop', 4.0), ('letterbox', 8.0)])
def test_on_real_recordings_the_score_tells_moving_from_still(shared_data, engine, mode, clip_fps):
    def scores(clips, valid):
        return [score(engine, clip, valid) for clip in clips]

    moving, still = [], []
    for name, where in MOVING.items():
        clips, held, valid = real_clips(shared_data / name, mode, clip_fps, **where)
        moving += scores(clips, valid)
        still += scores(held, valid)
    clips, _, valid = real_clips(shared_data / 'euroc_still', mode, clip_fps)
    still += scores(clips, valid)
    assert len(moving) >= 20 and len(still) >= 20
    assert max(still) < 0.05 < 0.08 < min(moving)


def test_change_that_is_known_already_gives_the_same_map():
    f, valid, clip = features(), np.ones((5, 6), bool), noisy([texture(8)[:80, :96]] * FRAMES)
    valid[2] = False
    change = Change(tubelet_change(f, valid), patch_strength(clip))
    np.testing.assert_array_equal(motion_of(change, FLOOR, valid),
                                  motion_map(f, FLOOR, clip, valid))
    assert np.isnan(motion_of(change, FLOOR, np.zeros((5, 6), bool))).all()
    with pytest.raises(ValueError, match=r'3 tubelets.*3 transitions'):
        motion_of(Change(change.steps[1:], change.strength), FLOOR)
    with pytest.raises(ValueError, match=r'6 tubelets.*3 transitions'):
        motion_map(features(tubelets=6), FLOOR)

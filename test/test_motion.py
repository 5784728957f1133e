# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Motion follows change and nothing else: not texture, sensor noise or light."""


import cv2
import numpy as np
import pytest

from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH
from vjepa_ros.perception.patch_maps import motion_map, motion_of, motion_score
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.noise_floor import (
    Change,
    MIN_STRENGTH,
    NoiseFloor,
    patch_strength,
    random_scene,
    still_clip,
    tubelet_change,
)

pytestmark = pytest.mark.usefixtures('one_thread')
FRAMES, SIZE = NUM_FRAMES, IMAGE_SIZE
FLOOR = NoiseFloor(np.full(3, 0.01, np.float32), np.full(3, 0.05, np.float32), 0.1)


def loaded(**options):
    engine = Model.load(ModelConfig(device='cpu', **options))
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

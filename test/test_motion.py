# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Motion follows change and nothing else: not texture, sensor noise or light."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES, PATCH
from vjepa_ros.perception.patch_maps import motion_map, motion_score
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.noise_floor import random_scene, still_clip

pytestmark = pytest.mark.usefixtures('one_thread')
FRAMES, SIZE = NUM_FRAMES, IMAGE_SIZE


@pytest.fixture(scope='module')
def models():
    """An untrained model and a trained one."""
    made = (Model.load(ModelConfig(device='cpu', weights='random', allow_random_weights=True)),
            Model.load(ModelConfig(device='cpu')))
    yield made
    for model in made:
        model.close()


def motion(model, clip):
    return motion_map(model.encode([clip])[0], model.noise_floor(), clip)


def texture(cell, low=0, high=255, seed=1, grey=False):
    """Random texture with details of `cell` pixels."""
    rng = np.random.default_rng(seed)
    knots = rng.uniform(low, high, (SIZE // cell, SIZE // cell, 1 if grey else 3))
    knots = np.ascontiguousarray(np.broadcast_to(knots, (*knots.shape[:2], 3)), np.float32)
    return np.clip(cv2.resize(knots, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC), 0, 255)


def noisy(frames):
    noise = np.random.default_rng(2).normal(0, 2.0, np.shape(frames))
    return np.clip(np.rint(frames + noise), 0, 255).astype(np.uint8)


STILL = {
    'fine texture': texture(2), 'texture': texture(8), 'grey texture': texture(16, grey=True),
    'faint texture': texture(8, 100, 140), 'dark': np.full((SIZE, SIZE, 3), 8.0),
    'mixed': random_scene(np.random.default_rng(77), SIZE)}


@pytest.mark.parametrize('name', STILL)
def test_a_still_scene_shows_no_motion_whatever_its_texture_and_noise(models, name):
    untrained, trained = models
    for sigma in (1.0, 4.0):
        clip = still_clip(STILL[name], FRAMES, np.random.default_rng(5), sigma)
        assert motion_score(motion(untrained, clip)) < 0.01
    # Where there is nothing but noise trained features take it for more than it is.
    assert motion_score(motion(trained, clip)) < (0.8 if name == 'dark' else 0.05)


@pytest.mark.parametrize(('name', 'least', 'least_trained'), [
    ('fine texture', 0.9, 0.7), ('grey texture', 0.5, 0.6), ('faint texture', 0.2, 0.5)])
def test_a_sliding_scene_shows_motion(models, name, least, least_trained):
    clip = noisy([np.roll(STILL[name], 4 * k, axis=1) for k in range(FRAMES)])
    found = [motion_score(motion(model, clip)) for model in models]
    assert found[0] > least and found[1] > least_trained


def test_the_map_shows_where_a_small_object_moves(models):
    frames = np.repeat(texture(12)[None], FRAMES, axis=0)
    for k in range(FRAMES):
        frames[k, 64:96, 48 + 4 * k:80 + 4 * k] = texture(4, seed=9)[:32, :32]
    found = motion(models[0], noisy(frames))
    crossed = np.zeros((SIZE // PATCH, SIZE // PATCH), dtype=bool)
    crossed[4:6, 3:7] = True
    assert found[crossed].min() > 0.8 and found[~crossed].max() < 0.05

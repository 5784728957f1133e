# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Every network computes what the reference implementation computes.

The values in test/golden were computed with facebookresearch/vjepa2 by make_golden.py; errors
are relative to the mean size of the numbers of an output.
"""

import numpy as np
import pytest
import torch
from golden import cases
from golden.cases import ACTIONS, ENCODERS, PREDICTORS, error, fill, noise, some_tokens

from vjepa_ros.model.ac_predictor import ActionPredictor, encode_frames
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import Variant, find_variant

pytestmark = pytest.mark.usefixtures('one_thread')

TOLERANCE = 1e-5
FILES = {name: dict(np.load(cases.FOLDER / f'{name}.npz'))
         for name in ('encoders', 'others', 'names')}


def encoded(case):
    encoder = fill(Encoder(Variant('test', *case.size), case.version))
    clip = cases.clip_of(case)
    keep = None
    if case.kept:
        keep = some_tokens(len(clip), np.prod(encoder.grid(clip.shape)), case.kept)
    if case.layers:
        return torch.stack(encoder.layers(clip, case.layers, keep))
    return encoder.dense(clip, keep=keep) if case.dense else encoder(clip, keep)


def predicted(case):
    total = np.prod(case.grid)
    context = 4.0 * noise(2, 20, 48 * max(case.levels, 1), seed=1001)
    given = (context, some_tokens(2, total, 20), some_tokens(2, total, 13, start=20),
             case.seen_as, case.mask)
    if not case.levels:
        return fill(Predictor(48, 64, case.depth, 2, masks=3))(*given)
    model = DensePredictor(48, 64, case.depth, 2, masks=3, levels=case.levels,
                           out=case.out or None)
    return torch.cat(fill(model)(*given, image=case.image), dim=1)


def acted(case):
    steps, rows, cols = case.grid
    features = 4.0 * noise(2, steps * rows * cols, 48, seed=1002).unflatten(1, case.grid)
    told = [noise(2, steps, 7, seed=1003), noise(2, steps, 7, seed=1004)]
    if case.extrinsics:
        told.append(noise(2, steps, 6, seed=1005))
    return fill(ActionPredictor(48, 128, 3, 2))(features, *told)


@pytest.mark.parametrize('name', ENCODERS)
@torch.inference_mode()
def test_features_equal_those_of_the_reference(name):
    assert error(encoded(ENCODERS[name]), FILES['encoders'][name]) < TOLERANCE


@pytest.mark.parametrize('name', PREDICTORS)
@torch.inference_mode()
def test_predictions_equal_those_of_the_reference(name):
    expected = FILES['others'][f'predictor_{name}']
    assert error(predicted(PREDICTORS[name]), expected) < TOLERANCE


@pytest.mark.parametrize('name', ACTIONS)
@torch.inference_mode()
def test_effects_of_actions_equal_those_of_the_reference(name):
    assert error(acted(ACTIONS[name]), FILES['others'][f'actions_{name}']) < TOLERANCE


@torch.inference_mode()
def test_single_frames_are_encoded_as_by_the_published_world_model():
    encoder = fill(Encoder(Variant('test', 128, 2, 2, 512)))
    batch, count, height, width = cases.FRAMES
    frames = 4.0 * noise(batch, count, 3, height, width, seed=1006)
    features = encode_frames(encoder, frames)
    assert features.shape == (batch, count, height // 16, width // 16, 128)
    assert error(features, FILES['others']['frames']) < TOLERANCE


def published(name):
    """Our network for one of the published ones, without memory for its parameters."""
    version, size, part = name.split('_')
    variant = find_variant(size)
    if part == 'encoder':
        return Encoder(variant, '2.1' if version == '21' else '2.0')
    if version == 'ac':
        return ActionPredictor(variant.dim)
    if version == '21':
        return DensePredictor.for_variant(variant)
    return Predictor(variant.dim, masks=10)


@pytest.mark.parametrize('name', sorted(name for name in FILES['names']
                                        if name.endswith(('encoder', 'predictor'))))
def test_parameters_have_the_names_and_shapes_of_the_published_networks(name):
    with torch.device('meta'):
        ours = published(name)
    assert cases.names_and_shapes(ours.state_dict()) == FILES['names'][name].item()

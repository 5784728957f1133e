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
from golden.cases import ENCODERS, PREDICTORS, error, fill, noise, some_tokens

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')

TOLERANCE = 1e-5
FILES = {name: dict(np.load(cases.FOLDER / f'{name}.npz'))
         for name in ('encoders', 'others')}


def encoded(case):
    encoder = fill(Encoder(Variant('test', *case.size), case.version))
    clip = cases.clip_of(case)
    if case.layers:
        return torch.stack(encoder.layers(clip, case.layers))
    return encoder.dense(clip) if case.dense else encoder(clip)


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


@pytest.mark.parametrize('name', ENCODERS)
@torch.inference_mode()
def test_features_equal_those_of_the_reference(name):
    assert error(encoded(ENCODERS[name]), FILES['encoders'][name]) < TOLERANCE


@pytest.mark.parametrize('name', PREDICTORS)
@torch.inference_mode()
def test_predictions_equal_those_of_the_reference(name):
    expected = FILES['others'][f'predictor_{name}']
    assert error(predicted(PREDICTORS[name]), expected) < TOLERANCE

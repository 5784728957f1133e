# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Every encoder computes what the reference implementation computes.

The values in test/golden were computed with facebookresearch/vjepa2 by make_golden.py; errors
are relative to the mean size of the numbers of an output.
"""

import numpy as np
import pytest
import torch
from golden import cases
from golden.cases import ENCODERS, error, fill

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')

TOLERANCE = 1e-5
EXPECTED = dict(np.load(cases.FOLDER / 'encoders.npz'))


def encoded(case):
    encoder = fill(Encoder(Variant('test', *case.size), case.version))
    clip = cases.clip_of(case)
    if case.layers:
        return torch.stack(encoder.layers(clip, case.layers))
    return encoder.dense(clip) if case.dense else encoder(clip)


@pytest.mark.parametrize('name', ENCODERS)
@torch.inference_mode()
def test_features_equal_those_of_the_reference(name):
    assert error(encoded(ENCODERS[name]), EXPECTED[name]) < TOLERANCE

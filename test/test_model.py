# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Networks in use, in training and in low precision; test_golden.py has values."""

import pytest
import torch
from golden.cases import fill, noise

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')
SMALL = Variant('test', 128, 2, 2, 512)
CLIP = 4.0 * noise(2, 3, 4, 48, 32)     # 2 x 3 x 2 tokens


@pytest.mark.parametrize('shape', [(1, 3, 3, 32, 32), (1, 3, 4, 40, 32), (1, 3, 4, 32, 8),
                                   (1, 4, 4, 32, 32), (3, 4, 32, 32), (1, 3, 0, 32, 32)])
def test_a_clip_that_cannot_be_cut_into_tubelets_is_refused(shape):
    with pytest.raises(ValueError, match='clip'):
        Encoder(SMALL).grid(shape)


def test_half_precision_training_keeps_the_residual_stream_exact():
    encoder = fill(Encoder(SMALL))
    with torch.inference_mode():
        exact = encoder(CLIP)
    encoder.requires_grad_(True)
    with torch.autocast('cpu', torch.bfloat16):
        features = encoder(CLIP)
        features.square().mean().backward()
    assert features.dtype == torch.float32
    assert 0 < (features - exact).norm() / exact.norm() < 0.02
    for name, parameter in encoder.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


# Largest rms error relative to float32; docs/notebook/numerics.md has those of full size.
LIMITS = {torch.bfloat16: 0.03, torch.float16: 0.004}


@pytest.mark.parametrize('dtype', LIMITS)
@pytest.mark.parametrize('version', ['2.0', '2.1'])
@torch.inference_mode()
def test_low_branches_cost_little_and_the_rest_stays_float32(version, dtype):
    low = fill(Encoder(Variant('test', 96, 12, 2, 384), version))
    exact = low(CLIP)
    low.set_branch_precision(dtype)
    got = low(CLIP)
    assert got.dtype == torch.float32
    assert 0.01 * LIMITS[dtype] < (got - exact).norm() / exact.norm() < LIMITS[dtype]
    changed = {'.'.join(key.split('.')[-3:-1]) for key, value in low.state_dict().items()
               if value.dtype == dtype}
    assert changed == {'attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2'}
    # Neither tables nor layers of the other type are left when the type changes again.
    low.set_branch_precision(torch.float32)
    assert not torch.equal(low(CLIP), got)
    low.set_branch_precision(dtype)
    assert torch.equal(low(CLIP), got)

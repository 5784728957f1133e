# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Networks in use, in training and in low precision; test_golden.py has values."""

import copy

import pytest
import torch
from golden.cases import fill, noise

from vjepa_ros.model.encoder import Encoder, token_grid
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')
SMALL = Variant('test', 128, 2, 2, 512)
CLIP = 4.0 * noise(2, 3, 4, 48, 32)     # 2 x 3 x 2 tokens


@pytest.mark.parametrize('shape', [(1, 3, 3, 32, 32), (1, 3, 4, 40, 32), (1, 3, 4, 32, 8),
                                   (1, 4, 4, 32, 32), (3, 4, 32, 32), (1, 3, 0, 32, 32)])
def test_a_clip_that_cannot_be_cut_into_tubelets_is_refused(shape):
    with pytest.raises(ValueError, match='clip'):
        token_grid(shape)


def test_an_encoder_used_for_inference_can_still_be_trained():
    encoder = fill(Encoder(SMALL)).requires_grad_(True)
    with torch.inference_mode():
        encoder(CLIP)
    encoder(CLIP).square().mean().backward()
    assert encoder.patch_embed.proj.weight.grad.abs().sum() > 0


@torch.inference_mode()
def test_dense_features_are_the_taps_side_by_side_and_the_last_is_the_output():
    encoder = fill(Encoder(Variant('test', 64, 12, 1, 128), '2.1'))
    dense, taps = encoder.dense(CLIP), encoder.layers(CLIP, (2, 5, 8, 11))
    assert torch.equal(dense, torch.cat(taps, dim=-1))
    assert torch.equal(taps[-1], encoder(CLIP))
    assert torch.equal(encoder.dense(CLIP, levels=1), encoder(CLIP))
    assert dense.shape == (2, 2, 3, 2, 256)
    assert not torch.equal(taps[0], taps[1])


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


DEEP = Variant('test', 96, 12, 2, 384)
WHOLE = 4.0 * noise(1, 3, 4, 64, 64)
NETWORKS = {
    'encoder 2.0': (lambda: Encoder(DEEP), lambda net: net(WHOLE)),
    'encoder 2.1': (lambda: Encoder(DEEP, '2.1'), lambda net: net.dense(WHOLE)),
}
# Largest rms error relative to float32; docs/notebook/numerics.md has those of the encoders in
# full size.
LIMITS = {torch.bfloat16: 0.03, torch.float16: 0.004}


@pytest.mark.parametrize('dtype', LIMITS)
@pytest.mark.parametrize('name', NETWORKS)
@torch.inference_mode()
def test_low_branches_cost_little_and_the_rest_stays_float32(name, dtype):
    make, run = NETWORKS[name]
    network = fill(make())
    exact = run(network)
    low = copy.deepcopy(network)
    low.set_branch_precision(dtype)
    got = run(low)
    assert got.dtype == torch.float32
    assert 0.01 * LIMITS[dtype] < (got - exact).norm() / exact.norm() < LIMITS[dtype]
    changed = {'.'.join(key.split('.')[-3:-1]) for key, value in low.state_dict().items()
               if value.dtype == dtype}
    assert changed == {'attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2'}
    # Neither tables nor layers of the other type are left when the type changes again.
    low.set_branch_precision(torch.float32)
    assert not torch.equal(run(low), got)
    low.set_branch_precision(dtype)
    assert torch.equal(run(low), got)

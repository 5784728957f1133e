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
from golden.cases import ENCODERS, error, fill, noise

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')

TOLERANCE = 1e-5
CLIP = 4.0 * noise(2, 3, 4, 48, 32)     # 2 x 3 x 2 tokens
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


@pytest.mark.parametrize('shape', [(1, 3, 3, 32, 32), (1, 3, 4, 40, 32), (1, 3, 0, 32, 32)])
def test_a_clip_that_cannot_be_cut_into_tubelets_is_refused(shape):
    with pytest.raises(ValueError, match='clip'):
        Encoder(Variant('test', 48, 1, 1, 96)).grid(shape)


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


@torch.inference_mode()
def test_the_transformers_library_computes_the_same(tmp_path):
    vjepa2 = pytest.importorskip('transformers.models.vjepa2')
    variant, frames, pixels = Variant('huge', 1280, 1, 16, 5120), 16, 64
    config = vjepa2.VJEPA2Config(
        crop_size=pixels, frames_per_clip=frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim, pred_hidden_size=96,
        pred_num_attention_heads=3, pred_num_hidden_layers=2, pred_num_mask_tokens=3)
    with torch.device('meta'):      # without the time that start values take
        theirs = vjepa2.VJEPA2Model(config)
    fill(theirs.to_empty(device='cpu')).save_pretrained(tmp_path)
    encoder, _ = load_encoder(variant, weights=tmp_path)
    clip = 4.0 * noise(1, 3, frames, pixels, pixels)
    expected = theirs.encoder(clip.transpose(1, 2)).last_hidden_state
    error = (encoder(clip).flatten(1, 3) - expected).abs().max()
    assert error / expected.square().mean().sqrt() < 1e-5

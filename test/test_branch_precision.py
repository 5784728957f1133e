# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Every large network runs its branches in low precision and keeps everything else in float32."""

import copy

import pytest
import torch
from golden.cases import fill, noise, some_tokens

from vjepa_ros.model.ac_predictor import ActionPredictor
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.usefixtures('one_thread')

SIZE = Variant('test', 96, 12, 2, 384)
GRID = (2, 4, 4)
CLIP = 4.0 * noise(1, 3, 4, 64, 64)
CONTEXT, SEEN, WANTED = noise(2, 20, 96), some_tokens(2, 32, 20), some_tokens(2, 32, 9, start=20)
STEPS = noise(2, 2, 4, 4, 96), noise(2, 2, 7, seed=1), noise(2, 2, 7, seed=2)
NETWORKS = {
    'encoder 2.0': (lambda: Encoder(SIZE), lambda net: net(CLIP)),
    'encoder 2.1': (lambda: Encoder(SIZE, '2.1'), lambda net: net.dense(CLIP)),
    'predictor': (lambda: Predictor(96, 64, 4, 2), lambda net: net(CONTEXT, SEEN, WANTED, GRID)),
    'dense predictor': (lambda: DensePredictor(96, 64, 4, 2),
                        lambda net: net(CONTEXT, SEEN, WANTED, GRID)[0]),
    'action predictor': (lambda: ActionPredictor(96, 64, 4, 2), lambda net: net(*STEPS)),
}
# Largest rms error relative to float32; docs/notebook/numerics.md has those of the encoders in
# full size.
LIMITS = {torch.bfloat16: 0.03, torch.float16: 0.004}


def rms(values):
    return values.double().square().mean().sqrt().item()


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
    assert 0.01 * LIMITS[dtype] < rms(got - exact) / rms(exact) < LIMITS[dtype]
    changed = {'.'.join(key.split('.')[-3:-1]) for key, value in low.state_dict().items()
               if value.dtype == dtype}
    assert changed == {'attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2'}
    # Neither tables nor layers of the other type are left when the type changes again.
    low.set_branch_precision(torch.float32)
    assert not torch.equal(run(low), got)
    low.set_branch_precision(dtype)
    assert torch.equal(run(low), got)

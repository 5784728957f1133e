# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""fp8: its arithmetic by PyTorch on the CPU; the kernels are tested for CUDA in test_cuda.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, Variant
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import PRECISIONS, DeviceChoice
from vjepa_ros.runtime.forward import float8
from vjepa_ros.runtime.forward.base import Normalise, PlainForward
from vjepa_ros.runtime.forward.float8 import (
    MLP,
    QKV,
    Float8Encoder,
    narrow_mlp,
    norm_gain,
    plain_steps,
)
from vjepa_ros.runtime.forward.narrow_formats import MOST, choose, max_error, trials
from vjepa_ros.runtime.forward.reference_ops import FLOAT8, LARGEST, PlainSteps
from vjepa_ros.runtime.noise_floor import random_scene
from vjepa_ros.runtime.session import EncoderSession, SessionError

pytestmark = pytest.mark.usefixtures('one_thread')

CPU = torch.device('cpu')
CHOICE = DeviceChoice(CPU, PRECISIONS['fp8'], 'test')
SIZE = Variant('test', 64, 3, 2, 256)
SHAPE = (4, 48, 48, 3)      # 18 tokens, no multiple of 16
BOUND = 0.03                # of features, relative to float32


def lively(size=SIZE, seed=0):
    """An encoder whose branches are as large as its residual stream, with large norm weights."""
    encoder = Encoder(size).requires_grad_(False).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, values in encoder.named_parameters():
        if values.dim() > 1:
            values.normal_(0, values[0].numel() ** -0.5, generator=generator)
        else:
            values.normal_(0.3 * ('weight' in name), 0.5, generator=generator)
    return encoder


def exact_features(encoder, clips):
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    with torch.inference_mode():
        return encoder(((clips.float() / 255 - mean) / std).permute(0, 4, 1, 2, 3))


def pictures(shape, seed=5):
    """Clips of another kind than those of the trials: a still picture, and stripes that jump."""
    rng = np.random.default_rng(seed)
    still = np.broadcast_to(random_scene(rng, shape[1]).round(), shape).astype(np.uint8)
    stripes = np.zeros(shape, np.uint8)
    for n, frame in enumerate(stripes):
        frame[:, n * 4 % 16::16] = rng.integers(0, 256, 3)
    return torch.from_numpy(np.stack([still, stripes]))


@pytest.fixture(scope='module')
def halved():
    """An encoder in bf16 and a `Float8Encoder` of it."""
    encoder = lively()
    encoder.set_branch_precision(torch.bfloat16)
    made = Float8Encoder(encoder, SHAPE, plain_steps(encoder))
    with torch.no_grad():
        made.calibrate(trials(SHAPE))
    return encoder, made


@pytest.mark.parametrize('dim', [192, 1024, 1664])
def test_no_norm_can_overflow(dim):
    worst = torch.zeros(1, dim)
    worst[0, 0] = 1e4       # all in one channel: its norm is as large as one can be
    out = torch.empty(1, dim, dtype=FLOAT8)
    shift = torch.full((dim,), -norm_gain(dim) * math.sqrt(dim))
    for sign in (1, -1):
        PlainSteps(64, 1e-6, norm_gain(dim)).norm8(sign * worst, None, sign * shift,
                                                              out)
        assert out.float().abs().max() <= LARGEST
        unlimited = norm_gain(dim) * torch.nn.functional.layer_norm(worst, (dim,)) + shift
        assert unlimited.abs().max() <= LARGEST


@torch.no_grad()
def test_nothing_in_float8_is_the_network_in_bf16(halved):
    encoder, made = halved
    clips = pictures(SHAPE)
    made.chosen = frozenset()
    assert max_error(made(clips), PlainForward(encoder, Normalise(CPU))(clips)) < 0.02


@torch.no_grad()
@pytest.mark.parametrize('part', [QKV, MLP])
def test_one_part_in_float8_is_off_by_what_four_bits_explain(halved, part):
    _, made = halved
    clips = pictures(SHAPE)
    made.chosen = frozenset()
    exact = made(clips)
    made.chosen = frozenset([(2, part)])
    assert 1e-4 < max_error(made(clips), exact) < 0.06


@torch.no_grad()
def test_hidden_values_keep_their_sizes_whatever_the_weights():
    """Rows of very different size, and inputs that are as large as the bound allows."""
    encoder = lively()
    encoder.blocks[0].mlp.fc1.weight *= torch.exp2(torch.linspace(-6, 6, SIZE.mlp))[:, None]
    encoder.set_branch_precision(torch.bfloat16)
    layer = Float8Encoder(encoder, SHAPE, plain_steps(encoder))._layers[0]
    zero = torch.zeros(SIZE.dim)
    made = narrow_mlp(layer, norm_gain(SIZE.dim), zero, torch.zeros(SIZE.mlp))
    fc1 = made.fc1.values.float() * made.fc1.scale
    largest = math.sqrt(SIZE.dim) * fc1 / fc1.norm(dim=0)        # the inputs that meet the bound
    hidden = (largest.T @ fc1 + made.fc1.bias.float()).clamp_min(0)
    assert (hidden * made.gains).max() <= 1.1 * LARGEST          # the weights were rounded, too
    typical = fc1.norm(dim=0)[fc1.norm(dim=0) > fc1.norm(dim=0).max() / 512] * made.gains[
        fc1.norm(dim=0) > fc1.norm(dim=0).max() / 512]
    assert typical.min() > 2.0 ** -6                             # else float8 loses digits


@pytest.mark.parametrize('weights', ['random', 'lively', 'trained'])
def test_features_stay_within_the_bound_of_float32(weights):
    shape = (4, 64, 64, 3) if weights == 'trained' else SHAPE
    if weights == 'lively':
        encoder = lively()
    else:
        encoder, _ = load_encoder('tiny' if weights == 'trained' else SIZE,
                                  allow_random_weights=True)
    clips = torch.cat([trials(shape), pictures(shape)])
    exact = exact_features(encoder, clips)
    session = EncoderSession(encoder, CHOICE, shape[0], shape[1])
    got = torch.from_numpy(np.stack(session.encode(list(clips.numpy()))))
    error = max_error(got, exact)
    assert 1e-4 < error < BOUND, session.execution_reason
    assert session.choice.precision == 'fp8'
    assert session.execution == 'steps'
    assert 'float8: qkv of' in session.execution_reason
    encoder_bytes = sum(p.numel() * p.element_size() for p in encoder.parameters())
    assert session.memory_bytes() > encoder_bytes
    session.close()
    assert session.memory_bytes() == 0


# -- what is chosen -------------------------------------------------------------------------------

def fake_look(errors):
    """Features whose error is that of the parts together."""
    def look(chosen):
        return torch.tensor([[1.0, math.sqrt(sum(errors[part] ** 2 for part in chosen))]])
    return look


def test_parts_are_chosen_by_error_for_what_they_are_worth():
    worth = {'a': 1, 'b': 1, 'c': 8, 'd': 8}
    errors = {'a': 0.001, 'b': 0.02, 'c': 0.01, 'd': 0.3}
    assert choose(worth, fake_look(errors), 0.015)[0] == {'a', 'c'}
    chosen, error = choose(worth, fake_look(errors), 0.03)
    assert chosen == {'a', 'b', 'c'} and error == pytest.approx(math.hypot(0.001, 0.02, 0.01))
    assert choose(worth, fake_look(errors), 1.0)[0] == set(worth)
    assert choose(worth, fake_look(errors), 1e-5) == (frozenset(), 0.0)


def test_a_part_that_gives_no_number_is_never_chosen():
    chosen, error = choose({'a': 1, 'b': 1}, fake_look({'a': float('nan'), 'b': 0.01}))
    assert chosen == {'b'} and error <= MOST


# -- what goes wrong ------------------------------------------------------------------------------

@pytest.mark.parametrize('spoilt', ['norm8', 'gelu8'])
def test_a_wrong_kernel_is_found(spoilt):
    class Wrong(PlainSteps):
        def norm8(self, x, branch, shift, out):
            super().norm8(x, branch, -shift if spoilt == 'norm8' else shift, out)

        def gelu8(self, values, gains, shifts, out):
            super().gelu8(values, gains.flip(0) if spoilt == 'gelu8' else gains, shifts, out)

    right = PlainSteps(32, 1e-6, 4.0)
    float8.check(right, right, 64, CPU)
    with pytest.raises(KernelsMissing, match=spoilt):
        float8.check(Wrong(32, 1e-6, 4.0), right, 64, CPU)


def refused(**more):
    with pytest.raises(SessionError, match=r"'fp8'.*set `(precision|compile)`") as error:
        EncoderSession(lively(), CHOICE, *SHAPE[:2], **more)
    return str(error.value)


def test_what_does_not_run_is_said_with_the_remedy(monkeypatch):
    assert 'torch.compile' in refused(compile='on')
    monkeypatch.setattr(float8, 'choose', lambda parts, look: (frozenset(), 0.0))
    assert 'no matrix' in refused()

    def broken(*args, **more):
        raise RuntimeError('cublas says no')
    monkeypatch.undo()
    monkeypatch.setattr(torch, '_scaled_mm', broken)
    assert 'cublas says no' in refused()


def test_wrong_numbers_are_not_served(monkeypatch):
    monkeypatch.setattr(PlainSteps, 'rotate', lambda *args: None)
    assert 'wrong features' in refused()

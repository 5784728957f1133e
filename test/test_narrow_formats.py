# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""fp8 (by operations of PyTorch) and int8 on the CPU, and which matrices are chosen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sessions import CPU, choice_of, serve
from torch import nn

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, Variant
from vjepa_ros.runtime import torch_private
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.forward import float8, int8
from vjepa_ros.runtime.forward.float8 import norm_gain
from vjepa_ros.runtime.forward.int8 import Int8Linear, LEVELS, check_products
from vjepa_ros.runtime.forward.kernels import FLOAT8, LARGEST, PlainSteps
from vjepa_ros.runtime.forward.narrow_formats import choose, max_error, trials
from vjepa_ros.runtime.noise_floor import random_scene

pytestmark = pytest.mark.usefixtures('one_thread')
# Without VNNI the products overflow, which is why int8 is refused there.
needs_int8 = pytest.mark.skipif(bool(check_products()), reason=f'no int8: {check_products()}')

SIZE = Variant('test', 64, 3, 2, 256)
SHAPE = (4, 48, 48, 3)      # 18 tokens, no multiple of 16
BOUND = 0.03                # of features, relative to float32
FORMATS = ['fp8', pytest.param('int8', marks=needs_int8)]


def lively():
    """An encoder whose branches are as large as its residual stream, with large norm weights."""
    encoder = Encoder(SIZE).requires_grad_(False).eval()
    generator = torch.Generator().manual_seed(0)
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


def pictures(shape):
    """Clips of another kind than those of the trials: a still picture, and stripes that jump."""
    rng = np.random.default_rng(5)
    still = np.broadcast_to(random_scene(rng, shape[1]).round(), shape).astype(np.uint8)
    stripes = np.zeros(shape, np.uint8)
    for n, frame in enumerate(stripes):
        frame[:, n * 4 % 16::16] = rng.integers(0, 256, 3)
    return torch.from_numpy(np.stack([still, stripes]))


@pytest.mark.parametrize(('precision', 'weights'), [
    ('fp8', 'lively'), pytest.param('int8', 'lively', marks=needs_int8),
    pytest.param('int8', 'trained', marks=needs_int8)])
def test_features_stay_within_the_bound_of_float32(precision, weights):
    encoder = lively() if weights == 'lively' else load_encoder('tiny')[0]
    clips = torch.cat([trials(SHAPE), pictures(SHAPE)])
    exact = exact_features(encoder, clips)
    session = serve(encoder, choice_of(precision), SHAPE, compile='off')
    got = torch.from_numpy(np.stack(session.encode(list(clips.numpy()))))
    assert 1e-4 < max_error(got, exact) < BOUND, session.execution_reason
    assert session.choice.precision == precision
    assert session.execution == {'fp8': 'steps', 'int8': 'fused'}[precision]
    assert 'trial clips' in session.execution_reason
    held = sum(p.nbytes for p in encoder.parameters())
    assert held < session.memory_bytes() < 1.6 * held + 1e6
    session.close()
    assert session.memory_bytes() == 0


def test_fp8_refuses_block_causal_weights():
    with pytest.raises(SessionError, match=r"'fp8' does not run block-causal.*bf16"):
        serve(load_encoder('tiny')[0], choice_of('fp8'), SHAPE)


@pytest.mark.parametrize('dim', [192, 1664])
def test_no_norm_can_overflow(dim):
    worst = torch.zeros(1, dim)
    worst[0, 0] = 1e4       # all in one channel: its norm is as large as one can be
    out = torch.empty(1, dim, dtype=FLOAT8)
    shift = torch.full((dim,), -norm_gain(dim) * math.sqrt(dim))
    for sign in (1, -1):
        PlainSteps(64, 1e-6, norm_gain(dim)).norm8(sign * worst, None, sign * shift, out)
        assert out.float().abs().max() <= LARGEST
        unlimited = norm_gain(dim) * F.layer_norm(worst, (dim,)) + shift
        assert unlimited.abs().max() <= LARGEST


@pytest.mark.parametrize('spoilt', ['norm8', 'gelu8'])
def test_a_wrong_kernel_is_found(spoilt, monkeypatch):
    class Wrong(PlainSteps):
        def norm8(self, x, branch, shift, out):
            super().norm8(x, branch, -shift if spoilt == 'norm8' else shift, out)

        def gelu8(self, values, gains, shifts, out):
            super().gelu8(values, gains.flip(0) if spoilt == 'gelu8' else gains, shifts, out)

    right = PlainSteps(32, 1e-6, 4.0)
    float8.check(right, right, 64, CPU)
    with pytest.raises(KernelsMissing, match=spoilt):
        float8.check(Wrong(32, 1e-6, 4.0), right, 64, CPU)
    monkeypatch.setattr(PlainSteps, 'rotate', lambda *args: None)
    assert 'wrong features' in refused('fp8')


@pytest.mark.parametrize(('name', 'run'), [
    ('_scaled_mm', lambda x: torch_private.scaled_mm(
        x.to(FLOAT8), torch.tensor(0.5), x.to(FLOAT8).T, torch.tensor(2.0),
        torch.arange(16.0).bfloat16())),
    ('_addmm_activation', lambda x: torch_private.addmm_gelu(x[0], x, x.T.contiguous()))])
def test_pytorch_without_a_private_function_computes_the_same(name, run, monkeypatch):
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    expected = run(x)
    monkeypatch.delattr(torch, name, raising=False)
    torch.testing.assert_close(run(x), expected, rtol=2e-2, atol=2e-2)


def by_integers(linear, x):
    """What the product is by definition, without any function for int8."""
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / LEVELS
    zero = round(-low / scale)
    values = torch.floor(x.double() / scale + zero + 0.5) - zero
    each = linear.weight.double().abs().amax(1) / 127
    weight = torch.round(linear.weight.double() / each[:, None])
    return values @ weight.T * scale * each + linear.bias.double()


@needs_int8
@pytest.mark.parametrize('shift', [0.0, -9.0, 9.0])
@pytest.mark.parametrize('shape', [(2, 18, 64), (1, 5, 40)])
def test_a_product_is_that_of_the_rounded_numbers(shape, shift):
    linear = nn.Linear(shape[-1], 72).requires_grad_(False)
    linear.weight.normal_(generator=torch.Generator().manual_seed(0))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) + shift
    wanted, made = by_integers(linear, x), Int8Linear(linear)
    got = made(x)
    # A value at the border of two bytes may fall to either side.
    assert max_error(got.double(), wanted) < 3e-3
    torch.testing.assert_close(made(x, gelu=True), F.gelu(got), rtol=1e-4, atol=1e-4)
    assert made(torch.full(shape, math.nan)).isnan().all()


@needs_int8
def test_the_ends_of_the_range_stay_in_it_wherever_the_zero_falls():
    """A byte too far would turn the largest value into the smallest."""
    eye = nn.Linear(2, 2).requires_grad_(False)
    eye.weight.copy_(torch.eye(2))
    eye.bias.zero_()
    made = Int8Linear(eye)
    for low in np.linspace(0, 2, 401, dtype=np.float32):
        x = torch.tensor([[-float(low), 1.0]])
        assert (made(x) - x).abs().max() <= 1.001 * (1 + float(low)) / LEVELS


@needs_int8
def test_a_matrix_that_costs_too_much_stays_in_float32():
    """One hidden value that dwarfs the others leaves them no digits in int8."""
    encoder = lively()
    mlp = encoder.blocks[1].mlp
    mlp.fc1.weight[0] *= 1000
    mlp.fc1.bias[0] *= 1000
    mlp.fc2.weight[:, 0] /= 1000
    made = int8.prepare_int8(encoder, choice_of('int8'), SHAPE)
    assert (1, int8.MLP) not in made.chosen
    assert {(0, int8.QKV), (0, int8.MLP), (2, int8.PROJ)} <= made.chosen
    assert isinstance(mlp.fc1, nn.Linear) and isinstance(encoder.blocks[0].mlp.fc1, Int8Linear)


@pytest.fixture
def checked_anew():
    """The check without its cache, before and after."""
    check_products.cache_clear()
    yield check_products
    check_products.cache_clear()


@needs_int8
def test_products_that_overflow_are_found(checked_anew, monkeypatch):
    """What a CPU without VNNI does: sums of two products end at 16 bits."""
    right = Int8Linear.forward

    def narrow(self, x, gelu=False):
        out = right(self, x, gelu)
        out[0, 0] *= 32767 / (2 * 255 * 127)
        return out

    monkeypatch.setattr(Int8Linear, 'forward', narrow)
    assert 'off by 0.49' in checked_anew()


@pytest.mark.parametrize('error', [AttributeError, NotImplementedError, TypeError, RuntimeError])
def test_a_pytorch_without_the_products_is_found(checked_anew, monkeypatch, error):
    def lacking(*args):
        raise error('qlinear is not here\nmore')

    monkeypatch.setattr(torch.ops.onednn, 'qlinear_prepack', lacking)
    assert checked_anew().endswith('(qlinear is not here)')
    assert torch.__version__ in refused('int8')


def features_of(errors):
    """Features whose error is that of the parts together."""
    return lambda chosen: torch.tensor(
        [[1.0, math.sqrt(sum(errors[part] ** 2 for part in chosen))]])


@pytest.mark.parametrize(('most', 'expected'), [
    (1e-5, ''), (0.015, 'ac'), (0.03, 'abc'), (1.0, 'abcd')])
def test_parts_are_chosen_by_error_per_weight(most, expected):
    weights = {'a': 1, 'b': 1, 'c': 8, 'd': 8}
    errors = {'a': 0.001, 'b': 0.02, 'c': 0.01, 'd': 0.3}
    chosen, error = choose(weights, features_of(errors), most)
    assert chosen == set(expected)
    assert error == pytest.approx(math.hypot(*(errors[part] for part in expected)), rel=1e-3)
    # Smaller clips may sort them; those of `features` decide.
    probe = features_of({'a': 0.1, 'b': 0.3, 'c': 0.2, 'd': 2.0})
    assert choose(weights, features_of(errors), most, probe)[0] == set(expected)
    without = features_of(errors | dict.fromkeys(expected[:1], math.nan))
    assert choose(weights, without, most)[0] == set(expected[1:])


def refused(precision, **more):
    with pytest.raises(SessionError, match=rf"'{precision}'.*set `(precision|compile)`") as error:
        serve(lively(), choice_of(precision), SHAPE, **more)
    return str(error.value)


@pytest.mark.parametrize('precision', FORMATS)
def test_a_format_that_does_not_run_is_refused_with_the_remedy(precision, monkeypatch):
    module = {'fp8': float8, 'int8': int8}[precision]
    assert 'torch.compile' in refused(precision, compile='on')
    with monkeypatch.context() as patch:
        patch.setattr(module, 'choose', lambda *args, **more: (frozenset(), 0.0))
        assert 'no matrix' in refused(precision)

    def broken(*args, **more):
        raise RuntimeError('the library says no')
    monkeypatch.setattr(torch, '_scaled_mm', broken)
    monkeypatch.setattr(Int8Linear, 'forward', broken)
    monkeypatch.setattr(int8, 'check_products', lambda: '')
    assert 'the library says no' in refused(precision)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""int8 on the CPU: its arithmetic, what is chosen, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_fp8 import exact_features, fake_look, lively, pictures
from torch import nn

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.runtime.device import PRECISIONS, DeviceChoice
from vjepa_ros.runtime.forward import int8
from vjepa_ros.runtime.forward.int8 import (
    LEVELS,
    MLP,
    PROJ,
    QKV,
    Int8Linear,
    check_products,
)
from vjepa_ros.runtime.forward.narrow_formats import choose, max_error, trials
from vjepa_ros.runtime.session import EncoderSession, SessionError

CPU = torch.device('cpu')
CHOICE = DeviceChoice(CPU, PRECISIONS['int8'], 'test')
SHAPE = (4, 64, 64, 3)
BOUND = 0.03                # of features, relative to float32
pytestmark = [
    pytest.mark.usefixtures('one_thread'),
    # Without VNNI the products overflow, which is why int8 is refused there.
    pytest.mark.skipif(bool(check_products()), reason=f'no int8 here: {check_products()}')]


def random_linear(inputs, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    linear = nn.Linear(inputs, outputs).requires_grad_(False)
    linear.weight.normal_(generator=generator)
    linear.bias.normal_(generator=generator)
    return linear


def by_integers(linear, x):
    """What the product is by definition, without any function for int8."""
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / LEVELS
    zero = round(-low / scale)
    values = torch.floor(x.double() / scale + zero + 0.5) - zero
    assert -zero <= values.min() and values.max() <= 255 - zero
    each = linear.weight.double().abs().amax(1) / 127
    weight = torch.round(linear.weight.double() / each[:, None])
    return values @ weight.T * scale * each + linear.bias.double()


@pytest.mark.parametrize('shift', [0.0, -9.0, 9.0])
@pytest.mark.parametrize('shape', [(2, 18, 64), (1, 5, 40), (7, 192)])
def test_a_product_is_that_of_the_rounded_numbers(shape, shift):
    linear = random_linear(shape[-1], 72)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) + shift
    wanted, made = by_integers(linear, x), Int8Linear(linear)
    got = made(x)
    assert got.shape == (*shape[:-1], 72)
    # A value that lies at the border of two bytes may fall to either side.
    assert max_error(got.double(), wanted) < 3e-3
    torch.testing.assert_close(made(x, gelu=True), F.gelu(got), rtol=1e-4, atol=1e-4)


def test_the_ends_of_the_range_stay_in_it_wherever_the_zero_falls():
    """A byte too far would turn the largest value into the smallest."""
    eye = nn.Linear(2, 2).requires_grad_(False)
    eye.weight.copy_(torch.eye(2))
    eye.bias.zero_()
    made = Int8Linear(eye)
    for low in np.linspace(0, 2, 401, dtype=np.float32):
        x = torch.tensor([[-float(low), 1.0]])
        assert (made(x) - x).abs().max() <= 1.001 * (1 + float(low)) / LEVELS


@pytest.mark.parametrize('weights', ['random', 'lively', 'trained'])
def test_features_stay_within_the_bound_of_float32(weights):
    encoder = (lively() if weights == 'lively' else
               load_encoder('tiny', weights=weights if weights == 'random' else '',
                            allow_random_weights=True)[0])
    clips = torch.cat([trials(SHAPE), pictures(SHAPE)])
    exact = exact_features(encoder, clips)
    full_bytes = sum(p.nbytes for p in encoder.parameters())
    session = EncoderSession(encoder, CHOICE, SHAPE[0], SHAPE[1])
    got = torch.from_numpy(np.stack(session.encode(list(clips.numpy()))))
    assert 1e-4 < max_error(got, exact) < BOUND, session.execution_reason
    assert session.choice.precision == 'int8' and session.execution == 'fused'
    assert 'int8: qkv of' in session.execution_reason and 'trial clips' in session.execution_reason
    assert 0.2 * full_bytes < session.memory_bytes() < 0.8 * full_bytes
    last = encoder.variant.depth - 1
    deep = session.features(list(clips.numpy()), layers=(last,))
    np.testing.assert_array_equal(np.stack(deep)[:, 0], got.numpy())
    session.close()
    assert session.memory_bytes() == 0


def test_a_matrix_that_costs_too_much_stays_in_float32():
    """One hidden value that dwarfs the others leaves them no digits in int8."""
    encoder = lively()
    mlp = encoder.blocks[1].mlp
    mlp.fc1.weight[0] *= 1000
    mlp.fc1.bias[0] *= 1000
    mlp.fc2.weight[:, 0] /= 1000
    made = int8.prepare_int8(encoder, CHOICE, SHAPE)
    assert (1, MLP) not in made.chosen
    assert {(0, QKV), (0, MLP), (2, PROJ)} <= made.chosen
    assert isinstance(mlp.fc1, nn.Linear) and isinstance(encoder.blocks[0].mlp.fc1, Int8Linear)
    assert 'MLP of 2 of 3 layers' in made.note


def test_nothing_in_int8_is_the_network_in_float32():
    encoder, clips = lively(), pictures(SHAPE)
    exact = exact_features(encoder, clips)
    made = int8.Int8Forward(encoder, trials(SHAPE))
    assert max_error(made.features(clips, frozenset(made.parts)), exact) > 1e-3
    assert max_error(made.features(clips, frozenset()), exact) < 1e-5
    assert made.nbytes == 0
    assert sum(made.parts.values()) == sum(
        m.weight.numel() for b in encoder.blocks for m in b.modules() if isinstance(m, nn.Linear))


# -- the choice -----------------------------------------------------------------------------------

def test_all_parts_are_taken_without_trying_each_where_they_may_be():
    asked = []

    def look(chosen):
        asked.append(chosen)
        return fake_look({'a': 0.003, 'b': 0.004})(chosen)
    chosen, error = choose({'a': 1, 'b': 1}, look, 0.01)
    assert chosen == {'a', 'b'} and error == pytest.approx(0.005, rel=1e-3)
    assert asked == [frozenset(), frozenset('ab')]


# -- what goes wrong ------------------------------------------------------------------------------

def refused(**more):
    with pytest.raises(SessionError, match=r"'int8'.*set `(precision|compile)`") as error:
        EncoderSession(lively(), CHOICE, *SHAPE[:2], **more)
    return str(error.value)


def test_what_does_not_run_is_said_with_the_remedy(monkeypatch):
    text = refused(compile='on')
    assert 'torch.compile' in text and 'fp32' in text
    monkeypatch.setattr(int8, 'choose', lambda *args, **more: (frozenset(), 0.0))
    assert 'no matrix' in refused()
    monkeypatch.undo()
    monkeypatch.setattr(int8, 'check_products', lambda: 'its products are off by 0.5')
    assert 'off by 0.5' in refused()
    monkeypatch.undo()

    def broken(*args, **more):
        raise RuntimeError('oneDNN says no')
    monkeypatch.setattr(Int8Linear, 'forward', broken)
    assert 'oneDNN says no' in refused()


@pytest.fixture
def checked_anew():
    """The check without what it remembers, before and after."""
    check_products.cache_clear()
    yield check_products
    check_products.cache_clear()


def test_products_that_overflow_are_found(checked_anew, monkeypatch):
    """What a CPU without VNNI does: sums of two products end at 16 bits."""
    right = Int8Linear.forward

    def narrow(self, x, gelu=False):
        out = right(self, x, gelu)
        out[0, 0] *= 32767 / (2 * 255 * 127)
        return out
    monkeypatch.setattr(Int8Linear, 'forward', narrow)
    assert 'off by 0.49' in checked_anew()


# What PyTorch raises for operators that a build lacks or has with other arguments.
@pytest.mark.parametrize('error', [AttributeError, NotImplementedError, TypeError, RuntimeError])
def test_a_pytorch_without_the_products_is_found(checked_anew, monkeypatch, error):
    def lacking(*args):
        raise error('qlinear is not here\nmore')
    monkeypatch.setattr(torch.ops.onednn, 'qlinear_prepack', lacking)
    assert checked_anew().endswith('(qlinear is not here)')
    assert torch.__version__ in refused()

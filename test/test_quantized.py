# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Layers in int8 by torchao: close to those without, or refused. fp8 needs a GPU (test_cuda)."""


import numpy as np
import pytest
import torch
from sessions import CPU, choice_of, clips_of, serve

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime import device as devices
from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.forward import quantized

SIZE = Variant('test', 64, 3, 2, 256)
SHAPE = (4, 48, 48, 3)
LAYERS = 'attn.qkv, attn.proj, mlp.fc1, mlp.fc2'


@pytest.fixture(autouse=True)
def needs_torchao(one_thread):
    pytest.importorskip('torchao', reason='torchao is not installed')


def lively():
    """An encoder whose branches are as large as its residual stream, with large norm weights."""
    encoder = Encoder(SIZE)
    generator = torch.Generator().manual_seed(0)
    for name, values in encoder.requires_grad_(False).eval().named_parameters():
        if values.dim() > 1:
            values.normal_(0, values[0].numel() ** -0.5, generator=generator)
        else:
            values.normal_(0.3 * ('weight' in name), 0.5, generator=generator)
    return encoder


def session(precision, encoder=None):
    return serve(encoder or lively(), choice_of(precision), SHAPE)


def error(got, exact):
    return np.linalg.norm(got - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize(('features', 'kind'), [
    ({devices.AVX512_VNNI}, 'dynamic int8'), (set(), 'int8 weights')])
def test_int8_is_close_to_fp32_and_takes_less_memory(monkeypatch, features, kind):
    monkeypatch.setattr(quantized, 'cpu_features', lambda: features)
    narrow, exact = session('int8'), session('fp32')
    assert f'int8: {kind} by torchao in {LAYERS} of all blocks' in narrow.execution_reason
    clips = clips_of(2, 5, SHAPE)
    for got, wanted in zip(narrow.encode(clips), exact.encode(clips), strict=True):
        assert 0 < error(got, wanted) < 0.03
    assert narrow.memory_bytes() < 0.7 * exact.memory_bytes()


def test_only_the_kinds_of_layers_that_stay_exact_are_quantised():
    """One value that dwarfs the others leaves them no digits in int8."""
    encoder = lively()
    mlp = encoder.blocks[1].mlp
    mlp.fc1.weight[0] *= 1000
    mlp.fc1.bias[0] *= 1000
    mlp.fc2.weight[:, 0] /= 1000
    mlp.fc2.weight[:, 1] *= 30
    made = session('int8', encoder)
    assert 'in attn.qkv, attn.proj of all blocks' in made.execution_reason
    assert type(mlp.fc1.weight) is torch.nn.Parameter


def test_weights_that_change_too_much_are_refused(monkeypatch):
    monkeypatch.setattr(quantized, 'MOST', 1e-6)
    with pytest.raises(SessionError, match=r"'int8' changes the features.*% with attn\.qkv, at "
                       r'most.*set `precision` to fp32'):
        session('int8')


def test_what_torchao_cannot_do_here_is_refused_with_its_reason():
    with pytest.raises(SessionError, match=r"'fp8' does not run on cpu: .* to bf16"):
        session('fp8')


def test_without_torchao_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(devices, 'find_spec', lambda name: None)
    cpu = {'cpu': devices.Device('cpu', devices.CPU)}
    with pytest.raises(devices.DeviceError, match=r"pip install 'vjepa_ros\[quantized\]'.*fp32"):
        devices.choose_device('cpu', precision='int8', present=cpu)
    assert choice_of('int8', CPU).branches == torch.float32

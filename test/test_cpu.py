# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The encoder made fast for the CPU computes what the plain one computes."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from golden.cases import fill, noise
from sessions import choice_of

from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.variants import Variant, find_variant
from vjepa_ros.runtime.forward import cpu
from vjepa_ros.runtime.forward.select import prepare_step
from vjepa_ros.runtime.streaming import StreamEncoder

pytestmark = pytest.mark.usefixtures('one_thread')

SIZE = Variant('test', 96, 12, 2, 384)
WIDE = Variant('test', 160, 3, 2, 640)   # heads of 80 channels, as in ViT-H
# rms error relative to float32 of the same network
LIMITS = {torch.float32: 3e-6, torch.bfloat16: 0.015}


def error(got, exact):
    got, exact = (torch.as_tensor(x).double() for x in (got, exact))
    return ((got - exact).square().mean() / exact.square().mean()).sqrt().item()


def pixels(batch=2, frames=4, height=64, width=96):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (batch, frames, height, width, 3), dtype=torch.uint8,
                         generator=generator)


@pytest.mark.parametrize('dtype', LIMITS)
@pytest.mark.parametrize(('variant', 'version', 'onednn'), [
    (SIZE, '2.0', True), (SIZE, '2.0', False), (SIZE, '2.1', True), (WIDE, '2.0', True)])
@torch.inference_mode()
def test_features_are_those_of_the_plain_encoder_in_float32(variant, version, onednn, dtype,
                                                            monkeypatch):
    if onednn:      # in float32, too, where AVX2 is all that there is
        monkeypatch.setattr(torch.backends.cpu, 'get_cpu_capability', lambda: 'AVX512')
        monkeypatch.setattr(cpu, 'has_fused_linear', cpu.has_fused_linear.__wrapped__)
    else:
        monkeypatch.setattr(cpu, 'has_fused_linear', lambda dtype: False)
        monkeypatch.setattr(cpu, 'products_are_faster', lambda: False)
    encoder, clips = fill(Encoder(variant, version)), pixels()
    normalised, raw = Normalise(torch.device('cpu'))(clips), clips.permute(0, 4, 1, 2, 3)
    fast = copy.deepcopy(encoder)
    fast.set_branch_precision(dtype)
    cpu.speed_up(fast)
    exact = encoder(normalised)
    assert error(fast(raw), exact) < LIMITS[dtype]
    assert error(fast(normalised), exact) < LIMITS[dtype]
    layers = (2, 5) if variant is SIZE else (0, 2)
    for got, wanted in zip(fast.layers(raw, layers), encoder.layers(normalised, layers),
                           strict=True):
        assert error(got, wanted) < LIMITS[dtype]


@pytest.mark.parametrize('scores', [1, 50, 24 * 24, 3 * 24 * 24])
@torch.inference_mode()
def test_attention_in_parts_is_attention(scores, monkeypatch):
    q, k, v = noise(3, 2, 3, 24, 16).to(torch.bfloat16)
    exact = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    monkeypatch.setattr(cpu, 'products_are_faster', lambda: True)
    monkeypatch.setattr(cpu, 'SCORES', scores)
    attend = cpu.CpuSteps().attend
    assert error(attend(q, k, v, None), exact) < 0.01
    masked = attend(q, k, v, torch.ones(24, 24, dtype=torch.bool).tril())
    assert error(masked[:, :, 0], v[:, :, 0]) < 0.01   # the first may only look at itself


def streamed(dtype, clips=2):
    """Encode a whole clip and one tubelet more of several streams: in one call, and by block."""
    encoder = Encoder(find_variant('tiny'), '2.1', 3)
    encoder.init_random(0)
    encoder.set_branch_precision(dtype)
    cpu.speed_up(encoder.eval().requires_grad_(False))
    frames = pixels(clips, 8, 48, 48)

    def work(stream):
        for first in (0, 2):
            keys = [[(clip, first + at) for at in range(6)] for clip in range(clips)]
            stream.send(stream.find(keys), [np.arange(first, first + 6.0)] * clips)
            found = (stream.decode if first else stream.prefill)(frames[:, first:first + 6])
        return found[:, -1]

    fast = copy.copy(encoder)
    fast.run_blocks = cpu.OneCall(encoder)
    return [partial(work, StreamEncoder(one, cpu.reordered, 48, True, prepare_step(
        one, choice_of(), cpu.reordered, 48)[0])) for one in (fast, encoder)]


@pytest.mark.parametrize('products', [False, True])
@pytest.mark.parametrize('onednn', [False, True])
@pytest.mark.parametrize('dtype', LIMITS)
@torch.inference_mode()
def test_a_step_in_one_call_is_the_one_block_by_block(dtype, onednn, products, monkeypatch,
                                                      caplog):
    if onednn and not cpu.has_fused_linear.__wrapped__(dtype):
        pytest.skip('no linear layers of oneDNN here')
    monkeypatch.setattr(cpu, 'has_fused_linear', lambda dtype: onednn)
    monkeypatch.setattr(cpu, 'products_are_faster', lambda: products)
    caplog.set_level('INFO')
    at_once, work = streamed(dtype)
    first = at_once()
    assert torch.equal(first, at_once()) and torch.equal(first, work())
    assert 'operator by operator' not in caplog.text


@torch.inference_mode()
def test_without_torchscript_a_step_is_the_same(monkeypatch, caplog):
    _, work = streamed(torch.float32, 1)
    wanted = work()

    def missing(*given, **more):
        raise RuntimeError('Unknown builtin op: mkldnn::_linear_pointwise.\nCould not find it')

    monkeypatch.setattr(torch.jit, 'trace', missing)
    caplog.set_level('INFO')
    at_once, _ = streamed(torch.float32, 1)
    assert torch.equal(at_once(), wanted)
    assert 'runs operator by operator' in caplog.text and 'Unknown builtin' in caplog.text
    assert 'Could not find' not in caplog.text

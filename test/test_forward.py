# SPDX-License-Identifier: Apache-2.0
"""Which forward pass is chosen; the kernels themselves are tested in test_cuda.py."""

from __future__ import annotations

import logging

import pytest
import torch

from vjepa_ros.model.checkpoint import load_encoder
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime import forward, kernels
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward import FUSED, PLAIN, Normalise, prepare
from vjepa_ros.runtime.kernels import KernelsMissing

CPU = torch.device('cpu')
SIZE = Variant('test', 64, 1, 1, 128)
SHAPE = (4, 32, 32, 3)


class OnCuda(DeviceChoice):
    """A choice that says CUDA, for an encoder on the CPU."""

    @property
    def device(self):
        return Named('cuda')

    @device.setter
    def device(self, value):
        pass


class Named:
    def __init__(self, kind):
        self.type = kind


@pytest.fixture
def encoder():
    made, _ = load_encoder(SIZE, allow_random_weights=True)
    made.set_branch_precision(torch.bfloat16)
    return made.eval()


def chosen(encoder, monkeypatch, fused, dtype=torch.bfloat16, fuse=True):
    """What `prepare` takes where the kernels are replaced by `fused`."""
    monkeypatch.setattr(forward, 'FusedForward', fused)
    real = forward._difference
    monkeypatch.setattr(forward, '_difference',
                        lambda one, other, shape, device: real(one, other, shape, CPU))
    choice = object.__new__(OnCuda)
    object.__setattr__(choice, 'dtype', dtype)
    return prepare(encoder, choice, Normalise(CPU), SHAPE, fuse=fuse)


def like_plain(wrong=0.0):
    class Fused:
        kind = FUSED

        def __init__(self, encoder, clip_shape, normalise):
            assert clip_shape == SHAPE
            self.plain = forward.PlainForward(encoder, Normalise(CPU))

        def __call__(self, pixels):
            return self.plain(pixels) * (1 + wrong)

    return Fused


def test_kernels_that_agree_serve(encoder, monkeypatch):
    assert chosen(encoder, monkeypatch, like_plain()).kind == FUSED
    assert chosen(encoder, monkeypatch, like_plain(0.02)).kind == FUSED


@pytest.mark.parametrize('wrong', [0.1, float('nan')])
def test_kernels_that_disagree_do_not_serve_and_it_is_said(encoder, monkeypatch, caplog, wrong):
    with caplog.at_level(logging.WARNING):
        assert chosen(encoder, monkeypatch, like_plain(wrong)).kind == PLAIN
    assert 'kernels of this package are not used' in caplog.text


def test_kernels_that_cannot_be_made_are_done_without(encoder, monkeypatch, caplog):
    def missing(encoder, clip_shape, normalise):
        raise KernelsMissing('no compiler')

    with caplog.at_level(logging.INFO):
        assert chosen(encoder, monkeypatch, missing).kind == PLAIN
    assert 'no compiler' in caplog.text


@pytest.mark.parametrize(('dtype', 'fuse'), [(torch.float32, True), (torch.bfloat16, False)])
def test_kernels_are_for_half_precision_and_may_be_refused(encoder, monkeypatch, dtype, fuse):
    def never(encoder, clip_shape, normalise):
        raise AssertionError('kernels were made')

    assert chosen(encoder, monkeypatch, never, dtype, fuse).kind == PLAIN


@pytest.mark.skipif(torch.cuda.is_available(), reason='the reasons are those without CUDA')
@pytest.mark.parametrize(('arguments', 'reason'), [
    ((64, 64, (2, 2, 2), torch.float32), 'half precision'),
    ((96, 32, (2, 2, 2), torch.bfloat16), 'multiple of 64'),
    ((64, 12, (2, 2, 2), torch.float16), 'multiple of 8')])
def test_kernels_say_what_they_are_not_made_for(monkeypatch, arguments, reason):
    monkeypatch.setattr(kernels, '_compiler', lambda: pytest.fail)
    with pytest.raises(KernelsMissing, match=reason):
        kernels.build(*arguments, 1e-6)


def test_an_old_pytorch_is_named(monkeypatch):
    monkeypatch.delattr(torch.cuda, '_compile_kernel', raising=False)
    with pytest.raises(KernelsMissing, match=r'2\.9'):
        kernels.build(64, 64, (2, 2, 2), torch.bfloat16, 1e-6)


def test_a_kernel_that_does_not_compile_is_named(monkeypatch):
    def broken(source, name):
        raise RuntimeError('line 3')

    monkeypatch.setattr(kernels, '_compiler', lambda: broken)
    with pytest.raises(KernelsMissing, match='patches: line 3'):
        kernels.build(64, 64, (2, 2, 2), torch.bfloat16, 1e-6)

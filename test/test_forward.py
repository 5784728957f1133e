# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which forward pass is chosen; the kernels themselves are tested for CUDA in test_cuda.py."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward import metal, select
from vjepa_ros.runtime.forward.base import FUSED, PLAIN, Normalise, PlainForward
from vjepa_ros.runtime.forward.select import prepare

CPU = torch.device('cpu')
SIZE = Variant('test', 64, 1, 1, 128)
SHAPE = (4, 32, 32, 3)


def elsewhere(kind, dtype):
    """A choice that names another device, for an encoder on the CPU."""
    return DeviceChoice(SimpleNamespace(type=kind), dtype, 'test')


@pytest.fixture(autouse=True)
def trials_on_the_cpu(monkeypatch):
    real = select._trial
    monkeypatch.setattr(select, '_trial', lambda one, shape, device: real(one, shape, CPU))


@pytest.fixture
def encoder():
    made, _ = load_encoder(SIZE, allow_random_weights=True)
    made.set_branch_precision(torch.bfloat16)
    return made.eval()


def chosen(encoder, monkeypatch, wrong=0.0, error=None, dtype=torch.bfloat16, fuse=True):
    """What `prepare` takes on CUDA where the kernels are off by `wrong`, or cannot be made."""
    class Fused:
        kind = FUSED

        def __init__(self, encoder, clip_shape):
            if error is not None:
                raise error
            assert clip_shape == SHAPE
            self.plain = PlainForward(encoder, Normalise(CPU))

        def __call__(self, pixels):
            return self.plain(pixels) * (1 + wrong)

    monkeypatch.setattr(select, 'FusedEncoder', Fused)
    return prepare(encoder, elsewhere('cuda', dtype), Normalise(CPU), SHAPE, fuse=fuse).kind


@pytest.mark.parametrize(('wrong', 'kind'), [
    (0.0, FUSED), (0.02, FUSED), (0.1, PLAIN), (float('nan'), PLAIN)])
def test_kernels_serve_only_if_they_agree(encoder, monkeypatch, caplog, wrong, kind):
    with caplog.at_level(logging.WARNING):
        assert chosen(encoder, monkeypatch, wrong) == kind
    assert ('differ by' in caplog.text) == (kind == PLAIN)


@pytest.mark.parametrize('error', [KernelsMissing('no compiler'), SyntaxError('no compiler')])
def test_kernels_that_cannot_be_made_are_done_without(encoder, monkeypatch, caplog, error):
    with caplog.at_level(logging.INFO):
        assert chosen(encoder, monkeypatch, error=error) == PLAIN
    assert 'no compiler' in caplog.text


@pytest.mark.parametrize(('dtype', 'fuse'), [(torch.float32, True), (torch.bfloat16, False)])
def test_kernels_are_for_half_precision_and_may_be_refused(encoder, monkeypatch, dtype, fuse):
    never = AssertionError('kernels were made')
    assert chosen(encoder, monkeypatch, error=never, dtype=dtype, fuse=fuse) == PLAIN


# -- Apple GPUs: the source of the kernel runs here as C++ ----------------------------------------

SHIM = """
#include <cstdint>
#define kernel extern "C"
#define device
typedef unsigned int uint;
typedef uint64_t ulong;
typedef _Float16 half;
namespace metal {}
"""


class Library:
    """What `torch.mps.compile_shader` gives, for tensors on the CPU."""

    def __init__(self, source, folder):
        text = source.replace('#include <metal_stdlib>', SHIM)
        text = text.replace('[[thread_position_in_grid]]', '')
        text += """
extern "C" void all(T* a, const T* b, const T* c, unsigned n) {
  for (unsigned i = 0; i < n; ++i) rotate(a, b, c, i);
}
"""
        built = folder / f'{abs(hash(source))}.so'
        file = built.with_suffix('.cpp')
        file.write_text(text)
        subprocess.run([shutil.which('c++'), '-O1', '-shared', '-fPIC', '-o', built, file],
                       check=True, capture_output=True)
        self.all = ctypes.CDLL(str(built)).all

    def rotate(self, qkv, cosine, sine, threads):
        assert qkv.is_contiguous() and cosine.is_contiguous() and sine.is_contiguous()
        assert qkv.dtype == cosine.dtype == sine.dtype
        self.all(*(ctypes.c_void_p(t.data_ptr()) for t in (qkv, cosine, sine)), threads)


@pytest.fixture
def shaders(monkeypatch, tmp_path):
    if shutil.which('c++') is None:
        pytest.skip('no C++ compiler')
    metal._kernel.cache_clear()
    made = []

    def compile_shader(source):
        made.append(Library(source, tmp_path))
        return made[-1]

    monkeypatch.setattr(torch.mps, 'compile_shader', compile_shader, raising=False)
    yield made
    metal._kernel.cache_clear()


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_the_kernel_for_apple_computes_the_same(shaders, dtype):
    size = Variant('test', 80, 2, 2, 160)    # heads of 40 channels, 4 of which do not rotate
    made, _ = load_encoder(size, allow_random_weights=True)
    made.eval().set_branch_precision(dtype)
    pixels = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    with torch.inference_mode():
        expected = PlainForward(made, Normalise(CPU))(pixels)
        chosen = prepare(made, elsewhere('mps', dtype), Normalise(CPU), SHAPE)
        assert chosen.kind == FUSED and shaders
        got = chosen(pixels)
        assert isinstance(made.blocks[1], metal.MetalBlock)
    assert (got - expected).norm() / expected.norm() < {torch.float32: 1e-6}.get(dtype, 2e-3)


def test_a_wrong_kernel_for_apple_is_given_up(shaders, monkeypatch, caplog, encoder):
    encoder.set_branch_precision(torch.float32)
    monkeypatch.setattr(metal, 'SOURCE', metal.SOURCE.replace('sine[at + 1]', 'sine[at]'))
    with caplog.at_level(logging.INFO):
        assert prepare(encoder, elsewhere('mps', torch.float32), Normalise(CPU),
                       SHAPE).kind == PLAIN
    assert 'the rotation differs' in caplog.text
    assert not any(isinstance(block, metal.MetalBlock) for block in encoder.blocks)

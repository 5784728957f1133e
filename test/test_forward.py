# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which forward pass is chosen; test_cuda.py has the kernels for CUDA."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
from contextlib import nullcontext

import pytest
import torch
from plain_kernels import PlainKernels
from sessions import CPU, SHAPE

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import Normalise
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward import cuda, metal, select
from vjepa_ros.runtime.forward.select import FUSED, PLAIN, prepare

pytestmark = pytest.mark.usefixtures('one_thread')
HALF, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(('dtype', 'wrong', 'error', 'kind', 'said'), [
    (HALF, False, None, FUSED, ''),
    (torch.float16, False, None, FUSED, ''),
    (HALF, True, None, PLAIN, 'they differ by'),
    (HALF, False, KernelsMissing('no compiler'), PLAIN, 'no compiler'),
    (HALF, False, SyntaxError('no compiler'), PLAIN, 'no compiler'),
    (FULL, False, AssertionError('kernels were made'), PLAIN, '')])
def test_kernels_serve_only_in_half_precision_and_if_they_agree(
        monkeypatch, caplog, dtype, wrong, error, kind, said):
    """The device claims to be CUDA, but computes here; PyTorch stands for the kernels."""
    def kernels(dim, head_dim, grid, dtype):
        if error is not None:
            raise error
        made = PlainKernels(head_dim)
        if wrong:
            made.gelu = made.norm = lambda *given: None
        return made

    trial = select._trial
    monkeypatch.setattr(select, '_trial', lambda one, shape, device: trial(one, shape, CPU))
    monkeypatch.setattr(cuda, 'build', kernels)
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    encoder, _ = load_encoder(Variant('test', 80, 2, 2, 160), allow_random_weights=True)
    encoder.eval().set_branch_precision(dtype)
    with caplog.at_level(logging.INFO), torch.inference_mode():
        choice = DeviceChoice(torch.device('cuda:0'), dtype, 'test')
        made = prepare(encoder, choice, Normalise(CPU), SHAPE)
        pixels = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
        got, wanted = made.run(pixels), encoder(Normalise(CPU)(pixels))
    assert made.kind == kind
    assert (got - wanted).norm() / wanted.norm() < 0.02
    assert said in caplog.text and 'kernels were made' not in caplog.text


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
    trial = select._trial
    monkeypatch.setattr(select, '_trial', lambda one, shape, device: trial(one, shape, CPU))
    monkeypatch.setattr(torch.mps, 'compile_shader', lambda source: Library(source, tmp_path),
                        raising=False)
    metal._kernel.cache_clear()
    yield
    metal._kernel.cache_clear()


@pytest.mark.parametrize(('dtype', 'wrong'), [
    (FULL, False), (torch.float16, False), (FULL, True)])
def test_the_kernel_for_apple_computes_the_same_or_is_given_up(shaders, monkeypatch, caplog, dtype,
                                                               wrong):
    if wrong:
        monkeypatch.setattr(metal, 'SOURCE', metal.SOURCE.replace('sine[at + 1]', 'sine[at]'))
    size = Variant('test', 80, 2, 2, 160)    # heads of 40 channels, 4 of which do not rotate
    made, _ = load_encoder(size, allow_random_weights=True)
    made.eval().set_branch_precision(dtype)
    pixels = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    with torch.inference_mode(), caplog.at_level(logging.INFO):
        expected = made(Normalise(CPU)(pixels))
        choice = DeviceChoice(torch.device('mps'), dtype, 'test')
        chosen = prepare(made, choice, Normalise(CPU), SHAPE)
        got = chosen.run(pixels)
    assert chosen.kind == (PLAIN if wrong else FUSED)
    assert isinstance(made.blocks[1].steps, metal.MetalSteps) is not wrong
    assert ('the rotation differs' in caplog.text) is wrong
    assert (got - expected).norm() / expected.norm() < {FULL: 1e-6}.get(dtype, 2e-3)

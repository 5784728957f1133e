# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which forward pass is chosen and when it is compiled; test_cuda.py has the kernels for CUDA."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from plain_kernels import PlainKernels
from sessions import CPU, SHAPE, clips_of, session
from torch import nn

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.rope import rope_tables, rotate
from vjepa_ros.model.variants import VARIANTS, Variant
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward import cuda, metal, select
from vjepa_ros.runtime.forward.base import FUSED, Forward, Normalise, PLAIN
from vjepa_ros.runtime.forward.compilation import (
    MOST_SHAPES,
    compile_blocks,
    missing_tools,
    why_not_compiled,
)
from vjepa_ros.runtime.forward.select import prepare

pytestmark = pytest.mark.usefixtures('one_thread')
HALF, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(('dtype', 'fuse', 'wrong', 'error', 'kind', 'said'), [
    (HALF, True, False, None, FUSED, ''),
    (torch.float16, True, False, None, FUSED, ''),
    (HALF, True, True, None, PLAIN, 'they differ by'),
    (HALF, True, False, KernelsMissing('no compiler'), PLAIN, 'no compiler'),
    (HALF, True, False, SyntaxError('no compiler'), PLAIN, 'no compiler'),
    (FULL, True, False, AssertionError('kernels were made'), PLAIN, ''),
    (HALF, False, False, AssertionError('kernels were made'), PLAIN, '')])
def test_kernels_serve_only_in_half_precision_and_if_they_agree(
        monkeypatch, caplog, dtype, fuse, wrong, error, kind, said):
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
        made = prepare(encoder, choice, Normalise(CPU), SHAPE, fuse=fuse)
        pixels = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
        got, wanted = made(pixels), Forward(encoder, Normalise(CPU))(pixels)
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
struct bfloat {       // the upper half of a float, rounded to the nearest, ties to even
  uint16_t bits;
  explicit bfloat(float x) {
    uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    bits = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  }
  explicit operator float() const {
    uint32_t u = uint32_t(bits) << 16;
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
  }
};
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
        expected = Forward(made, Normalise(CPU))(pixels)
        choice = DeviceChoice(torch.device('mps'), dtype, 'test')
        chosen = prepare(made, choice, Normalise(CPU), SHAPE)
        got = chosen(pixels)
    assert chosen.kind == (PLAIN if wrong else FUSED)
    assert isinstance(made.blocks[1].steps, metal.MetalSteps) is not wrong
    assert ('the rotation differs' in caplog.text) is wrong
    assert (got - expected).norm() / expected.norm() < {FULL: 1e-6}.get(dtype, 2e-3)


WIDTHS = sorted({variant.head_dim for variant in VARIANTS.values()})
UNITS = {torch.float32: 2e-7, torch.float16: 2**-11, torch.bfloat16: 2**-8}    # of one rounding


@pytest.mark.parametrize('dtype', UNITS)
@pytest.mark.parametrize('width', [*WIDTHS, 40])
def test_the_rotation_for_apple_is_exact_but_for_one_rounding(shaders, width, dtype):
    cos, sin = (table.to(dtype) for table in rope_tables(2, 3, 5, width))
    qkv = torch.randn(2, len(cos), 3, 3, width).to(dtype)    # clips, tokens, qkv, heads, channels
    got, dim = qkv.flatten(2).clone(), 3 * width
    metal._kernel(dim, width, len(cos), dtype)(got, cos, sin, threads=2 * len(cos) * dim)
    exact = qkv.double()
    exact[:, :, :2] = rotate(exact[:, :, :2].transpose(1, 3), cos.double(), sin.double()
                             ).transpose(1, 3)
    wrong = (got.view_as(qkv).double() - exact).abs()
    assert (wrong <= UNITS[dtype] * exact.abs() + 1e-6).all()
    assert not wrong[:, :, 2].any()


@pytest.mark.parametrize('version', ['2.0', '2.1'])
def test_the_gradient_of_the_rotation_is_that_of_finite_differences(version):
    cos, sin = (table.double() for table in rope_tables(2, 2, 2, 20, version))
    x = torch.randn(2, len(cos), 20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotate, (x, cos, sin))


@pytest.mark.parametrize(('wanted', 'device', 'instead', 'lacks', 'reason'), [
    ('off', 'cuda', '', '', 'off'), ('auto', 'cuda', '', '', ''),
    ('auto', 'cuda', 'kernels', '', 'kernels run instead'),
    ('auto', 'cuda', '', 'Triton', 'needs Triton, which'), ('auto', 'cpu', '', '', 'on cpu'),
    ('on', 'cuda', 'kernels', '', ''), ('on', 'cpu', '', 'a C compiler', 'needs a C compiler'),
    ('on', 'mps', '', '', 'not used on mps')])
def test_compilation_is_used_where_it_pays_and_on_is_refused_where_it_is_impossible(
        wanted, device, instead, lacks, reason):
    if wanted == 'on' and reason:
        with pytest.raises(SessionError, match=rf"compile is 'on'.*{reason}.*`compile: auto`"):
            why_not_compiled(wanted, device, instead, lacks)
    else:
        said = why_not_compiled(wanted, device, instead, lacks)
        assert reason in said and bool(said) == bool(reason)


def test_a_compilation_that_fails_is_said_and_undone(caplog):
    def broken():
        raise RuntimeError('cannot open the cache')

    block = nn.Identity()
    said = compile_blocks([block], False, broken)
    assert 'torch.compile failed: RuntimeError: cannot open the cache' in said
    assert 'slower' in caplog.text
    assert block(1) == 1        # it would fail to compile a number
    with pytest.raises(SessionError, match=r'cannot open the cache.*`compile: off`'):
        compile_blocks([block], True, broken)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools('cpu')), reason='torch.compile needs a C compiler here')
def test_a_compiled_model_gives_the_same_numbers():
    plain, compiled = session(compile='auto'), session(compile='on')
    assert plain.execution == 'fused' and 'cpu' in plain.execution_reason
    assert (compiled.execution, compiled.execution_reason) == ('compiled', '')
    np.testing.assert_allclose(compiled.encode(clips_of(1))[0], plain.encode(clips_of(1))[0],
                               atol=1e-5)
    # PyTorch keeps the limit by thread; one that only runs passes compiles for other numbers too.
    limits = []

    def serve():
        compiled.encode(clips_of(1))
        limits.append(torch._dynamo.config.cache_size_limit)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert limits[0] >= MOST_SHAPES
    compiled.close()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fast passes compute what the plain encoder computes, or are given up; CUDA: test_cuda.py."""

from __future__ import annotations

import copy
import ctypes
import logging
import shutil
import subprocess
from contextlib import nullcontext
from importlib.util import find_spec

import pytest
import torch
from golden.cases import fill, noise
from plain_kernels import PlainKernels
from sessions import CPU, SHAPE, choice_of, clips_of, serve

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime import device as devices
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward import cpu, cuda, metal, quantized, select
from vjepa_ros.runtime.forward.select import FUSED, PLAIN, prepare

pytestmark = pytest.mark.usefixtures('one_thread')
HALF, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(('dtype', 'wrong', 'missing', 'kind', 'said'), [
    (HALF, False, '', FUSED, ''), (HALF, True, '', PLAIN, 'they differ by'),
    (HALF, False, 'no compiler', PLAIN, 'no compiler'),
    (FULL, False, 'kernels were made', PLAIN, '')])
def test_kernels_serve_only_in_half_precision_and_if_they_agree(
        monkeypatch, caplog, dtype, wrong, missing, kind, said):
    """The device claims to be CUDA, but computes here; PyTorch stands for the kernels."""
    def kernels(dim, head_dim, grid, dtype):
        if missing:
            raise KernelsMissing(missing)
        return PlainKernels(head_dim, wrong)

    trial = select._trial
    monkeypatch.setattr(select, '_trial', lambda one, shape, device: trial(one, shape, CPU))
    monkeypatch.setattr(cuda, 'build', kernels)
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    encoder = fill(Encoder(Variant('test', 80, 2, 2, 160)))
    encoder.set_branch_precision(dtype)
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


SIZE = Variant('test', 96, 12, 2, 384)
WIDE = Variant('test', 160, 3, 2, 640)   # heads of 80 channels, as in ViT-H
# rms error relative to float32 of the same network
LIMITS = {torch.float32: 3e-6, torch.bfloat16: 0.015}
PIXELS = torch.randint(0, 256, (2, 4, 64, 96, 3), dtype=torch.uint8,
                       generator=torch.Generator().manual_seed(1))


def error(got, exact):
    got, exact = (torch.as_tensor(x).double() for x in (got, exact))
    return ((got - exact).square().mean() / exact.square().mean()).sqrt().item()


@pytest.mark.parametrize('dtype', LIMITS)
@pytest.mark.parametrize(('variant', 'version', 'onednn'), [
    (SIZE, '2.0', False), (SIZE, '2.1', True), (WIDE, '2.0', True)])
@torch.inference_mode()
def test_features_are_those_of_the_plain_encoder_in_float32(variant, version, onednn, dtype,
                                                            monkeypatch):
    if onednn:      # in float32, too, where AVX2 is all that there is
        monkeypatch.setattr(torch.backends.cpu, 'get_cpu_capability', lambda: 'AVX512')
        monkeypatch.setattr(cpu, 'has_fused_linear', cpu.has_fused_linear.__wrapped__)
    else:
        monkeypatch.setattr(cpu, 'has_fused_linear', lambda dtype: False)
        monkeypatch.setattr(cpu, 'products_are_faster', lambda: False)
    encoder, clips = fill(Encoder(variant, version)), PIXELS
    normalised, raw = Normalise(CPU)(clips), clips.permute(0, 4, 1, 2, 3)
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


@pytest.mark.parametrize('scores', [1, 50, 3 * 24 * 24])
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


LAYERS = 'attn.qkv, attn.proj, mlp.fc1, mlp.fc2'
needs_torchao = pytest.mark.skipif(find_spec('torchao') is None, reason='no torchao')


def lively():
    """An encoder whose branches are as large as its residual stream, with large norm weights."""
    encoder = Encoder(Variant('test', 64, 3, 2, 256))
    generator = torch.Generator().manual_seed(0)
    for name, values in encoder.requires_grad_(False).eval().named_parameters():
        if values.dim() > 1:
            values.normal_(0, values[0].numel() ** -0.5, generator=generator)
        else:
            values.normal_(0.3 * ('weight' in name), 0.5, generator=generator)
    return encoder


def session(precision, encoder=None):
    return serve(encoder or lively(), choice_of(precision), (4, 48, 48, 3))


@needs_torchao
@pytest.mark.parametrize(('features', 'kind'), [
    ({devices.AVX512_VNNI}, 'dynamic int8'), (set(), 'int8 weights')])
def test_int8_is_close_to_fp32_and_takes_less_memory(monkeypatch, features, kind):
    monkeypatch.setattr(quantized, 'cpu_features', lambda: features)
    narrow, exact = session('int8'), session('fp32')
    assert f'int8: {kind} by torchao in {LAYERS} of all blocks' in narrow.execution_reason
    clips = clips_of(2, 5, (4, 48, 48, 3))
    for got, wanted in zip(narrow.encode(clips), exact.encode(clips), strict=True):
        assert 0 < error(got, wanted) < 0.03
    assert narrow.memory_bytes() < 0.7 * exact.memory_bytes()


@needs_torchao
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


@needs_torchao
def test_weights_that_change_too_much_are_refused(monkeypatch):
    monkeypatch.setattr(quantized, 'MOST', 1e-6)
    with pytest.raises(SessionError, match=r"'int8' changes the features.*% with attn\.qkv, at "
                       r'most.*set `precision` to fp32'):
        session('int8')


@needs_torchao
def test_what_torchao_cannot_do_here_is_refused_with_its_reason():
    with pytest.raises(SessionError, match=r"'fp8' does not run on cpu: .* to bf16"):
        session('fp8')


def test_without_torchao_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(devices, 'find_spec', lambda name: None)
    cpu = {'cpu': devices.Device('cpu', devices.CPU)}
    with pytest.raises(devices.DeviceError, match=r"pip install 'vjepa_ros\[quantized\]'.*fp32"):
        devices.choose_device('cpu', precision='int8', present=cpu)
    assert choice_of('int8', CPU).branches == torch.float32

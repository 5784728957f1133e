# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Which forward pass is chosen and when it is compiled; test_cuda.py has the kernels for CUDA."""

from __future__ import annotations

import logging
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
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward import cuda, select
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

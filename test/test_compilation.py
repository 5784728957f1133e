# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""When torch.compile is used, what is said when it is not, and that its numbers are the same."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward.compilation import (
    MOST_SHAPES,
    CompileChoice,
    Toolchain,
    choose_compile,
    compile_blocks,
)
from vjepa_ros.runtime.session import EncoderSession, SessionError

ALL, NONE = Toolchain(True, True), Toolchain(False, False)
ON_CPU = DeviceChoice(torch.device('cpu'), torch.float32, 'test')

pytestmark = pytest.mark.usefixtures('one_thread')


def session(compile):
    encoder, _ = load_encoder(Variant('test', 48, 2, 1, 96), allow_random_weights=True)
    return EncoderSession(encoder, ON_CPU, 4, 32, compile=compile)


@pytest.mark.parametrize(('device', 'fused', 'tools', 'compiled', 'reason'), [
    ('cuda', False, ALL, True, 'all'),
    ('cuda', True, ALL, False, 'kernels of this package'),
    ('cuda', False, Toolchain(False, True), False, 'needs Triton, which'),
    ('cuda', False, Toolchain(True, False), False, 'needs a C compiler, which'),
    ('cuda', False, NONE, False, 'Triton and a C compiler'),
    ('cpu', False, ALL, False, 'on cpu'),
    ('mps', False, ALL, False, 'on mps')])
def test_auto_compiles_where_it_pays_and_says_why_not(device, fused, tools, compiled, reason):
    choice = choose_compile('auto', device, fused, tools)
    assert choice.compile is compiled
    assert reason in choice.reason


@pytest.mark.parametrize(('device', 'tools', 'problem'), [
    ('cuda', Toolchain(False, True), 'needs Triton, which'),
    ('cuda', Toolchain(True, False), 'needs a C compiler, which'),
    ('cpu', NONE, 'needs a C compiler, which'),
    ('mps', ALL, 'not used on mps')])
def test_on_fails_with_a_remedy_where_it_is_impossible(device, tools, problem):
    with pytest.raises(SessionError, match=rf"compile is 'on'.*{problem}.*`compile: auto`"):
        choose_compile('on', device, False, tools)


def test_a_compilation_that_fails_is_said_and_undone(caplog):
    class Plain(nn.Module):
        def forward(self, x):
            return x + 1

    block, choice = Plain(), CompileChoice(True, 'test')

    def broken():
        raise RuntimeError('cannot open the cache')

    said = compile_blocks([block], choice, False, broken)
    assert 'torch.compile failed: RuntimeError: cannot open the cache' in said
    assert 'slower' in caplog.text
    assert block._compiled_call_impl is None
    with pytest.raises(SessionError, match=r'cannot open the cache.*`compile: off`'):
        compile_blocks([block], choice, True, broken)


@pytest.mark.slow
@pytest.mark.skipif(not Toolchain.here().compiler, reason='torch.compile needs a C compiler here')
def test_a_compiled_model_gives_the_same_numbers():
    clips = list(np.random.default_rng(0).integers(0, 256, (1, 4, 32, 32, 3), dtype=np.uint8))
    plain, compiled = session('auto'), session('on')
    assert plain.execution == 'fused'
    assert 'cpu' in plain.execution_reason
    assert compiled.execution == 'compiled'
    assert compiled.execution_reason == ''
    np.testing.assert_allclose(compiled.encode(clips)[0], plain.encode(clips)[0], atol=1e-5)
    # PyTorch keeps the limit by thread; one that only runs passes compiles for other numbers too.
    limits = []

    def serve():
        compiled.encode(clips)
        limits.append(torch._dynamo.config.cache_size_limit)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert limits[0] >= MOST_SHAPES
    compiled.close()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model on a real CUDA device: right numbers on every path, no memory left behind."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sessions
import torch

from vjepa_ros.model.variants import Variant

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')

SIZE = Variant('test', 192, 3, 3, 768)
FRAMES, SIDE = 4, 64
SHAPE = (FRAMES, SIDE, SIDE, 3)
DEVICE = torch.device('cuda:0')
# Of the features, relative to float32 on the CPU. TF32 is off unless somebody turns it on.
BOUNDS = {'fp32': 1e-4, 'fp16': 5e-3, 'bf16': 3e-2}


def session(precision='fp32', **more):
    return sessions.session(precision, **{'device': DEVICE, 'size': SIZE, 'shape': SHAPE, **more})


def clips_of(count, shape=SHAPE):
    return sessions.clips_of(count, 0, shape)


def precisions():
    if not torch.cuda.is_available():
        return list(BOUNDS)
    capability = torch.cuda.get_device_capability(DEVICE)
    least = {'fp32': (0, 0), 'fp16': (7, 0), 'bf16': (8, 0)}
    return [name for name, needed in least.items() if capability >= needed]


def error(got, expected):
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


@pytest.fixture(scope='module')
def reference():
    """What the model says about some clips on the CPU in float32."""
    made = session(device=torch.device('cpu'))
    yield made.run(clips_of(5))
    made.close()


@pytest.mark.parametrize('precision', precisions())
def test_every_path_stays_close_to_float32_on_the_cpu(reference, precision):
    made = session(precision)
    for count in (1, 2, 5, 3):
        outputs = made.run(clips_of(5)[:count])
        assert 'graph' in made.execution, made.execution_reason
        # Kernels of this package serve wherever PyTorch can compile them.
        assert ('fused' in made.execution) == (
            precision != 'fp32' and hasattr(torch.cuda, '_compile_kernel'))
        for got, expected in zip(outputs, reference, strict=False):
            assert error(got.features, expected.features) < BOUNDS[precision]
            for name, array in vars(got.heads).items():
                assert error(array, getattr(expected.heads, name)) < 5 * BOUNDS[precision], name
    made.close()


@pytest.mark.parametrize(('precision', 'least'), [('fp8', (8, 9)), ('int8', (8, 0))])
def test_quantised_layers_stay_close_to_float32_on_the_cpu(reference, precision, least):
    pytest.importorskip('torchao', reason='torchao is not installed')
    if torch.cuda.get_device_capability(DEVICE) < least:
        pytest.skip('an older GPU')
    made = session(precision)
    outputs = made.run(clips_of(5)[:2])
    assert made.execution == 'graph' and 'torchao' in made.execution_reason
    for got, expected in zip(outputs, reference, strict=False):
        assert error(got.features, expected.features) < 3e-2
    made.close()


def test_a_session_serves_while_another_is_captured():
    serving = session()
    clips = clips_of(1)
    expected = serving.run(clips)
    stop = threading.Event()

    def serve():
        while not stop.is_set():
            found = serving.run(clips)[0].features
            np.testing.assert_array_equal(found, expected[0].features)
            serving.features(clips)  # allocates, and multiplies outside of graphs

    with ThreadPoolExecutor(1) as thread:
        served = thread.submit(serve)
        for _ in range(3):
            made = session()
            made.warm(3)
            assert 'graph' in made.execution, made.execution_reason
            made.close()
        stop.set()
        served.result(60)
    serving.close()


def held():
    """Bytes of the device that tensors take, and that the process keeps."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def test_a_closed_session_gives_all_device_memory_back():
    session().close()  # what a process allocates once
    before = held()
    made = session()
    made.warm(3)
    made.run(clips_of(2))
    made.features(clips_of(2))
    assert torch.cuda.memory_allocated() > before[0]
    made.close()
    assert all(now <= then for now, then in zip(held(), before, strict=True))
    assert made.memory_bytes() == 0

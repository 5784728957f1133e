# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Passes on CUDA: their order, with stand-ins (`fake_cuda`), and numbers on a real device."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from fake_cuda import install
from sessions import clips_of, session

from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.noise_floor import patch_strength, tubelet_change
from vjepa_ros.runtime.runner import DeviceClip

pytestmark = pytest.mark.usefixtures('one_thread')
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')

SIZE = Variant('test', 192, 3, 3, 768)
FRAMES, SIDE = 4, 64
SHAPE = (FRAMES, SIDE, SIDE, 3)
DEVICE = torch.device('cuda:0')
CLIPS = clips_of(5, 0, SHAPE)
# Of the features, relative to float32 on the CPU. TF32 is off unless somebody turns it on.
BOUNDS = {'fp32': 1e-4, 'fp16': 5e-3, 'bf16': 3e-2}


def on_gpu(precision='fp32', **more):
    return session(precision, **{'device': DEVICE, 'size': SIZE, 'shape': SHAPE, **more})


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
    made = on_gpu(device=torch.device('cpu'))
    yield made.run(CLIPS)
    made.close()


@needs_cuda
@pytest.mark.parametrize('precision', precisions())
def test_every_path_stays_close_to_float32_on_the_cpu(reference, precision):
    made = on_gpu(precision)
    for count in (1, 2, 5, 3):
        outputs = made.run(CLIPS[:count])
        assert 'graph' in made.execution, made.execution_reason
        # Kernels of this package serve wherever PyTorch can compile them.
        assert ('fused' in made.execution) == (
            precision != 'fp32' and hasattr(torch.cuda, '_compile_kernel'))
        for got, expected in zip(outputs, reference, strict=False):
            assert error(got.features, expected.features) < BOUNDS[precision]
            for name, array in vars(got.heads).items():
                assert error(array, getattr(expected.heads, name)) < 5 * BOUNDS[precision], name
    made.close()


@needs_cuda
@pytest.mark.parametrize(('precision', 'least'), [('fp8', (8, 9)), ('int8', (8, 0))])
def test_quantised_layers_stay_close_to_float32_on_the_cpu(reference, precision, least):
    pytest.importorskip('torchao', reason='torchao is not installed')
    if torch.cuda.get_device_capability(DEVICE) < least:
        pytest.skip('an older GPU')
    made = on_gpu(precision)
    outputs = made.run(CLIPS[:2])
    assert made.execution == 'graph' and 'torchao' in made.execution_reason
    for got, expected in zip(outputs, reference, strict=False):
        assert error(got.features, expected.features) < 3e-2
    made.close()


@needs_cuda
def test_a_session_serves_while_another_is_captured():
    serving = on_gpu()
    clips = CLIPS[:1]
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
            made = on_gpu()
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


@needs_cuda
def test_a_closed_session_gives_all_device_memory_back():
    on_gpu().close()  # what a process allocates once
    before = held()
    made = on_gpu()
    made.warm(3)
    made.run(CLIPS[:2])
    made.features(CLIPS[:2])
    assert torch.cuda.memory_allocated() > before[0]
    made.close()
    assert all(now <= then for now, then in zip(held(), before, strict=True))
    assert made.memory_bytes() == 0


@pytest.fixture
def fake(monkeypatch):
    return install(monkeypatch)


@pytest.fixture
def engine(fake):
    return session(runner=CudaRunner)


def agree(got, expected):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.features, other.features, atol=1e-5)
        np.testing.assert_allclose(one.heads.contact, other.heads.contact, atol=1e-5)
    return True


def test_captured_passes_give_what_plain_ones_give(fake, engine):
    plain = session()
    for seed, count in enumerate((1, 2, 1, 3, 2)):
        clips = clips_of(count, seed)
        assert agree(engine.run(clips), plain.run(clips))
        assert set(engine.timings) == {'upload', 'encode', 'heads', 'download'}
    assert engine.execution == 'fused graph'
    assert fake.captures == 2 * 3  # encoder and heads, for 1, 2 and 3 clips
    without, = engine.run(clips_of(1), False)
    assert without.features is None and without.change is None


def test_passes_go_on_when_capturing_fails(fake, engine, caplog):
    engine.run(clips_of(1))
    fake.refuse = 'operation not permitted when stream is capturing'
    for count in (2, 1, 3):
        assert agree(engine.run(clips_of(count)), session().run(clips_of(count)))
    assert engine.execution == 'fused'
    assert engine.execution_reason.startswith(
        f'CUDA graph capture failed: RuntimeError: {fake.refuse}')
    assert caplog.text.count('kernel by kernel') == 1
    assert fake.captures == 3 and fake.abandoned == 1


def test_the_change_made_on_the_device_is_that_of_the_features(engine):
    everything, part = np.ones((2, 2), bool), np.array([[True, False], [True, True]])
    for seed, masks in enumerate(([everything, part], [part, everything], [part, part])):
        clips = clips_of(2, seed)
        for clip, mask, found in zip(clips, masks, engine.run(clips, valid=masks), strict=True):
            np.testing.assert_allclose(found.change.steps, tubelet_change(found.features, mask),
                                       rtol=1e-4)
            np.testing.assert_allclose(found.change.strength, patch_strength(clip), rtol=1e-5)
    without, = engine.run(clips_of(1))
    assert without.change is None and agree([without], session().run(clips_of(1)))


def test_clips_of_the_device_mix_with_those_of_the_host(engine):
    marks, store, ready = [], np.concatenate(clips_of(3, 5)), torch.cuda.Event()
    ready.record(None)
    rows = [7, 2, 2, 11]
    there = DeviceClip(list(torch.from_numpy(store)[rows]), ready, marks.append)
    here = clips_of(2, 6)
    for clips in ([there], [here[0], there, here[1]], [there, there]):
        plain = session().run([store[rows] if clip is there else clip for clip in clips])
        assert agree(engine.run(clips), plain) and agree(session().run(clips), plain)
    assert len(marks) == 4      # each clip of the device tells when its frames may go

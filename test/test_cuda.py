# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model on a real CUDA device: right numbers on every path, no memory left behind."""

from __future__ import annotations

import gc
import threading

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


def session(precision='fp32', graphs=True, **more):
    made = sessions.session(precision, **{'device': DEVICE, 'size': SIZE, 'shape': SHAPE, **more})
    if not graphs:
        made._runner._graphs_of(made._runner._forward).captured = False
    return made


def clips_of(count, seed=0, shape=SHAPE):
    return sessions.clips_of(count, seed, shape)


def precisions():
    if not torch.cuda.is_available():
        return list(BOUNDS)
    capability = torch.cuda.get_device_capability(DEVICE)
    least = {'fp32': (0, 0), 'fp16': (7, 0), 'bf16': (8, 0)}
    return [name for name, needed in least.items() if capability >= needed]


def error(got, expected):
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def same(first, second):
    """Bit for bit, features and heads."""
    for one, other in zip(first, second, strict=True):
        assert (one.features is None) == (other.features is None)
        if one.features is not None:
            np.testing.assert_array_equal(one.features, other.features)
        for name, array in vars(one.heads).items():
            np.testing.assert_array_equal(array, getattr(other.heads, name), err_msg=name)
    return True


@pytest.fixture(scope='module')
def reference():
    """What the model says about some clips on the CPU in float32."""
    made = session(device=torch.device('cpu'))
    yield made.run(clips_of(5))
    made.close()


@pytest.fixture(scope='module')
def runner():
    """One session for many tests, with graphs."""
    made = session('fp16' if 'fp16' in precisions() else 'fp32')
    made.warm(3)
    yield made
    made.close()


@pytest.mark.parametrize('precision', precisions())
@pytest.mark.parametrize('graphs', [True, False], ids=['graph', 'eager'])
def test_every_path_stays_close_to_float32_on_the_cpu(reference, precision, graphs):
    made = session(precision, graphs)
    try:
        for count in (1, 2, 5, 3):
            outputs = made.run(clips_of(5)[:count])
            assert ('graph' in made.execution) == graphs, made.execution_reason
            # Kernels of this package serve wherever PyTorch can compile them.
            assert ('fused' in made.execution) == (
                precision != 'fp32' and hasattr(torch.cuda, '_compile_kernel'))
            for got, expected in zip(outputs, reference, strict=False):
                assert error(got.features, expected.features) < BOUNDS[precision]
                for name, array in vars(got.heads).items():
                    wanted = getattr(expected.heads, name)
                    assert error(array, wanted) < 5 * BOUNDS[precision], name
    finally:
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
    made, failures, stop = [], [], threading.Event()

    def serve():
        try:
            while not stop.is_set():
                same(serving.run(clips), expected)
                serving.features(clips)  # allocates, and multiplies outside of graphs
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        for _ in range(3):
            made.append(session())
            made[-1].warm(3)
            made[-1].close()
    finally:
        stop.set()
        thread.join(60)
    assert failures == []
    assert all('graph' in one.execution for one in made), made[0].execution_reason
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
    for keys in (None, [range(FRAMES)] * 2):
        made = session()
        made.warm(3)
        made.run(clips_of(2), keys=keys)
        made.features(clips_of(2))
        assert torch.cuda.memory_allocated() > before[0]
        made.close()
        made.close()
        assert all(now <= then for now, then in zip(held(), before, strict=True))
        assert made.memory_bytes() == 0


def test_memory_does_not_grow_over_ten_thousand_inferences():
    made = session(size=Variant('test', 192, 1, 3, 768), shape=(4, 32, 32, 3))
    clip = clips_of(1, 0, (4, 32, 32, 3))

    def used():
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), made.memory_bytes()

    for number in range(300):
        made.run(clip, keys=[[number + i for i in range(4)]])
    made.run(clip)
    before, pending = used(), []
    for number in range(10_000):
        pending.append(made.submit(clip, features=not number % 3,
                                   keys=[[1000 + number + i for i in range(4)]]))
        if len(pending) > 2:
            made.wait(pending.pop(0))
    pending.clear()
    assert used() == before
    made.close()


@pytest.fixture
def little_memory():
    """A function that leaves this process so many more bytes on the device."""
    total = torch.cuda.get_device_properties(DEVICE).total_memory

    def leave(more):
        torch.cuda.set_per_process_memory_fraction((held()[1] + more) / total)

    yield leave
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_clips_that_do_not_fit_run_in_smaller_passes(little_memory, caplog):
    made = session('fp32', shape=(8, 128, 128, 3))
    clips = clips_of(12, 0, (8, 128, 128, 3))
    expected = [made.run([clip])[0] for clip in clips]
    held()
    little_memory(48 << 20)
    outputs = made.run(clips)
    assert made._most in (1, 2, 3, 6)
    assert 'at most' in caplog.text
    for got, want in zip(outputs, expected, strict=True):
        assert error(got.features, want.features) < 1e-5
    told = len(caplog.records)
    assert len(made.run(clips)) == 12
    assert len(caplog.records) == told
    made.close()

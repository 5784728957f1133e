# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Clips under way, passes that run out of memory, and memory that does not grow."""

from __future__ import annotations

import sys
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.session import EncoderSession, SessionError

SIZE = Variant('test', 48, 2, 1, 96)
ON_CPU = DeviceChoice(torch.device('cpu'), torch.float32, 'test')
SHAPE = (4, 32, 32, 3)

pytestmark = pytest.mark.usefixtures('one_thread')


def clips_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, SHAPE, dtype=np.uint8) for _ in range(count)]


class Machine:
    """A session on a device with little memory."""

    def __init__(self):
        self.fits = 99
        self.batches = []
        self.error = torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB')
        encoder, _ = load_encoder(SIZE, allow_random_weights=True)
        self.session = EncoderSession(encoder, ON_CPU, 4, 32, Heads.for_variant(SIZE))
        # Now: the session has exchanged the module.
        encoder.patch_embed.register_forward_pre_hook(self._count)

    def _count(self, _, inputs):
        if len(inputs[0]) > self.fits:
            raise self.error
        self.batches.append(len(inputs[0]))


@pytest.fixture
def machine():
    made = Machine()
    yield made
    made.session.close()


# -- clips under way ------------------------------------------------------------------------------

def test_submitted_clips_give_what_run_gives(machine):
    clips = clips_of(3)
    expected = machine.session.run(clips)
    pending = [machine.session.submit(clips[:2]), machine.session.submit(clips[2:], False)]
    for clip in clips:
        clip[:] = 0
    outputs = [output for one in pending for output in one.result()]
    for number, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        np.testing.assert_allclose(got.heads.contact, want.heads.contact, atol=1e-5)
        assert (got.features is None) == (number == 2)
    assert all(one.done() for one in pending)
    assert pending[0].result() is pending[0].result()
    assert pending[0].timings.keys() == {'upload', 'encode', 'heads', 'download'}
    assert machine.session.timings is pending[1].timings


@pytest.mark.parametrize('keys', [[range(4)], [range(4), range(3)], [range(5), range(4)]])
def test_keys_that_do_not_belong_to_the_frames_are_refused(machine, keys):
    with pytest.raises(ValueError, match='expected 4 for each of 2 clips'):
        machine.session.run(clips_of(2), keys=keys)


# -- out of memory --------------------------------------------------------------------------------

def test_clips_that_do_not_fit_run_in_halves_and_the_size_is_remembered(machine, caplog):
    expected = machine.session.run(clips_of(7))
    machine.batches.clear()
    machine.fits = 2
    outputs = machine.session.run(clips_of(7))
    assert machine.batches == [1] * 7  # 7 and 3 did not fit
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got.features, want.features, atol=1e-5)
    assert caplog.text.count('no memory for') == 2
    assert '7 clips of 4 frames of 32 px in fp32' in caplog.text
    assert 'at most 1 in one pass' in caplog.text
    machine.session.run(clips_of(2))
    assert caplog.text.count('no memory for') == 2


def test_one_clip_that_does_not_fit_is_an_error_with_a_remedy_and_not_the_end(machine):
    machine.fits = 0
    for call in (machine.session.run, machine.session.encode, machine.session.features):
        with pytest.raises(SessionError, match=r'cpu has no memory for one clip of 4 frames of '
                           r'32 px in fp32.*Tried to allocate.*smaller model_size.*precision'):
            call(clips_of(2))
    machine.fits = 99
    assert len(machine.session.run(clips_of(2))) == 2


@pytest.mark.parametrize('error', [
    RuntimeError('MPS backend out of memory (MPS allocated: 5 GB)'), MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`'),
    RuntimeError('CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`'),
    RuntimeError('cuDNN error: CUDNN_STATUS_ALLOC_FAILED'),
    RuntimeError('cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED')])
def test_every_backend_is_understood(machine, error):
    machine.error, machine.fits = error, 1
    assert len(machine.session.run(clips_of(2))) == 2


def test_other_errors_are_not_taken_for_it(machine):
    machine.error, machine.fits = RuntimeError('mat1 and mat2 shapes cannot be multiplied'), 0
    with pytest.raises(RuntimeError, match='mat1 and mat2'):
        machine.session.run(clips_of(2))
    assert not is_out_of_memory(RuntimeError('cuDNN error: CUDNN_STATUS_EXECUTION_FAILED'))


def test_weights_that_do_not_fit_are_an_error_with_a_remedy(monkeypatch):
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)

    def full(*args):
        raise torch.cuda.OutOfMemoryError('CUDA out of memory')

    monkeypatch.setattr(encoder, 'to', full)
    with pytest.raises(SessionError, match=r'weights do not fit.*cpu.*smaller model_size'):
        EncoderSession(encoder, ON_CPU, 4, 32)


# -- memory ---------------------------------------------------------------------------------------

def grown(runs):
    """Bytes of memory that a process takes more after so many inferences, and what is said."""
    def resident():
        with open('/proc/self/statm', encoding='ascii') as file:
            return int(file.read().split()[1]) * 4096

    torch.set_num_threads(1)
    encoder, _ = load_encoder(replace(SIZE, depth=1), allow_random_weights=True)
    session = EncoderSession(encoder, ON_CPU, 4, 32, Heads.for_variant(SIZE))
    clip = clips_of(1)
    for _ in range(500):
        session.run(clip)
    said, before = session.memory_bytes(), resident()
    for number in range(runs):
        session.run(clip, keys=[range(number, number + 4)])
    more = resident() - before
    same = session.memory_bytes() == said
    session.close()
    return more, same


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='reads resident memory from /proc')
def test_memory_does_not_grow_over_ten_thousand_inferences():
    # A process of its own: where other tests have left holes in the heap it fills these at times.
    with get_context('spawn').Pool(1) as process:
        more, same = process.apply(grown, (10_000,))
    assert more < 2e6       # a clip has 12 kB, the result of the heads 200 bytes
    assert same

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The order of work on CUDA, with stand-ins for the device: see `fake_cuda`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_cuda import install

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime.cuda.frame_upload import DeviceClip
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward.base import Normalise
from vjepa_ros.runtime.forward.select import prepare
from vjepa_ros.runtime.host_runner import HostRunner
from vjepa_ros.runtime.noise_floor import Change, patch_strength, tubelet_change
from vjepa_ros.runtime.outputs import Output, Pending, reading

SIZE = Variant('test', 48, 2, 1, 96)
SHAPE = (4, 32, 32, 3)
CPU = torch.device('cpu')

pytestmark = pytest.mark.usefixtures('one_thread')


@pytest.fixture
def fake(monkeypatch):
    return install(monkeypatch)


def parts():
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    forward = prepare(encoder.eval(), DeviceChoice(CPU, torch.float32, 'test'), Normalise(CPU),
                      SHAPE)
    heads = Heads.for_variant(SIZE).eval()
    heads.contact.weight.data.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    return forward, reading(heads, Calibration())


def clips_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, SHAPE, dtype=np.uint8) for _ in range(count)]


def both(clips, keys=None, runner=None):
    """The results of the runner and of plain passes."""
    host = HostRunner(*parts(), CPU)
    return (runner.start(clips, keys, True, True).land(),
            host.start(clips, None, True, True).land())


def agree(got, expected):
    np.testing.assert_allclose(got.features, expected.features, atol=1e-5)
    np.testing.assert_allclose(got.packed, expected.packed, atol=1e-5)
    return got.clips == expected.clips


def test_captured_passes_give_what_plain_ones_give(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    for seed, count in enumerate((1, 2, 1, 3, 2)):
        got, expected = both(clips_of(count, seed), runner=runner)
        assert agree(got, expected)
        assert set(got.timings) == {'upload', 'encode', 'heads', 'download'}
    assert runner.captured
    assert fake.captures == 2 * 3  # encoder and heads, for 1, 2 and 3 clips
    assert runner.start(clips_of(1), None, False, False).land().features is None
    assert runner.start(clips_of(1), None, False, False).land().change is None


def test_passes_go_on_when_capturing_fails(fake, caplog):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    runner.start(clips_of(1), None, True, True)
    fake.refuse = 'operation not permitted when stream is capturing'
    for count in (2, 1, 3):
        assert agree(*both(clips_of(count), runner=runner))
    assert not runner.captured
    assert runner.reason == f'CUDA graph capture failed: RuntimeError: {fake.refuse}'
    assert caplog.text.count('kernel by kernel') == 1
    assert fake.captures == 3


def test_frames_with_keys_are_uploaded_once(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    film = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    for start in range(9):
        clip, keys = film[start:start + 4], [range(start, start + 4)]
        assert agree(*both([clip], keys, runner))
        assert agree(*both(clips_of(2, start), None, runner))  # others in between
    frames = 12 + 9 * 2 * 4
    assert frames <= runner._frames.uploads < frames + 16


def test_what_is_trimmed_is_made_again(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    keys = [range(4)]
    assert agree(*both(clips_of(1), keys, runner))
    assert runner.nbytes > 0
    runner.trim()
    assert runner.nbytes == 0
    assert agree(*both(clips_of(1), keys, runner))
    runner.close()
    assert runner.nbytes == 0


def test_the_change_made_on_the_device_is_that_of_the_features(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    everything, part = np.ones((2, 2), bool), np.array([[True, False], [True, True]])
    for seed, masks in enumerate(([everything, part], [part, everything], [part, part])):
        clips = clips_of(2, seed)
        landed = runner.start(clips, None, True, False, masks).land()
        assert set(landed.timings) == {'upload', 'encode', 'change', 'download'}
        for clip, mask, features, packed in zip(clips, masks, landed.features, landed.change,
                                                strict=True):
            change = Change.unpack(packed)
            np.testing.assert_allclose(change.steps, tubelet_change(features, mask), rtol=1e-4)
            np.testing.assert_allclose(change.strength, patch_strength(clip), rtol=1e-5)


def test_the_change_is_only_captured_once_it_is_asked_for(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    before = runner.start(clips_of(1), None, True, True).land()
    assert (fake.captures, before.change) == (2, None)
    size = runner.nbytes
    asked = runner.start(clips_of(1), None, True, True, [np.ones((2, 2), bool)]).land()
    assert fake.captures == 2 + 3       # those of before are made again, with it
    assert asked.change is not None
    assert runner.nbytes == size
    np.testing.assert_array_equal(asked.features, before.features)
    assert runner.start(clips_of(1), None, True, True).land().change is None
    assert fake.captures == 5


def test_features_come_last_and_who_reads_them_waits_for_them(fake, monkeypatch):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    clips, told = clips_of(2), []
    flight = runner.start(clips, None, True, True, [np.ones((2, 2), bool)] * 2)
    pending = Pending([flight], lambda landed: [
        Output(one, change=Change.unpack(change), arrival=landed.arrival)
        for one, change in zip(landed.features, landed.change, strict=True)], told.append)

    def lost():
        raise RuntimeError('the device is lost')

    with monkeypatch.context() as patch:
        patch.setattr(flight._end, 'synchronize', lost)
        outputs = pending.early()
        assert all(one.has_features and np.isfinite(one.change.steps).all() for one in outputs)
        for late in (lambda: outputs[1].features, outputs[0].arrive, pending.result):
            with pytest.raises(RuntimeError, match='lost'):
                late()
    before = dict(told[-1])
    assert pending.result() is outputs
    assert pending.timings is told[-1]
    took = outputs[0].arrive()
    assert took > 0
    assert pending.timings == {**before, 'download': before['download'] + took}
    assert pending.result() is outputs and len(told) == 2       # counted once
    expected = HostRunner(*parts(), CPU).start(clips, None, True, True).land()
    for output, want in zip(outputs, expected.features, strict=True):
        np.testing.assert_allclose(output.features, want, atol=1e-5)


def test_clips_of_the_device_mix_with_those_of_the_host(fake):
    runner, marks = CudaRunner(*parts(), CPU, SHAPE), []
    store = np.concatenate(clips_of(3, 5))
    ready = torch.cuda.Event()
    ready.record(None)
    rows = [7, 2, 2, 11]
    there = DeviceClip(torch.from_numpy(store), rows, ready, marks.append)
    here = clips_of(2, 6)
    keys = [[1, 2, 3, 4], None, [5, 6, 7, 8]]
    mixed = [here[0], there, here[1]]
    for clips, known in (([there], None), (mixed, keys), ([there, there], None)):
        known = known and [each or [None] * 4 for each in known]
        landed = runner.start(clips, known, True, True).land()
        plain = [store[rows] if clip is there else clip for clip in clips]
        assert agree(landed, HostRunner(*parts(), CPU).start(plain, None, True, True).land())
        assert agree(HostRunner(*parts(), CPU).start(clips, None, True, True).land(),
                     HostRunner(*parts(), CPU).start(plain, None, True, True).land())
    assert len(marks) == 4      # each clip of the device tells when its frames may go
    assert runner._frames.uploads == 8

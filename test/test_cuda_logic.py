# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The order of work on CUDA, with stand-ins for the device: see `fake_cuda`."""

from __future__ import annotations

import logging
import threading
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fake_cuda import Stream, install
from looming_films import FOCAL, Wall, film
from scenes import texture
from sessions import CPU, SHAPE, SIZE, choice_of, clips_of, lively_heads

from vjepa_ros.clip.resize import View
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.looming.structure import Structure, coarse
from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.perception.gpu_frames import DeviceFrames
from vjepa_ros.runtime.cuda import prewarm
from vjepa_ros.runtime.cuda.frame_upload import (
    Collector,
    DeviceClip,
    FrameStore,
    Rows,
    numbers_of,
)
from vjepa_ros.runtime.cuda.graph_replay import Queue, Replay
from vjepa_ros.runtime.cuda.prewarm import waking
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.forward.base import Normalise
from vjepa_ros.runtime.forward.select import prepare
from vjepa_ros.runtime.host_runner import HostRunner
from vjepa_ros.runtime.noise_floor import Change, patch_strength, tubelet_change
from vjepa_ros.runtime.outputs import Output, Pending, reading

pytestmark = pytest.mark.usefixtures('one_thread')


@pytest.fixture
def fake(monkeypatch):
    return install(monkeypatch)


def parts():
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    forward = prepare(encoder.eval(), choice_of(), Normalise(CPU), SHAPE)
    return forward, reading(lively_heads().eval(), Calibration())


def on_host(clips):
    return HostRunner(*parts(), CPU).start(clips, None, True, True).land()


def agree(got, expected):
    np.testing.assert_allclose(got.features, expected.features, atol=1e-5)
    np.testing.assert_allclose(got.packed, expected.packed, atol=1e-5)
    return got.clips == expected.clips


def runs_as_on_the_host(runner, clips, keys=None):
    landed = runner.start(clips, keys, True, True).land()
    assert agree(landed, on_host(clips))
    return landed


def test_captured_passes_give_what_plain_ones_give(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    for seed, count in enumerate((1, 2, 1, 3, 2)):
        landed = runs_as_on_the_host(runner, clips_of(count, seed))
        assert set(landed.timings) == {'upload', 'encode', 'heads', 'download'}
    assert runner.captured
    assert fake.captures == 2 * 3  # encoder and heads, for 1, 2 and 3 clips
    without = runner.start(clips_of(1), None, False, False).land()
    assert without.features is None and without.change is None


def test_passes_go_on_when_capturing_fails(fake, caplog):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    runner.start(clips_of(1), None, True, True)
    fake.refuse = 'operation not permitted when stream is capturing'
    for count in (2, 1, 3):
        runs_as_on_the_host(runner, clips_of(count))
    assert not runner.captured
    assert runner.reason == f'CUDA graph capture failed: RuntimeError: {fake.refuse}'
    assert caplog.text.count('kernel by kernel') == 1
    assert fake.captures == 3 and fake.abandoned == 1


def test_frames_with_keys_are_uploaded_once(fake):
    runner = CudaRunner(*parts(), CPU, SHAPE)
    film = np.stack(clips_of(3)).reshape(12, *SHAPE[1:])
    for start in range(9):
        runs_as_on_the_host(runner, [film[start:start + 4]], [range(start, start + 4)])
        runs_as_on_the_host(runner, clips_of(2, start))  # others in between
    frames = 12 + 9 * 2 * 4
    assert frames <= runner._frames.uploads < frames + 16


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
    for output, want in zip(outputs, on_host(clips).features, strict=True):
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
        assert agree(landed, on_host(plain))
        assert agree(on_host(clips), on_host(plain))
    assert len(marks) == 4      # each clip of the device tells when its frames may go
    assert runner._frames.uploads == 8


SMALL = (4, 16, 16, 3)
FRAME = 16 * 16 * 3


def pictures(frames, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (frames, *SMALL[1:]), dtype=np.uint8)


def gathered(store, clips, keys=None):
    out = torch.zeros((len(clips), *SMALL), dtype=torch.uint8)
    slots = store.send(clips, keys)
    collector = Collector(out)
    numbers = numbers_of(clips, slots, SMALL[0])
    collector.collect(clips, collector.send(numbers), store)
    return out.numpy()


def test_random_clips_of_many_frames_are_never_mixed_up():
    store = FrameStore(CPU, SMALL, most_bytes=20 * FRAME)
    frames, random = pictures(60), np.random.default_rng(1)
    for _ in range(300):
        picks = random.integers(0, 60, (random.integers(1, 4), 4))
        keys = [[None if random.random() < 0.2 else int(i) for i in row] for row in picks]
        clips = [frames[row] for row in picks]
        np.testing.assert_array_equal(gathered(store, clips, keys), clips)
    assert store.nbytes == 20 * FRAME


def test_a_frame_that_could_not_be_uploaded_is_not_believed_to_be_there(monkeypatch):
    store = FrameStore(CPU, SMALL)
    clip = pictures(4)
    gathered(store, [pictures(4, 1)], [range(10, 14)])

    def full(new):
        raise torch.cuda.OutOfMemoryError('CUDA out of memory')

    with monkeypatch.context() as patch:
        patch.setattr(store, '_fill', full)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            store.send([clip], [range(4)])
    np.testing.assert_array_equal(gathered(store, [clip], [range(4)]), [clip])


class LateDevice:
    """Where numbers arrive when somebody waits for them, and not before."""

    def __init__(self):
        self.under_way, self.arrived = [], []

    def copy_(self, staged, non_blocking):
        assert non_blocking
        self.under_way.append(staged)

    def event(self):
        mark = SimpleNamespace(count=0)
        mark.record = lambda: setattr(mark, 'count', len(self.under_way))
        mark.synchronize = lambda: self.arrived.extend(
            staged.tolist() for staged in self.under_way[len(self.arrived):mark.count])
        return mark


def test_numbers_that_are_still_on_their_way_are_not_overwritten():
    rows, device = Rows(3, CPU), LateDevice()
    rows.there = device
    rows._staged = deque((staged, device.event()) for staged, _ in rows._staged)
    sent = [[n, n + 1, n + 2] for n in range(7)]
    for numbers in sent:
        rows.send(numbers)
        assert len(device.under_way) - len(device.arrived) <= 2
    for _, mark in rows._staged:
        mark.synchronize()
    assert device.arrived == sent


def captured_queue():
    """A queue that captures, though its tensors are on the CPU."""
    queue = Queue(CPU)
    queue.stream = Stream()
    return queue


@pytest.mark.parametrize('captured', [True, False])
def test_work_without_a_result_takes_whole_numbers_and_a_start_of_its_own(fake, captured):
    seen, rows = [], torch.zeros(4, dtype=torch.int64)

    def work(given):
        seen.append(given.tolist())
        rows.index_copy_(0, given[:1], given[1:])

    address = 0x7fff_1234_5678      # more than float32 holds
    queue = captured_queue() if captured else Queue(CPU)
    replay = Replay(queue, work, 2, 'a test', first=np.array([2, address]))
    assert replay.captured == captured
    assert seen and all(numbers == [2, address] for numbers in seen)
    for row in (1, 3):
        with queue.here():
            replay.start_here((row, address + row))
    assert rows.tolist() == [0, address + 1, address, address + 3]


def test_what_can_not_be_captured_runs_step_by_step_and_says_why(fake, caplog):
    fake.refuse = 'operation not permitted when stream is capturing'
    replay = Replay(captured_queue(), lambda given: 2 * given, 2, 'doubling')
    replay.start(np.array([1.0, 2.0]))
    np.testing.assert_allclose(replay.finish(), [2, 4])
    assert not replay.captured and fake.abandoned == 1
    assert fake.refuse in replay.reason
    assert 'doubling: CUDA graph capture failed' in caplog.text


def test_captured_looming_is_that_of_single_steps(fake):
    captured, plain = DeviceLooming(captured_queue()), DeviceLooming(Queue(CPU))
    films = [film([Wall((0, 0, 2))], velocity=(0, 0, 1), dt=1 / 15)[0],
             film([Wall((0, 0, 3))], turn=(0, 1.0, 0), dt=0.25, count=2)[0]]
    for history in films:
        expected = plain.estimate(history, FOCAL)
        found = captured.estimate(history, FOCAL, None)
        assert 'graph' in captured.how
        for name in ('rate', 'confidence', 'sigma', 'flow', 'rotation'):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        assert found.dt_s == expected.dt_s
    assert fake.captures == 2


@pytest.mark.parametrize('mode', ['squash', 'hf'])
def test_captured_frames_are_those_of_single_steps(fake, mode):
    view = View(mode, (320, 240), 64)
    captured, plain = (DeviceFrames(queue, view, (160, 120), 4)
                       for queue in (captured_queue(), Queue(CPU)))
    for number, row in enumerate((2, 0, 3, 2, 1)):
        for frames in (captured, plain):
            frames.put(texture((320, 240), number), row)
    assert captured.captured
    assert torch.equal(captured.grey, plain.grey)
    np.testing.assert_array_equal(captured.pixels(range(4)), plain.pixels(range(4)))
    for frames in (captured, plain):
        for found, pixels in zip(frames.structure(range(4)), plain.pixels(range(4)), strict=True):
            expected = Structure.of(coarse(pixels), view.patch_valid())
            np.testing.assert_allclose(found, expected, atol=0.01)
    out = torch.empty((3, 64, 64, 3), dtype=torch.uint8)
    captured.clip([1, 3, 2]).copy_to(out)
    np.testing.assert_array_equal(out, plain.pixels([1, 3, 2]))


def test_trouble_of_any_kind_in_the_start_of_a_gpu_is_logged_and_ends_nothing(monkeypatch, caplog):
    def trouble(*args):
        raise AttributeError('no such symbol')

    uncaught = []
    monkeypatch.setattr(threading, 'excepthook', uncaught.append)
    monkeypatch.setattr(prewarm.torch.cuda, 'device', trouble)
    with caplog.at_level(logging.DEBUG), waking(torch.device('cuda:0'), torch.bfloat16):
        pass
    assert 'AttributeError: no such symbol' in caplog.text      # the thread has ended by now
    assert not uncaught

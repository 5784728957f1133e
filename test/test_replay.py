# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Work that is captured once and repeated, with stand-ins for the device: see `fake_cuda`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_cuda import Stream, install
from looming_films import FOCAL, Wall, film
from scenes import texture

from vjepa_ros.clip.resize import View
from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.perception.gpu_frames import DeviceFrames
from vjepa_ros.runtime.cuda.graph_replay import Queue, Replay

CPU = torch.device('cpu')
pytestmark = pytest.mark.usefixtures('one_thread')


@pytest.fixture
def fake(monkeypatch):
    return install(monkeypatch)


def captured_queue():
    """A queue that captures, though its tensors are on the CPU."""
    queue = Queue(CPU)
    queue.stream = Stream()
    return queue


def test_a_repeated_run_takes_its_new_numbers(fake):
    replay = Replay(captured_queue(), lambda given: 2 * given + 1, 3, 'a test')
    assert replay.captured and not replay.reason
    for numbers in ([1, 2, 3], [-4, 0.5, 9]):
        replay.start(np.array(numbers))
        np.testing.assert_allclose(replay.finish(), 2 * np.array(numbers) + 1)


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
    assert not replay.captured
    assert fake.refuse in replay.reason
    assert 'doubling: CUDA graph capture failed' in caplog.text


def test_captured_looming_is_that_of_single_steps(fake):
    captured, plain = DeviceLooming(captured_queue()), DeviceLooming(Queue(CPU))
    films = [film([Wall((0, 0, 2))], velocity=(0, 0, 1), dt=1 / 15)[0],
             film([Wall((0, 0, 2), look=1)], velocity=(0.2, 0, 3), turn=(0, 0.4, 0), dt=0.1)[0],
             film([Wall((0, 0, 3))], turn=(0, 1.0, 0), dt=0.25, count=2)[0]]
    for history in films:
        expected = plain.estimate(history, FOCAL)
        found = captured.estimate(history, FOCAL, None)
        assert 'graph' in captured.how
        for name in ('rate', 'confidence', 'sigma', 'flow', 'rotation'):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        assert found.dt_s == expected.dt_s
    assert fake.captures == 2


@pytest.mark.parametrize('mode', ['squash', 'letterbox', 'hf', 'meta'])
def test_captured_frames_are_those_of_single_steps(fake, mode):
    view = View(mode, (320, 240), 64)
    captured, plain = (DeviceFrames(queue, view, (160, 120), 4, mirror=True)
                       for queue in (captured_queue(), Queue(CPU)))
    for number, row in enumerate((2, 0, 3, 2, 1)):
        for frames in (captured, plain):
            frames.put(texture((320, 240), number), row)
    assert captured.captured
    assert torch.equal(captured.grey, plain.grey)
    np.testing.assert_array_equal(captured.pixels(range(4)), plain.pixels(range(4)))
    out = torch.empty((3, 64, 64, 3), dtype=torch.uint8)
    captured.clip([1, 3, 2]).copy_to(out)
    np.testing.assert_array_equal(out, plain.pixels([1, 3, 2]))

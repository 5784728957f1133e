# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The order of work on CUDA, with stand-ins for the device: see `fake_cuda`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_cuda import Stream, install
from looming_films import FOCAL, Wall, film
from sessions import CPU, clips_of, session

from vjepa_ros.looming.gpu.estimator import DeviceLooming
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream, Replay
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.noise_floor import patch_strength, tubelet_change
from vjepa_ros.runtime.runner import DeviceClip

pytestmark = pytest.mark.usefixtures('one_thread')


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


def captured_queue():
    """A queue that captures, though its tensors are on the CPU."""
    queue = DeviceStream(CPU)
    queue.stream = Stream()
    return queue


def test_what_can_not_be_captured_runs_step_by_step_and_says_why(fake, caplog):
    fake.refuse = 'operation not permitted when stream is capturing'
    replay = Replay(captured_queue(), lambda given: 2 * given, np.zeros(2, np.float32), 'doubling')
    replay.start(np.array([1.0, 2.0]))
    np.testing.assert_allclose(replay.finish(), [2, 4])
    assert not replay.captured and fake.abandoned == 1
    assert 'doubling: CUDA graph capture failed' in caplog.text and fake.refuse in caplog.text


def test_captured_looming_is_that_of_single_steps(fake):
    captured, plain = DeviceLooming(captured_queue()), DeviceLooming(DeviceStream(CPU))
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

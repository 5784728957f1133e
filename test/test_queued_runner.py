# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Passes in a thread, as on MPS; the CPU stands in for the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from scenes import texture
from sessions import SIZE, choice_of, clips_of, lively_heads

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.runtime import session as sessions
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.host_runner import HostRunner
from vjepa_ros.runtime.queued_runner import DEPTH, QueuedRunner
from vjepa_ros.runtime.session import EncoderSession, SessionError

pytestmark = pytest.mark.usefixtures('one_thread')


class Device:
    """Holds the passes of a session up, lets them fail, and counts their clips."""

    def __init__(self) -> None:
        self.free, self.busy = threading.Event(), threading.Event()
        self.free.set()
        self.fits = 99
        self.error = RuntimeError('MPS backend out of memory')
        self.batches: list[int] = []

    def __call__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        self.busy.set()
        assert self.free.wait(10)
        if len(inputs[0]) > self.fits:
            raise self.error
        self.batches.append(len(inputs[0]))

    @contextmanager
    def held(self) -> Iterator[None]:
        self.free.clear()
        self.busy.clear()
        try:
            yield
        finally:
            self.free.set()


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions take the runner of MPS."""
    monkeypatch.setattr(sessions, '_runner', lambda forward, read, device, shape: QueuedRunner(
        forward, read, device))


@pytest.fixture
def device() -> Device:
    return Device()


def make(device: Device | None = None) -> EncoderSession:
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    made = EncoderSession(encoder, choice_of(), 4, 32, lively_heads())
    if device is not None:
        encoder.patch_embed.register_forward_pre_hook(device)     # now: modules were exchanged
    return made


def runner_of(session: EncoderSession) -> QueuedRunner:
    assert isinstance(session._runner, QueuedRunner)
    return session._runner


def same(got, expected):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.features, other.features, atol=1e-5)
        np.testing.assert_allclose(one.heads.contact, other.heads.contact, atol=1e-5)
    return len(got)


def test_submit_returns_before_the_pass_is_over(queued, device, monkeypatch):
    session, clips = make(device), [clips_of(2, seed) for seed in range(4)]
    with monkeypatch.context() as plain:
        plain.setattr(sessions, '_runner', lambda forward, read, where, shape: HostRunner(
            forward, read, where))
        expected = [make().run(each) for each in clips]
    session.run(clips[0])                                # the first of its kind is waited for
    given = [np.stack(each) for each in clips]
    with device.held():
        under_way = [session.submit([*each]) for each in given[:DEPTH]]
        assert device.busy.wait(10)
        assert not any(one.done() for one in under_way)
        given[0][:] = 0                                  # the clips may be changed now
        third = threading.Thread(target=lambda: under_way.append(session.submit([*given[2]])))
        third.start()
        third.join(0.1)
        assert third.is_alive() and len(under_way) == DEPTH     # it waits for the first
    third.join(10)
    for one, wanted in zip(under_way, expected, strict=False):
        assert same(one.result(), wanted) == 2
        assert set(one.timings) == {'upload', 'encode', 'heads', 'download'}
    last = session.submit([*given[3]])
    session.close()
    assert same(last.result(), expected[3]) == 2         # its results stay
    with pytest.raises(SessionError, match='closed'):
        session.run(clips[0])


def test_a_frame_is_uploaded_once_as_long_as_a_camera_holds_it(queued):
    session, film = make(), np.concatenate(clips_of(4))
    plain, runner = make(), runner_of(session)
    for at in range(12):
        keys = [range(at, at + 4)]
        assert same(session.run([film[at:at + 4]], keys=keys), plain.run([film[at:at + 4]]))
    assert runner.uploads == 15 and runner.nbytes == 15 * 32 * 32 * 3
    session.keep(frozenset(range(11, 99)))
    assert runner.nbytes == 4 * 32 * 32 * 3
    session.run([film[10:14]], keys=[range(10, 14)])     # the first of them has come back
    assert runner.uploads == 16 and len(runner._there) == 5
    for _ in range(2):                                   # frames without a key do not stay
        session.run([film[:4]], keys=[[None, 11, 12, 13]])
    assert runner.uploads == 18 and len(runner._there) == 6
    session.run([film[:4]])
    assert len(runner._there) == 9 and runner.nbytes == 5 * 32 * 32 * 3


def test_frames_are_bounded_where_nobody_says_what_is_held(queued, monkeypatch):
    monkeypatch.setattr('vjepa_ros.runtime.queued_runner.MOST_BYTES', 6 * 32 * 32 * 3)
    session, film = make(), np.concatenate(clips_of(4))
    for at in range(12):
        session.run([film[at:at + 4]], keys=[range(at, at + 4)])
    assert len(runner_of(session)._there) <= 7 and runner_of(session).uploads == 15
    assert len(session.run([film[:4], film[4:8]], keys=[range(4), range(4, 8)])) == 2


def test_after_a_pass_has_failed_nothing_is_built_on_it(queued, device):
    session, clips = make(device), clips_of(3)
    session.run(clips[:1])
    with device.held():
        device.fits, device.error = 0, ValueError('broken')
        first, second = session.submit(clips[:1]), session.submit(clips[1:2])
    with pytest.raises(ValueError, match='broken'):
        first.result()
    with pytest.raises(SessionError, match='pass before this one failed: broken'):
        second.result()
    device.fits = 99
    assert same(session.run(clips), make().run(clips)) == 3


def test_lack_of_memory_is_told_and_the_next_passes_are_smaller(queued, device):
    session, clips = make(device), clips_of(2)
    expected = session.run(clips)
    device.fits = 1
    with pytest.raises(RuntimeError, match='out of memory'):
        session.run(clips)                  # of a kind that had run: known with the result
    device.batches.clear()
    assert same(session.run(clips), expected) == 2 and device.batches == [1, 1]
    device.fits = 0
    for _ in range(2):      # the second has nothing that had run
        with pytest.raises(RuntimeError, match='memory'):
            session.run(clips)
    with pytest.raises(SessionError, match='no memory for one clip'):
        session.features(clips)


def test_looming_is_measured_while_the_device_computes(queued, device):
    engine = Engine.load(EngineConfig(weights='random', allow_random_weights=True, num_frames=4,
                                      image_size=64, device='cpu', precision='fp32'))
    perception = Perception(engine, TrackConfig(num_frames=4, image_size=64, clip_fps=10.0),
                            ['cam'])
    assert perception._helper is None       # as on a GPU: no other thread measures
    track, picture, wants = perception.tracks['cam'], texture((160, 120)), Wants()
    for at in range(4):
        track.push(picture, 10 ** 10 + at * 10 ** 8)
    perception.encode(perception.pending(), {'cam': wants})
    module = engine._session._encoder
    assert module is not None
    module.patch_embed.register_forward_pre_hook(device)
    measure, beside = track.looming_job().geometry.looming, []

    def looming(*args):
        assert device.busy.wait(10)
        beside.append(not device.batches)   # the model is at it
        device.free.set()
        return measure(*args)

    track.looming_job().geometry.looming = looming
    track.push(picture, 10 ** 10 + 4 * 10 ** 8)
    samples = perception.pending()
    device.free.clear()
    device.busy.clear()
    results = perception.run(samples, Settings(), {'cam': wants}, lambda _: 0.01)
    assert beside == [True] and results[0].looming is not None
    perception.close()

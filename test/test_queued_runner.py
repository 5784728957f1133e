# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Passes in a thread, as on MPS; the CPU stands in for the device."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from sessions import SIZE, clips_of, lively_heads, serve, session

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.runner import QueuedRunner

pytestmark = pytest.mark.usefixtures('one_thread')


class Device:
    """Holds the passes of an engine up, has room for so many clips, and counts them."""

    def __init__(self) -> None:
        self.free, self.busy = threading.Event(), threading.Event()
        self.free.set()
        self.fits = 99
        self.batches: list[int] = []
        encoder, _ = load_encoder(SIZE, allow_random_weights=True)
        self.engine = serve(encoder, heads=lively_heads(), runner=QueuedRunner)
        encoder.patch_embed.register_forward_pre_hook(self._enter)     # modules were exchanged

    def _enter(self, module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        self.busy.set()
        assert self.free.wait(10)
        if len(inputs[0]) > self.fits:
            raise RuntimeError('MPS backend out of memory')
        self.batches.append(len(inputs[0]))


@pytest.fixture
def device() -> Device:
    return Device()


def same(got, expected):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.features, other.features, atol=1e-5)
        np.testing.assert_allclose(one.heads.contact, other.heads.contact, atol=1e-5)
    return len(got)


def test_submit_returns_before_the_pass_is_over(device):
    engine, clips = device.engine, [clips_of(2, seed) for seed in range(3)]
    expected = [session().run(each) for each in clips]
    engine.run(clips[0])                                # the first of its kind is waited for
    given = [np.stack(each) for each in clips]
    device.busy.clear()
    device.free.clear()
    try:
        first, later = engine.submit([*given[0]]), []
        assert device.busy.wait(10) and not first[0].source.arrived()
        given[0][:] = 0                                 # the clips may be changed now
        second = threading.Thread(target=lambda: later.extend(engine.submit([*given[1]])))
        second.start()
        second.join(0.1)
        assert second.is_alive()                        # it waits for the first
    finally:
        device.free.set()
    second.join(10)
    assert same(engine.wait(first), expected[0]) == same(engine.wait(later), expected[1]) == 2
    assert set(engine.timings) == {'upload', 'encode', 'heads', 'download'}
    last = engine.submit([*given[2]])
    engine.close()
    assert same(engine.wait(last), expected[2]) == 2    # its results stay
    with pytest.raises(SessionError, match='closed'):
        engine.run(clips[0])


def test_lack_of_memory_is_told_and_the_next_passes_are_smaller(device):
    engine, clips = device.engine, clips_of(2)
    expected = engine.run(clips)
    device.fits = 1
    with pytest.raises(RuntimeError, match='out of memory'):
        engine.run(clips)                   # of a kind that had run: known with the result
    device.batches.clear()
    assert same(engine.run(clips), expected) == 2 and device.batches == [1, 1]
    device.fits = 0
    with pytest.raises(SessionError, match='no memory for one clip'):
        engine.features(clips)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Frames are uploaded once, the oldest make room, and no clip ever shows a wrong frame."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vjepa_ros.runtime.cuda.frame_upload import Collector, FrameStore, Rows

CPU = torch.device('cpu')
SHAPE = (4, 16, 16, 3)
FRAME = 16 * 16 * 3


def film(frames, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (frames, *SHAPE[1:]), dtype=np.uint8)


def gathered(store, clips, keys=None):
    out = torch.zeros((len(clips), *SHAPE), dtype=torch.uint8)
    slots = store.send(clips, keys)
    Collector(out).collect(clips, slots, store)
    return out.numpy()


def test_a_frame_is_uploaded_once_while_it_is_there():
    store = FrameStore(CPU, SHAPE)
    frames = film(12)
    for start in range(9):
        clip = frames[start:start + 4]
        np.testing.assert_array_equal(gathered(store, [clip], [range(start, start + 4)]), [clip])
    assert store.uploads == 12
    twice = np.stack([frames[0], frames[0], frames[1], frames[1]])
    np.testing.assert_array_equal(gathered(store, [twice], [['a', 'a', 'b', 'b']]), [twice])
    assert store.uploads == 14


def test_random_clips_of_many_frames_are_never_mixed_up():
    store = FrameStore(CPU, SHAPE, most_bytes=20 * FRAME)
    frames, random = film(60), np.random.default_rng(1)
    for _ in range(300):
        picks = random.integers(0, 60, (random.integers(1, 4), 4))
        keys = [[None if random.random() < 0.2 else int(i) for i in row] for row in picks]
        clips = [frames[row] for row in picks]
        np.testing.assert_array_equal(gathered(store, clips, keys), clips)
    assert store.nbytes == 20 * FRAME


def test_places_grow_only_for_frames_that_come_again():
    frames = film(32)
    store = FrameStore(CPU, SHAPE, most_bytes=100 * FRAME)
    for start in range(28):  # a camera whose frames all follow each other
        gathered(store, [frames[start:start + 4]], [range(start, start + 4)])
    assert store.nbytes == 4 * FRAME
    uploads = []
    for start in range(27):  # every fourth frame: each is used again four clips later
        keys = range(100 + start, 100 + start + 4 * 4, 4)
        before = store.uploads
        gathered(store, [frames[:4]], [keys])
        uploads.append(store.uploads - before)
    assert uploads[-1] == 1
    assert store.nbytes <= 16 * FRAME


def test_a_frame_that_could_not_be_uploaded_is_not_believed_to_be_there(monkeypatch):
    store = FrameStore(CPU, SHAPE)
    clip = film(4)
    gathered(store, [film(4, 1)], [range(10, 14)])

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
    rows._there = device
    rows._staged = deque((staged, device.event()) for staged, _ in rows._staged)
    sent = [[n, n + 1, n + 2] for n in range(7)]
    for numbers in sent:
        rows.send(numbers)
        assert len(device.under_way) - len(device.arrived) <= 2
    for _, mark in rows._staged:
        mark.synchronize()
    assert device.arrived == sent


def test_a_store_that_was_reset_starts_anew_and_stays_small():
    store = FrameStore(CPU, SHAPE)
    clip = film(4)
    gathered(store, [clip], [range(4)])
    store.reset()
    assert store.nbytes == 0
    for start in (0, 4, 0, 4):
        np.testing.assert_array_equal(gathered(store, [clip], [range(start, start + 4)]), [clip])
    assert store.nbytes == 4 * FRAME

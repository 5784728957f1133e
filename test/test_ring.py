# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the stamp-ordered frame ring: order, sampling by time, resets, memory."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from vjepa_ros.clip import ring as ring_module
from vjepa_ros.clip.ring import Frame, FrameRing, Push

NS = 1_000_000_000


def frame(value: int) -> Frame:
    """A frame that carries a number, so that a test can tell which one was chosen."""
    return Frame(np.full((6, 8, 3), value % 256, np.uint8))


def ns(seconds: float) -> int:
    return round(seconds * NS)


def feed(ring: FrameRing, rate: float, count: int, start: float = 100.0, first: int = 0) -> None:
    """Push frames numbered from `first` at an even rate [Hz]."""
    for i in range(count):
        assert ring.push(ns(start + i / rate), frame(first + i)).stored


def numbers(ring: FrameRing) -> list[int]:
    """The numbers of the frames of the newest clip, oldest first."""
    return [shown.rgb[0, 0, 0] for shown in ring.sample().frames]


@pytest.mark.parametrize('rate', [1.1, 2.0, 6.5, 30.0])
def test_a_stream_has_a_frame_of_its_own_for_each_tubelet_at_any_rate(rate):
    ring = FrameRing(8, clip_fps=4.0)
    feed(ring, rate, 100)
    keys = [shown.key for shown in ring.sample_stream(()).frames]
    newest, before = keys[1::2], keys[::2]
    assert len({*newest}) == 4 and all(a < b for a, b in zip(before, newest, strict=True))
    if rate < 3:
        assert max(keys) - min(keys) == 4      # each with the frame before it


@pytest.mark.parametrize(('camera', 'stride'), [(30.0, 3), (10.0, 1)])
def test_a_clip_covers_its_span_and_a_faster_camera_gives_every_nth_frame(camera, stride):
    ring = FrameRing(4, clip_fps=10.0)
    feed(ring, camera, 3 * stride)
    assert ring.sample() is None and ring.fill == 3
    feed(ring, camera, 9, start=100.0 + 3 * stride / camera, first=3 * stride)
    newest, sample = 3 * stride + 8, ring.sample()
    assert ring.fill == 4 and numbers(ring) == [newest - k * stride for k in (3, 2, 1, 0)]
    assert (sample.rate_hz, sample.span_s) == pytest.approx((10.0, 0.3), rel=1e-6)
    assert sample.distinct == 4


@pytest.mark.parametrize(('count', 'clip_fps', 'stamps', 'chosen'), [
    (3, 10.0, (5.0, 5.04, 5.06, 5.11, 5.17, 5.2), [0, 3, 5]),
    (2, 2.0, (10.0, 10.25, 10.75, 11.0), [2, 3])], ids=['nearest', 'the later of two as near'])
def test_the_frame_nearest_to_each_target_time_is_chosen(count, clip_fps, stamps, chosen):
    ring = FrameRing(count, clip_fps)
    for number, stamp in enumerate(stamps):
        ring.push(ns(stamp), frame(number))
    assert numbers(ring) == chosen


def test_a_slower_camera_repeats_frames_and_says_its_effective_rate():
    ring = FrameRing(8, clip_fps=10.0, max_frame_gap=2.0)
    feed(ring, 4.0, 6)
    sample = ring.sample()
    assert sample.distinct < 8
    assert sample.rate_hz == pytest.approx(4.0, rel=1e-6)
    ring = FrameRing(4, clip_fps=10.0, max_frame_gap=5.0)
    feed(ring, 1.0, 3)
    sample = ring.sample()
    assert (sample.distinct, sample.span_s) == (1, 0.0) and math.isnan(sample.rate_hz)


def test_a_duplicate_stamp_is_dropped_and_counted():
    ring = FrameRing(2, clip_fps=10.0)
    feed(ring, 10.0, 2, start=0.9)
    for stamp in (ns(1), ns(1) + 100, ns(1) - 100):     # published twice, perhaps stamped anew
        assert ring.push(stamp, frame(9)) is Push.DUPLICATE
    assert [shown.rgb[0, 0, 0] for shown in ring.frames] == [0, 1]
    assert ring.counts['duplicate'] == 3


@pytest.mark.parametrize(('change', 'reason'), [
    ({'stamp': 1.0}, 'time_backwards'), ({'stamp': 99.0}, 'gap'),
    ({'frame_id': 'other'}, 'frame_id_change'), ({'size': (32, 24)}, 'size_change')])
def test_a_break_empties_the_ring_and_is_counted_by_reason(change, reason):
    ring = FrameRing(4, clip_fps=10.0, max_frame_gap=1.0)
    for i in range(6):
        ring.push(ns(50 + i / 10), frame(i), size=(8, 6), frame_id='cam')
    assert ring.sample() is not None
    new = frame(60)
    assert ring.push(ns(change.get('stamp', 50.6)), new, size=change.get('size', (8, 6)),
                     frame_id=change.get('frame_id', 'cam')) is Push.RESET
    assert ring.sample() is None and ring.frames == [new]
    assert dict(ring.resets) == {reason: 1}


def test_unstamped_frames_take_their_arrival_and_warn_once(caplog):
    ring = FrameRing(3, clip_fps=10.0, name='front')
    with caplog.at_level(logging.WARNING):
        for i in range(5):
            ring.push(0, frame(i), arrival_ns=ns(7 + i / 10))
    assert numbers(ring) == [2, 3, 4]
    assert ring.newest_ns == ns(7.4)
    assert ring.counts['zero_stamp'] == 5
    warning, = caplog.messages
    assert 'front' in warning and 'stamp' in warning


@pytest.mark.parametrize(('left_out', 'rate', 'reason', 'texts'), [
    (0, 1 / 1.1, 'gap', ('1.10 s apart', 'raise it above the interval of the camera')),
    (15, 15 / 16, 'slow_inference',     # of a camera of 15 Hz
     ('inference is slower', '0.07 s', '1.07 s apart', 'model_size'))])
def test_what_keeps_clips_from_filling_is_named_once(left_out, rate, reason, texts, caplog):
    ring = FrameRing(4, 4.0, max_frame_gap=1.0, name='front')
    ring.left_out = left_out
    feed(ring, rate, 10)
    told, = (text for text in caplog.messages if 'max_frame_gap' in text)
    assert all(text in told for text in (*texts, 'front'))
    assert ring.resets == {reason: 9} and told.endswith(ring.problem)
    feed(ring, 10.0, 3, start=200.0)
    assert not ring.problem


@pytest.mark.parametrize(('rate', 'clip_fps', 'limit', 'spread_s'), [
    (120.0, 4.0, None, 0.06), (1000.0, 4.0, None, 0.06), (30.0, 0.5, 60, 0.6)])
def test_frames_of_a_faster_camera_are_thinned_without_a_hole(rate, clip_fps, limit, spread_s,
                                                              monkeypatch):
    ring = FrameRing(8, clip_fps)
    if limit:
        monkeypatch.setattr(ring_module, 'MAX_BYTES', limit * frame(0).nbytes)
    feed(ring, rate, round(16 * rate / clip_fps))
    assert len(ring) <= ring.capacity <= (limit or 1000)
    sample = ring.sample()
    assert ring.counts['thinned'] > 0
    assert sample.distinct == 8
    assert np.abs(np.diff(sample.stamps_ns) / NS - 1 / clip_fps).max() < spread_s
    assert sample.newest_ns == ring.newest_ns


@pytest.mark.parametrize(('name', 'value'), [
    ('clip_fps', 0.0), ('clip_fps', math.nan), ('max_frame_gap', -1.0)])
def test_illegal_numbers_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        FrameRing(**{'num_frames': 4, 'clip_fps': 4.0, name: value})

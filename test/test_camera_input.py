# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the queue of a camera, and that its status never says that it runs without results."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('rclpy')

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros.common.diagnostics import OK, STALE, WARN
from vjepa_ros.ros.perception_node.camera_input import Frame, FrameQueue
from vjepa_ros.ros.perception_node.diagnostics import CameraStats, condition

pytestmark = pytest.mark.ros
MS = 1_000_000


def fill(queue: FrameQueue, numbers, period_ms: float = 33.0, size: int = 100,
         stamped: bool = True) -> FrameQueue:
    for i in numbers:
        stamp = round((1000 + i * period_ms) * MS)
        queue.put(Frame(i, stamp if stamped else 0, stamp, size))
    return queue


def claimed(queue: FrameQueue, spacing_ms: float = 0.0) -> list[int]:
    return [frame.message for frame in queue.claim(round(spacing_ms * MS))]


def decoded(queue: FrameQueue, frame: Frame, size: int = 100) -> None:
    frame.rgb, frame.frame_id = np.zeros(size, np.uint8), str(frame.message)
    queue.finish(frame)


@pytest.mark.parametrize('count', [64, 65, 1000])
def test_a_full_queue_is_thinned_evenly_and_keeps_the_newest(count):
    queue = fill(FrameQueue(limit=64), range(count))
    frames = queue.claim(0)
    got = [frame.message for frame in frames]
    assert queue.dropped == count - len(got)
    assert len(got) <= 64
    assert got[0] == 0 and got[-1] == count - 1
    assert 1 <= np.diff(got).max() <= max(1, 3 * count / 64)      # in order, without a long gap
    assert claimed(queue) == []                     # each is given out once
    assert [frame.left_out for frame in frames[1:]] == list(np.diff(got) - 1)


def test_bytes_are_bounded_but_two_images_always_wait():
    assert len(fill(FrameQueue(max_bytes=1000), range(50), size=300)) == 3
    assert claimed(fill(FrameQueue(max_bytes=10), range(3), size=1000)) == [0, 2]
    waiting = fill(FrameQueue(max_bytes=1000), range(3), size=300)
    for each in waiting.claim(0):                   # what is decoded counts by its pixels
        decoded(waiting, each, 900)
    assert [f.frame_id for f in waiting.take()[0]] == ['0', '2']
    assert waiting.dropped == 1


@pytest.mark.parametrize(('more', 'spacing_ms', 'kept'), [
    ({'period_ms': 33.0}, 50.0, [1, 3, 5, 7]), ({'period_ms': 50.0}, 50.0, list(range(8))),
    ({'stamped': False}, 500.0, list(range(8)))])
def test_images_closer_than_the_spacing_are_skipped_and_counted(more, spacing_ms, kept):
    queue = fill(FrameQueue(), range(8), **more)
    frames = queue.claim(round(spacing_ms * MS))
    assert [frame.message for frame in frames] == kept
    assert queue.take() == ([], 8 - len(kept))
    assert [each.left_out for each in frames] == [(8 - len(kept)) // len(kept)] * len(kept)


# -- what diagnostics say of a camera -------------------------------------------------------------

NOW = 1000.0


def told(quiet=False, fault_s=-math.inf, silent=False, **values) -> tuple[bytes, str]:
    stats = CameraStats()
    vars(stats).update(values)
    camera = SimpleNamespace(silent=silent, fault_s=fault_s, last_fault='of encoding xyz')
    return condition(camera, stats, quiet, NOW)


@pytest.mark.parametrize(('values', 'level', 'words'), [
    ({}, OK, 'running'),
    ({'flags': Quality.STALE}, WARN, 'stale'),
    ({'quiet': True}, OK, 'buffering'),
    ({'quiet': True, 'full': True}, OK, 'nobody listens'),
    ({'quiet': True, 'waits_s': NOW - 60}, WARN, 'no result for 60 s: no clip fills'),
    ({'quiet': True, 'fault_s': NOW - 1}, WARN, 'images are refused: of encoding xyz'),
    ({'quiet': True, 'full': True, 'pass_s': NOW - 9}, WARN, 'inference has taken 9 s so far'),
    ({'quiet': True, 'gap_problem': 'inference is slower'}, WARN, 'no result: inference is slow'),
    ({'quiet': True, 'trouble': 'it failed'}, WARN, 'it failed'),
    ({'quiet': True, 'silent': True}, STALE, 'no frames')])
def test_a_camera_without_results_does_not_run(values, level, words):
    found, message = told(**values)
    assert found == level and words in message

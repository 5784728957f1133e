# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the input of one camera without topics: its queue, its subscriptions."""

from __future__ import annotations

import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('rclpy')

from rclpy.qos import ReliabilityPolicy

from vjepa_ros.ros.perception_node.camera_input import CameraInput, Frame, FrameQueue, Waiting

pytestmark = pytest.mark.ros
MS = 1_000_000


# -- the queue ------------------------------------------------------------------------------------

def item(i: int, period_ms: float = 33.0, size: int = 100, stamped: bool = True) -> Waiting:
    stamp = round((1000 + i * period_ms) * MS)
    return Waiting(i, stamp if stamped else 0, stamp, size)


def fill(queue: FrameQueue, count: int, **more) -> FrameQueue:
    for i in range(count):
        queue.put(item(i, **more))
    return queue


def claimed(queue: FrameQueue, spacing_ms: float = 0.0) -> list[int]:
    return [w.message for w in queue.claim(round(spacing_ms * MS))]


def frame(waiting: Waiting, size: int = 100) -> Frame:
    return Frame(np.zeros(size, np.uint8), None, None, waiting.stamp_ns, 0,
                 str(waiting.message), {})


@pytest.mark.parametrize('count', [5, 64, 65, 1000])
def test_a_full_queue_is_thinned_evenly_and_keeps_the_newest(count):
    queue = fill(FrameQueue(limit=64), count)
    got = claimed(queue)
    assert queue.dropped == count - len(got)
    assert len(got) <= 64
    assert got[0] == 0 and got[-1] == count - 1
    assert 1 <= np.diff(got).max() <= max(1, 3 * count / 64)      # in order, without a long gap
    assert claimed(queue) == []                     # each is given out once
    left = list(queue._items)
    assert [b.message - a.message - 1 for a, b in pairwise(left)] == [b.left_out for b in left[1:]]
    assert sum(each.left_out + 1 for each in left) == count


def test_bytes_are_bounded_but_two_images_always_wait():
    assert len(fill(FrameQueue(max_bytes=1000), 50, size=300)) == 3
    assert claimed(fill(FrameQueue(max_bytes=10), 3, size=1000)) == [0, 2]
    waiting = fill(FrameQueue(max_bytes=1000), 3, size=300)
    for each in waiting.claim(0):                   # what is decoded counts by its pixels
        waiting.finish(each, frame(each, 900))
    assert [f.frame_id for f in waiting.take()[0]] == ['0', '2']
    assert waiting.dropped == 1


@pytest.mark.parametrize(('more', 'spacing_ms', 'kept'), [
    ({'period_ms': 33.0}, 50.0, [1, 3, 5, 7]), ({'period_ms': 50.0}, 50.0, list(range(8))),
    ({'stamped': False}, 500.0, list(range(8)))])
def test_images_closer_than_the_spacing_are_skipped_and_counted(more, spacing_ms, kept):
    queue = fill(FrameQueue(), 8, **more)
    assert claimed(queue, spacing_ms) == kept
    assert queue.take() == ([], 8 - len(kept))
    assert [each.left_out for each in queue._items] == [(8 - len(kept)) // len(kept)] * len(kept)


def test_frames_are_taken_in_order_up_to_the_first_that_is_not_decoded():
    queue = fill(FrameQueue(), 4)
    waiting = queue.claim(0)
    queue.put(item(4))
    for i in (0, 1, 3):
        queue.finish(waiting[i], None if i == 1 else frame(waiting[i]))     # 1 is malformed
    assert [f.frame_id for f in queue.take()[0]] == ['0']
    assert queue.newest_ns == item(4).stamp_ns
    queue.finish(waiting[2], frame(waiting[2]))
    assert len(queue.take()[0]) == 2
    queue.clear()
    assert queue.take() == ([], 1)
    last, = fill(queue, 1).claim(0)
    queue.clear()
    queue.finish(last, frame(last))                  # cleared while it was decoded
    assert queue.take() == ([], 1)


# -- subscriptions --------------------------------------------------------------------------------

class Owner:
    """A node on whose topics somebody publishes, or not, and nothing arrives."""

    def __init__(self, *published: str, **names: str) -> None:
        self.published, self.names = list(published), names
        self.now, self.warnings, self.subscribed = 0.0, [], {}

    def resolve_topic_name(self, name: str) -> str:
        return self.names.get(name, f'/{name}')

    def get_publishers_info_by_topic(self, topic: str) -> list:
        profile = SimpleNamespace(reliability=ReliabilityPolicy.RELIABLE)
        return [SimpleNamespace(qos_profile=profile)] if topic in self.published else []

    def create_subscription(self, kind, topic: str, callback, *_, **more) -> str:
        self.subscribed[topic] = callback
        return topic

    def get_logger(self) -> SimpleNamespace:
        return SimpleNamespace(info=lambda text: None,
                               warning=lambda text, **_: self.warnings.append(text))

    def watch(self, camera: CameraInput, seconds: float) -> None:
        """Let time go on as the timer of the node does, with a timeout of 2 s."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            camera.watch(2.0)


def opened(owner: Owner, monkeypatch, transport: str = 'auto') -> CameraInput:
    monkeypatch.setattr(time, 'monotonic', lambda: owner.now)
    camera = CameraInput(owner, 'cam', transport)
    camera.open()
    return camera


@pytest.mark.parametrize('warned', [True, False])
def test_transport_is_not_blamed_while_nobody_publishes_or_the_camera_is_starting(monkeypatch,
                                                                                  warned):
    owner = Owner()
    camera = opened(owner, monkeypatch)
    owner.watch(camera, 4.0 if warned else 1.5)
    assert len(owner.warnings) == warned
    if warned:
        assert '/cam/image_raw has 0 publisher(s)' in owner.warnings[0]
        assert 'start the camera' in owner.warnings[0] and 'FASTDDS' not in owner.warnings[0]
    owner.published.append('/cam/image_raw')
    owner.watch(camera, 1.5)
    assert len(owner.warnings) == warned and camera.silent
    owner.watch(camera, 3.0)                     # now the camera has been there for the timeout
    assert len(owner.warnings) == warned + 1
    assert 'FASTDDS' in owner.warnings[-1] and 'start the camera' not in owner.warnings[-1]


def test_a_topic_that_is_remapped_to_a_compressed_one_is_read_as_such(monkeypatch):
    owner = Owner(**{'cam/image_raw': '/front/image/compressed'})
    camera = opened(owner, monkeypatch)
    assert camera.images.chosen == 'compressed'
    assert camera.images.topics == {'raw': '/front/image', 'compressed': '/front/image/compressed',
                             'ffmpeg': '/front/image/ffmpeg'}
    with pytest.raises(ValueError, match=r"'raw', but .* /front/image/compressed; set the trans"):
        CameraInput(owner, 'cam', 'raw')
    owner.published += ['/front/image', '/front/image/compressed']
    owner.watch(camera, 5.0)
    assert camera.images.chosen == 'compressed'
    assert '/front/image has a publisher' in owner.warnings[-1]
    assert 'remap cam/image_raw to /front/image,' in owner.warnings[-1]

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the input of one camera without topics: its queue, its subscriptions."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('rclpy')

from rclpy.qos import ReliabilityPolicy

from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.decoder import Frame, FrameQueue
from vjepa_ros.ros.perception_node.parameters import CameraConfig

pytestmark = pytest.mark.ros
MS = 1_000_000


# -- the queue ------------------------------------------------------------------------------------

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


def test_frames_are_taken_in_order_up_to_the_first_that_is_not_decoded():
    queue = fill(FrameQueue(), range(4))
    waiting = queue.claim(0)
    fill(queue, [4])
    decoded(queue, waiting[0])
    queue.finish(waiting[1])                         # it is malformed
    decoded(queue, waiting[3])
    assert [f.frame_id for f in queue.take()[0]] == ['0']
    assert queue.newest_ns == 1132 * MS
    decoded(queue, waiting[2])
    assert len(queue.take()[0]) == 2
    last, = queue.claim(0)
    queue.clear()
    decoded(queue, last)                             # cleared while it was decoded
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
    camera = CameraInput(owner, 'cam', CameraConfig(transport=transport, imu_topic=''))
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
        opened(owner, monkeypatch, 'raw')
    owner.published += ['/front/image', '/front/image/compressed']
    owner.watch(camera, 5.0)
    assert camera.images.chosen == 'compressed'
    assert '/front/image has a publisher' in owner.warnings[-1]
    assert 'remap cam/image_raw to /front/image,' in owner.warnings[-1]

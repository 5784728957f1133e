# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the worker of the node and its decoder in process: real model and messages, fake topics."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

pytest.importorskip('rclpy')

from node_fixtures import ANSWER_S
from scenes import texture

from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.ros.common.diagnostics import OK, STALE, WARN
from vjepa_ros.ros.common.message_conversion import image, make_header
from vjepa_ros.ros.perception_node.camera_input import Frame, FrameQueue, Rate
from vjepa_ros.ros.perception_node.diagnostics import CameraStats, condition
from vjepa_ros.ros.perception_node.worker import Worker
from vjepa_ros.runtime.model import Model, ModelConfig

pytestmark = [pytest.mark.ros, pytest.mark.any_distro, pytest.mark.usefixtures('one_thread')]

NS = 1_000_000_000
TRACK = TrackConfig(num_frames=4, image_size=64, clip_fps=10.0, frames_on='host')
MODEL = ModelConfig(weights='random', allow_random_weights=True, num_frames=4, image_size=64,
                    device='cpu')
CONFIG = SimpleNamespace(settings=Settings(max_frame_age=3600.0), max_rate=1000.0,
                         overlay_width=320, max_image_pixels=4096 * 4096, engine=MODEL,
                         track=TRACK)
CLOCK = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=time.time_ns()))
PICTURE = texture((96, 64))


class Message:
    """An image message; `before` is called when its pixels are read."""

    def __init__(self, stamp_ns: int, before=lambda: None) -> None:
        self._image = image(make_header(stamp_ns, 'optical'), PICTURE, 'rgb8')
        self._before = before

    def __getattr__(self, name: str):
        if name == 'data':
            self._before()
        return getattr(self._image, name)


def camera(name: str) -> SimpleNamespace:
    """A camera without a topic."""
    return SimpleNamespace(
        name=name, queue=FrameQueue(), rate=Rate(), silent=False, silent_s=0.0,
        lens_for=lambda size: (None, None), images=SimpleNamespace(judge=lambda readable: None))


class Topics:
    """Outputs with subscribers; `stamps` are the numbers of the newest images of results."""

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def wanted(self) -> frozenset[str]:
        return frozenset(('assessment',))

    def publish(self, result, wanted, how) -> None:
        self.stamps.append(round((result.assessment.stamp_ns - 100 * NS) / NS * 10))


class Bench:
    """A worker with cameras and outputs, and a model that says that it is on this device."""

    def __init__(self, *names: str, device: str = 'cuda') -> None:
        self.model = Model.load(MODEL)
        self.model.choice = replace(self.model.choice, device=torch.device(device))
        self.cameras = {name: camera(name) for name in names}
        self.sent = dict.fromkeys(names, 0)
        self.topics = {name: Topics() for name in names}
        self.errors: list[str] = []
        self.log = SimpleNamespace(error=lambda text, **more: self.errors.append(text),
                                   info=print, warning=print)
        self.worker = Worker(Perception(self.model, TRACK, names), CONFIG, self.cameras,
                             self.topics, CLOCK, self.log)
        self.stats = self.worker.stats
        self.worker.resume()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.worker.stop()
        assert self.worker.join(ANSWER_S)

    def send(self, count: int, *names: str, before=lambda: None) -> None:
        """Send images of these cameras, or of all, of 10 a second."""
        for name in count * (names or tuple(self.cameras)):
            self.sent[name] += 1
            stamp = 100 * NS + self.sent[name] * NS // 10
            self.cameras[name].queue.put(
                Frame(Message(stamp, before), stamp, time.time_ns(), PICTURE.nbytes))
            self.worker.notify()

    def until(self, holds) -> None:
        end = time.monotonic() + ANSWER_S
        while not holds():
            assert time.monotonic() < end, f'did not come true; log: {self.errors}'
            time.sleep(0.002)


def test_an_unforeseen_error_of_decoding_costs_one_image_of_one_camera():
    with Bench('bad', 'good') as b:
        b.send(1, 'bad', before=Mock(side_effect=MemoryError('no room for the picture')))
        b.until(lambda: b.worker.errors == 1 and b.errors)
        bad, good = b.stats['bad'], b.stats['good']
        assert (bad.errors, good.errors) == (1, 0)
        assert bad.trouble == 'decoding: MemoryError: no room for the picture'
        assert "camera 'bad': decoding" in b.worker.last_error
        b.send(4)
        b.until(lambda: b.topics['good'].stamps and b.topics['bad'].stamps)
        assert (bad.trouble, bad.errors) == ('', 1)      # good again, but not forgotten


@pytest.mark.parametrize('device', ['cpu', 'cuda'])
def test_an_image_that_takes_long_holds_up_no_other_camera(device):
    gate = threading.Event()
    with Bench('slow', 'good', 'too', device=device) as b:
        b.send(4, 'slow', before=lambda: gate.wait(ANSWER_S))
        for number in range(4, 10):
            b.send(4 if number == 4 else 1, 'good', 'too')
            b.until(lambda number=number: all(number in b.topics[name].stamps
                                              for name in ('good', 'too')))
        assert b.topics['slow'].stamps == []
        gate.set()
        b.until(lambda: b.topics['slow'].stamps == [4])      # without another message
        assert b.worker.errors == 0


MS = 1_000_000


def fill(queue: FrameQueue, numbers, period_ms: float = 33.0, size: int = 100,
         stamped: bool = True) -> FrameQueue:
    for i in numbers:
        stamp = round((1000 + i * period_ms) * MS)
        queue.put(Frame(i, stamp if stamped else 0, stamp, size))
    return queue


@pytest.mark.parametrize('count', [64, 1000])
def test_a_full_queue_is_thinned_evenly_and_keeps_the_newest(count):
    queue = fill(FrameQueue(limit=64), range(count))
    frames = queue.claim(0)
    got = [frame.message for frame in frames]
    assert queue.dropped == count - len(got)
    assert len(got) <= 64
    assert got[0] == 0 and got[-1] == count - 1
    assert 1 <= np.diff(got).max() <= max(1, 3 * count / 64)      # in order, without a long gap
    assert queue.claim(0) == []                     # each is given out once
    assert [frame.left_out for frame in frames[1:]] == list(np.diff(got) - 1)


def test_bytes_are_bounded_but_two_images_always_wait():
    assert len(fill(FrameQueue(max_bytes=10), range(3), size=1000).claim(0)) == 2
    waiting = fill(FrameQueue(max_bytes=1000), range(3), size=300)
    for each in waiting.claim(0):                   # what is decoded counts by its pixels
        each.rgb = np.zeros(900, np.uint8)
        waiting.finish(each)
    assert len(waiting.take()[0]) == 2 and waiting.dropped == 1


@pytest.mark.parametrize(('more', 'spacing_ms', 'kept'), [
    ({'period_ms': 33.0}, 50.0, [1, 3, 5, 7]), ({'period_ms': 50.0}, 50.0, list(range(8))),
    ({'stamped': False}, 500.0, list(range(8)))])
def test_images_closer_than_the_spacing_are_skipped_and_counted(more, spacing_ms, kept):
    queue = fill(FrameQueue(), range(8), **more)
    frames = queue.claim(round(spacing_ms * MS))
    assert [frame.message for frame in frames] == kept
    assert queue.take() == ([], 8 - len(kept))
    assert [each.left_out for each in frames] == [(8 - len(kept)) // len(kept)] * len(kept)


NOW = 1000.0


@pytest.mark.parametrize(('values', 'level', 'words'), [
    ({}, OK, 'running'),
    ({'quiet': True, 'full': True}, OK, 'nobody listens'),
    ({'quiet': True, 'fault_s': NOW - 1}, WARN, 'images are refused: of encoding xyz'),
    ({'quiet': True, 'full': True, 'pass_s': NOW - 9}, WARN, 'inference has taken 9 s so far'),
    ({'quiet': True, 'silent': True}, STALE, 'no frames')])
def test_a_camera_without_results_does_not_run(values, level, words):
    state = {'silent': False, 'fault_s': -math.inf, 'quiet': False, **values}
    stats = CameraStats()
    vars(stats).update(values)
    camera = SimpleNamespace(last_fault='of encoding xyz', **state)
    found, message = condition(camera, stats, state['quiet'], NOW)
    assert found == level and words in message

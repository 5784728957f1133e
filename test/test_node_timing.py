# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what slow models and vast pictures do to a camera: fresh, even clips, and flat memory.

A slow model is so slow that the rest of the work, even on a slow and busy machine, takes little in
comparison: limits lie in the middle between one inference and two.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip('rclpy')

from node_fixtures import NS, Camera, node_running, slow_node_running
from pictures import RGBA, flat_png
from ros_harness import ros_session
from sensor_msgs.msg import CompressedImage

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros import read

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

ENCODE_S = 1.2
TIMED = 15              # results of the camera that must not notice


@pytest.fixture
def ros():
    with ros_session() as session:
        yield session


# -- slow models ----------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize('how', ['torch', 'wait'])
def test_a_slow_encoder_gets_even_clips_of_the_newest_frames(ros, how):
    with slow_node_running(ros, round(1000 * ENCODE_S), how, process=True, autostart=True,
                           clip_fps=4.0) as node, node.listen('assessment') as got:
        with Camera(ros, rate=30.0) as camera:
            node.some(got, 3)                              # memory is filled from here on
            before, memory = len(got), node.memory_mb
            node.next(got, 7)
            grown = node.memory_mb - memory
        seen = [read.assessment(m) for m in got[before:]]
        # All images that came are accounted for once the worker has taken up the last of them.
        values = node.wait_for('camera camera', lambda v: int(v['frames_in']) == sum(
            int(v[key]) for key in ('frames.accepted', 'dropped.inbox', 'dropped.skipped')))

        # The clip keeps the spacing of clip_fps, however slow the model is.
        assert np.median([a.clip_span_s for a in seen]) == pytest.approx(0.75, abs=0.15)
        assert np.median([a.clip_rate_hz for a in seen]) == pytest.approx(4.0, rel=0.25)
        assert sum(Quality.SLOW_CAMERA in a.flags for a in seen) <= len(seen) / 2

        # Every result is of a frame that was the newest when its inference began.
        ages = np.array([a.timings['latency'] / 1000 for a in seen])
        assert np.median(ages) < 1.6 * ENCODE_S
        assert ages.min() >= ENCODE_S
        # One after the other without a pause, and never twice for the same frame.
        steps = np.diff([a.stamp_ns for a in seen]) / NS
        assert steps.min() > 0.3 * ENCODE_S
        assert np.median(steps) < 1.6 * ENCODE_S

        # What no clip uses is skipped and counted, and nothing piles up.
        frames = int(values['frames_in'])
        assert int(values['dropped.inbox']) + int(values['dropped.skipped']) > frames / 4
        assert int(values['assessments_out']) < frames / 5
        assert grown < 5.0
        assert len(camera.stamps) >= frames


def test_the_newest_frame_wins_after_a_pause_of_the_worker(ros):
    with slow_node_running(ros, autostart=True) as node, Camera(ros) as camera, \
            node.listen('assessment') as got:
        node.some(got, 2)
        with node.stuck_inference():
            before, sent = len(got), len(camera.stamps)
            assert ros.spin_until(lambda: len(camera.stamps) > sent + 30)
            paused = camera.stamps[sent]
        # The one that was held is of a frame from before the pause; the next is of its end.
        held, newest = node.next(got, 2)[:2]
        assert len(got) >= before + 2
        assert read.stamp_ns(held) <= paused
        assert read.stamp_ns(newest) >= camera.stamps[sent + 20]


# -- pictures that cost much ----------------------------------------------------------------------

@pytest.fixture(scope='module')
def two():
    """A node of two cameras, and what it says of the one that is well."""
    with ros_session() as ros, \
            node_running(ros, autostart=True, cameras=['vast', 'well'], max_rate=15.0,
                         vast__transport='compressed') as node, \
            Camera(ros, 'well/image_raw', rate=15.0), node.listen('assessment', 'well') as heard, \
            node.listen('assessment', 'vast'):
        node.some(heard, 5)
        yield node, heard


def sending(node, data: bytes, rate: float) -> Camera:
    """A camera that sends one file again and again."""
    msg = CompressedImage(format='png')
    msg.data.frombytes(data)
    return Camera(node.ros, 'vast/image_raw/compressed', CompressedImage, rate=rate,
                  make=lambda picture: msg)


def gaps_s(node, heard, other: Camera) -> np.ndarray:
    """Times between results of a camera while the other one sends [s]."""
    times, before = [], len(heard)
    with other:
        while len(times) < TIMED:
            node.some(heard, before + len(times) + 1)
            times += [time.monotonic()] * (len(heard) - before - len(times))
    return np.diff(times)


def test_a_vast_picture_in_few_bytes_is_refused_and_blinds_no_camera(two):
    node, heard = two
    bomb = flat_png(16000, 16000)
    assert len(bomb) < 2**20
    memory = node.memory_mb
    gaps = gaps_s(node, heard, sending(node, bomb, 5.0))
    assert gaps.max() < 5.0                  # decoding one of them takes three times as long
    assert np.median(gaps) < 1.0
    assert node.memory_mb - memory < 200
    with sending(node, bomb, 5.0):
        values = node.wait_for('camera vast', lambda v: int(v['input.too large']) >= 5)
    assert '16000x16000' in values['input_fault']
    assert "'max_image_pixels'" in values['input_fault']
    log = node.wait_for_log('image skipped')
    assert 'on /vast/image_raw/compressed' in log and '16000x16000' in log
    assert log.count('image skipped') == 1
    assert node.values('model')['errors'] == '0'


def test_pictures_that_take_long_to_decode_delay_no_other_camera(two):
    node, heard = two
    gaps = gaps_s(node, heard, sending(node, flat_png(4096, 4096, RGBA, 16), 2.0))
    took_s = float(node.wait_for('camera vast', lambda v: float(
        v['stage_ms.decode']) > 0)['stage_ms.decode']) / 1e3
    # Else each such picture would be waited for.
    assert np.median(gaps) < 0.5 * took_s
    ages = [read.assessment(msg).latency_ms for msg in heard[-TIMED:]]
    assert np.median(ages) < 500 * took_s
    assert read.stamp_ns(heard[-1]) > time.time_ns() - 5 * NS


def test_the_limit_acts_on_the_next_image(two):
    node, _ = two
    node.set(max_image_pixels=9999)
    with sending(node, flat_png(100, 100), 10.0):
        values = node.wait_for('camera vast', lambda v: '100x100' in v['input_fault'])
        assert '9999' in values['input_fault']
        before = int(values['frames.accepted'])
        node.set(max_image_pixels=10000)
        node.wait_for('camera vast', lambda v: int(v['frames.accepted']) >= before + 3)

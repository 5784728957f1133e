# SPDX-License-Identifier: Apache-2.0
"""Test what a slow model does to a fast camera: even clips, fresh results, flat memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip('rclpy')

from node_fixtures import NS, Camera, limit, slow_node_running
from ros_harness import ros_session

from vjepa_ros.perception.assessment import Quality
from vjepa_ros.ros import read

pytestmark = pytest.mark.ros

ENCODE_S = 0.5
FRAME_S = 1 / 30


@pytest.fixture
def ros():
    with ros_session() as session:
        yield session


@pytest.mark.parametrize('how', ['torch', 'wait'])
def test_a_slow_encoder_gets_even_clips_of_the_newest_frames(ros, how):
    params = {'autostart': True, 'clip_fps': 4.0}
    with slow_node_running(ros, round(1000 * ENCODE_S), how, **params) as node, \
            Camera(ros, rate=30.0) as camera, node.listen('assessment') as got:
        node.some(got, 6)                                  # memory is filled from here on
        before, memory = len(got), node.memory_mb
        node.next(got, 10, timeout=60.0)
        grown = node.memory_mb - memory
        values = node.values()
        seen = [read.assessment(m) for m in got[before:]]

        # The clip keeps the spacing of clip_fps, however slow the model is.
        assert np.median([a.clip_span_s for a in seen]) == pytest.approx(0.75, abs=FRAME_S)
        assert np.median([a.clip_rate_hz for a in seen]) == pytest.approx(4.0, rel=0.08)
        assert sum(Quality.SLOW_CAMERA in a.flags for a in seen) <= 1

        # Every result is of a frame that was the newest when its inference began.
        ages = np.array([a.timings['latency'] / 1000 for a in seen])
        assert np.median(ages) < ENCODE_S + FRAME_S + limit(0.1)
        assert ages.min() >= ENCODE_S
        # One after the other without a pause, and never twice for the same frame.
        steps = np.diff([a.stamp_ns for a in seen]) / NS
        assert steps.min() > 0.8 * ENCODE_S
        assert np.median(steps) < ENCODE_S + 2 * FRAME_S + limit(0.1)

        # What no clip uses is skipped and counted, and nothing piles up.
        frames, used = int(values['frames_in']), int(values['frames.accepted'])
        dropped = int(values['dropped.inbox']) + int(values['dropped.skipped'])
        assert frames > 100
        assert dropped > frames / 4
        assert used + dropped == pytest.approx(frames, abs=30)   # what waits is counted later
        assert int(values['assessments_out']) < frames / 5
        assert grown < 5.0
        assert len(camera.stamps) >= frames


def test_the_newest_frame_wins_after_a_pause_of_the_worker(ros):
    with slow_node_running(ros, 1500, 'wait', autostart=True) as node, \
            Camera(ros, rate=30.0) as camera, node.listen('assessment') as got:
        node.some(got, 2)
        sent = len(camera.stamps)
        node.next(got, 2)
        # Two inferences later the stamps have moved on by two inferences, not by two frames.
        assert read.stamp_ns(got[-1]) > camera.stamps[sent] - 1.6 * NS
        assert (read.stamp_ns(got[-1]) - read.stamp_ns(got[-2])) / NS > 1.2


def test_a_slow_model_serves_all_cameras_alike(ros):
    names = ['fast', 'slow', 'late']
    with slow_node_running(ros, 400, autostart=True, cameras=names) as node, \
            Camera(ros, 'fast/image_raw', rate=30.0, size=(320, 240)), \
            Camera(ros, 'slow/image_raw', rate=11.0, size=(96, 64)), \
            node.listen('assessment', 'fast') as fast, \
            node.listen('assessment', 'slow') as slow, \
            node.listen('assessment', 'late') as late:
        node.some(fast, 3)
        node.some(slow, 3)
        with Camera(ros, 'late/image_raw', rate=20.0):
            node.some(late, 1)
            before = [len(fast), len(slow), len(late)]
            node.next(late, 6, timeout=60.0)
            new = np.array([len(fast), len(slow), len(late)]) - before
        # All ready clips go through the model together.
        assert new.min() >= 5
        assert new.max() <= 8
        ages = [read.assessment(m).timings['latency'] / 1000 for m in slow[-5:]]
        assert np.median(ages) < 0.4 + 1 / 11 + limit(0.15)

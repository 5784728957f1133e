# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that the images of one camera, whatever they are, cost no other camera its sight."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip('rclpy')

from node_fixtures import NS, Camera, node_running
from pictures import RGBA, flat_png
from ros_harness import ros_session
from sensor_msgs.msg import CompressedImage

from vjepa_ros.ros import read

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

TIMED = 40              # results of the camera that must not notice


def compressed(data: bytes) -> CompressedImage:
    msg = CompressedImage(format='png')
    msg.data.frombytes(data)
    return msg


def sending(node, msg: CompressedImage, rate: float) -> Camera:
    """A camera that sends one picture again and again."""
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


@pytest.fixture
def two():
    """A node of two cameras, and what it says of the one that is well."""
    with ros_session() as ros, \
            node_running(ros, autostart=True, cameras=['vast', 'well'], max_rate=15.0,
                         vast__transport='compressed') as node, \
            Camera(ros, 'well/image_raw', rate=15.0), node.listen('assessment', 'well') as heard, \
            node.listen('assessment', 'vast'):
        node.some(heard, 5)
        yield node, heard


def test_a_vast_picture_in_few_bytes_is_refused_and_blinds_no_camera(two):
    node, heard = two
    bomb = compressed(flat_png(16000, 16000))
    assert len(bomb.data) < 2**20
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
    slow = compressed(flat_png(4096, 4096, RGBA, 16))
    gaps = gaps_s(node, heard, sending(node, slow, 2.0))
    took_s = float(node.wait_for('camera vast', lambda v: float(
        v['stage_ms.decode']) > 0)['stage_ms.decode']) / 1e3
    # Else each such picture would be waited for.
    assert np.median(gaps) < 0.5 * took_s
    ages = [read.assessment(msg).latency_ms for msg in heard[-TIMED:]]
    assert np.median(ages) < 500 * took_s
    assert read.stamp_ns(heard[-1]) > time.time_ns() - 5 * NS


def test_the_limit_acts_on_the_next_image(two):
    node, _ = two
    small = compressed(flat_png(100, 100))
    node.set(max_image_pixels=9999)
    with sending(node, small, 10.0):
        values = node.wait_for('camera vast', lambda v: int(v['input.too large']) >= 3)
        assert '100x100' in values['input_fault'] and '9999' in values['input_fault']
        node.set(max_image_pixels=10000)
        node.wait_for('camera vast', lambda v: int(v['frames.accepted']) >= 3)

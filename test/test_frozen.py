# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that a camera is frozen while it sends the same picture, but not before a still scene."""

from __future__ import annotations

import numpy as np
import pytest

from vjepa_ros.perception.camera_track import FrozenWatch, Track
from vjepa_ros.perception.settings import TrackConfig

NOISE = np.random.default_rng(0).integers(0, 200, (20, 120, 160, 3), np.uint8)
STILL = NOISE[0]


def watch(pictures, stamps_s=None) -> FrozenWatch:
    seen = FrozenWatch()
    for i, picture in enumerate(pictures):
        seen.show(picture, round((i / 10 if stamps_s is None else stamps_s[i]) * 1e9))
    return seen


@pytest.mark.parametrize(('pictures', 'frozen', 'unchanged_s'), [
    ([STILL] * 6, True, 0.5), ([STILL] * 5, False, 0.4), ([STILL] * 2, False, 0.1),
    ([STILL], False, 0.0), ([*[STILL] * 20, STILL + np.uint8(1)], False, 0.0),
    (list(STILL + NOISE % 2), False, 0.0),                       # the noise of a sensor
    ([picture for picture in NOISE[:8] for _ in range(3)], False, 0.2)])     # a slow driver
def test_the_same_picture_for_half_a_second_is_frozen(pictures, frozen, unchanged_s):
    assert watch(pictures).state() == (frozen, pytest.approx(unchanged_s))


def test_a_buffer_that_is_used_again_does_not_look_frozen():
    buffer, seen = STILL.copy(), FrozenWatch()
    for i in range(20):
        buffer[:] = i
        seen.show(buffer, i * 100_000_000)
        seen.look()
    assert not seen.state()[0]


def test_a_reset_begins_anew_and_a_clock_that_is_set_back_hides_nothing():
    seen = watch([STILL] * 10, [1000.0, 1000.1, *(500 + n / 10 for n in range(8))])
    assert seen.state()[0]
    seen.reset()
    assert seen.state() == (False, 0.0)


@pytest.mark.parametrize('stamped', [True, False])
def test_a_camera_that_stamps_nothing_freezes_too(stamped):
    track = Track('camera', TrackConfig(num_frames=4, image_size=64, geometry='host'))
    for number in range(1, 11):
        now_ns = 10 ** 12 + number * 100_000_000
        track.push(STILL, now_ns if stamped else 0, 'camera', now_ns)
        track.frozen.look()
    assert track.frozen.state() == (True, pytest.approx(0.9))

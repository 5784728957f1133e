# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A camera that sends the same picture again and again is noticed, one that sees stillness not."""

from __future__ import annotations

import numpy as np

from vjepa_ros.perception.frozen_camera import FrozenWatch

PERIOD_NS = 100_000_000


def watch(pictures: list[np.ndarray]) -> FrozenWatch:
    seen = FrozenWatch()
    for i, picture in enumerate(pictures):
        seen.see(picture, i * PERIOD_NS)
    return seen


def pictures(count: int, noise: bool) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    still = random.integers(0, 200, (120, 160, 3), np.uint8)
    return [still + random.integers(0, 2, still.shape, np.uint8) if noise else still.copy()
            for _ in range(count)]


def test_the_same_picture_for_long_is_frozen():
    assert watch(pictures(6, noise=False)).frozen
    assert not watch(pictures(5, noise=False)).frozen      # 0.4 s


def test_the_noise_of_a_sensor_is_enough_to_live():
    assert not watch(pictures(20, noise=True)).frozen


def test_one_new_picture_ends_it():
    still = pictures(20, noise=False)
    assert not watch([*still, still[0] + np.uint8(1)]).frozen


def test_a_slow_driver_that_repeats_pictures_is_not_frozen():
    random = np.random.default_rng(0)
    shown = [random.integers(0, 200, (120, 160, 3), np.uint8) for _ in range(8)]
    assert not watch([picture for picture in shown for _ in range(3)]).frozen


def test_a_buffer_that_is_used_again_does_not_look_frozen():
    buffer = np.zeros((120, 160, 3), np.uint8)
    seen = FrozenWatch()
    for i in range(20):
        buffer[:] = i
        seen.see(buffer, i * PERIOD_NS)
    assert not seen.frozen


def test_what_is_shown_is_looked_at_when_asked_or_when_the_next_comes():
    still, seen = pictures(8, noise=False), FrozenWatch()
    for i, picture in enumerate(still):
        seen.show(picture, i * PERIOD_NS)
    assert seen.frozen
    seen.show(still[0] + np.uint8(1), 8 * PERIOD_NS)
    assert seen.unchanged_s == 0
    seen.show(still[0], 9 * PERIOD_NS)
    seen.reset()
    assert seen.unchanged_s == 0 and not seen.frozen


def test_a_reset_begins_anew():
    seen = watch(pictures(20, noise=False))
    seen.reset()
    assert not seen.frozen


def test_how_long_a_picture_is_the_same_is_told_from_the_second_on():
    still = pictures(4, noise=False)
    assert watch(still[:1]).unchanged_s == 0
    assert watch(still[:2]).unchanged_s == 0.1
    assert watch(still).unchanged_s == 0.3
    assert watch([*still, still[0] + np.uint8(1)]).unchanged_s == 0


def test_a_clock_that_is_set_back_does_not_hide_it():
    still = pictures(1, noise=False)[0]
    seen = FrozenWatch()
    for stamp_s in (1000.0, 1000.1, *(500 + n / 10 for n in range(8))):
        seen.see(still, round(stamp_s * 1e9))
    assert seen.frozen

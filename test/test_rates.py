# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the small measurements behind diagnostics and calibration."""

from __future__ import annotations

import math
import threading

import pytest

pytest.importorskip('rclpy')

from vjepa_ros.ros.common.rates import Rate, Recent
from vjepa_ros.ros.perception_node.calibration import make_threshold

pytestmark = pytest.mark.ros


def test_a_rate_is_that_of_the_last_seconds():
    rate = Rate(window_s=2.0)
    for i in range(100):
        rate.tick(i * 0.1)
    assert rate.hz(9.9) == pytest.approx(10.0)
    for i in range(40):
        rate.tick(9.9 + (i + 1) * 0.05)
    assert rate.hz(11.9) == pytest.approx(20.0)
    assert rate.total == 140


@pytest.mark.parametrize('ticks', [[], [5.0], [1.0, 1.1, 1.2]])
def test_a_rate_without_recent_events_is_zero(ticks):
    rate = Rate(window_s=2.0)
    for t in ticks:
        rate.tick(t)
    assert rate.hz(6.0) == 0.0


def test_events_at_the_same_moment_have_no_rate():
    rate = Rate()
    rate.tick(1.0)
    rate.tick(1.0)
    assert rate.hz(1.0) == 0.0


def test_recent_values_give_median_and_95th_percentile():
    recent = Recent(length=101)
    for value in range(1000):
        recent.add(float(value))
    assert recent.summary() == pytest.approx((949.0, 994.0))


def test_unknown_values_are_left_out():
    recent = Recent()
    assert all(math.isnan(v) for v in recent.summary())
    for value in (math.nan, 3.0, math.nan):
        recent.add(value)
    assert recent.summary() == (3.0, 3.0)


def test_rates_may_be_used_from_several_threads():
    rate, recent = Rate(), Recent()

    def write():
        for i in range(2000):
            rate.tick(i * 1e-3)
            recent.add(float(i))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rate.hz(2.0)
        recent.summary()
    assert rate.total == 8000


def test_a_threshold_is_mean_plus_k_sigma_of_what_is_known():
    made = make_threshold('thresholds.motion', [0.1, 0.3, math.nan, 0.2, math.inf], 2.0, 0.0, 1.0)
    assert made.mean == pytest.approx(0.2)
    assert made.sigma == pytest.approx(0.0816497, rel=1e-5)
    assert made.value == pytest.approx(0.2 + 2 * 0.0816497, rel=1e-5)
    assert 'thresholds.motion = 0.3633' in str(made)


@pytest.mark.parametrize('values', [[0.0] * 3, [1e-4, -1e-4, 0.0], [0.001, 0.0, 0.02]])
def test_the_quietest_scene_gives_the_least_threshold_or_little_more(values):
    made = make_threshold('t', values, 3.0, 0.05, 0.9)
    assert made.value == 0.05
    assert made.problem == ''


@pytest.mark.parametrize(('values', 'words'), [
    ([5.0] * 3, '5.0000, more than the 0.9 it may be'),
    ([0.2, 0.5, 0.4], 'more than the 0.9 it may be'),
    ([0.0, 0.0, 0.0, 0.2], 'sigma 0.0866 is more than the mean 0.0500')])
def test_a_scene_that_is_not_quiet_is_told_with_its_figures(values, words):
    made = make_threshold('t', values, 5.0, 0.05, 0.9)
    assert words in str(made)


@pytest.mark.parametrize('values', [[], [math.nan, math.nan]])
def test_a_threshold_of_the_unknown_is_left_as_it_is(values):
    made = make_threshold('t', values, 3.0, 0.0, 1.0)
    assert math.isnan(made.value)
    assert 'unchanged' in str(made)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How often assessments come, and whether the guard's timeout can be kept."""

from __future__ import annotations

import math

import pytest

from vjepa_ros.guard.source_timing import SourceTiming


def timing(period_s: float, age_s: float, count: int = 12) -> SourceTiming:
    found = SourceTiming()
    for number in range(count):
        found.add(number * period_s, number * period_s + age_s)
    return found


def test_a_slow_source_is_told_with_its_figures_and_a_timeout_that_is_enough():
    found = timing(0.33, 0.35)
    assert (found.period_s, found.arrival_age_s) == (pytest.approx(0.33), pytest.approx(0.35))
    text = found.problem(0.5)
    assert 'a period of 0.33 s and an age of 0.35 s on arrival make 0.68 s' in text
    assert 'set source_timeout to 0.85 ' in text
    assert found.problem(0.85) == ''


def test_one_gap_is_no_slow_source():
    found = timing(0.1, 0.05)
    found.add(9.0, 9.05)
    assert found.problem(0.5) == ''
    assert found.text == ' (they came every 0.10 s, 0.05 s old on arrival)'


def test_nothing_is_told_of_two_assessments_or_after_a_reset():
    found = timing(0.33, 0.35, 2)
    assert math.isnan(found.period_s) and math.isnan(found.arrival_age_s)
    assert found.problem(0.5) == found.text == ''
    found = timing(0.33, 0.35)
    found.clear()
    assert found.problem(0.5) == ''

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what is found on collision course in looming fields written by hand."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from fields import CELL, COLS, OPTICS, ROWS, SIZE, approach, still

from vjepa_ros.clip.optics import Optics
from vjepa_ros.perception.danger import contact_probability
from vjepa_ros.perception.fusion import Sources, judge
from vjepa_ros.perception.settings import Settings

SETTINGS = Settings()
AHEAD = slice(7, 11), slice(10, 14)


def find(field, settings=SETTINGS, optics=OPTICS, size=SIZE):
    found, = judge([Sources(field, None, size, field.gray_size, optics)], settings)
    return SimpleNamespace(**asdict(found.threat), regions=found.regions,
                           obstacle_score=found.obstacle_score)


@pytest.mark.parametrize('threshold', [1 / SETTINGS.warning_ttc, 1 / SETTINGS.danger_ttc])
def test_more_looming_never_gives_less_while_cells_cross_a_threshold(threshold):
    """Four cells, each of them a little on course, of which the fastest pass it first."""
    found = []
    for fast in range(5):
        field = still()
        for number in range(4):
            rate = threshold * (1.01 if number < fast else 0.99)
            field.rate[8, 4 + number] = rate
            # So far beside it that the weight of the course is 0.4.
            miss = 0.4 * CELL + SETTINGS.collision_margin * OPTICS.fx * math.sqrt(
                -2 * math.log(0.4))
            field.flow[8, 4 + number] = miss * rate, 0.0
        threat = find(field)
        found.append(threat.course_rate)
        assert [region.on_course for region in threat.regions] == [True]
    assert found == sorted(found) and found[0] > 0.98 * threshold


def test_what_is_beside_the_course_is_a_region_of_its_own_rate():
    field = approach(still(), slice(7, 9), slice(4, 6), 1.0, focus=(-500, 0))
    approach(field, slice(7, 9), slice(6, 8), 0.5, focus=(-500, 0))
    rates = [(region.looming_rate, region.on_course) for region in find(field).regions]
    assert rates == [(1.0, False), (0.5, False)]


def test_a_field_without_a_known_cell_is_unknown_and_a_still_one_free():
    for field in (still(math.nan), still(0.0, confidence=0.0)):
        threat = find(field)
        assert math.isnan(threat.course_rate) and math.isnan(threat.obstacle_score)
        assert (threat.observed_fraction, threat.regions) == (0.0, ())
    threat = find(still())
    assert (threat.course_rate, threat.obstacle_score, threat.observed_fraction,
            threat.regions) == (0.0, 0.0, 1.0, ())
    assert math.isnan(threat.bearing) and math.isnan(threat.elevation)


def test_too_little_known_makes_the_rate_unknown_but_hides_nothing_on_course():
    field = still(math.nan)
    field.rate[0, ::2] = 0.0                               # half of one of the rows
    threat = find(field)
    assert threat.observed_fraction == pytest.approx(0.5 / ROWS)
    assert all(map(math.isnan, (threat.course_rate, threat.obstacle_score, threat.bearing)))
    threat = find(approach(still(math.nan), slice(8, 11), slice(10, 14), 1.0))
    assert threat.observed_fraction < SETTINGS.min_known
    assert threat.course_rate == pytest.approx(1.0, rel=0.2)
    assert threat.regions[0].on_course


@pytest.mark.parametrize(('rows', 'cols', 'rate', 'side'), [
    (slice(2, 6), slice(1, 5), 0.3, 'LEFT'), (slice(12, 16), slice(10, 14), 2.0, 'CENTER'),
    (slice(2, 6), slice(19, 23), 2.0, 'RIGHT')])
def test_what_comes_is_found_with_its_rate_and_place(rows, cols, rate, side):
    """The bearing is positive to the right, the elevation upwards."""
    threat = find(approach(still(), rows, cols, rate))
    region = threat.regions[0]
    assert threat.course_rate == pytest.approx(rate, rel=0.1)
    assert region.time_to_contact == pytest.approx(1 / rate, rel=1e-5)
    assert region.on_course and region.side == side
    assert (region.x, region.y, region.width, region.height) == pytest.approx(
        (CELL * cols.start - 0.5, CELL * rows.start - 0.5, 64, 64), abs=1.0)
    x, y = (CELL * (s.start + s.stop) / 2 - 0.5 for s in (cols, rows))
    assert threat.bearing == pytest.approx(math.atan2(x - 191.5, 300.0), abs=0.01)
    assert threat.elevation == pytest.approx(math.atan2(143.5 - y, 300.0), abs=0.01)


@pytest.mark.parametrize('offset', [(250.0, 0.0), (0.0, -250.0)])
def test_what_expands_from_elsewhere_passes_by(offset):
    focus = (191.5 + offset[0], 143.5 + offset[1])
    threat = find(approach(still(), *AHEAD, 1.0, focus))
    assert not threat.regions[0].on_course
    assert threat.regions[0].time_to_contact == pytest.approx(1.0)
    assert threat.course_rate < SETTINGS.looming_threshold
    assert math.isnan(threat.bearing)
    assert 0 < threat.obstacle_score <= 1        # it comes nearer all the same


def test_the_margin_decides_what_passes_by():
    field = approach(still(), *AHEAD, 1.0, (191.5 + 60, 143.5))
    narrow, wide = (find(field, replace(SETTINGS, collision_margin=margin))
                    for margin in (0.0, 0.3))
    assert not narrow.regions[0].on_course and wide.regions[0].on_course
    assert narrow.course_rate < wide.course_rate


def test_the_most_urgent_on_course_comes_first():
    field = approach(still(), *AHEAD, 0.5)
    field = approach(field, slice(1, 5), slice(1, 5), 2.0, (370.0, 280.0))   # passes by, sooner
    threat = find(approach(field, slice(12, 16), slice(18, 22), 1.0))
    assert [r.on_course for r in threat.regions] == [True, True, False]
    assert [r.looming_rate for r in threat.regions] == pytest.approx([1.0, 0.5, 2.0])
    assert threat.bearing == threat.regions[0].bearing


def test_a_near_thing_before_a_slower_background_keeps_its_own_region():
    field = approach(still(), slice(0, ROWS), slice(0, COLS), 0.3)
    regions = find(approach(field, *AHEAD, 1.5)).regions
    assert regions[0].width == pytest.approx(64, abs=1)
    assert [round(r.looming_rate, 2) for r in regions] == [1.5, 0.3]
    field = still()                            # fewer cells than a region needs are noise
    field.rate[5, 5] = field.rate[5, 6] = 3.0
    assert find(field).regions == ()


def test_only_the_region_of_interest_counts():
    field = approach(still(), slice(7, 11), slice(1, 5), 1.0)
    threat = find(field, replace(SETTINGS, roi=(0.5, 0.0, 1.0, 1.0)))
    assert (threat.regions, threat.course_rate, threat.observed_fraction) == ((), 0.0, 1.0)
    assert find(field, replace(SETTINGS, roi=(0.0, 0.0, 0.5, 1.0))).regions


def test_boxes_and_bearings_are_those_of_the_source_image():
    field = approach(still(), slice(7, 11), slice(18, 22), 1.0)
    large = Optics(900.0, 900.0, 575.5, 431.5, assumed=False)
    small, big = find(field).regions[0], find(field, optics=large, size=(1152, 864)).regions[0]
    assert (big.width, big.height) == pytest.approx((3 * small.width, 3 * small.height))
    assert big.x == pytest.approx(3 * small.x, abs=2)
    assert big.bearing == pytest.approx(small.bearing, abs=0.01)


@pytest.mark.parametrize(('rate', 'expected'), [
    (0.0, 0.0), (-3.0, 0.0), (0.5, 0.5), (math.inf, 1.0), (math.nan, math.nan)])
def test_probability_at_the_limits(rate, expected):
    assert contact_probability(rate, 2.0) == pytest.approx(expected, nan_ok=True)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what is found on collision course in looming fields written by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from vjepa_ros.clip.optics import Optics
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.collision import find_threats
from vjepa_ros.perception.danger import contact_probability
from vjepa_ros.perception.settings import Settings

CELL, WIDTH, HEIGHT = 16, 384, 288
ROWS, COLS = HEIGHT // CELL, WIDTH // CELL
SIZE = (WIDTH, HEIGHT)
OPTICS = Optics(300.0, 300.0, 191.5, 143.5, assumed=False)
SETTINGS = Settings()


def empty(rate: float = 0.0, confidence: float = 1.0) -> LoomingField:
    """A field of still cells over the whole image."""
    xs, ys = np.meshgrid(*((np.arange(n) + 0.5) * CELL - 0.5 for n in (COLS, ROWS)))
    return LoomingField(
        rate=np.full((ROWS, COLS), rate, np.float32),
        confidence=np.full((ROWS, COLS), confidence, np.float32),
        sigma=np.full((ROWS, COLS), 0.01, np.float32), direction=None,
        flow=np.zeros((ROWS, COLS, 2), np.float32),
        centers=np.stack((xs, ys), -1).astype(np.float32),
        rotation=np.zeros(3, np.float32), dt_s=0.1, cell_px=float(CELL), gray_size=SIZE)


def approach(field: LoomingField, rows: slice, cols: slice, rate: float,
             focus: tuple[float, float] | None = None) -> LoomingField:
    """Let cells come nearer at a rate [1/s] as if expanding from `focus` (default: themselves)."""
    centers = field.centers[rows, cols]
    field.rate[rows, cols] = rate
    focus = centers.reshape(-1, 2).mean(0) if focus is None else focus
    field.flow[rows, cols] = rate * (centers - np.asarray(focus, np.float32))
    return field


def find(field, settings=SETTINGS, optics=OPTICS, size=SIZE):
    return find_threats(field, size, optics, settings)


@pytest.mark.parametrize('threshold', [1 / SETTINGS.warning_ttc, 1 / SETTINGS.danger_ttc])
def test_more_looming_never_gives_less_while_cells_cross_a_threshold(threshold):
    """Four cells, each of them a little on course, of which the fastest pass it first."""
    found = []
    for fast in range(5):
        field = empty()
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
    assert found == sorted(found)
    assert found[0] > 0.98 * threshold


def test_what_is_beside_the_course_is_a_region_of_its_own_rate():
    field = empty()
    approach(field, slice(7, 9), slice(4, 6), 1.0, focus=(-500, 0))
    approach(field, slice(7, 9), slice(6, 8), 0.5, focus=(-500, 0))
    rates = [(region.looming_rate, region.on_course) for region in find(field).regions]
    assert rates == [(1.0, False), (0.5, False)]


def test_a_field_without_a_known_cell_is_unknown_and_a_still_one_free():
    for field in (None, empty(math.nan), empty(0.0, confidence=0.0)):
        threat = find(field)
        assert math.isnan(threat.course_rate) and math.isnan(threat.obstacle_score)
        assert (threat.known_fraction, threat.regions) == (0.0, ())
    threat = find(empty())
    assert (threat.course_rate, threat.obstacle_score, threat.known_fraction) == (0.0, 0.0, 1.0)
    assert threat.regions == ()
    assert math.isnan(threat.bearing) and math.isnan(threat.elevation)


def test_too_little_known_makes_the_rate_unknown():
    field = empty(math.nan)
    field.rate[0, ::2] = 0.0                               # half of one of the rows
    threat = find(field)
    assert threat.known_fraction == pytest.approx(0.5 / ROWS)
    assert all(map(math.isnan, (threat.course_rate, threat.obstacle_score, threat.bearing)))


def test_a_region_on_course_is_reported_even_when_little_else_is_known():
    field = approach(empty(math.nan), slice(8, 11), slice(10, 14), 1.0)
    threat = find(field)
    assert threat.known_fraction < SETTINGS.min_known
    assert threat.course_rate == pytest.approx(1.0, rel=0.2)
    assert threat.regions[0].on_course


@pytest.mark.parametrize(('cols', 'side'), [(slice(1, 5), 'LEFT'), (slice(10, 14), 'CENTER'),
                                            (slice(19, 23), 'RIGHT')])
@pytest.mark.parametrize(('rows', 'rate'), [(slice(2, 6), 0.3), (slice(12, 16), 2.0)])
def test_what_comes_is_found_with_its_rate_and_place(rows, rate, cols, side):
    """The bearing is positive to the right, the elevation upwards."""
    threat = find(approach(empty(), rows, cols, rate))
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
    threat = find(approach(empty(), slice(7, 11), slice(10, 14), 1.0, focus))
    assert not threat.regions[0].on_course
    assert threat.regions[0].time_to_contact == pytest.approx(1.0)
    assert threat.course_rate < SETTINGS.looming_threshold
    assert math.isnan(threat.bearing)
    assert 0 < threat.obstacle_score <= 1        # it comes nearer all the same


def test_the_margin_decides_what_passes_by():
    field = approach(empty(), slice(7, 11), slice(10, 14), 1.0, (191.5 + 60, 143.5))
    narrow = find(field, replace(SETTINGS, collision_margin=0.0))
    wide = find(field, replace(SETTINGS, collision_margin=0.3))
    assert not narrow.regions[0].on_course
    assert wide.regions[0].on_course
    assert narrow.course_rate < wide.course_rate


def test_the_most_urgent_on_course_comes_first():
    field = approach(empty(), slice(7, 11), slice(10, 14), 0.5)
    field = approach(field, slice(1, 5), slice(1, 5), 2.0, (370.0, 280.0))   # passes by, sooner
    field = approach(field, slice(12, 16), slice(18, 22), 1.0)
    threat = find(field)
    assert [r.on_course for r in threat.regions] == [True, True, False]
    assert [r.looming_rate for r in threat.regions] == pytest.approx([1.0, 0.5, 2.0])
    assert threat.bearing == threat.regions[0].bearing


def test_a_near_thing_before_a_slower_background_keeps_its_own_region():
    field = approach(empty(), slice(0, ROWS), slice(0, COLS), 0.3)
    field = approach(field, slice(7, 11), slice(10, 14), 1.5)
    regions = find(field).regions
    assert regions[0].width == pytest.approx(64, abs=1)
    assert [round(r.looming_rate, 2) for r in regions] == [1.5, 0.3]
    field = empty()                            # fewer cells than a region needs are noise
    field.rate[5, 5] = field.rate[5, 6] = 3.0
    assert find(field).regions == ()


def test_only_the_region_of_interest_counts():
    field = approach(empty(), slice(7, 11), slice(1, 5), 1.0)
    right = replace(SETTINGS, roi=(0.5, 0.0, 1.0, 1.0))
    threat = find(field, right)
    assert (threat.regions, threat.course_rate, threat.known_fraction) == ((), 0.0, 1.0)
    assert find(field, replace(SETTINGS, roi=(0.0, 0.0, 0.5, 1.0))).regions


def test_boxes_and_bearings_are_those_of_the_source_image():
    field = approach(empty(), slice(7, 11), slice(18, 22), 1.0)
    large = Optics(900.0, 900.0, 575.5, 431.5, assumed=False)
    small_threat, large_threat = find(field), find(field, optics=large, size=(1152, 864))
    small, big = small_threat.regions[0], large_threat.regions[0]
    assert (big.width, big.height) == pytest.approx((3 * small.width, 3 * small.height))
    assert big.x == pytest.approx(3 * small.x, abs=2)
    assert big.bearing == pytest.approx(small.bearing, abs=0.01)
    assert big.on_course == small.on_course


@pytest.mark.parametrize(('rate', 'expected'), [
    (0.0, 0.0), (-3.0, 0.0), (0.5, 0.5), (math.inf, 1.0), (math.nan, math.nan)])
def test_probability_at_the_limits(rate, expected):
    assert contact_probability(rate, 2.0) == pytest.approx(expected, nan_ok=True)

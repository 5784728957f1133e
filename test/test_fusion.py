# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what geometry and heads say of contact, on fields written by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fields import CELL, OPTICS, ROWS, SIZE, approach, geometric, learned, still

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.assessment import LevelFilter, assess
from vjepa_ros.perception.danger import contact_probability
from vjepa_ros.perception.fusion import Judgement, Sources, judge
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality

SETTINGS = Settings()
CAUTION = 1 / (SETTINGS.caution_ttc ** 0.75 * SETTINGS.warning_ttc ** 0.25)   # not believed
AHEAD, LEFT = (slice(7, 11), slice(10, 14)), (slice(7, 11), slice(0, 3))
SAMPLE = Sample((0, 1, 2, 3), tuple(range(1, 5)), 4, 'cam', SIZE, 0.75, 4.0, 4)


def judged(geometry: LoomingField | None, heads: LearnedField | None = None,
           method: str = 'fused', size: tuple[int, int] = SIZE, optics: Optics = OPTICS,
           **changes) -> Judgement:
    return judge([Sources(geometry, heads, size, SIZE, optics)],
                 replace(SETTINGS, looming_method=method, **changes))[0]


# -- what is on course, by geometry alone ---------------------------------------------------------

def test_a_field_without_a_known_cell_is_unknown_and_a_still_one_free():
    for field in (still(math.nan), still(0.0, confidence=0.0)):
        found = judged(field)
        assert math.isnan(found.threat.course_rate) and math.isnan(found.obstacle_score)
        assert (found.threat.observed_fraction, found.regions) == (0.0, ())
    found = judged(still())
    assert (found.threat.course_rate, found.obstacle_score, found.threat.observed_fraction,
            found.regions) == (0.0, 0.0, 1.0, ())
    assert math.isnan(found.threat.bearing) and math.isnan(found.threat.elevation)


def test_too_little_known_makes_the_rate_unknown_but_hides_nothing_on_course():
    field = still(math.nan)
    field.rate[0, ::2] = 0.0                               # half of one of the rows
    found = judged(field)
    assert found.threat.observed_fraction == pytest.approx(0.5 / ROWS)
    assert math.isnan(found.threat.course_rate) and math.isnan(found.obstacle_score)
    found = judged(approach(still(math.nan), *AHEAD, 1.0))
    assert found.threat.observed_fraction < SETTINGS.min_known
    assert found.threat.course_rate == pytest.approx(1.0, rel=0.2)
    assert found.regions[0].on_course


@pytest.mark.parametrize(('rows', 'cols', 'rate', 'side'), [
    (slice(2, 6), slice(1, 5), 0.3, 'LEFT'), (slice(12, 16), slice(10, 14), 2.0, 'CENTER'),
    (slice(2, 6), slice(19, 23), 2.0, 'RIGHT')])
def test_what_comes_is_found_with_its_rate_and_place_in_the_source_image(rows, cols, rate, side):
    """The bearing is positive to the right, the elevation upwards."""
    found = judged(approach(still(), rows, cols, rate), size=(1152, 864),
                   optics=Optics(900.0, 900.0, 575.5, 431.5, False))
    threat, region = found.threat, found.regions[0]
    assert threat.course_rate == pytest.approx(rate, rel=0.1)
    assert region.time_to_contact == pytest.approx(1 / rate, rel=1e-5)
    assert region.on_course and region.side == side
    assert np.array((region.x, region.y, region.width, region.height)) == pytest.approx(
        3 * np.array((CELL * cols.start, CELL * rows.start, 64, 64)), abs=1.5)
    x, y = (CELL * (s.start + s.stop) / 2 - 0.5 for s in (cols, rows))
    assert threat.bearing == pytest.approx(math.atan2(x - 191.5, 300.0), abs=0.01)
    assert threat.elevation == pytest.approx(math.atan2(143.5 - y, 300.0), abs=0.01)


@pytest.mark.parametrize('offset', [(250.0, 0.0), (0.0, -250.0)])
def test_what_expands_from_elsewhere_passes_by(offset):
    found = judged(approach(still(), *AHEAD, 1.0, (191.5 + offset[0], 143.5 + offset[1])))
    assert not found.regions[0].on_course
    assert found.regions[0].time_to_contact == pytest.approx(1.0)
    assert found.threat.course_rate < SETTINGS.looming_threshold
    assert math.isnan(found.threat.bearing)
    assert 0 < found.obstacle_score <= 1        # it comes nearer all the same


def test_the_most_urgent_on_course_comes_first():
    field = approach(still(), *AHEAD, 0.5)
    field = approach(field, slice(1, 5), slice(1, 5), 2.0, (370.0, 280.0))   # passes by, sooner
    found = judged(approach(field, slice(12, 16), slice(18, 22), 1.0))
    assert [r.on_course for r in found.regions] == [True, True, False]
    assert [r.looming_rate for r in found.regions] == pytest.approx([1.0, 0.5, 2.0])
    assert found.threat.bearing == found.regions[0].bearing


def test_only_the_region_of_interest_counts():
    field = approach(still(), *LEFT, 1.0)
    found = judged(field, roi=(0.5, 0.0, 1.0, 1.0))
    assert (found.regions, found.threat.course_rate) == ((), 0.0)
    assert found.threat.observed_fraction == 1.0
    assert judged(field, roi=(0.0, 0.0, 0.5, 1.0)).regions


# -- geometry and heads ---------------------------------------------------------------------------

@pytest.mark.parametrize(('rate', 'sigma', 'confidence', 'both', 'error'), [
    (0.8, 0.2, 1.0, 0.32, 1 / math.hypot(10, 5)), (0.9, 0.001, 0.1, 0.2, 0.1),
    (math.nan, 0.2, 1.0, 0.2, 0.1)])
def test_two_that_know_are_weighted_by_their_errors_and_one_counts_alone(rate, sigma, confidence,
                                                                         both, error):
    for one in (judged(geometric(0.2, sigma=0.1), learned(rate, confidence, sigma)),
                judged(geometric(rate, confidence, sigma), learned(0.2, sigma=0.1))):
        assert one.field.rate[9, 11] == pytest.approx(both)
        assert one.field.sigma[9, 11] == pytest.approx(error)


SEEN = learned(0.5, contact_s=1.5)
BLIND = learned(2.0, confidence=0.0, contact_s=0.2, sees=False, saw=False)
JUDGEMENTS = {
    # A wide robot meets it before its camera does.
    'no geometry': (None, SEEN, {'rate': 1 / 1.5, 'probability': 1.0, 'disagrees': False}),
    'blind geometry': (geometric(confidence=0.0), SEEN,
                       {'rate': 1 / 1.5, 'probability': 1.0, 'disagrees': False}),
    'blind heads': (geometric(0.5), BLIND, {
        'rate': 0.5, 'probability': contact_probability(0.5, 2.0), 'disagrees': False}),
    'an alarm of both': (geometric(1.0), learned(1.0, contact_s=1.0, surely=0.8),
                         {'rate': 1.0, 'believed': 1.0}),
    'an alarm of the heads alone': (geometric(), learned(1.0, contact_s=1.0, surely=0.7),
                                    {'believed': CAUTION, 'disagrees': True}),
    # It points at what is most probably on course.
    'a contact that no patch shows': (geometric(), learned(course=0.4, contact_s=1.0), {
        'rate': 1.0, 'bearing': 0.0, 'disagrees': True})}


@pytest.mark.parametrize(('geometry', 'heads', 'expected'), JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_geometry_and_heads_are_judged_together(geometry, heads, expected):
    both = judged(geometry, heads)
    found = {'rate': both.threat.course_rate, 'believed': both.believed,
             'probability': both.probability, 'bearing': both.threat.bearing,
             'disagrees': both.disagrees}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=0.15, abs=0.1)
    assert both.threat.course_rate >= both.believed or math.isnan(both.believed)
    assert geometry is None or judged(geometry, heads, 'geometric').probability is None


@pytest.mark.parametrize(('mode', 'believed'), [('squash', CAUTION), ('crop', 1.5)])
def test_heads_calm_geometry_only_where_they_see(mode, believed):
    found = judged(geometric(1.5, place=LEFT), learned(0.0, course=0.0, mode=mode))
    assert found.believed == pytest.approx(believed, rel=0.1)
    assert found.threat.course_rate >= found.believed
    assert found.probability > 0.9 if mode == 'crop' else found.probability < 0.3
    ahead = judged(geometric(1.5), learned(0.0, mode=mode))
    assert ahead.believed == pytest.approx(CAUTION, rel=0.1)


@pytest.mark.parametrize('method', ['learned', 'fused'])
@pytest.mark.parametrize(('sees', 'saw', 'surely', 'told'), [
    (True, True, 0.25, True),                    # no patch is sure, but there is a picture
    (False, True, 0.51, True),
    (False, True, 0.45, False),                  # that nothing comes is never told blindly
    (False, False, 0.9, False)])                 # a covered lens
def test_where_no_patch_is_known_the_clip_head_says_what_it_can(method, sees, saw, surely, told):
    blind = learned(confidence=0.0, contact_s=0.5, surely=surely, clearance_m=0.1, sees=sees,
                    saw=saw)
    both = judged(geometric(confidence=0.0), blind, method)
    assert math.isnan(both.threat.course_rate) and math.isnan(both.believed)
    assert both.probability == pytest.approx(surely if told else math.nan, nan_ok=True)


# -- what is told of them -------------------------------------------------------------------------

def assessed(settings: Settings = SETTINGS, geometry: LoomingField | None = None,
             heads: LearnedField | None = None, optics: Optics = OPTICS, **changes):
    """What is told of a clip of four frames with a field and heads that see the same."""
    sources = Sources(geometry or geometric(0.5), heads or learned(0.5, contact_s=2.0), SIZE, SIZE,
                      optics)
    given = {'sample': SAMPLE, 'view': View('squash', SIZE, 192), 'motion_score': 0.0,
             'age_s': 0.01, 'flags': Quality(0), **changes}
    return assess('cam', sources=sources, found=judge([sources], settings)[0], settings=settings,
                  **given)


@pytest.mark.parametrize(('clearance_m', 'changes', 'ahead'), [
    (1.0, {}, 1.0), (3.0, {}, 0.0), (3.0, {'approach_speed': 2.0}, 1.0),
    (3.0, {'collision_horizon': 4.0}, 1.0), (1.0, {'approach_speed': 0.0}, math.nan)])
def test_what_stands_in_the_way_is_told_apart_from_what_comes(clearance_m, changes, ahead):
    heads = learned(contact_s=0.0, surely=0.02, clearance_m=clearance_m)
    settings = replace(SETTINGS, **changes)
    found, raw = assessed(settings, geometric(), heads)
    seen = LevelFilter().smooth(raw, found, settings)
    assert (seen.level, seen.approach_speed, seen.collision_horizon) == (
        Level.CLEAR, settings.approach_speed, settings.collision_horizon)
    assert seen.collision_if_ahead == pytest.approx(ahead, nan_ok=True)
    assert seen.collision_probability < 0.1
    blind = assessed(settings, heads=replace(heads, sees=False))[1]
    assert np.isnan([blind.collision_if_ahead, blind.clearance]).all()


@pytest.mark.parametrize(('changes', 'flag'), [
    ({'view': View('crop', SIZE, 192)}, Quality.PARTIAL_VIEW), ({'age_s': 1.2}, Quality.STALE),
    ({'age_s': math.nan}, Quality.STALE), ({'flags': Quality.FROZEN}, Quality.FROZEN),
    ({'optics': replace(OPTICS, assumed=True)}, Quality.ASSUMED_INTRINSICS),
    ({'geometry': replace(geometric(0.5), gyroscope='late')}, Quality.GYROSCOPE_UNUSED),
    ({'sample': replace(SAMPLE, distinct=2)}, Quality.SLOW_CAMERA),
    ({'heads': learned(0.0)}, Quality.DISAGREEMENT)])
def test_each_flag_has_its_own_reason(changes, flag):
    assert assessed(**changes)[1].flags == flag

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what heads say of contact, written by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fields import OPTICS, ROWS, SIZE, TALL, VIEW, WIDE, learned

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.perception.assessment import LevelFilter, assess
from vjepa_ros.perception.judgement import Judgement, Said, judge
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality

SETTINGS = Settings()
CAUTION = 1 / (SETTINGS.caution_ttc ** 0.75 * SETTINGS.warning_ttc ** 0.25)   # not believed
LEFT = slice(7, 10), slice(0, 3)
SAMPLE = Sample((0, 1, 2, 3), tuple(range(1, 5)), 4, 'cam', SIZE, 0.75, 4.0, 4, False)


def judged(heads: LearnedField | None, optics: Optics = OPTICS, **changes) -> Judgement:
    return judge([Said(heads, optics)], replace(SETTINGS, **changes))[0]


# -- what is on course ----------------------------------------------------------------------------

@pytest.mark.parametrize('heads', [None, learned(confidence=0.0), learned(math.nan,
                                                                          beside=math.nan)])
def test_without_heads_or_a_known_patch_nothing_is_known(heads):
    found = judged(heads)
    assert np.isnan([found.threat.course_rate, found.believed, found.obstacle_score]).all()
    assert (found.threat.observed_fraction, found.regions) == (0.0, ())


def test_a_still_view_is_free():
    found = judged(learned())
    assert (found.threat.course_rate, found.obstacle_score, found.threat.observed_fraction,
            found.regions) == (0.0, 0.0, 1.0, ())
    assert math.isnan(found.threat.bearing) and math.isnan(found.threat.elevation)


def test_too_little_known_makes_the_rate_unknown_but_hides_nothing_on_course():
    heads = learned(beside=math.nan, place=(slice(0, 1), slice(0, None, 2)), course=0.0)
    found = judged(heads)
    assert found.threat.observed_fraction == pytest.approx(0.5 / ROWS)
    assert math.isnan(found.threat.course_rate) and math.isnan(found.obstacle_score)
    found = judged(learned(1.0, beside=math.nan))
    assert found.threat.observed_fraction < SETTINGS.min_known
    assert found.threat.course_rate == pytest.approx(1.0, rel=0.2)
    assert found.regions[0].on_course


@pytest.mark.parametrize(('rows', 'cols', 'rate', 'side'), [
    (slice(2, 5), slice(1, 4), 0.3, 'LEFT'), (slice(11, 14), slice(7, 10), 2.0, 'CENTER'),
    (slice(2, 5), slice(12, 15), 2.0, 'RIGHT')])
def test_what_comes_is_found_with_its_rate_and_place_in_the_source_image(rows, cols, rate, side):
    """The bearing is positive to the right, the elevation upwards."""
    found = judged(learned(rate, place=(rows, cols)))
    threat, region = found.threat, found.regions[0]
    assert threat.course_rate == pytest.approx(rate, rel=0.1)
    assert region.time_to_contact == pytest.approx(1 / rate, rel=1e-5)
    assert region.on_course and region.side == side
    assert (region.x, region.y, region.width, region.height) == pytest.approx(
        (WIDE * cols.start, TALL * rows.start, 3 * WIDE, 3 * TALL))
    x, y = WIDE * (cols.start + cols.stop) / 2 - 0.5, TALL * (rows.start + rows.stop) / 2 - 0.5
    assert threat.bearing == pytest.approx(math.atan2(x - 191.5, 300.0), abs=0.01)
    assert threat.elevation == pytest.approx(math.atan2(143.5 - y, 300.0), abs=0.01)


def test_what_will_not_enter_the_volume_of_the_robot_passes_by():
    found = judged(learned(1.0, course=0.2))
    assert not found.regions[0].on_course
    assert found.regions[0].time_to_contact == pytest.approx(1.0)
    assert found.threat.course_rate < SETTINGS.looming_threshold
    assert math.isnan(found.threat.bearing)
    assert 0 < found.obstacle_score <= 1        # it comes nearer all the same


def test_the_most_urgent_on_course_comes_first():
    heads = learned(0.5)
    for place, rate, course in (((slice(1, 4), slice(1, 4)), 2.0, 0.0),
                                ((slice(11, 14), slice(11, 14)), 1.0, 0.9)):
        heads.rate[place], heads.course[place] = rate, course
    found = judged(heads)
    assert [r.on_course for r in found.regions] == [True, True, False]
    assert [r.looming_rate for r in found.regions] == pytest.approx([1.0, 0.5, 2.0])
    assert found.threat.bearing == found.regions[0].bearing


def test_only_the_region_of_interest_counts():
    heads = learned(1.0, place=LEFT)
    found = judged(heads, roi=(0.5, 0.0, 1.0, 1.0))
    assert (found.regions, found.threat.course_rate) == ((), 0.0)
    assert found.threat.observed_fraction == 1.0
    assert judged(heads, roi=(0.0, 0.0, 0.5, 1.0)).regions


def test_what_a_crop_has_cut_is_not_observed():
    assert judged(learned(mode='crop')).threat.observed_fraction == pytest.approx(0.75, abs=0.01)


# -- patches and the clip head --------------------------------------------------------------------

JUDGEMENTS = {
    # A wide robot meets it before its camera does.
    'an earlier contact': (learned(0.5, contact_s=1.5), {'rate': 1 / 1.5, 'probability': 1.0}),
    'an alarm of both': (learned(1.0, contact_s=1.0, surely=0.8), {'rate': 1.0, 'believed': 1.0}),
    'an alarm of patches alone': (learned(1.0), {'rate': 1.0, 'believed': CAUTION}),
    # It points at what is most probably on course.
    'a contact that no patch shows': (learned(course=0.4, contact_s=1.0),
                                      {'rate': 1.0, 'bearing': 0.0})}


@pytest.mark.parametrize(('heads', 'expected'), JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_patches_and_the_clip_head_are_judged_together(heads, expected):
    both = judged(heads)
    found = {'rate': both.threat.course_rate, 'believed': both.believed,
             'probability': both.probability, 'bearing': both.threat.bearing}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=0.15, abs=0.1)
    assert both.threat.course_rate >= both.believed


@pytest.mark.parametrize(('sees', 'saw', 'surely', 'told'), [
    (True, True, 0.25, True),                    # no patch is sure, but there is a picture
    (False, True, 0.51, True),
    (False, True, 0.45, False),                  # that nothing comes is never told blindly
    (False, False, 0.9, False)])                 # a covered lens
def test_where_no_patch_is_known_the_clip_head_says_what_it_can(sees, saw, surely, told):
    found = judged(learned(confidence=0.0, contact_s=0.5, surely=surely, clearance_m=0.1,
                           sees=sees, saw=saw))
    assert math.isnan(found.threat.course_rate) and math.isnan(found.believed)
    assert found.probability == pytest.approx(surely if told else math.nan, nan_ok=True)


# -- what is told of them -------------------------------------------------------------------------

def assessed(settings: Settings = SETTINGS, heads: LearnedField | None = None,
             optics: Optics = OPTICS, **changes):
    """What is told of a clip of four frames."""
    said = Said(heads or learned(0.5, contact_s=2.0), optics)
    given = {'sample': SAMPLE, 'view': VIEW, 'motion_score': 0.0, 'age_s': 0.01,
             'flags': Quality(0), **changes}
    return assess('cam', said=said, found=judge([said], settings)[0], settings=settings, **given)


@pytest.mark.parametrize(('clearance_m', 'changes', 'ahead'), [
    (1.0, {}, 1.0), (3.0, {}, 0.0), (3.0, {'approach_speed': 2.0}, 1.0),
    (3.0, {'collision_horizon': 4.0}, 1.0), (1.0, {'approach_speed': 0.0}, math.nan)])
def test_what_stands_in_the_way_is_told_apart_from_what_comes(clearance_m, changes, ahead):
    heads = learned(contact_s=0.0, surely=0.02, clearance_m=clearance_m)
    settings = replace(SETTINGS, **changes)
    found, raw = assessed(settings, heads)
    seen = LevelFilter().smooth(raw, found, settings)
    assert (seen.level, seen.approach_speed, seen.collision_horizon) == (
        Level.CLEAR, settings.approach_speed, settings.collision_horizon)
    assert seen.collision_if_ahead == pytest.approx(ahead, nan_ok=True)
    assert seen.collision_probability < 0.1
    blind = assessed(settings, replace(heads, sees=False))[1]
    assert np.isnan([blind.collision_if_ahead, blind.clearance]).all()


@pytest.mark.parametrize(('changes', 'flag'), [
    ({'view': View('crop', SIZE, 192)}, Quality.PARTIAL_VIEW), ({'age_s': 1.2}, Quality.STALE),
    ({'age_s': math.nan}, Quality.STALE), ({'flags': Quality.FROZEN}, Quality.FROZEN),
    ({'optics': replace(OPTICS, assumed=True)}, Quality.ASSUMED_INTRINSICS),
    ({'sample': replace(SAMPLE, slow=True)}, Quality.SLOW_CAMERA)])
def test_each_flag_has_its_own_reason(changes, flag):
    assert assessed(**changes)[1].flags == flag

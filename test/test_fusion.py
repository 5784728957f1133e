# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test how geometry and learned heads are joined, on fields written by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fields import MIDDLE, OPTICS, SIZE, geometric, learned

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.assessment import LevelFilter, assess
from vjepa_ros.perception.collision import CourseField, UNKNOWN
from vjepa_ros.perception.danger import collision_if_ahead, contact_probability, contact_within
from vjepa_ros.perception.fusion import FieldPair, Judgement, Sources, judge, on_cells
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality, Threat

SETTINGS = Settings()
CAUTION = 1 / (SETTINGS.caution_ttc ** 0.75 * SETTINGS.warning_ttc ** 0.25)   # not believed
LEFT = slice(7, 11), slice(0, 3)
SAMPLE = Sample((0, 1, 2, 3), tuple(range(1, 5)), 4, 'cam', SIZE, 0.75, 4.0, 4)


def judged(geometry: LoomingField | None, heads: LearnedField | None, method: str = 'fused',
           **changes) -> Judgement:
    return judge([Sources(geometry, heads, SIZE, SIZE, OPTICS)],
                 replace(SETTINGS, looming_method=method, **changes))[0]


def one_cell(rate: float, sigma: float = 0.05, confidence: float = 1.0,
             course: float = 0.0) -> CourseField:
    full = [np.full((1, 1), v, np.float32) for v in (rate, confidence, sigma)]
    return CourseField(*full, np.zeros((1, 1, 2), np.float32),
                       np.full((1, 1, 2), 8.0, np.float32), np.zeros(3, np.float32), None, 0.1,
                       16.0, (16, 16), np.full((1, 1), course, np.float32))


@pytest.mark.parametrize(('other', 'rate', 'sigma', 'course'), [
    (one_cell(0.8, 0.2, course=0.6), 0.32, 1 / math.hypot(10, 5), 0.4),
    (one_cell(0.9, 0.001, confidence=0.1, course=1.0), 0.2, 0.1, 0.2),
    (one_cell(math.nan, course=1.0), 0.2, 0.1, 0.2)])
def test_two_that_know_are_weighted_by_their_errors_and_one_counts_alone(other, rate, sigma,
                                                                         course):
    known = one_cell(0.2, 0.1, course=0.2)
    for both in (FieldPair(known, other).fuse(0.2), FieldPair(other, known).fuse(0.2)):
        assert (both.rate, both.sigma, both.course) == pytest.approx((rate, sigma, course))


def test_each_cell_takes_the_patch_it_lies_in():
    heads = learned()
    heads.rate[:] = np.arange(144).reshape(12, 12)
    field = on_cells(heads, geometric(), SIZE, SIZE)
    # 24 x 18 cells of 16 px over 12 x 12 patches of 32 x 24 px.
    assert field.rate[0, :5].tolist() == [0, 0, 1, 1, 2]
    assert field.rate[:5, 0].tolist() == [0, 12, 12, 24, 36]


@pytest.mark.parametrize('gray', [(200, 100), (1, 1)])
def test_without_geometry_the_cells_cover_the_image(gray):
    size = (2 * gray[0], 2 * gray[1])
    heads = replace(learned(), view=View('squash', size, 192))
    found, = judge([Sources(None, heads, size, gray, OPTICS)], SETTINGS)
    assert found.threat.observed_fraction == 1.0


def test_heads_that_see_something_in_a_blind_frame_do_not_calm_geometry():
    sure = [contact_within(2.0, learned(contact_s=0.3, surely=p, sees=False),
                           Threat(1.2, 0.0, 0.0, 0.06)) for p in (0.4, 0.49, 0.51, 0.7)]
    assert sure == sorted(sure) and sure[0] > 0.9


SEEN = learned(0.5, contact_s=1.5)
BLIND = learned(2.0, confidence=0.0, contact_s=0.2, sees=False, saw=False)
JUDGEMENTS = {
    # A wide robot meets it before its camera does.
    'no geometry': (None, SEEN, {'rate': 1 / 1.5, 'probability': 1.0, 'disagrees': False}),
    'blind geometry': (geometric(confidence=0.0), SEEN,
                       {'rate': 1 / 1.5, 'probability': 1.0, 'disagrees': False}),
    'a later contact': (None, learned(0.5, contact_s=3.0), {'rate': 0.5}),
    'blind heads': (geometric(0.5), BLIND, {
        'rate': 0.5, 'probability': contact_probability(0.5, 2.0), 'disagrees': False}),
    'an alarm of both': (geometric(1.0), learned(1.0, contact_s=1.0, surely=0.8),
                         {'rate': 1.0, 'believed': 1.0}),
    'an alarm of the heads alone': (geometric(), learned(1.0, contact_s=1.0, surely=0.7),
                                    {'believed': CAUTION, 'disagrees': True}),
    'a sure one': (geometric(), learned(1.0, contact_s=1.0, surely=0.95),
                   {'believed': 1.0, 'disagrees': True}),
    # It points at what is most probably on course.
    'a contact that no patch shows': (geometric(), learned(course=0.4, contact_s=1.0), {
        'rate': 1.0, 'bearing': 0.0, 'disagrees': True}),
    # What stands in the way is another question.
    'a wall that nobody approaches': (geometric(), learned(clearance_m=0.5),
                                      {'rate': 0.0, 'probability': 0.0})}


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


@pytest.mark.parametrize('rate', [1.2, 1.7])
def test_beside_the_view_of_the_heads_the_place_that_counts_is_reported(rate):
    """And not what geometry sees faster where the heads see nothing."""
    field, middle = geometric(rate, place=LEFT), geometric(2.3)
    field.rate[MIDDLE], field.flow[MIDDLE] = middle.rate[MIDDLE], middle.flow[MIDDLE]
    found = judged(field, learned(0.0, course=0.0, mode='crop'))
    assert found.threat.course_rate == pytest.approx(rate, rel=0.1)
    assert found.threat.bearing < -0.3 and found.regions[0].bearing < -0.3


@pytest.mark.parametrize('method', ['learned', 'fused'])
@pytest.mark.parametrize(('sees', 'saw', 'surely', 'told'), [
    (True, True, 0.9, True), (True, True, 0.25, True),   # no patch is sure, but there is a picture
    (True, True, 0.1, False),
    (False, True, 0.9, True), (False, True, 0.51, True),
    (False, True, 0.45, False),                  # that nothing comes is never told blindly
    (False, False, 0.9, False)])                 # a covered lens
def test_where_no_patch_is_known_the_clip_head_says_what_it_can(method, sees, saw, surely, told):
    blind = learned(confidence=0.0, contact_s=0.5, surely=surely, clearance_m=0.1, sees=sees,
                    saw=saw)
    both = judged(geometric(confidence=0.0), blind, method)
    assert math.isnan(both.threat.course_rate) and math.isnan(both.believed)
    assert both.probability == pytest.approx(surely if told else math.nan, nan_ok=True)


@pytest.mark.parametrize(('changes', 'apart'), [
    ({}, True),
    ({'sigma': 0.2}, False),               # 0.6 apart is three sigma
    ({'confidence': 0.4}, False),          # not sure
    ({'rate': 0.05}, False)])              # slower than what counts as approaching
def test_fields_disagree_where_both_are_sure(changes, apart):
    other = {'rate': 0.6, 'sigma': 0.1, 'confidence': 0.9} | changes
    quiet, heads = geometric(sigma=0.01), learned(**other)
    heads.rate[:, 6:] = other['rate']
    pair = FieldPair(CourseField(**vars(quiet), course=quiet.rate),
                     on_cells(heads, quiet, SIZE, SIZE))
    assert pair.disagree(SETTINGS) is apart
    assert not pair.disagree(replace(SETTINGS, roi=(0.0, 0.0, 0.4, 1.0)))


def assessed(settings: Settings = SETTINGS, geometry: LoomingField | None = None,
             heads: LearnedField | None = None, optics: Optics = OPTICS, **changes):
    """What is told of a clip of four frames with a field and heads that see the same."""
    sources = Sources(geometry or geometric(0.5), heads or learned(0.5, contact_s=2.0), SIZE, SIZE,
                      optics)
    given = {'sample': SAMPLE, 'view': View('squash', SIZE, 192), 'motion_score': 0.0,
             'age_s': 0.01, 'flags': Quality(0), **changes}
    return assess('cam', sources=sources, found=judge([sources], settings)[0], settings=settings,
                  **given)


@pytest.mark.parametrize('before', [0.0, 1 / SETTINGS.danger_ttc])
def test_the_level_of_an_alarm_that_is_not_believed_becomes_caution(before):
    """From CLEAR and from WARNING, through smoothing and hysteresis, within 2 s."""
    rates = [before] * 40 + [judged(geometric(1.0), learned(0.0)).believed] * 40
    level_filter, levels = LevelFilter(), []
    for step, rate in enumerate(rates):
        raw = replace(assessed()[1], looming_rate=rate, obstacle_score=0.0,
                      stamp_ns=round((100 + 0.05 * step) * 1e9))
        levels.append(level_filter.smooth(raw, Judgement('fused', None, UNKNOWN), SETTINGS).level)
    assert levels[39] == (Level.WARNING if before else Level.CLEAR)
    assert levels[-1] == Level.CAUTION


@pytest.mark.parametrize(('clearance_m', 'changes', 'ahead'), [
    (1.0, {}, 1.0), (3.0, {}, 0.0), (3.0, {'approach_speed': 2.0}, 1.0),
    (3.0, {'collision_horizon': 4.0}, 1.0), (1.0, {'approach_speed': 0.0}, math.nan)])
def test_what_stands_in_the_way_is_told_apart_from_what_comes(clearance_m, changes, ahead):
    heads = learned(contact_s=0.0, surely=0.02, clearance_m=clearance_m)
    settings = replace(SETTINGS, **changes)
    assert collision_if_ahead(heads, settings) == pytest.approx(ahead, nan_ok=True)
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

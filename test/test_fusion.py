# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test how geometry and learned heads are joined, on fields written by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception.assessment import Assessor, Measured, assess
from vjepa_ros.perception.collision import UNKNOWN
from vjepa_ros.perception.danger import (
    collision_if_ahead,
    contact_probability,
    contact_within,
)
from vjepa_ros.perception.fusion import (
    Before,
    Both,
    CourseField,
    Judgement,
    judge,
    judge_geometry,
    on_cells,
)
from vjepa_ros.perception.patch_maps import Distribution, LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality, Threat

CELL, WIDTH, HEIGHT = 16, 384, 288
ROWS, COLS = HEIGHT // CELL, WIDTH // CELL
SIZE = (WIDTH, HEIGHT)
OPTICS = Optics(300.0, 300.0, 191.5, 143.5, assumed=False)
SETTINGS = Settings()
CAUTION = 1 / (SETTINGS.caution_ttc ** 0.75 * SETTINGS.warning_ttc ** 0.25)   # not believed
EDGES = np.geomspace(0.1, 10.0, 21)


def geometric(rate: float = 0.0, confidence: float = 1.0, sigma: float = 0.02) -> LoomingField:
    """A geometric field of still cells, in the middle of which a patch comes nearer at a rate."""
    xs, ys = np.meshgrid(*((np.arange(n) + 0.5) * CELL - 0.5 for n in (COLS, ROWS)))
    field = LoomingField(
        rate=np.zeros((ROWS, COLS), np.float32),
        confidence=np.full((ROWS, COLS), confidence, np.float32),
        sigma=np.full((ROWS, COLS), sigma, np.float32), direction=None,
        flow=np.zeros((ROWS, COLS, 2), np.float32),
        centers=np.stack((xs, ys), -1).astype(np.float32),
        rotation=np.zeros(3, np.float32), dt_s=0.1, cell_px=float(CELL), gray_size=SIZE)
    rows, cols = slice(7, 11), slice(9, 15)
    centers = field.centers[rows, cols]
    field.rate[rows, cols] = rate
    field.flow[rows, cols] = rate * (centers - centers.reshape(-1, 2).mean(0))
    return field


def learned(rate: float = 0.0, confidence: float = 1.0, sigma: float = 0.02, *,
            course: float = 0.9, contact_s: float = math.inf, surely: float = 1.0,
            clearance_m: float = math.inf, mode: str = 'squash',
            sees: bool = True, saw: bool = True) -> LearnedField:
    """Heads that see the same patch coming nearer, contact at a time, and a wall ahead."""
    view = View(mode, SIZE, 192)
    maps = {name: np.full((12, 12), value, np.float32) for name, value in (
        ('rate', 0.0), ('confidence', confidence), ('sigma', sigma), ('course', 0.0),
        ('moving', 0.1))}
    maps['rate'][5:7, 5:7] = rate
    maps['course'][5:7, 5:7] = course
    until = surely * (contact_s <= EDGES)
    return LearnedField(**maps, contact=Distribution(EDGES, until), view=view,
                        clearance=Distribution(EDGES, 1.0 * (clearance_m <= EDGES)),
                        sees=sees, saw=saw)


def judged(geometry: LoomingField | None, heads: LearnedField | None, method: str = 'fused',
           **changes) -> Judgement:
    return judge(geometry, heads, SIZE, SIZE, OPTICS,
                 replace(SETTINGS, looming_method=method, **changes))


def cells(rate: float, sigma: float = 0.05, confidence: float = 1.0,
          course: float = 0.0) -> CourseField:
    """One cell."""
    full = [np.full((1, 1), v, np.float32) for v in (rate, confidence, sigma)]
    return CourseField(*full, np.zeros((1, 1, 2), np.float32),
                       np.full((1, 1, 2), 8.0, np.float32), np.zeros(3, np.float32), None, 0.1,
                       16.0, (16, 16), np.full((1, 1), course, np.float32))


@pytest.mark.parametrize(('other', 'rate', 'sigma', 'course'), [
    (cells(0.8, 0.2, course=0.6), 0.32, 1 / math.hypot(10, 5), 0.4),
    (cells(0.9, 0.001, confidence=0.1, course=1.0), 0.2, 0.1, 0.2),
    (cells(math.nan, course=1.0), 0.2, 0.1, 0.2)])
def test_two_that_know_are_weighted_by_their_errors_and_one_counts_alone(other, rate, sigma,
                                                                         course):
    known = cells(0.2, 0.1, course=0.2)
    for both in (Both(known, other).fuse(0.2), Both(other, known).fuse(0.2)):
        assert both.rate == pytest.approx(rate)
        assert both.sigma == pytest.approx(sigma)
        assert both.course == pytest.approx(course)


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
    field = on_cells(heads, None, size, gray)
    assert field.gray_size == gray
    assert np.isfinite(field.rate).all()
    assert judge(None, heads, size, gray, OPTICS, SETTINGS).threat.known_fraction == 1.0


@pytest.mark.parametrize('gyroscope', ['', 'late', None])
def test_the_rotation_of_a_gyroscope_counts_for_both_together(gyroscope):
    found = judged(replace(geometric(1.0), gyroscope=gyroscope), learned(1.0, contact_s=1.0))
    assert found.method == 'fused' and found.field.gyroscope == gyroscope


def test_heads_that_see_something_in_a_blind_frame_do_not_calm_geometry():
    sure = [contact_within(2.0, learned(contact_s=0.3, surely=p, sees=False),
                           Threat(1.2, 0.0, 0.0, 0.5, 0.06, ())) for p in (0.4, 0.49, 0.51, 0.7)]
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


def at_the_left(rate: float) -> LoomingField:
    """A geometric field in which something comes nearer at the left edge."""
    field = geometric()
    centers = field.centers[7:11, :3]
    field.rate[7:11, :3] = rate
    field.flow[7:11, :3] = rate * (centers - centers.reshape(-1, 2).mean(0))
    return field


@pytest.mark.parametrize(('mode', 'believed'), [('squash', CAUTION), ('crop', 1.5)])
def test_heads_calm_geometry_only_where_they_see(mode, believed):
    found = judged(at_the_left(1.5), learned(0.0, course=0.0, mode=mode))
    assert found.believed == pytest.approx(believed, rel=0.1)
    assert found.threat.course_rate >= found.believed
    assert found.probability > 0.9 if mode == 'crop' else found.probability < 0.3
    ahead = judged(geometric(1.5), learned(0.0, mode=mode))
    assert ahead.believed == pytest.approx(CAUTION, rel=0.1)


@pytest.mark.parametrize('rate', [1.2, 1.5, 1.7])
def test_what_is_told_of_a_place_beside_the_view_of_the_heads_is_of_that_place(rate):
    """And not of what geometry sees faster where the heads see nothing."""
    field, middle = at_the_left(rate), geometric(2.3)
    place = slice(7, 11), slice(9, 15)
    field.rate[place], field.flow[place] = middle.rate[place], middle.flow[place]
    found = judged(field, learned(0.0, course=0.0, mode='crop')).threat
    assert found.course_rate == pytest.approx(rate, rel=0.1)
    assert found.bearing < -0.3 and found.regions[0].bearing < -0.3


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
    if told:
        assert both.probability == pytest.approx(surely)
    else:
        assert math.isnan(both.probability)


@pytest.mark.parametrize(('changes', 'apart'), [
    ({}, True),
    ({'sigma': 0.2}, False),               # 0.6 apart is three sigma
    ({'confidence': 0.4}, False),          # not sure
    ({'rate': 0.05}, False)])              # slower than what counts as approaching
def test_fields_disagree_where_both_are_sure(changes, apart):
    other = {'rate': 0.6, 'sigma': 0.1, 'confidence': 0.9} | changes
    still, heads = geometric(sigma=0.01), learned(**other)
    heads.rate[:, 6:] = other['rate']
    first = CourseField(**vars(still), course=still.rate)
    second = on_cells(heads, still, SIZE, SIZE)
    assert Both(first, second).disagree(SETTINGS) is apart
    if apart:
        assert not Both(first, second).disagree(replace(SETTINGS, roi=(0.0, 0.0, 0.4, 1.0)))


@pytest.mark.parametrize('before', [0.0, 1 / SETTINGS.danger_ttc])
def test_the_level_of_an_alarm_that_is_not_believed_becomes_caution(before):
    """From CLEAR and from WARNING, through smoothing and hysteresis, within 2 s."""
    rates = [before] * 40 + [judged(geometric(1.0), learned(0.0)).believed] * 40
    assessor, levels = Assessor(), []
    for step, rate in enumerate(rates):
        raw = replace(assess(clip(), SETTINGS)[1], looming_rate=rate, obstacle_score=0.0,
                      stamp_ns=round((100 + 0.05 * step) * 1e9))
        levels.append(assessor.smooth(raw, Judgement('fused', None, UNKNOWN), SETTINGS).level)
    assert levels[39] == (Level.WARNING if before else Level.CLEAR)
    assert levels[-1] == Level.CAUTION


@pytest.mark.parametrize(('clearance_m', 'changes', 'ahead'), [
    (1.0, {}, 1.0), (3.0, {}, 0.0), (3.0, {'approach_speed': 2.0}, 1.0),
    (3.0, {'collision_horizon': 4.0}, 1.0), (1.0, {'approach_speed': 0.0}, math.nan)])
def test_what_stands_in_the_way_is_told_apart_from_what_comes(clearance_m, changes, ahead):
    heads = learned(contact_s=0.0, surely=0.02, clearance_m=clearance_m)
    settings = replace(SETTINGS, **changes)
    assert collision_if_ahead(heads, settings) == pytest.approx(ahead, nan_ok=True)
    found, raw = assess(clip(looming=geometric(), before=Before(), learned=heads), settings)
    seen = Assessor().smooth(raw, found, settings)
    assert (seen.level, seen.approach_speed, seen.collision_horizon) == (
        Level.CLEAR, settings.approach_speed, settings.collision_horizon)
    assert seen.collision_if_ahead == pytest.approx(ahead, nan_ok=True)
    assert seen.collision_probability < 0.1
    blind = assess(clip(learned=replace(heads, sees=False)), settings)[1]
    assert np.isnan([blind.collision_if_ahead, blind.clearance]).all()
    assert math.isnan(assess(clip(learned=None), settings)[1].collision_if_ahead)


def clip(**changes) -> Measured:
    """A clip of four frames with a field and heads that see the same."""
    sample = Sample((0, 1, 2, 3), tuple(range(1, 5)), 4, 'cam', SIZE, 0.75, 4.0, 4)
    field = geometric(0.5)
    return replace(Measured('cam', sample, View('squash', SIZE, 192), SIZE, OPTICS, field,
                            Before(judge_geometry(field, SIZE, OPTICS, SETTINGS)),
                            learned(0.5, contact_s=2.0), 0.0, 0.01, Quality(0)), **changes)


@pytest.mark.parametrize(('changes', 'flag'), [
    ({'geometry_failed': True}, Quality.GEOMETRY_FAILED), ({'frozen': True}, Quality.FROZEN),
    ({'view': View('crop', SIZE, 192)}, Quality.PARTIAL_VIEW), ({'age_s': 1.2}, Quality.STALE),
    ({'age_s': math.nan}, Quality.STALE), ({'heads_problem': 'x'}, Quality.HEADS_OUT_OF_RANGE),
    ({'optics': replace(OPTICS, assumed=True)}, Quality.ASSUMED_INTRINSICS),
    ({'sample': replace(clip().sample, distinct=2)}, Quality.SLOW_CAMERA),
    ({'learned': learned(0.0)}, Quality.DISAGREEMENT)])
def test_each_flag_has_its_own_reason(changes, flag):
    assert assess(clip(**changes), SETTINGS)[1].flags == flag

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test properties of the law of danger, over thousands of random situations."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from random import Random

import numpy as np
import pytest

from vjepa_ros.lab.evaluation.recording_replay import Item, Reader, Setup
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.perception import danger
from vjepa_ros.perception.assessment import LevelFilter
from vjepa_ros.perception.collision import UNKNOWN
from vjepa_ros.perception.danger import (
    BELIEVED,
    age_problem,
    believed_rate,
    collision_if_ahead,
    contact_within,
    is_alarm,
    level_rates,
    level_times,
    probability_when_unobserved,
    wanted_level,
)
from vjepa_ros.perception.fusion import Judgement
from vjepa_ros.perception.learned import Distribution
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.perception.types import Assessment, Level, Quality, Threat
from vjepa_ros.runtime.model import Model, ModelConfig

SITUATIONS = 400
EDGES = np.geomspace(0.05, 30.0, 30)


@dataclass(frozen=True)
class Heads:
    """What the law reads of a `LearnedField`."""

    contact: Distribution
    clearance: Distribution
    sees: bool = True
    saw: bool = True


def situations(seed: int) -> list[Random]:
    return [Random(f'{seed} {number}') for number in range(SITUATIONS)]


def settings_of(random: Random) -> Settings:
    danger_ttc, warning_ttc, caution_ttc = sorted(random.uniform(0.1, 8.0) for _ in range(3))
    return Settings(danger_ttc=danger_ttc, warning_ttc=warning_ttc, caution_ttc=caution_ttc,
                    looming_threshold=random.choice((0.0, random.uniform(0.0, 0.5))),
                    min_known=random.uniform(0.0, 0.5),
                    collision_horizon=random.uniform(0.5, 5.0),
                    approach_speed=random.choice((0.0, random.uniform(0.1, 3.0))))


def score_of(random: Random) -> float:
    return random.choice((math.nan, random.uniform(0.0, 1.0)))


def rate_of(random: Random) -> float:
    return random.choice((0.0, random.uniform(-1.0, 0.1), 10 ** random.uniform(-2, 1)))


def distribution_of(random: Random) -> Distribution:
    steps = np.cumsum([random.random() ** 4 for _ in EDGES[1:]])
    until = np.concatenate(([0.0], steps / steps[-1] * random.uniform(0.0, 1.0)))
    return Distribution(EDGES, until)


def heads_of(random: Random) -> Heads:
    sees = random.random() < 0.8
    return Heads(distribution_of(random), distribution_of(random), sees,
                 sees or random.random() < 0.5)


def threat_of(random: Random) -> Threat:
    if random.random() < 0.15:
        return UNKNOWN
    return replace(UNKNOWN, course_rate=max(0.0, rate_of(random)),
                   observed_fraction=random.uniform(0.0, 1.0))


def test_a_level_never_falls_when_the_time_falls():
    for random in situations(1):
        settings, ease = settings_of(random), random.uniform(1.0, 1.5)
        times = sorted((10 ** random.uniform(-2, 2) for _ in range(20)), reverse=True)
        levels = [wanted_level(time, settings, ease) for time in (math.inf, *times, 0.0)]
        assert levels == sorted(levels) and levels[-1] == Level.DANGER
        assert wanted_level(math.nan, settings, ease) == Level.UNKNOWN
        assert list(level_rates(settings)) == sorted(level_rates(settings), reverse=True)
        for level, time in level_times(settings):
            assert wanted_level(time * (1 - 1e-9), settings) == level
            assert wanted_level(time, settings) == level - 1


@pytest.mark.parametrize(('age_s', 'current'), [
    (0.99, True), (1.01, False), (-0.09, True), (-0.11, False), (math.nan, False),
    (-math.inf, False)])
def test_a_frame_is_current_neither_too_old_nor_of_the_future_nor_of_unknown_age(age_s, current):
    assert (age_problem(age_s, 1.0) == '') is current


def test_a_probability_never_falls_as_the_time_grows_and_is_unknown_only_where_nobody_knows():
    for random in situations(11):
        heads, settings, geometry = heads_of(random), settings_of(random), threat_of(random)
        p = contact_within(settings.collision_horizon, heads, geometry)
        told = heads.sees or (heads.saw
                              and heads.contact.below(settings.collision_horizon) >= danger.LIKELY)
        assert math.isnan(p) == (not told and math.isnan(geometry.course_rate))
        assert math.isnan(p) or 0 <= p <= 1
        if heads.sees:           # a hazard that begins to count replaces what geometry says
            times = sorted(10 ** random.uniform(-1, 1) for _ in range(10))
            sure = [contact_within(time, heads, geometry) for time in times]
            assert all(0 <= p <= 1 for p in sure)
            assert all(a <= b + 1e-12 for a, b in pairwise(sure))


def test_a_contact_ahead_never_falls_with_speed_or_horizon_and_is_unknown_where_nothing_is_seen():
    for random in situations(12):
        heads, settings = heads_of(random), settings_of(random)
        p = collision_if_ahead(heads, settings)
        beyond = settings.approach_speed * settings.collision_horizon > heads.clearance.edges[-1]
        assert math.isnan(p) == (not heads.sees or settings.approach_speed == 0 or (
            beyond and heads.clearance.until[-1] < danger.LIKELY))
        faster = replace(settings, approach_speed=settings.approach_speed * random.uniform(1, 3))
        longer = replace(settings, collision_horizon=10.0)
        for more in (faster, longer):
            later = collision_if_ahead(heads, more)
            assert math.isnan(p) or math.isnan(later) or 0 <= p <= later <= 1


def test_belief_never_clears_what_is_seen_and_an_alarm_needs_a_probable_contact():
    alarms = 0
    for random in situations(14):
        heads, settings = heads_of(random), settings_of(random)
        threats = [threat_of(random) for _ in range(3)]
        seen = max((t.course_rate for t in threats if not math.isnan(t.course_rate)),
                   default=math.nan)
        believed = believed_rate(threats, heads, threats[1], settings)
        if math.isnan(seen):
            assert math.isnan(believed)
            continue
        assert believed <= seen
        if seen > 0 and 1.0 / seen < settings.caution_ttc:
            assert 1.0 / believed < settings.caution_ttc
        if believed > 0 and is_alarm(1.0 / believed, settings):
            alarms += 1
            # Where nobody can say, the alarm stands.
            assert not contact_within(1.0 / believed, heads, threats[1]) < BELIEVED
    assert alarms > SITUATIONS // 20


# -- one story ------------------------------------------------------------------------------------

def contradiction(a: Assessment, settings: Settings) -> str:
    """What an assessment tells that contradicts itself, '' for nothing."""
    time, p, level, horizon = (a.time_to_contact, a.collision_probability, a.level,
                               settings.collision_horizon)
    if level == Level.UNKNOWN:
        blind = np.isnan([time, a.looming_rate, a.bearing]).all()
        return '' if blind and (math.isnan(p) or Quality.STALE not in a.flags
                                ) else f'UNKNOWN, but {time} s, {p}, {a.flags!r}'
    flagged = Quality.DISAGREEMENT in a.flags
    longest = dict(level_times(settings)).get(level, math.inf) * (1 + settings.hysteresis)
    alarm = level >= Level.WARNING
    for wrong, why in (
            (math.isnan(time), 'no time'),
            (level == Level.CLEAR and time < settings.caution_ttc, 'CLEAR although it comes'),
            (level == Level.CLEAR and p >= 0.5 and horizon <= settings.caution_ttc,
             'CLEAR although contact is likely'),
            (alarm and time > longest + 1e-9, 'an alarm although there is time'),
            (alarm and longest <= horizon and p < 0.5, 'an alarm although contact is unlikely'),
            (p >= 0.5 and time > 2 * horizon + 1e-9, 'likely soon, but with much time'),
            (time < horizon / 2 and p < 0.5 and not flagged, 'unlikely, but with no time'),
            (wanted_level(time, settings) > max(level, Level.CAUTION)
             and not flagged, 'a time of a higher alarm')):
        if wrong:
            return f'{why}: {level.name}, {time} s, {p}, {a.flags!r}'
    return ''


RAW = Assessment('cam', 0, 'f', math.nan, math.nan, math.nan, math.nan, math.nan, math.nan,
                 math.nan, Level.UNKNOWN, Quality(0), known_fraction=1.0)
SUDDEN = Settings(smoothing=0.0, hysteresis=0.0, level_hold=0.0)


def raw(random: Random, rate: float, stamp_s: float) -> Assessment:
    return Assessment('cam', round(stamp_s * 1e9), 'f', score_of(random), score_of(random),
                      math.nan, math.nan, rate, random.choice((math.nan, 0.1)), 0.0,
                      Level.UNKNOWN, random.choice((Quality(0),) * 9 + (Quality.STALE,)),
                      known_fraction=1.0)


def turning(rate: float, gyroscope: str | None) -> LoomingField:
    """A looming field of a camera that yaws [rad/s]."""
    none = np.zeros((0, 0), np.float32)
    return LoomingField(none, none, none, none, none, np.array((0.0, rate, 0.0), np.float32),
                        None, 0.1, 16.0, (48, 48), gyroscope=gyroscope)


@pytest.mark.parametrize(('yaw', 'gyroscope', 'times', 'levels'), [
    (1.0, None, (9.0, 1.0, 9.0), 'CLEAR CLEAR CLEAR'),      # a spike
    (-1.0, 'image', (9.0, 1.0, 1.0), 'CLEAR CLEAR DANGER'),
    (1.0, None, (9.0, 3.0, 1.0), 'CLEAR CLEAR CAUTION'),
    (1.0, None, (1.0,), 'DANGER'),                          # nothing was known before
    (1.0, None, (9.0, math.nan, 1.0), 'CLEAR UNKNOWN DANGER'),
    (1.0, '', (9.0, 1.0), 'CLEAR DANGER'),                  # the gyroscope tells the rotation
    (0.3, None, (9.0, 1.0), 'CLEAR DANGER')])
def test_a_level_needs_two_results_where_the_picture_turns_far(yaw, gyroscope, times, levels):
    for believed, p in ((None, None), (1.0, 0.9)):
        assessor, told = LevelFilter(), []
        for number, time in enumerate(times):
            seen = replace(RAW, looming_rate=1 / time, stamp_ns=number * 10 ** 8)
            told.append(assessor.smooth(seen, Judgement(
                'fused', turning(yaw, gyroscope), UNKNOWN, p and p / time,
                False, believed and believed / time), SUDDEN))
        assert ' '.join(a.level.name for a in told) == levels
        assert {contradiction(a, SUDDEN) for a in told} == {''}


def test_level_time_and_probability_tell_one_story_whatever_was_seen():
    seen = set()
    for random in situations(21):
        settings = replace(
            settings_of(random), smoothing=random.choice((0.0, random.uniform(0.0, 2.0))),
            hysteresis=random.uniform(0.0, 0.5), level_hold=random.uniform(0.0, 1.0))
        assessor, stamp = LevelFilter(), 0.0
        for _ in range(30):
            stamp += random.uniform(0.02, 0.5)
            rate = random.choice((math.nan, *(rate_of(random) for _ in range(9))))
            believed = random.choice((None, rate, rate - random.random()))
            p = random.choice((None, math.nan, random.random(), random.random()))
            turn = random.choice((None, turning(1.0, random.choice(('', None)))))
            told = assessor.smooth(raw(random, rate, stamp), Judgement(
                'fused', turn, UNKNOWN, p, False, believed), settings)
            assert contradiction(told, settings) == ''
            seen.add(told.level)
    assert seen == set(Level)


def test_a_single_moment_is_told_with_the_probability_that_was_computed():
    for random in situations(22):
        heads, geometry = heads_of(random), threat_of(random)
        settings = replace(settings_of(random), smoothing=0.0)
        threats = [threat_of(random), geometry]
        p = contact_within(settings.collision_horizon, heads, geometry)
        believed = believed_rate(threats, heads, geometry, settings)
        rate = max((t.course_rate for t in threats if not math.isnan(t.course_rate)),
                   default=math.nan)
        if math.isnan(rate):
            p = probability_when_unobserved(p, heads, settings)
        told = LevelFilter().smooth(replace(raw(random, rate, 1.0), flags=Quality(0)), Judgement(
            'fused', None, UNKNOWN, p, False, believed), settings)
        assert contradiction(told, settings) == ''
        assert told.collision_probability == pytest.approx(p, abs=1e-9, nan_ok=True)


def test_that_nothing_comes_is_not_told_of_a_view_that_cannot_be_measured():
    told = []
    for random in situations(23):
        heads, settings, p = heads_of(random), settings_of(random), score_of(random)
        soon = heads.contact.below(settings.caution_ttc)
        found = probability_when_unobserved(p, heads, settings)
        assert math.isnan(found) or found == p
        assert math.isnan(found) or p >= 0.5 or (heads.sees and soon >= 0.2)
        assert not (p >= 0.5 and math.isnan(found))
        told.append(found < 0.5)
    assert any(told)            # and that it comes is, although hardly before the horizon


# Every n-th frame: 2 to 4 a second, as the cameras of himax have them.
RECORDINGS = {'himax_2': 1, 'cup.mp4': 7, 'kitti_street': 3}


@pytest.fixture(scope='module')
def engine(one_thread):
    with closing(Model.load(ModelConfig(model_size='tiny', device='cpu'))) as loaded:
        yield loaded


@pytest.mark.parametrize('name', RECORDINGS)
def test_recordings_are_told_as_one_story(shared_data, engine, name):
    settings = Settings()
    setup = Setup(('fused',), settings, TrackConfig(), engine)
    told = []
    with Item(str(shared_data / name), '', name).open(setup) as source:
        reader = Reader(setup, source)
        for frame in islice(source, 0, None, RECORDINGS[name]):
            told += [result.assessment for result in reader.take(frame).values()]
    assert len(told) > 3
    assert {contradiction(a, settings) for a in told} == {''}

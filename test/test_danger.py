# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the law of danger over random situations, and the filter that makes a level of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from vjepa_ros.perception import danger
from vjepa_ros.perception.assessment import LevelFilter, SETTLE_RESULTS
from vjepa_ros.perception.danger import contact_within, level_times, wanted_level
from vjepa_ros.perception.judgement import Judgement
from vjepa_ros.perception.learned import Distribution
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Assessment, Level, Quality

NAN = math.nan
EDGES = np.geomspace(0.05, 30.0, 30)
SUDDEN = Settings(smoothing=0.0, level_hold=0.0, hysteresis=0.0)


def situations(seed: int) -> list[Random]:
    return [Random(f'{seed} {number}') for number in range(400)]


def settings_of(random: Random) -> Settings:
    danger_ttc, warning_ttc, caution_ttc = sorted(random.uniform(0.1, 8.0) for _ in range(3))
    return Settings(danger_ttc=danger_ttc, warning_ttc=warning_ttc, caution_ttc=caution_ttc,
                    looming_threshold=random.choice((0.0, random.uniform(0.0, 0.5))),
                    collision_horizon=random.uniform(0.5, 5.0))


def rate_of(random: Random) -> float:
    return random.choice((0.0, random.uniform(-1.0, 0.1), 10 ** random.uniform(-2, 1)))


def heads_of(random: Random) -> SimpleNamespace:
    """What the law reads of a `LearnedField`."""
    steps = np.cumsum([random.random() ** 4 for _ in EDGES[1:]])
    until = np.concatenate(([0.0], steps / steps[-1] * random.uniform(0.0, 1.0)))
    sees = random.random() < 0.8
    return SimpleNamespace(contact=Distribution(EDGES, until), sees=sees,
                           saw=sees or random.random() < 0.5)


@pytest.mark.parametrize(('age_s', 'current'), [
    (0.99, True), (1.01, False), (-0.09, True), (-0.11, False), (NAN, False), (-math.inf, False)])
def test_a_frame_is_current_neither_too_old_nor_of_the_future_nor_of_unknown_age(age_s, current):
    assert (danger.age_problem(age_s, 1.0) == '') is current


def test_belief_never_clears_what_is_seen_and_an_alarm_needs_a_probable_contact():
    alarms = 0
    for random in situations(14):
        heads, settings = heads_of(random), settings_of(random)
        seen = random.choice((NAN, *(max(0.0, rate_of(random)) for _ in range(6))))
        believed = danger.believed_rate(seen, heads, settings)
        assert math.isnan(believed) == math.isnan(seen)
        assert not believed > seen
        if seen * settings.caution_ttc > 1:
            assert believed * settings.caution_ttc > 1
        if believed > 0 and danger.is_alarm(1.0 / believed, settings):
            alarms += 1
            # Where nobody can say, the alarm stands.
            assert not contact_within(1.0 / believed, heads) < danger.BELIEVED
    assert alarms > 10


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


def raw(rate: float, stamp_s: float, **more) -> Assessment:
    return replace(Assessment('cam', round(stamp_s * 1e9), 'f', 0.0, 0.0, NAN, NAN, rate, NAN, NAN,
                              Level.UNKNOWN, Quality(0), known_fraction=1.0), **more)


def smoothing(settings: Settings) -> Callable[..., Assessment]:
    """A level filter at 10 Hz, which takes a rate, what is judged, and fields of the result."""
    level_filter, stamps = LevelFilter(), iter(100 + 0.1 * np.arange(1000))
    return lambda rate, **more: level_filter.smooth(
        raw(rate, next(stamps), **more), told_of(rate), settings)


def told_of(rate: float) -> Judgement:
    """A judgement that believes a looming rate."""
    return Judgement(probability=NAN if math.isnan(rate) else float(rate >= 0.5), believed=rate)


def test_level_time_and_probability_tell_one_story_whatever_was_seen():
    seen = set()
    for random in situations(21):
        settings = replace(
            settings_of(random), smoothing=random.choice((0.0, random.uniform(0.0, 2.0))),
            hysteresis=random.uniform(0.0, 0.5), level_hold=random.uniform(0.0, 1.0))
        level_filter, stamp = LevelFilter(), 0.0
        for _ in range(30):
            stamp += random.uniform(0.02, 0.5)
            rate = random.choice((NAN, *(rate_of(random) for _ in range(9))))
            believed = random.choice((rate, rate - random.random()))
            p = random.choice((NAN, random.random(), random.random()))
            flags = random.choice((Quality(0),) * 9 + (Quality.STALE,))
            told = level_filter.smooth(
                raw(rate, stamp, bearing=random.choice((NAN, 0.1)), flags=flags),
                Judgement(probability=p, believed=believed), settings)
            assert contradiction(told, settings) == ''
            seen.add(told.level)
    assert seen == set(Level)


# -- the filter -----------------------------------------------------------------------------------

@pytest.mark.parametrize('count', [4, 100])
def test_smoothing_follows_time_and_not_the_number_of_results(count):
    level_filter, settings = LevelFilter(), Settings(smoothing=0.1)

    def score(value: float, stamp_s: float) -> float:
        return level_filter.smooth(raw(0.0, stamp_s, motion_score=value), told_of(0.0),
                                   settings).motion_score

    assert score(0.2, 1) == 0.2
    for i in range(1, count + 1):
        value = score(1.0, 1 + 0.2 * i / count)
    assert value == pytest.approx(1 - 0.8 * math.exp(-2), rel=1e-6)
    assert math.isnan(score(NAN, 1.2))                          # and poisons nothing
    for stamp in (1.2, 1.0):                  # a stamp that does not advance changes nothing
        assert score(0.5, stamp) == pytest.approx(value)


@pytest.mark.parametrize(('true_s', 'told_s', 'level'), [
    (2.0, 2.0, Level.WARNING), (24.0, 24.0, Level.CLEAR), (26.0, math.inf, Level.CLEAR),
    (-2.0, math.inf, Level.CLEAR), (NAN, NAN, Level.UNKNOWN)])
def test_time_to_contact_is_one_over_the_looming_rate_as_far_as_it_can_be_measured(
        true_s, told_s, level):
    told = smoothing(SUDDEN)(1 / true_s)
    assert told.time_to_contact == pytest.approx(told_s, nan_ok=True)
    assert told.level is level


@pytest.mark.parametrize(('settings', 'times', 'levels'), [
    # 1.3 is above 1.2 but below 1.2 * 1.25.
    ({'hysteresis': 0.25}, (9.0, 1.1, 1.3, 1.51, 9.0), 'CLEAR DANGER DANGER WARNING CLEAR'),
    ({'level_hold': 0.35}, (1.0, 9.0, 9.0, 9.0, 9.0), 'DANGER DANGER DANGER DANGER CLEAR'),
    # Still within its hold.
    ({'level_hold': 1.0}, (1.0, NAN, 9.0), 'DANGER UNKNOWN DANGER')])
def test_danger_is_shown_at_once_held_and_left_by_hysteresis(settings, times, levels):
    show = smoothing(replace(SUDDEN, **settings))
    assert ' '.join(show(1 / ttc).level.name for ttc in times) == levels


def test_a_reset_forgets_level_smoothing_and_warm_up():
    level_filter = LevelFilter()
    flagged = [Quality.WARMING_UP in level_filter.smooth(raw(1.0, 1 + n), told_of(1.0),
                                                         Settings()).flags for n in range(5)]
    assert flagged == [True] * SETTLE_RESULTS + [False] * (5 - SETTLE_RESULTS)
    level_filter.reset()
    told = level_filter.smooth(raw(1 / 9, 6.0), told_of(1 / 9), Settings())
    assert told.level is Level.CLEAR and told.looming_rate == pytest.approx(1 / 9)
    assert Quality.WARMING_UP in told.flags

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test smoothing, levels with hysteresis, flags, and the settings they follow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vjepa_ros.perception.assessment import LevelFilter, SETTLE_RESULTS
from vjepa_ros.perception.collision import UNKNOWN
from vjepa_ros.perception.danger import Contact
from vjepa_ros.perception.fusion import Judgement
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Assessment, Level, Quality

NAN = math.nan
RAW = Settings(smoothing=0.0, level_hold=0.0, hysteresis=0.0)
GEOMETRIC = Judgement('geometric', None, UNKNOWN)


def raw(rate: float, stamp_s: float, **more) -> Assessment:
    return replace(Assessment('cam', round(stamp_s * 1e9), 'f', 0.0, 0.0, NAN, NAN, rate, NAN, NAN,
                              Level.UNKNOWN, Quality(0), known_fraction=1.0), **more)


class Film:
    """Feeds a level filter at 10 Hz and remembers where in time it is."""

    def __init__(self, settings: Settings) -> None:
        self.level_filter = LevelFilter()
        self.settings = settings
        self.time = 100.0

    def show(self, ttc: float, **more) -> Assessment:
        self.time += 0.1
        return self.level_filter.smooth(raw(1.0 / ttc, self.time, **more), GEOMETRIC,
                                        self.settings)


@pytest.mark.parametrize(('heads', 'shown'), [
    (None, [0.01, 0.9, 0.9]),
    (Contact(0.01, 0.01, 0.1), [0.01, 0.01, 0.9]),      # geometry alone sees it
    (Contact(0.4, 0.3, 0.7), [0.01, 0.4, 0.9])])        # heads see a part of it
def test_what_one_pair_of_pictures_shows_counts_when_the_next_shows_it_too(heads, shown):
    level_filter, rates, odds = LevelFilter(), [], []
    for number, rate in enumerate((0.01, 0.9, 0.9)):
        found = Judgement('fused', None, UNKNOWN, rate, believed=rate,
                          by_heads=heads if rate > 0.5 else None)
        told = level_filter.smooth(raw(rate, 100 + number / 10), found, RAW)
        rates.append(told.looming_rate)
        odds.append(told.collision_probability)
    assert rates == pytest.approx(shown)
    assert odds[1] == pytest.approx(0.9 if heads is None else heads.probability)


def test_what_was_before_a_pause_confirms_nothing():
    for pause, shown in ((0.1, 0.8), (10.0, 0.8), (60.0, 0.9)):
        level_filter, heads = LevelFilter(), Contact(0.01, 0.01, 0.1)
        for rate, stamp in ((0.8, 100.0), (0.9, 100.0 + pause)):
            told = level_filter.smooth(raw(rate, stamp), Judgement(
                'fused', None, UNKNOWN, 0.5, believed=rate, by_heads=heads), RAW)
        assert told.looming_rate == pytest.approx(shown)


def test_where_nothing_is_measured_any_more_what_the_heads_see_is_told_whole():
    level_filter = LevelFilter()
    for number in range(5):
        level_filter.smooth(raw(0.0, 100 + number / 30), Judgement('fused', None, UNKNOWN, 0.0),
                            Settings())
    told = level_filter.smooth(raw(NAN, 100 + 5 / 30), Judgement(
        'fused', None, UNKNOWN, 0.7, believed=NAN), Settings())
    assert told.level is Level.UNKNOWN and told.collision_probability == 0.7


def test_an_old_picture_tells_nothing_of_the_way_ahead():
    for flags, known in ((Quality(0), True), (Quality.STALE, False)):
        told = LevelFilter().smooth(
            raw(0.1, 100.0, clearance=5.0, collision_if_ahead=0.2, flags=flags), GEOMETRIC, RAW)
        assert math.isfinite(told.clearance) == math.isfinite(told.collision_if_ahead) == known


@pytest.mark.parametrize('count', [4, 100])
def test_smoothing_follows_time_and_not_the_number_of_results(count):
    level_filter, settings = LevelFilter(), Settings(smoothing=0.1)

    def score(value: float, stamp_s: float) -> float:
        return level_filter.smooth(raw(0.0, stamp_s, motion_score=value), GEOMETRIC,
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
    scores = Film(RAW).show(true_s)
    assert scores.time_to_contact == pytest.approx(told_s, nan_ok=True)
    assert scores.level is level
    assert scores.collision_probability == 0.0 or not true_s < 0


def test_the_probability_belongs_to_the_smoothed_rate_unless_it_is_given():
    film = Film(Settings(smoothing=1.0, collision_horizon=2.0))
    film.show(100.0)
    scores = film.show(0.5)
    assert scores.looming_rate < 2.0 and 0.0 <= scores.collision_probability < 0.5
    told = LevelFilter().smooth(raw(2.0, 1.0), Judgement('fused', None, UNKNOWN, 0.7), RAW)
    assert told.collision_probability == 0.7


def test_a_fading_danger_keeps_its_direction_until_it_is_gone():
    level_filter = LevelFilter()
    seen, fading, over = (level_filter.smooth(one, GEOMETRIC, Settings()) for one in (
        raw(1.0, 1.0, bearing=0.3, elevation=-0.1), raw(0.0, 1.2), raw(0.0, 5.0)))
    assert (seen.bearing, seen.elevation) == (fading.bearing, fading.elevation) == (0.3, -0.1)
    assert math.isfinite(fading.time_to_contact)
    assert math.isinf(over.time_to_contact) and math.isnan(over.bearing)


@pytest.mark.parametrize(('settings', 'times', 'levels'), [
    # 1.3 is above 1.2 but below 1.2 * 1.25.
    ({'hysteresis': 0.25}, (9.0, 1.1, 1.3, 1.51, 9.0), 'CLEAR DANGER DANGER WARNING CLEAR'),
    ({'level_hold': 0.35}, (1.0, 9.0, 9.0, 9.0, 9.0), 'DANGER DANGER DANGER DANGER CLEAR'),
    # Still within its hold.
    ({'level_hold': 1.0}, (1.0, NAN, 9.0), 'DANGER UNKNOWN DANGER')])
def test_danger_is_shown_at_once_held_and_left_by_hysteresis(settings, times, levels):
    film = Film(replace(RAW, **settings))
    assert ' '.join(film.show(ttc).level.name for ttc in times) == levels


def test_a_reset_forgets_level_smoothing_and_warm_up():
    film = Film(Settings())
    flagged = [Quality.WARMING_UP in film.show(1.0).flags for _ in range(SETTLE_RESULTS + 2)]
    assert flagged == [True] * SETTLE_RESULTS + [False] * 2
    film.level_filter.reset()
    scores = film.show(9.0)
    assert scores.level is Level.CLEAR and scores.looming_rate == pytest.approx(1 / 9)
    assert Quality.WARMING_UP in scores.flags


@pytest.mark.parametrize(('fields', 'named'), [
    ({'danger_ttc': 3.0}, 'danger_ttc'), ({'caution_ttc': NAN}, 'caution_ttc'),
    ({'roi': (0.0, 0.9, 1.0, 0.1)}, 'roi'), ({'roi': (0.0, 0.0, 1.5, 1.0)}, 'roi'),
    ({'roi': (0.0, 1.0)}, 'roi'), ({'collision_horizon': math.inf}, 'collision_horizon')])
def test_settings_that_do_not_fit_together_are_refused_by_name(fields, named):
    with pytest.raises(ValueError, match=named):
        Settings(**fields)

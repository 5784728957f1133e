# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test smoothing, levels with hysteresis, flags, and the settings they follow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vjepa_ros.perception.assessment import LevelFilter, SETTLE_RESULTS, Smoother
from vjepa_ros.perception.collision import UNKNOWN
from vjepa_ros.perception.danger import Contact
from vjepa_ros.perception.fusion import Judgement
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Assessment, Level, Quality

NAN = math.nan
RAW = Settings(smoothing_method='none', level_hold=0.0, hysteresis=0.0)


def raw(rate: float, stamp_s: float, **more) -> Assessment:
    return replace(Assessment('cam', round(stamp_s * 1e9), 'f', 0.0, 0.0, NAN, NAN, rate, NAN, NAN,
                              Level.UNKNOWN, Quality(0), known_fraction=1.0), **more)


def smooth(smoother: Smoother, value: float, stamp_s: float, settings: Settings) -> float:
    return smoother.update({'it': value}, round(stamp_s * 1e9), settings)['it']


class Film:
    """Feeds an assessor at 10 Hz and remembers where in time it is."""

    def __init__(self, settings: Settings) -> None:
        self.assessor = LevelFilter()
        self.settings = settings
        self.time = 100.0

    def show(self, ttc: float, **more) -> Assessment:
        self.time += 0.1
        return self.assessor.smooth(raw(1.0 / ttc, self.time, **more),
                                    Judgement('geometric', None, UNKNOWN), self.settings)


@pytest.mark.parametrize(('heads', 'shown'), [
    (None, [0.01, 0.9, 0.9]),
    (Contact(0.01, 0.01, 0.1), [0.01, 0.01, 0.9]),      # geometry alone sees it
    (Contact(0.4, 0.3, 0.7), [0.01, 0.4, 0.9])])        # heads see a part of it
def test_what_one_pair_of_pictures_shows_counts_when_the_next_shows_it_too(heads, shown):
    assessor, rates, odds = LevelFilter(), [], []
    for number, rate in enumerate((0.01, 0.9, 0.9)):
        found = Judgement('fused', None, UNKNOWN, rate, believed=rate,
                          by_heads=heads if rate > 0.5 else None)
        told = assessor.smooth(raw(rate, 100 + number / 10), found, RAW)
        rates.append(told.looming_rate)
        odds.append(told.collision_probability)
    assert rates == pytest.approx(shown)
    assert odds[1] == pytest.approx(0.9 if heads is None else heads.probability)


def test_what_was_before_a_pause_confirms_nothing():
    for pause, shown in ((0.1, 0.8), (10.0, 0.8), (60.0, 0.9)):
        assessor, heads = LevelFilter(), Contact(0.01, 0.01, 0.1)
        for rate, stamp in ((0.8, 100.0), (0.9, 100.0 + pause)):
            told = assessor.smooth(raw(rate, stamp), Judgement(
                'fused', None, UNKNOWN, 0.5, believed=rate, by_heads=heads), RAW)
        assert told.looming_rate == pytest.approx(shown)
    settings = replace(RAW, smoothing_method='median', smoothing_window=5)
    for others in ([settings] * 4, [settings] * 3 + [RAW]):
        assessor = LevelFilter()
        for number, given in enumerate(others):
            assessor.smooth(raw(0.0, 100 + number / 10),
                            Judgement('geometric', None, UNKNOWN), given)
        told = assessor.smooth(raw(0.9, 100.4 if others[-1] is RAW else 160.0),
                               Judgement('geometric', None, UNKNOWN), settings)
        assert told.looming_rate == pytest.approx(0.9)


def test_where_nothing_is_measured_any_more_what_the_heads_see_is_told_whole():
    assessor = LevelFilter()
    for number in range(5):
        assessor.smooth(raw(0.0, 100 + number / 30),
                        Judgement('fused', None, UNKNOWN, 0.0), Settings())
    told = assessor.smooth(raw(NAN, 100 + 5 / 30), Judgement(
        'fused', None, UNKNOWN, 0.7, believed=NAN), Settings())
    assert told.level is Level.UNKNOWN and told.collision_probability == 0.7


def test_an_old_picture_tells_nothing_of_the_way_ahead():
    for flags, known in ((Quality(0), True), (Quality.STALE, False)):
        told = LevelFilter().smooth(
            replace(raw(0.1, 100.0), clearance=5.0, collision_if_ahead=0.2, flags=flags),
            Judgement('geometric', None, UNKNOWN), RAW)
        assert math.isfinite(told.clearance) == math.isfinite(told.collision_if_ahead) == known


@pytest.mark.parametrize(('first', 'second', 'tau'), [(0.2, 0.8, 0.1), (0.8, 0.2, 0.5)])
def test_rise_and_fall_follow_their_own_time_constants(first, second, tau):
    smoother, settings = Smoother(), Settings(smoothing_rise=0.1, smoothing_fall=0.5)
    assert smooth(smoother, first, 1, settings) == first
    keep = math.exp(-0.25 / tau)
    expected = keep * first + (1 - keep) * second
    assert smooth(smoother, second, 1.25, settings) == pytest.approx(expected)
    for stamp in (1.25, 1.0):                  # a stamp that does not advance changes nothing
        assert smooth(smoother, 0.5, stamp, settings) == pytest.approx(expected)


def test_smoothing_follows_time_and_not_the_number_of_results():
    for count in (100, 4):
        smoother, settings = Smoother(), Settings()
        smooth(smoother, 0.0, 1, settings)
        for i in range(1, count + 1):
            value = smooth(smoother, 1.0, 1 + 0.2 * i / count, settings)
        assert value == pytest.approx(1 - math.exp(-0.2 / settings.smoothing_rise), rel=1e-6)
    smoother, settings = Smoother(), Settings(smoothing_rise=0.0, smoothing_fall=0.0)
    assert [smooth(smoother, value, 1, settings) for value in (0.1, 0.9)] == [0.1, 0.9]


@pytest.mark.parametrize('method', ['ema', 'median', 'none'])
def test_unknown_is_given_as_unknown_and_poisons_nothing(method):
    smoother, settings = Smoother(), Settings(smoothing_method=method)
    assert math.isnan(smooth(smoother, NAN, 1, settings))
    assert smooth(smoother, 0.5, 1, settings) == 0.5
    assert math.isnan(smooth(smoother, NAN, 1.1, settings))
    keep = math.exp(-0.2 / settings.smoothing_rise) if method == 'ema' else 0.0
    assert smooth(smoother, 1.0, 1.2, settings) == pytest.approx(keep * 0.5 + 1 - keep)


def test_the_median_drops_an_outlier_and_its_window_is_live():
    smoother, settings = Smoother(), Settings(smoothing_method='median', smoothing_window=3)
    given = [smooth(smoother, v, i, settings) for i, v in enumerate([1, 1, 9, 1, 2, 2])]
    assert given[2:] == [1, 1, 2, 2]
    assert smooth(smoother, 50.0, 9, replace(settings, smoothing_window=1)) == 50.0


@pytest.mark.parametrize(('true_s', 'told_s', 'level'), [
    (2.0, 2.0, Level.WARNING), (24.0, 24.0, Level.CLEAR), (26.0, math.inf, Level.CLEAR),
    (-2.0, math.inf, Level.CLEAR)])
def test_time_to_contact_is_one_over_the_looming_rate_as_far_as_it_can_be_measured(
        true_s, told_s, level):
    scores = Film(replace(RAW, looming_threshold=0.1)).show(true_s)
    assert scores.time_to_contact == pytest.approx(told_s)
    assert scores.level is level
    assert scores.collision_probability == 0.0 or true_s > 0


def test_the_probability_belongs_to_the_smoothed_rate_unless_it_is_given():
    film = Film(Settings(smoothing_rise=1.0, collision_horizon=2.0))
    film.show(100.0)
    scores = film.show(0.5)
    assert scores.looming_rate < 2.0
    assert scores.time_to_contact == pytest.approx(1 / scores.looming_rate)
    assert 0.0 <= scores.collision_probability < 0.5
    told = LevelFilter().smooth(raw(2.0, 1.0), Judgement('fused', None, UNKNOWN, 0.7), RAW)
    assert told.collision_probability == 0.7


def test_a_fading_danger_keeps_its_direction_until_it_is_gone():
    assessor, found = LevelFilter(), Judgement('geometric', None, UNKNOWN)
    seen, fading, over = (assessor.smooth(one, found, Settings()) for one in (
        raw(1.0, 1.0, bearing=0.3, elevation=-0.1), raw(0.0, 1.2), raw(0.0, 5.0)))
    assert (seen.bearing, seen.elevation) == (fading.bearing, fading.elevation) == (0.3, -0.1)
    assert math.isfinite(fading.time_to_contact)
    assert math.isinf(over.time_to_contact) and math.isnan(over.bearing)


def test_danger_is_shown_at_once_and_leaves_by_hysteresis():
    film = Film(replace(RAW, hysteresis=0.25))
    # 1.3 is above 1.2 but below 1.2 * 1.25.
    assert [film.show(ttc).level for ttc in (9.0, 1.1, 1.3, 1.51, 9.0)] == [
        Level.CLEAR, Level.DANGER, Level.DANGER, Level.WARNING, Level.CLEAR]


@pytest.mark.parametrize('count', [1, 20])
def test_a_level_is_held_for_its_least_time_after_the_danger(count):
    film = Film(replace(RAW, level_hold=0.45))
    for _ in range(count):
        assert film.show(1.0).level is Level.DANGER
    shown = [film.show(9.0).level for _ in range(6)]
    assert shown == [Level.DANGER] * 4 + [Level.CLEAR] * 2


def test_a_danger_that_vanishes_is_unknown_and_comes_back_as_danger():
    film = Film(replace(RAW, level_hold=1.0))
    film.show(1.0)
    assert film.show(NAN).level is Level.UNKNOWN
    assert film.show(9.0).level is Level.DANGER       # still within its hold


@pytest.mark.parametrize('score', ['motion', 'obstacle'])
def test_a_score_above_its_threshold_raises_caution_with_hysteresis_and_no_more(score):
    film = Film(replace(RAW, **{f'{score}_threshold': 0.4}, hysteresis=0.25))
    shown = [film.show(9.0, **{f'{score}_score': value}).level
             for value in (0.39, 0.41, 0.99, 0.35, 0.31)]     # 0.35 is above 0.4 / 1.25
    assert shown == [Level.CLEAR, *[Level.CAUTION] * 3, Level.CLEAR]
    film.settings = RAW                        # a threshold of 1 switches the rule off, at once
    assert film.show(9.0, **{f'{score}_score': 1.0}).level is Level.CLEAR
    assert film.show(0.5, **{f'{score}_score': NAN}).level is Level.DANGER


def test_a_reset_forgets_level_smoothing_and_warm_up():
    film = Film(Settings())
    flagged = [Quality.WARMING_UP in film.show(1.0).flags for _ in range(SETTLE_RESULTS + 2)]
    assert flagged == [True] * SETTLE_RESULTS + [False] * 2
    film.assessor.reset()
    scores = film.show(9.0)
    assert scores.level is Level.CLEAR
    assert scores.looming_rate == pytest.approx(1 / 9)
    assert Quality.WARMING_UP in scores.flags


@pytest.mark.parametrize(('fields', 'named'), [
    ({'danger_ttc': 3.0}, 'danger_ttc'), ({'warning_ttc': 4.0}, 'warning_ttc'),
    ({'caution_ttc': NAN}, 'caution_ttc'), ({'roi': (0.0, 0.9, 1.0, 0.1)}, 'roi'),
    ({'roi': (0.0, 0.0, 1.5, 1.0)}, 'roi'), ({'roi': (0.0, 1.0)}, 'roi'),
    ({'smoothing_method': 'mean'}, 'smoothing_method'),
    ({'collision_horizon': math.inf}, 'collision_horizon')])
def test_settings_that_do_not_fit_together_are_refused_by_name(fields, named):
    assert Settings().problem() == ''
    with pytest.raises(ValueError, match=named):
        Settings(**fields)

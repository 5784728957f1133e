# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test smoothing, levels with hysteresis, flags, and the settings they follow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vjepa_ros.perception.assessor import SETTLE_RESULTS, Assessor, Smoother
from vjepa_ros.perception.collision import UNKNOWN, Threat
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Assessment, Level, Quality

NS = 1_000_000_000
NO_FLAGS = Quality(0)
RAW = Settings(smoothing_method='none', level_hold=0.0, hysteresis=0.0)


def threat(rate: float, obstacle: float = 0.0, known: float = 1.0) -> Threat:
    return Threat(rate, math.nan, math.nan, obstacle, known, ())


def seconds(value: float) -> int:
    return round(value * NS)


class Film:
    """Feeds an assessor at 10 Hz and remembers where in time it is."""

    def __init__(self, settings: Settings) -> None:
        self.assessor = Assessor()
        self.settings = settings
        self.time = 100.0

    def show(self, ttc: float, *, motion: float = 0.0, obstacle: float = 0.0, known: float = 1.0,
             flags: Quality = NO_FLAGS, step: float = 0.1):
        self.time += step
        rate = math.nan if math.isnan(ttc) else 1.0 / ttc
        return self.assessor.update(threat(rate, obstacle, known), motion, seconds(self.time),
                                    flags, self.settings)


# -- smoothing ------------------------------------------------------------------------------------

def test_the_first_value_is_taken_as_it_is():
    assert Smoother().update(0.7, seconds(1), Settings()) == 0.7


@pytest.mark.parametrize(('first', 'second', 'tau'), [(0.2, 0.8, 0.1), (0.8, 0.2, 0.5)])
def test_rise_and_fall_follow_their_own_time_constants(first, second, tau):
    smoother, settings = Smoother(), Settings(smoothing_rise=0.1, smoothing_fall=0.5)
    smoother.update(first, seconds(1), settings)
    keep = math.exp(-0.25 / tau)
    expected = keep * first + (1 - keep) * second
    assert smoother.update(second, seconds(1.25), settings) == pytest.approx(expected)


def test_a_time_constant_of_zero_follows_at_once():
    smoother, settings = Smoother(), Settings(smoothing_rise=0.0, smoothing_fall=0.0)
    smoother.update(0.1, seconds(1), settings)
    assert smoother.update(0.9, seconds(1), settings) == 0.9
    assert smoother.update(0.2, seconds(1.1), settings) == 0.2


def test_smoothing_follows_time_and_not_the_number_of_results():
    fast, slow, settings = Smoother(), Smoother(), Settings()
    for smoother, count in ((fast, 100), (slow, 4)):
        smoother.update(0.0, seconds(1), settings)
        for i in range(1, count + 1):
            value = smoother.update(1.0, seconds(1 + 0.2 * i / count), settings)
        assert value == pytest.approx(1 - math.exp(-0.2 / settings.smoothing_rise), rel=1e-6)


def test_unknown_is_given_as_unknown_and_the_known_value_continues():
    smoother, settings = Smoother(), Settings()
    smoother.update(0.5, seconds(1), settings)
    assert math.isnan(smoother.update(math.nan, seconds(1.1), settings))
    keep = math.exp(-0.2 / settings.smoothing_rise)
    assert smoother.update(1.0, seconds(1.2), settings) == pytest.approx(keep * 0.5 + 1 - keep)


@pytest.mark.parametrize('method', ['ema', 'median', 'none'])
def test_unknown_at_the_start_does_not_poison_what_follows(method):
    smoother, settings = Smoother(), Settings(smoothing_method=method)
    assert math.isnan(smoother.update(math.nan, seconds(1), settings))
    assert smoother.update(0.4, seconds(1.1), settings) == 0.4


def test_a_stamp_that_does_not_advance_changes_nothing():
    smoother, settings = Smoother(), Settings()
    smoother.update(0.2, seconds(5), settings)
    assert smoother.update(0.9, seconds(5), settings) == pytest.approx(0.2)
    assert smoother.update(0.9, seconds(4), settings) == pytest.approx(0.2)


def test_the_median_drops_a_single_outlier():
    smoother, settings = Smoother(), Settings(smoothing_method='median', smoothing_window=3)
    given = [smoother.update(v, seconds(i), settings) for i, v in enumerate([1, 1, 9, 1, 2, 2])]
    assert given[2:] == [1, 1, 2, 2]


def test_the_window_of_the_median_can_change_while_running():
    smoother = Smoother()
    for i in range(9):
        smoother.update(float(i), seconds(i), Settings(smoothing_method='median',
                                                       smoothing_window=9))
    one = Settings(smoothing_method='median', smoothing_window=1)
    assert smoother.update(50.0, seconds(9), one) == 50.0


# -- scores ---------------------------------------------------------------------------------------

def test_time_to_contact_is_one_over_the_looming_rate():
    scores = Film(RAW).show(2.0)
    assert scores.looming_rate == pytest.approx(0.5)
    assert scores.time_to_contact == pytest.approx(2.0)


@pytest.mark.parametrize(('true_s', 'told_s'), [(10.5, 10.5), (24.0, 24.0), (26.0, math.inf)])
def test_the_time_to_contact_of_what_is_far_is_told_as_far_as_it_can_be_measured(true_s, told_s):
    scores = Film(replace(RAW, looming_threshold=0.1)).show(true_s)
    assert scores.time_to_contact == pytest.approx(told_s)
    assert scores.level is Level.CLEAR
    assert math.isnan(scores.bearing)       # below the threshold nothing counts as approaching


def test_what_goes_away_has_no_time_to_contact_and_no_probability():
    scores = Film(RAW).show(-2.0)
    assert scores.time_to_contact == math.inf
    assert scores.collision_probability == 0.0
    assert scores.level is Level.CLEAR


def test_unknown_looming_is_nan_everywhere_and_never_clear():
    scores = Assessor().update(UNKNOWN, math.nan, seconds(1), NO_FLAGS, RAW)
    for value in (scores.motion_score, scores.obstacle_score, scores.collision_probability,
                  scores.time_to_contact, scores.looming_rate):
        assert math.isnan(value)
    assert scores.level is Level.UNKNOWN
    assert Quality.LOOMING_UNKNOWN in scores.flags
    assert Quality.LOW_TEXTURE in scores.flags


def test_the_probability_belongs_to_the_smoothed_rate():
    film = Film(Settings(smoothing_rise=1.0, collision_horizon=2.0))
    film.show(100.0)
    scores = film.show(0.5)
    assert scores.looming_rate < 2.0
    assert scores.time_to_contact == pytest.approx(1 / scores.looming_rate)
    assert 0.0 <= scores.collision_probability < 0.5


def test_unknown_motion_does_not_hide_a_known_danger():
    scores = Film(RAW).show(0.5, motion=math.nan)
    assert math.isnan(scores.motion_score)
    assert scores.level is Level.DANGER


# -- levels ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(('ttc', 'level'), [
    (0.5, Level.DANGER), (1.19, Level.DANGER), (1.21, Level.WARNING), (2.49, Level.WARNING),
    (2.51, Level.CAUTION), (3.99, Level.CAUTION), (4.01, Level.CLEAR), (9.0, Level.CLEAR)])
def test_the_level_follows_the_time_to_contact(ttc, level):
    assert Film(RAW).show(ttc).level is level


def test_danger_is_shown_at_once_and_leaves_by_hysteresis():
    film = Film(replace(RAW, hysteresis=0.25))
    film.show(9.0)
    assert film.show(1.1).level is Level.DANGER
    assert film.show(1.3).level is Level.DANGER      # above 1.2 but below 1.2 * 1.25
    assert film.show(1.51).level is Level.WARNING
    assert film.show(9.0).level is Level.CLEAR


def test_a_level_is_held_for_its_least_time():
    film = Film(replace(RAW, level_hold=0.45))
    assert film.show(1.0).level is Level.DANGER
    shown = [film.show(9.0).level for _ in range(6)]
    assert shown == [Level.DANGER] * 4 + [Level.CLEAR] * 2


def test_the_hold_starts_anew_while_the_danger_lasts():
    film = Film(replace(RAW, level_hold=0.45))
    for _ in range(20):
        film.show(1.0)
    assert [film.show(9.0).level for _ in range(4)] == [Level.DANGER] * 4


def test_a_danger_that_vanishes_is_unknown_and_comes_back_as_danger():
    film = Film(replace(RAW, level_hold=1.0))
    film.show(1.0)
    assert film.show(math.nan).level is Level.UNKNOWN
    assert film.show(9.0).level is Level.DANGER       # still within its hold


def test_unknown_outranks_every_level():
    assert min(Level.UNKNOWN, *Level) is Level.CLEAR
    assert max(Level) is Level.UNKNOWN


def test_a_stale_frame_gives_level_unknown_but_keeps_the_numbers():
    scores = Film(RAW).show(1.0, flags=Quality.STALE)
    assert scores.level is Level.UNKNOWN
    assert scores.time_to_contact == pytest.approx(1.0)
    assert Quality.STALE in scores.flags


@pytest.mark.parametrize('score', ['motion', 'obstacle'])
def test_a_score_above_its_threshold_raises_caution_and_no_more(score):
    film = Film(replace(RAW, **{f'{score}_threshold': 0.3}))
    assert film.show(9.0, **{score: 0.29}).level is Level.CLEAR
    assert film.show(9.0, **{score: 0.99}).level is Level.CAUTION


@pytest.mark.parametrize('score', ['motion', 'obstacle'])
def test_a_threshold_of_one_switches_the_rule_off(score):
    film = Film(replace(RAW, **{f'{score}_threshold': 1.0}))
    assert film.show(9.0, **{score: 1.0}).level is Level.CLEAR


def test_the_caution_of_a_score_has_hysteresis_too():
    film = Film(replace(RAW, motion_threshold=0.4, hysteresis=0.25))
    assert film.show(9.0, motion=0.41).level is Level.CAUTION
    assert film.show(9.0, motion=0.35).level is Level.CAUTION     # above 0.4 / 1.25
    assert film.show(9.0, motion=0.31).level is Level.CLEAR


def test_new_settings_hold_for_the_next_result():
    film = Film(RAW)
    assert film.show(3.0).level is Level.CAUTION
    film.settings = replace(RAW, danger_ttc=3.5, warning_ttc=5.0, caution_ttc=6.0)
    assert film.show(3.0).level is Level.DANGER


def test_a_flicker_at_a_threshold_does_not_flicker_the_level():
    film = Film(Settings())
    for _ in range(10):
        film.show(1.2)
    levels = {film.show(1.2 + (0.05 if i % 2 else -0.05)).level for i in range(50)}
    assert levels == {Level.DANGER}


# -- flags ----------------------------------------------------------------------------------------

def test_the_first_results_are_flagged_as_warming_up():
    film = Film(RAW)
    flagged = [Quality.WARMING_UP in film.show(9.0).flags for _ in range(SETTLE_RESULTS + 2)]
    assert flagged == [True] * SETTLE_RESULTS + [False] * 2


def test_a_reset_forgets_level_smoothing_and_warm_up():
    film = Film(Settings())
    for _ in range(10):
        film.show(1.0)
    film.assessor.reset()
    scores = film.show(9.0)
    assert scores.level is Level.CLEAR
    assert scores.looming_rate == pytest.approx(1 / 9)
    assert Quality.WARMING_UP in scores.flags


def test_little_known_view_is_flagged():
    film = Film(replace(RAW, min_known=0.25))
    assert Quality.LOW_TEXTURE in film.show(9.0, known=0.2).flags
    assert Quality.LOW_TEXTURE not in film.show(9.0, known=0.3).flags


def test_flags_given_by_the_caller_are_kept():
    given = Quality.UNTRAINED | Quality.ASSUMED_INTRINSICS
    assert given in Film(RAW).show(9.0, flags=given).flags


def test_names_of_flags_come_in_the_order_of_their_bits():
    flags = Quality.DEVICE_FALLBACK | Quality.UNTRAINED | Quality.STALE
    assert flags.names == ('untrained', 'stale', 'device_fallback')
    assert Quality(0).names == ()


def test_flags_fit_the_field_they_are_sent_in():
    everything = Quality(0)
    for flag in Quality:
        everything |= flag
    assert int(everything) < 2**16
    assert all(0 <= int(level) < 2**8 for level in Level)


def test_an_assessment_says_whether_the_model_is_untrained():
    nan = math.nan
    made = Assessment('c', 1, 'f', nan, nan, nan, nan, nan, nan, nan, Level.CLEAR,
                      Quality.UNTRAINED)
    assert made.untrained
    assert not replace(made, flags=Quality.STALE).untrained


# -- settings -------------------------------------------------------------------------------------

@pytest.mark.parametrize(('fields', 'named'), [
    ({'danger_ttc': 3.0}, 'danger_ttc'),
    ({'warning_ttc': 4.0}, 'warning_ttc'),
    ({'caution_ttc': math.nan}, 'caution_ttc'),
    ({'roi': (0.5, 0.0, 0.5, 1.0)}, 'roi'),
    ({'roi': (0.0, 0.9, 1.0, 0.1)}, 'roi'),
    ({'roi': (0.0, 0.0, 1.5, 1.0)}, 'roi'),
    ({'roi': (0.0, 0.0, math.nan, 1.0)}, 'roi'),
    ({'roi': (0.0, 1.0)}, 'roi'),
    ({'smoothing_method': 'mean'}, 'smoothing_method'),
    ({'collision_horizon': math.inf}, 'collision_horizon'),
])
def test_settings_that_do_not_fit_together_are_refused_by_name(fields, named):
    with pytest.raises(ValueError, match=named):
        Settings(**fields)


def test_the_default_settings_are_legal():
    assert Settings().problem() == ''


def test_a_fading_danger_keeps_its_direction_until_it_is_gone():
    assessor, settings = Assessor(), Settings()
    near = Threat(1.0, 0.3, -0.1, 0.5, 1.0, ())
    gone = Threat(0.0, math.nan, math.nan, 0.0, 1.0, ())
    seen = assessor.update(near, 0.0, seconds(1.0), Quality(0), settings)
    fading = assessor.update(gone, 0.0, seconds(1.2), Quality(0), settings)
    over = assessor.update(gone, 0.0, seconds(5.0), Quality(0), settings)
    assert (seen.bearing, seen.elevation) == (fading.bearing, fading.elevation) == (0.3, -0.1)
    assert math.isfinite(fading.time_to_contact)
    assert math.isinf(over.time_to_contact) and math.isnan(over.bearing)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test when a camera is frozen, its view stands, or the middle of its view shows nothing."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from scenes import Approach, texture

from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.perception.judgement import Judgement, without_sight
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.structure import StillView, WHOLE_VIEW
from vjepa_ros.perception.types import Level, Quality, Threat

NOISE = np.random.default_rng(0).integers(0, 200, (20, 120, 160, 3), np.uint8)
STILL = NOISE[0]
VIEW = texture((320, 240), 3)
APPROACH = Approach(contact_s=12.0)


def watch(pictures, roi=WHOLE_VIEW) -> tuple[StillView, list[float]]:
    """Show pictures at 10 Hz; how long the view of each stood [s]."""
    seen, stood = StillView(), []
    seen.roi = roi
    for number, picture in enumerate(pictures):
        seen.show(picture, round((1 + number / 10) * 1e9))
        seen.look()
        stood.append(seen.still_s)
    return seen, stood


@pytest.mark.parametrize(('pictures', 'frozen', 'unchanged_s'), [
    ([STILL] * 6, True, 0.5), ([STILL] * 5, False, 0.4), ([STILL], False, 0.0),
    (list(STILL + NOISE % 2), False, 0.0),                       # the noise of a sensor
    ([picture for picture in NOISE[:8] for _ in range(3)], False, 0.2)])     # a slow driver
def test_the_same_picture_for_half_a_second_is_frozen(pictures, frozen, unchanged_s):
    seen, _ = watch(pictures)
    assert (seen.frozen, seen.unchanged_s) == (frozen, pytest.approx(unchanged_s))
    seen.reset()
    assert not seen.frozen and seen.unchanged_s == 0.0


def test_a_clock_that_is_set_back_hides_nothing():
    seen = StillView()
    for stamp_s in (1000.0, 1000.1, *(500 + number / 10 for number in range(8))):
        seen.show(STILL, round(stamp_s * 1e9))
    assert seen.frozen and not seen.still_s < 0


# -- a view that stands, whatever is added to it -------------------------------------------------

def with_noise(picture, number: int, spread: float = 4.0) -> np.ndarray:
    noise = np.random.default_rng(number).normal(0.0, spread, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def behind_a_grille(number: int) -> np.ndarray:
    picture, bars = APPROACH.frame(number / 10).copy(), np.arange(320) % 20 < 12
    picture[bars[:240]] = picture[:, bars] = 30
    return with_noise(picture, number)


STANDING = {
    'noise': lambda n: with_noise(VIEW, n), 'a grille': behind_a_grille,
    'a photograph, lit by what passes': lambda n: with_noise(
        VIEW * (0.8 + 0.3 * np.sin(n / 4)), n)}


@pytest.mark.parametrize('kind', STANDING)
def test_a_view_stands_whatever_is_added_to_its_picture(kind):
    _, stood = watch(STANDING[kind](number) for number in range(16))
    assert stood[-1] == pytest.approx(1.5)


def far(number: int) -> np.ndarray:
    """A view without anything nearer than 30 m, while the robot drives at 0.3 m/s."""
    middle = cv2.getRotationMatrix2D((159.5, 119.5), 0.0, 30.0 / (30.0 - 0.03 * number))
    return cv2.warpAffine(VIEW, middle, (320, 240), flags=cv2.INTER_CUBIC,
                          borderMode=cv2.BORDER_REFLECT)


def corridor(number: int) -> np.ndarray:
    """A view whose far end, two fifths of it, hardly changes."""
    picture = np.roll(VIEW, 3 * number, 1)
    picture[:, 96:224] = VIEW[:, 96:224]
    return picture


@pytest.mark.parametrize(('picture', 'longest'), [
    (lambda n: APPROACH.frame(n / 10), 0.3), (far, 1.0), (corridor, 0.0),
    (lambda n: with_noise(np.roll(VIEW // 3, n, 1), n, 8.0), 0.1)])       # turns at night
def test_the_view_of_a_robot_that_drives_does_not_stand(picture, longest):
    _, stood = watch(with_noise(picture(n), n, 2.0) for n in range(20))
    assert np.nanmax(stood) <= longest + 0.1 + 1e-6     # not each picture is looked at


def test_what_belongs_to_the_robot_does_not_count():
    pictures = [APPROACH.frame(n / 10) for n in range(12)]
    for picture in pictures:
        picture[110:] = VIEW[110:]
    assert watch(pictures)[1][-1] > 1.0
    assert watch(pictures, roi=(0.0, 0.0, 1.0, 0.45))[1][-1] < 0.4


# -- a view whose middle shows nothing -----------------------------------------------------------

Y, X = np.mgrid[-1:1:240j, -1:1:320j]
FILLS = {'black': lambda view: 6.0,
         'blurred': lambda view: cv2.GaussianBlur(view, (0, 0), 24.0),
         'plain wall': lambda view: (150.0 + 25.0 * X - 15.0 * Y)[..., None]}


def covered(fill: str, visible: float) -> np.ndarray:
    """A view whose middle is covered but for a visible part of its area."""
    inside = (np.maximum(abs(X), abs(Y)) < math.sqrt(1 - visible)).astype(np.float32)
    hidden = cv2.GaussianBlur(inside, (0, 0), 2.0)[..., None]
    return VIEW * (1 - hidden) + FILLS[fill](VIEW.astype(np.float32)) * hidden


def sight(picture, roi=WHOLE_VIEW) -> float:
    return watch([with_noise(picture, 0, 2.0)], roi=roi)[0].sight


@pytest.mark.parametrize('fill', FILLS)
@pytest.mark.parametrize('visible', [0.025, 0.85])
def test_the_middle_of_a_covered_view_shows_nothing(fill, visible):
    assert sight(covered(fill, visible)) < 0.2
    assert sight(VIEW) > 0.9 and sight(VIEW // 3) > 0.5
    assert sight(covered(fill, 0.6), roi=(0.0, 0.0, 1.0, 0.2)) > 0.9


def test_nothing_is_clear_where_the_middle_of_the_view_is_covered(one_thread):
    levels = []
    with ObstacleDetector(device='cpu') as detector:
        for number in range(28):
            view = VIEW if number < 24 else covered('blurred', 0.3)
            detector.add_frame(with_noise(view, number, 2.0), 1 + number / 10)
            if number >= 23:
                levels.append(detector.assess().level)
        seen = detector.assess()
    assert levels[0] is Level.CLEAR and Level.CLEAR not in levels[1:]       # at once
    assert seen.level is Level.UNKNOWN and Quality.LOW_TEXTURE in seen.flags
    assert math.isnan(seen.time_to_contact) and math.isnan(seen.clearance)


@pytest.mark.parametrize(('rate', 'believed', 'probability', 'told'), [
    (0.2, 0.2, 0.1, False), (math.nan, math.nan, math.nan, False), (0.3, 0.3, 0.2, True),
    (0.0, 0.0, 0.6, True)])
def test_what_comes_is_told_however_little_is_seen(rate, believed, probability, told):
    found = Judgement(Threat(rate, 0.1, 0.0, 0.5), probability, believed)
    left = without_sight(found, None, Settings())
    assert (left is None) == told
    if left is not None:
        assert math.isnan(left.threat.course_rate) and math.isnan(left.threat.bearing)
        assert math.isnan(left.believed)
        assert left.threat.observed_fraction == 0.5

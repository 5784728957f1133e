# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that nothing is CLEAR where the middle of the view shows nothing, whatever else does."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
from scenes import texture

from vjepa_ros.detector import ObstacleDetector
from vjepa_ros.looming.structure import StillView, WHOLE_VIEW
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.fusion import Judgement, without_sight
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Level, Quality, Threat
from vjepa_ros.sources import open_source

VIEW = texture((320, 240), 3)
Y, X = np.mgrid[-1:1:240j, -1:1:320j]
FILLS = {'black': lambda view: 6.0, 'grey': lambda view: 110.0, 'white': lambda view: 255.0,
         'blurred': lambda view: cv2.GaussianBlur(view, (0, 0), 24.0),
         'a lamp': lambda view: 255.0 * np.exp(-(X * X + Y * Y))[..., None],
         'plain wall': lambda view: (150.0 + 25.0 * X - 15.0 * Y)[..., None]}


def with_noise(picture, number: int) -> np.ndarray:
    noise = np.random.default_rng(number).normal(0.0, 2.0, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def covered(fill: str, visible: float, round_: bool = False) -> np.ndarray:
    """A view whose middle is covered but for a visible part of its area."""
    view = VIEW.astype(np.float32)
    inside = (4 / math.pi * (1 - visible) > X * X + Y * Y if round_
              else np.maximum(abs(X), abs(Y)) < math.sqrt(1 - visible))
    hidden = cv2.GaussianBlur(inside.astype(np.float32), (0, 0), 2.0)[..., None]
    return view * (1 - hidden) + FILLS[fill](view) * hidden


def sight(picture, roi=WHOLE_VIEW) -> float:
    seen = StillView()
    seen.roi = roi
    seen.show(with_noise(picture, 0), 10 ** 9)
    return seen.sight


@pytest.mark.parametrize('fill', FILLS)
@pytest.mark.parametrize('visible', [0.025, 0.1, 0.3, 0.6, 0.85])
def test_the_middle_of_a_covered_view_shows_nothing(fill, visible):
    for round_ in (False, True):
        assert sight(covered(fill, visible, round_=round_)) < 0.2
    assert sight(VIEW) > 0.9 and sight(VIEW // 3) > 0.5


def test_a_cover_counts_for_the_first_picture_that_is_due_and_its_buffer_may_be_used_again():
    view, picture = StillView(), np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)
    view.show(picture, 1)
    view.look()
    assert view.sight > 0.9
    picture[:] = 0
    view.show(picture, 200_000_001)
    assert view.sight == 0.0


def test_the_middle_is_that_of_the_region_of_interest():
    picture = covered('grey', 0.6)
    assert sight(picture, (0.0, 0.0, 1.0, 0.2)) > 0.9
    assert sight(picture, (0.3, 0.3, 0.7, 0.7)) < 0.2
    assert sight(picture, (0.5, 0.5, 0.501, 0.501)) < 0.2


@pytest.fixture(scope='module')
def detector(one_thread):
    with ObstacleDetector(device='cpu') as made:
        for number in range(25):
            made.add_frame(with_noise(VIEW, number), 1 + number / 10)
        yield made


def test_nothing_is_clear_where_the_middle_of_the_view_is_covered(detector):
    def seen_of(picture, frames: int):
        for _ in range(frames):
            number = detector._frames
            detector.add_frame(with_noise(picture, number), 1 + number / 10)
        return detector.assess()

    assert seen_of(VIEW, 4).level is Level.CLEAR
    for fill, visible in (('white', 0.025), ('grey', 0.3), ('blurred', 0.1), ('black', 0.85)):
        assert seen_of(covered(fill, visible), 1).level is not Level.CLEAR    # at once
        seen = seen_of(covered(fill, visible), 3)
        assert seen.level is Level.UNKNOWN and Quality.LOW_TEXTURE in seen.flags
        assert math.isnan(seen.time_to_contact) and math.isnan(seen.clearance)
        assert seen_of(VIEW, 4).level is Level.CLEAR


def test_neither_is_it_by_geometry_alone():
    track = CameraState('camera', TrackConfig(geometry='host'))
    wants = Wants(False, True, False, False)
    levels = []
    for number in range(48):
        view = VIEW if number < 40 else covered('grey', 0.5)
        track.push(with_noise(view, number), round((1 + number / 12) * 1e9))
        if (sample := track.sample()) is not None:
            levels.append(track.assess(track.observe(sample, Settings(), wants)).assessment.level)
    assert levels[-8 - 3:-8] == [Level.CLEAR] * 3 and levels[-3:] == [Level.UNKNOWN] * 3


@pytest.mark.parametrize(('rate', 'believed', 'probability', 'told'), [
    (0.0, 0.0, 0.1, False), (0.2, 0.2, 0.1, False), (0.0, None, None, False),
    (math.nan, math.nan, math.nan, False), (0.3, 0.3, 0.2, True), (0.3, None, None, True),
    (math.nan, 0.3, 0.2, True), (0.3, 0.0, 0.2, True), (0.0, 0.0, 0.6, True)])
def test_what_comes_is_told_however_little_is_seen(rate, believed, probability, told):
    threat = Threat(rate, 0.1, 0.0, 0.5)
    found = Judgement('fused', None, threat, probability, believed=believed)
    left = without_sight(found, None, Settings())
    assert (left is None) == told
    if left is not None:
        assert math.isnan(left.threat.course_rate) and math.isnan(left.threat.bearing)
        assert (left.believed is None) == (believed is None)
        assert replace(left.threat, course_rate=rate, bearing=0.1, elevation=0.0) == threat or (
            math.isnan(rate))


@pytest.mark.parametrize('name', ['himax_10', 'drone_approach_a', 'motorway.mp4', 'cup.mp4'])
def test_real_views_are_seen(shared_data, name):
    with open_source(str(shared_data / name)) as source:
        found = [sight(frame.rgb) for number, frame in enumerate(source) if number % 8 == 0]
    assert min(found) > 0.2

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the clip of the synthetic scene: its truth is exact, and its pictures show that truth."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from scenes import synthetic

from vjepa_ros.lab.world import demo_textures
from vjepa_ros.lab.world.demo_clip import (
    ADVANCE_M,
    BRAKE_TTC_S,
    RATE_HZ,
    SIZE,
    Timeline,
    scene,
    truth_of,
)
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.rendering.truth import truth as pixel_truth
from vjepa_ros.sources.synthetic import CLIPS, NOISE

TIMELINE, FPS = Timeline(), 7.5


@pytest.fixture(scope='module')
def bank():
    return demo_textures.bank(size=128)


@pytest.fixture(scope='module')
def clip():
    """The whole clip, at a quarter of its frames."""
    return synthetic(SIZE, FPS)


def gray(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)


def test_the_next_cycle_looks_like_this_one():
    begin, end = TIMELINE.at(0.0), TIMELINE.at(TIMELINE.period_s)
    assert end.z - begin.z == pytest.approx(ADVANCE_M)
    assert end.van.z - begin.van.z == pytest.approx(ADVANCE_M)
    assert end.trolleys[1].z - begin.trolleys[0].z == pytest.approx(ADVANCE_M)
    assert (end.speed, end.yaw) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_the_truth_of_the_clip_is_that_of_its_timeline(clip):
    kept = np.load(CLIPS / 'approach.npz')
    wanted = [truth_of(TIMELINE.at(n / RATE_HZ)) for n in range(len(kept['phase']))]
    assert len(wanted) == math.floor(TIMELINE.period_s * RATE_HZ)
    for name in wanted[0]:
        values = np.array([row[name] for row in wanted])
        if values.dtype.kind == 'f':
            np.testing.assert_allclose(kept[name], values, rtol=1e-9, atol=1e-9)
        else:
            assert kept[name].tolist() == values.tolist()
    assert [f.truth['phase'] for f in clip] == [row['phase'] for row in wanted[::4]]


def test_the_clip_warns_of_two_contacts_and_has_calm_between(clip):
    level = [f.truth['level'] for f in clip]
    changes = [b for a, b in zip([None, *level], level, strict=False) if a != b]
    assert ' '.join(changes).count('clear caution warning danger') == 2
    contact = np.array([f.truth['time_to_contact_s'] for f in clip])
    assert contact.min() == pytest.approx(BRAKE_TTC_S, abs=0.1)
    assert [f.truth['collision'] for f in clip] == (contact <= 2).tolist()
    # Whoever crosses, or stands aside, is on no collision course.
    crossing = [f.truth for f in clip if f.truth['phase'] == 'crossing']
    assert min(t['time_to_contact_s'] for t in crossing) > 10
    assert all(f.truth['looming_rate'] < 0 for f in clip if f.truth['speed'] < 0)


@pytest.mark.parametrize('t', [8.0, 17.6, 28.0])
def test_the_clip_shows_what_the_script_renders(clip, bank, t):
    frame = clip[round(FPS * t)]
    drawn = render(scene(TIMELINE.at(round(FPS * t) / FPS)), bank, SIZE)[0, 0].numpy()
    both = [gray(cv2.GaussianBlur(rgb, (0, 0), 4)).ravel() for rgb in (frame.rgb, drawn)]
    assert np.corrcoef(*both)[0, 1] > 0.95


@pytest.mark.parametrize('t', [7.0, 12.0, 28.0])
def test_the_pixels_of_the_obstacle_have_its_truth(bank, t):
    truth = truth_of(TIMELINE.at(t))
    maps = pixel_truth(scene(TIMELINE.at(t)), bank, SIZE, Robot(0.35, 0.8, 0.6))
    x0, y0, x1, y1 = truth['box']
    here = (0, round(0.3 * y0 + 0.7 * min(y1, SIZE[1])), round((x0 + x1) / 2))
    assert float(maps.depth[here]) == pytest.approx(truth['distance_m'], rel=1e-4)
    assert float(maps.looming[here]) == pytest.approx(truth['looming_rate'], rel=1e-3)
    assert float(maps.clearance.min()) == pytest.approx(truth['clearance_m'], rel=1e-4)


def test_a_still_scene_differs_by_noise_alone_and_the_seed_decides_it():
    first, second = (f.rgb.astype(float) for f in synthetic((320, 240), count=2))
    assert (first - second).std() == pytest.approx(NOISE * math.sqrt(2), rel=0.2)
    again, = synthetic((320, 240), count=1)
    assert np.array_equal(again.rgb, first)

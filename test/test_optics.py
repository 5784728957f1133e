# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Distorted lenses: rays, bearings, and looming as through a lens without distortion."""

from __future__ import annotations

import math
from functools import lru_cache
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

from vjepa_ros.clip.optics import Distortion, Optics
from vjepa_ros.perception.assessment import SETTLE_RESULTS
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.straight_view import StraightView
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

LENSES = {'plumb_bob': (-0.3, 0.1, 0.001, -0.002, 0.0),
          'rational_polynomial': (0.4, 0.1, 0.0, 0.0, 0.01, 0.7, 0.2, 0.02),
          'equidistant': (-0.02, 0.01, -0.004, 0.001)}
SIZE, PERIOD, DISTANCE, SPEED = (384, 288), 0.1, 2.5, 1.0
# 130 degrees across.
WIDE = Optics(170.0, 190.0, 191.5, 143.5, False, Distortion('equidistant', LENSES['equidistant']))
SETTINGS = Settings(looming_method='geometric')
CONFIG = TrackConfig(num_frames=4, image_size=64, clip_fps=1 / PERIOD)
DEVICE = 'cuda:0' if torch.cuda.is_available() else 'cpu'
either = pytest.mark.parametrize('where', ['host', 'device'])


@pytest.mark.parametrize('model', LENSES)
def test_rays_undo_the_distortion_that_opencv_makes(model):
    optics = Optics(300.0, 290.0, 321.0, 239.0, False, Distortion(model, LENSES[model]))
    true = np.stack(np.meshgrid(np.linspace(-0.9, 0.9, 7), np.linspace(-0.7, 0.7, 5)), -1)
    space = np.concatenate((true, np.ones((5, 7, 1))), -1).reshape(-1, 1, 3)
    matrix, none = np.array([[300.0, 0, 321], [0, 290, 239], [0, 0, 1]]), np.zeros(3)
    kind = cv2.fisheye if model == 'equidistant' else cv2
    pixels = kind.projectPoints(space, none, none, matrix, np.array(LENSES[model]))[0]
    rays = optics.rays(pixels.reshape(5, 7, 2))
    assert np.abs(rays - true).max() < 1e-4
    np.testing.assert_allclose(optics.pixels(true), pixels.reshape(5, 7, 2), atol=1e-6)
    across, down = true[0, 0]
    bearing, elevation = optics.direction(*pixels[0, 0])
    assert (math.tan(bearing), -math.tan(elevation)) == pytest.approx((across, down), abs=1e-4)


@pytest.mark.parametrize(('model', 'coefficients', 'told'), [
    ('magic', (0.1,), r"'magic'.*\[0.1\]"), ('', (0.1,), r"''.*\[0.1\]"),
    ('equidistant', (0.1, 0, 0, 0, 0.2), r"5 coefficients for 'equi.*', \[0.1, 0, 0, 0, 0.2\]"),
    ('plumb_bob', (0.1,) * 15, '15 coefficients'), ('modified_brown_conrady', (0.1,), 'unknown'),
    ('plumb_bob', (0.1, math.nan, 0.0, 0.0), 'no number')])
def test_an_unknown_distortion_is_refused_and_zeros_are_none(model, coefficients, told):
    with pytest.raises(ValueError, match=told):
        Distortion(model, coefficients)
    for count in (0, 5, 20):
        assert Distortion.of(SimpleNamespace(distortion_model=model, d=[0.0] * count)) is None


@pytest.mark.parametrize(('model', 'coefficients', 'meant', 'count'), [
    ('Kannala-Brandt', (*LENSES['equidistant'], 0.0), 'equidistant', 4),      # as of a T265
    ('radtan', (-0.3, 0.1, 0.0, 0.0), 'plumb_bob', 5),
    ('plumb_bob', (-0.3, 0.1, 0.001, -0.002, 0.01, *[0.0] * 15), 'plumb_bob', 5),
    ('rational_polynomial', (-0.3, 0.1, 0.001, -0.002, 0.01), 'rational_polynomial', 8),
    ('plumb_bob', (*LENSES['rational_polynomial'], 0.01, 0.0, 0.002, 0.0, 0.03),
     'rational_polynomial', 14)])
def test_padded_and_short_coefficients_and_other_names_mean_the_same_lens(model, coefficients,
                                                                          meant, count):
    one = Distortion.of(SimpleNamespace(distortion_model=model, d=coefficients))
    assert (one.model, len(one.coefficients)) == (meant, count)
    rays = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 5), np.linspace(-0.4, 0.4, 3)), -1)
    full = (*coefficients, *[0.0] * 14)[:4 if meant == 'equidistant' else 14]
    kind, none = cv2.fisheye if meant == 'equidistant' else cv2, np.zeros(3)
    space = np.concatenate((rays, np.ones((3, 5, 1))), -1).reshape(-1, 1, 3)
    seen = kind.projectPoints(space, none, none, np.eye(3), np.array(full))[0]
    np.testing.assert_allclose(one.bend(rays), seen.reshape(3, 5, 2), atol=1e-12)
    np.testing.assert_allclose(one.straighten(one.bend(rays)), rays, atol=1e-4)


@lru_cache
def result_of(speed: float, turn: float, where: str = 'host'):
    """What is seen of a plain wall by a wide lens."""
    random = np.random.default_rng(5)
    wall = cv2.GaussianBlur(random.integers(0, 255, (1024, 1024)).astype(np.float32), (0, 0), 3)
    wall = cv2.normalize(wall, None, 20, 235, cv2.NORM_MINMAX)
    grid = np.stack(np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1])), -1)
    rays = np.concatenate((np.nan_to_num(WIDE.rays(grid), nan=9.0), np.ones((*SIZE[::-1], 1))), -1)
    track = CameraState('camera', CONFIG, stream=None if where == 'host' else
                        DeviceStream(torch.device(DEVICE)))
    track.intrinsics, track.distortion = (WIDE.fx, WIDE.fy, WIDE.cx, WIDE.cy), WIDE.distortion
    for i in range(10):
        yaw, depth = turn * i * PERIOD, DISTANCE + speed * (9 - i) * PERIOD
        c, s = math.cos(yaw), math.sin(yaw)
        seen = rays @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]).T
        at = seen[..., :2] / np.maximum(seen[..., 2:], 0.1) * depth * 150 + 512
        grey = cv2.remap(wall, at.astype(np.float32), None, cv2.INTER_LINEAR,
                         borderMode=cv2.BORDER_WRAP)
        picture = np.repeat(grey[..., None], 3, -1).astype(np.uint8)
        track.push(picture, round((1 + i * PERIOD) * 1e9), 'optical')
    for _ in range(SETTLE_RESULTS + 1):
        result = track.assess(track.observe(track.sample(), SETTINGS,
                                            Wants(features=False, image=False)))
    return result, track.optics()


@either
def test_a_wide_lens_that_comes_to_a_wall_sees_it_as_near_everywhere(where):
    true, (result, _) = SPEED / DISTANCE, result_of(SPEED, 0.0, where)
    sure = result.looming.confidence > 0.3
    assert sure.mean() > 0.5
    assert np.abs(result.looming.rate[sure] - true).mean() < 0.05 * true
    assert result.assessment.time_to_contact == pytest.approx(1 / true, rel=0.08)


@either
def test_a_wide_lens_that_only_turns_sees_nothing_loom(where):
    field = result_of(0.0, 0.6, where)[0].looming
    sure = field.confidence > 0.3
    assert sure.mean() > 0.5 and np.abs(field.rate[sure]).mean() < 0.02
    assert field.rotation[1] == pytest.approx(0.6, rel=0.03)


def test_cells_for_planners_are_regular_before_the_lens():
    result, optics = result_of(SPEED, 0.0)
    cells = LoomingCells.of(result, optics)
    rows, columns = result.looming.rate.shape
    across, down = cells.across.reshape(rows, columns), cells.down.reshape(rows, columns)
    assert np.ptp(across, axis=0).max() < 1e-6 and np.ptp(down, axis=1).max() < 1e-6
    assert across.max() > 1.4
    sure = cells.confidence > 0.3
    assert sure.mean() > 0.4
    assert np.nanmedian(cells.rate[sure]) == pytest.approx(SPEED / DISTANCE, rel=0.05)
    # A wall moves away from the middle as fast as it looms.
    for drift, place in ((cells.drift_across, cells.across), (cells.drift_down, cells.down)):
        assert np.abs(drift[sure] - place[sure] * cells.rate[sure]).mean() < 0.03


def test_a_lens_that_bends_rays_back_is_used_as_far_as_it_sees():
    optics = Optics(200.0, 200.0, 191.5, 143.5, False,
                    Distortion('plumb_bob', (-0.4, 0.0, 0.0, 0.0)))
    view = StraightView(optics, SIZE, SIZE, 16)
    assert 0.5 < view.seen.mean() < 0.9
    points = view.points[view.seen]
    assert (points > -0.5).all() and (points < np.array(SIZE) - 0.5).all()
    np.testing.assert_allclose(optics.rays(points), view.tangents[view.seen], atol=0.02)

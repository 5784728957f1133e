# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Lenses: what camera_info says of them, rays, bearings, and cells for planners."""

from __future__ import annotations

import math
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from fields import VIEW, learned, seen

from vjepa_ros.clip.optics import Distortion, Optics
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.sources.camera_info import calibration_problem, lens

LENSES = {'plumb_bob': (-0.3, 0.1, 0.001, -0.002, 0.0),
          'rational_polynomial': (0.4, 0.1, 0.0, 0.0, 0.01, 0.7, 0.2, 0.02),
          'equidistant': (-0.02, 0.01, -0.004, 0.001)}
# 130 degrees across.
WIDE = Optics(170.0, 190.0, 191.5, 143.5, False, Distortion('equidistant', LENSES['equidistant']))


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
    ray, padded = np.array([[0.3, -0.2]]), (*coefficients, *[0.0] * 14)[:14]
    same = Distortion(meant, padded[:4] if meant == 'equidistant' else padded)
    np.testing.assert_allclose(one.bend(ray), same.bend(ray), atol=1e-12)


def test_cells_for_planners_are_regular_before_the_lens_and_show_the_patch_there():
    rays = WIDE.rays(VIEW.patch_centers)
    heads = learned(beside=0.4)
    heads.rate[:] = np.where(rays[..., 0] > 0, 1.0, 0.5)      # more to the right
    cells = LoomingCells.of(seen(heads), WIDE)
    across = np.unique(cells.across)
    assert len(across) == VIEW.grid[1] and len(np.unique(cells.down)) == VIEW.grid[0]
    assert across.max() > 1.4
    sure = cells.confidence > 0.3
    assert sure.mean() > 0.9
    np.testing.assert_allclose(cells.rate[sure], np.where(cells.across > 0, 1.0, 0.5)[sure])


# -- camera_info ----------------------------------------------------------------------------------

FULL = (640, 480)
RECTIFIED = '/robot/front/image_rect_color'


def info(roi: tuple[int, int, int, int] = (0, 0, 0, 0), binning: int = 0,
         **changes: object) -> SimpleNamespace:
    part = dict(zip(('x_offset', 'y_offset', 'width', 'height'), roi, strict=True))
    return SimpleNamespace(**{
        'width': FULL[0], 'height': FULL[1], 'd': [], 'binning_x': binning, 'binning_y': binning,
        'distortion_model': 'plumb_bob', 'p': [0.0] * 12,
        'k': [500.0, 0.0, 319.5, 0.0, 510.0, 239.5, 0.0, 0.0, 1.0],
        'roi': SimpleNamespace(**part), **changes})


@pytest.mark.parametrize(('roi', 'bins'), [
    ((0, 0, 0, 0), 4), ((100, 100, 320, 240), 1), ((0, 120, 640, 200), 2)])
def test_a_point_is_seen_along_the_same_ray_in_every_part_and_binning(roi, bins):
    point, size = np.array([367.5, 303.5]), np.array(roi[2:] if roi[2] else FULL) // bins
    rays = []
    for pixel, (fx, fy, cx, cy) in (
            (point, lens(info(), FULL)[0]),
            ((point + 0.5 - roi[:2]) / bins - 0.5, lens(info(roi, bins), tuple(size))[0])):
        rays.append((pixel - (cx, cy)) / (fx, fy))
    np.testing.assert_allclose(rays[1], rays[0], atol=1e-9)


NAN = float('nan')
K = info().k


@pytest.mark.parametrize(('size', 'changes', 'text'), [
    ((640, 360), {}, 'images of 640 x 360 can not show its region of interest, 640 x 480'),
    ((320, 240), {'roi': (400, 0, 320, 240)}, 'not within its 640 x 480'),
    ((320, 480), {'binning': 2, 'binning_y': 1}, None), ((320, 480), {'binning': 2}, 'binning 2'),
    ((320, 180), {'roi': (0, 60, 640, 360)}, None), ((53, 40), {}, None),
    (FULL, {'height': 0}, 'its size is 640 x 0'),
    (FULL, {'k': [1e308, *K[1:]]}, r'can not be that of a camera, its .* px.*\(calibrate'),
    (FULL, {'k': [-500.0, *K[1:]]}, "'k' has the focal lengths -500"),
    (FULL, {'k': [*K[:2], NAN, *K[3:]]}, r"'k' .* centre \(nan"),
    (FULL, {'p': [NAN] * 12}, None), (FULL, {'d': [0.1, NAN]}, 'no number'),
    (FULL, {'d': [0.1] * 5, 'distortion_model': 'magic'}, "'magic'.*0.1, 0.1")])
def test_an_image_of_another_proportion_needs_an_explanation(size, changes, text):
    made = info(**changes)
    if text is None:
        fx, fy, *_ = lens(made, size)[0]
        full = (made.roi.width, made.roi.height) if made.roi.width else FULL
        assert (fx, fy) == pytest.approx((500 * size[0] / full[0], 510 * size[1] / full[1]))
        return
    with pytest.raises(ValueError, match=text) as found:
        lens(made, size)
    assert 'camera_info' in str(found.value)


P = [400.0, 0.0, 330.0, -48.0, 0.0, 410.0, 230.0, 0.0, 0.0, 0.0, 1.0, 0.0]     # of a right camera


@pytest.mark.parametrize(('changes', 'found'), [
    ({}, (200.0, 205.0, 164.75, 114.75)), ({'k': [NAN] * 9, 'd': [NAN] * 20}, 'as above'),
    ({'p': [0.0] * 12}, "image_rect_color is rectified, and 'p'.* 0 and 0"),
    ({'p': [NAN, *P[1:]]}, "'p'.* nan"),
    ({'roi': (100, 60, 320, 240)}, (400.0, 410.0, 230.0, 170.0))])
def test_rectified_images_have_the_projection_matrix_and_no_distortion(changes, found):
    made = info(**{'p': P, 'd': [-0.3, 0.1], **changes})
    if isinstance(found, str) and found != 'as above':
        with pytest.raises(ValueError, match=found):
            lens(made, (320, 240), RECTIFIED)
        return
    expected = (200.0, 205.0, 164.75, 114.75) if isinstance(found, str) else found
    assert lens(made, (320, 240), RECTIFIED) == (pytest.approx(expected), None)
    if not changes:
        (fx, *_), bent = lens(made, (320, 240), '/front/image_raw')
        assert fx == 250.0 and bent.coefficients == (-0.3, 0.1, 0.0, 0.0, 0.0)


@pytest.mark.parametrize('d', [[1e300], [0.1, *[0.0] * 1000, 1e300]])
def test_a_wild_distortion_is_no_calibration(d):
    assert 'the distortion of camera_info' in calibration_problem(info(d=d))

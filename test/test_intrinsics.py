# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Intrinsics from camera_info: where a point is seen does not depend on region, bins or size."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from vjepa_ros.sources.camera_info import calibration_problem, is_rectified, lens

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
    ((480, 640), {}, '480 x 640 .* 640 x 480'),
    (FULL, {'roi': (0, 120, 640, 200)}, '640 x 480 can not show its region of interest'),
    ((320, 240), {'roi': (400, 0, 320, 240)}, 'not within its 640 x 480'),
    ((640, 480), {'binning': 2, 'binning_y': 1}, None),          # resized to the old proportion
    ((320, 480), {'binning': 2, 'binning_y': 1}, None), ((320, 480), {'binning': 2}, 'binning 2'),
    ((320, 180), {'roi': (0, 60, 640, 360)}, None),
    ((640, 360), {'roi': (0, 60, 0, 0)}, r'0 x 0 at \(0, 60\)'),
    ((639, 479), {}, None), ((53, 40), {}, None), (FULL, {'height': 0}, 'its size is 640 x 0'),
    (FULL, {'k': [0.0] * 9}, "'k' has the focal lengths 0 and 0"),
    *((FULL, {'k': [*K[:place], value, *K[place + 1:]]},        # numbers that no camera has
       r'can not be that of a camera, its .* px.*\(calibrate')
      for place, value in ((4, 5e-324), (0, 1e308), (2, 1e9))),
    (FULL, {'k': [-500.0, *K[1:]]}, "'k' has the focal lengths -500"),
    (FULL, {'k': [*K[:2], NAN, *K[3:]]}, r"'k' .* centre \(nan"),
    (FULL, {'p': [NAN] * 12}, None), (FULL, {'d': [0.1, NAN]}, 'no number'),
    (FULL, {'d': [0.1] * 5, 'distortion_model': 'magic'}, "'magic'.*0.1, 0.1")])
def test_an_image_of_another_proportion_needs_an_explanation(size, changes, text):
    made = info(**changes)
    if text is None:
        fx, fy, *_ = lens(made, size)[0]
        (_, _, *full) = (0, 0, *FULL) if made.roi.width == 0 else (
            0, 0, made.roi.width, made.roi.height)
        assert (fx, fy) == pytest.approx((500 * size[0] / full[0], 510 * size[1] / full[1]))
        return
    with pytest.raises(ValueError, match=text) as found:
        lens(made, size)
    assert 'camera_info' in str(found.value)


@pytest.mark.parametrize(('topic', 'rectified'), [
    ('image_rect', True), (RECTIFIED, True), ('/a/image_rect/compressed', True),
    ('/image_rect/left/image_raw', False), ('/image_rect/image_raw/compressed', False),
    ('', False)])
def test_rectified_images_are_known_by_the_names_of_image_proc(topic, rectified):
    assert is_rectified(topic) is rectified


P = [400.0, 0.0, 330.0, -48.0, 0.0, 410.0, 230.0, 0.0, 0.0, 0.0, 1.0, 0.0]     # of a right camera


@pytest.mark.parametrize(('changes', 'found'), [
    ({}, (200.0, 205.0, 164.75, 114.75)), ({'k': [NAN] * 9, 'd': [NAN] * 20}, 'as above'),
    ({'p': [0.0] * 12}, "image_rect_color is rectified, and 'p'.* 0 and 0"),
    ({'p': [0.0] * 12, 'd': [0.0] * 5}, (250.0, 255.0, 159.5, 119.5)),
    ({'p': [NAN, *P[1:]]}, "'p'.* nan"), ({'p': [-400.0, *P[1:]]}, "'p'.* -400"),
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


def test_the_widest_and_the_longest_lens_are_calibrations_but_no_wild_distortion():
    for focal in (3.0, 36_000.0):
        k = [focal, 0.0, 319.5, 0.0, focal, 239.5, 0.0, 0.0, 1.0]
        assert calibration_problem(info(k=k, width=640, height=640)) == ''
    for d in ([0.1, float('nan')], [1e300], [0.1, *[0.0] * 1000, 1e300]):
        assert 'the distortion of camera_info' in calibration_problem(info(d=d))

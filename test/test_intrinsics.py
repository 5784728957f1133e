# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Intrinsics from camera_info: where a point is seen does not depend on region, bins or size."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from vjepa_ros.sources.camera_info import calibration_problem, intrinsics

FULL = (640, 480)


def info(roi: tuple[int, int, int, int] = (0, 0, 0, 0), binning: int = 0,
         **changes: object) -> SimpleNamespace:
    part = dict(zip(('x_offset', 'y_offset', 'width', 'height'), roi, strict=True))
    return SimpleNamespace(**{
        'width': FULL[0], 'height': FULL[1], 'd': [], 'binning_x': binning, 'binning_y': binning,
        'k': [500.0, 0.0, 319.5, 0.0, 510.0, 239.5, 0.0, 0.0, 1.0],
        'roi': SimpleNamespace(**part), **changes})


@pytest.mark.parametrize(('roi', 'bins'), [
    ((0, 0, 0, 0), 4), ((100, 100, 320, 240), 1), ((0, 120, 640, 200), 2)])
def test_a_point_is_seen_along_the_same_ray_in_every_part_and_binning(roi, bins):
    point, size = np.array([367.5, 303.5]), np.array(roi[2:] if roi[2] else FULL) // bins
    rays = []
    for pixel, (fx, fy, cx, cy) in (
            (point, intrinsics(info(), FULL)),
            ((point + 0.5 - roi[:2]) / bins - 0.5, intrinsics(info(roi, bins), tuple(size)))):
        rays.append((pixel - (cx, cy)) / (fx, fy))
    np.testing.assert_allclose(rays[1], rays[0], atol=1e-9)


@pytest.mark.parametrize(('made', 'size', 'text'), [
    (info((0, 120, 640, 200)), FULL, '640 x 480 can not show the region of interest'),
    (info((400, 0, 320, 240)), (320, 240), 'not within its 640 x 480'),
    (info(k=[0.0] * 9), FULL, 'not calibrated'), (info(width=0), FULL, 'not calibrated')])
def test_a_camera_info_that_does_not_fit_is_refused_with_a_remedy(made, size, text):
    with pytest.raises(ValueError, match=text):
        intrinsics(made, size)


@pytest.mark.parametrize(('place', 'value'), [
    (4, 5e-324), (0, 2.0), (0, 1e308), (2, 1e9), (5, -700.0)])
def test_numbers_that_no_camera_has_are_no_calibration(place, value):
    k = info().k
    k[place] = value
    with pytest.raises(ValueError, match=r'can not be that of a camera, its .* px.*\(calibrate'):
        intrinsics(info(k=k), FULL)


def test_the_widest_and_the_longest_lens_are_calibrations_but_no_wild_distortion():
    for focal in (3.0, 36_000.0):
        k = [focal, 0.0, 319.5, 0.0, focal, 239.5, 0.0, 0.0, 1.0]
        assert calibration_problem(info(k=k, width=640, height=640)) == ''
    for d in ([0.1, float('nan')], [1e300], [0.0] * 15):
        assert 'the distortion of camera_info' in calibration_problem(info(d=d))

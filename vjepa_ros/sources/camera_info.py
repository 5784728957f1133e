# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute intrinsics of images from sensor_msgs/CameraInfo (imports no ROS).

Its `k` belongs to the full picture of the sensor, `width` x `height`. Images show the region of
interest (all zeros: everything), binned; drivers and nodes behind them resize, too. So the size of
an image over that of its region is the scale, whatever `binning_x` and `binning_y` say.
"""

from __future__ import annotations

import math
from typing import Any

from vjepa_ros.sources.base import pinhole_problem

STRETCH = 0.02       # by which the scales of both axes may differ beyond rounding
ROUNDING_PX = 1.0    # of a binned or resized region
MOST_DISTORTION = 14, 1e6      # coefficients of the longest model of OpenCV, and their size


def calibration_problem(info: Any) -> str:
    """Return what is wrong with a CameraInfo by itself, and the remedy; '' for nothing."""
    if not (all(map(math.isfinite, info.k)) and min(info.k[0], info.k[4]) > 0
            and min(info.width, info.height) > 0):
        return ('camera_info is not calibrated, a focal length or its size is 0 or no number '
                '(calibrate the camera)')
    problem = pinhole_problem((info.k[0], info.k[4], info.k[2], info.k[5]),
                              (info.width, info.height))
    if problem:
        return (f'camera_info can not be that of a camera, {problem} (calibrate the camera, or '
                'correct what publishes it)')
    count, size = MOST_DISTORTION
    if len(info.d) > count or not all(abs(one) <= size for one in info.d):
        return (f'the distortion of camera_info, {list(info.d[:count])}, has more than {count} '
                f'numbers, or one that is no number or above {size:g} (calibrate the camera)')
    x, y, width, height = region(info)
    if x + width > info.width or y + height > info.height or min(width, height) == 0:
        return (f'the region of interest of camera_info, {width} x {height} at ({x}, {y}), is not '
                f'within its {info.width} x {info.height} pixels (correct the camera driver)')
    return ''


def region(info: Any) -> tuple[int, int, int, int]:
    """Return (x, y, width, height) of the sensor that images show [px of the full picture]."""
    roi = info.roi
    if not (roi.width or roi.height):      # by its definition: the full picture
        return 0, 0, info.width, info.height
    return roi.x_offset, roi.y_offset, roi.width, roi.height


def intrinsics(info: Any, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return (fx, fy, cx, cy) [px] for images of a size.

    Parameters
    ----------
    info
        The CameraInfo.
    size
        Width and height of the image [px].

    Raises
    ------
    ValueError
        When it is not calibrated, or such an image can not show its region of interest.
    """
    problem = calibration_problem(info)
    if problem:
        raise ValueError(problem)
    x, y, width, height = region(info)
    sx, sy = size[0] / width, size[1] / height
    cut = (width, height) != (info.width, info.height)
    if cut and abs(sx / sy - 1) > STRETCH + ROUNDING_PX / min(size):
        raise ValueError(
            f'images of {size[0]} x {size[1]} can not show the region of interest of camera_info, '
            f'{width} x {height} (let the camera driver publish the camera_info of its images)')
    k = info.k
    return (k[0] * sx, k[4] * sy, (k[2] - x + 0.5) * sx - 0.5, (k[5] - y + 0.5) * sy - 0.5)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compute the lens of images from sensor_msgs/CameraInfo (imports no ROS).

`k`, `p` and `roi` belong to the full picture of the sensor, `width` x `height`. Images show the
region of interest (all zeros: everything), binned; drivers and nodes behind them resize, too. So
the size of an image over that of its region is the scale, which has to be the same on both axes,
unless `binning_x` and `binning_y` differ. `k` and `d` belong to raw images, `p` to rectified ones,
which have no distortion.
"""

from __future__ import annotations

import math
from typing import Any

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.sources.base import Intrinsics, pinhole_problem

STRETCH = 0.02       # by which the scales of both axes may differ beyond rounding
ROUNDING_PX = 1.0    # of a binned or resized region


def is_rectified(topic: str) -> bool:
    """Whether images of a topic are rectified: `image_rect`, ..., or a transport below it."""
    *_, above, last = ('', *topic.split('/'))
    return (last if last.startswith('image') else above).startswith('image_rect')


def lens(info: Any, size: tuple[int, int], topic: str = ''
         ) -> tuple[Intrinsics, Distortion | None]:
    """Return (fx, fy, cx, cy) [px] and the distortion of images of a size and topic.

    `ValueError` when the CameraInfo is not calibrated, its distortion can not be undone, or such
    an image can not show its region of interest. The topic tells whether images are rectified.
    """
    problem = calibration_problem(info, topic)
    if problem:
        raise ValueError(problem)
    x, y, width, height = region(info)
    sx, sy = size[0] / width, size[1] / height
    across, down = (max(1, binning) for binning in (info.binning_x, info.binning_y))
    allowed = STRETCH + ROUNDING_PX / min(size)
    if all(abs(sx * each / sy - 1) > allowed for each in (1, across / down)):
        raise ValueError(
            f'camera_info does not fit: images of {size[0]} x {size[1]} can not show its region '
            f'of interest, {width} x {height} with binning {across} x {down}, for their sides are '
            'in another proportion (let the camera driver publish the camera_info of its images; '
            'one that cuts them tells how in roi)')
    fx, fy, cx, cy = _pinhole(info, topic)
    return ((fx * sx, fy * sy, (cx - x + 0.5) * sx - 0.5, (cy - y + 0.5) * sy - 0.5),
            None if is_rectified(topic) else Distortion.of(info))


def calibration_problem(info: Any, topic: str = '') -> str:
    """Return what is wrong with a CameraInfo by itself, and the remedy; '' for nothing."""
    if min(info.width, info.height) <= 0:
        return (f'camera_info is not calibrated: its size is {info.width} x {info.height} '
                '(calibrate the camera, or let its driver fill in width and height)')
    rectified, values = is_rectified(topic), _pinhole(info, topic)
    if not (all(map(math.isfinite, values)) and min(values[:2]) > 0):
        told = (f"{topic} is rectified, and 'p', which it needs," if rectified else "'k'")
        return (f'camera_info is not calibrated: {told} has the focal lengths {values[0]:g} and '
                f'{values[1]:g} and the centre ({values[2]:g}, {values[3]:g}) (calibrate the '
                'camera, or correct what publishes it)')
    problem = pinhole_problem(values, (info.width, info.height))
    if problem:
        return (f'camera_info can not be that of a camera, {problem} (calibrate the camera, or '
                'correct what publishes it)')
    x, y, width, height = region(info)
    if x + width > info.width or y + height > info.height or min(width, height) == 0:
        return (f'the region of interest of camera_info, {width} x {height} at ({x}, {y}), is not '
                f'within its {info.width} x {info.height} pixels (correct the camera driver)')
    if not rectified:
        try:
            Distortion.of(info)
        except ValueError as error:
            return str(error)
    return ''


def region(info: Any) -> tuple[int, int, int, int]:
    """Return (x, y, width, height) of the sensor that images show [px of the full picture]."""
    roi = info.roi
    told = roi.x_offset, roi.y_offset, roi.width, roi.height
    return told if any(told) else (0, 0, info.width, info.height)      # by its definition


def _pinhole(info: Any, topic: str) -> Intrinsics:
    """Return (fx, fy, cx, cy) of the full picture [px]: of `p` where images are rectified."""
    if is_rectified(topic) and (any(info.p) or any(info.d)):
        return float(info.p[0]), float(info.p[5]), float(info.p[2]), float(info.p[6])
    return float(info.k[0]), float(info.k[4]), float(info.k[2]), float(info.k[5])

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Regions as vision_msgs/Detection2DArray, where that package is installed (it has no wheel).

Layout of vision_msgs 4 (Humble and later).
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from std_msgs.msg import Header

from vjepa_ros.perception.types import Region


def vision_messages() -> ModuleType | None:
    """The module vision_msgs.msg, None where it is not installed."""
    try:
        return importlib.import_module('vision_msgs.msg')
    except ImportError:
        return None


def detections(module: ModuleType, header: Header, regions: tuple[Region, ...]) -> Any:
    """A Detection2DArray of regions, most urgent first, in pixels of the source image.

    ``class_id`` is 'on_course' or 'approaching', the score the confidence of the region, the id
    its number. The pose is left empty: a region has no place in space.
    """
    out = module.Detection2DArray(header=header)
    for number, region in enumerate(regions):
        guess = module.ObjectHypothesisWithPose()
        guess.hypothesis.class_id = 'on_course' if region.on_course else 'approaching'
        guess.hypothesis.score = float(region.confidence)
        one = module.Detection2D(header=header, id=str(number), results=[guess])
        one.bbox.center.position.x = float(region.x + 0.5 * region.width)
        one.bbox.center.position.y = float(region.y + 0.5 * region.height)
        one.bbox.size_x, one.bbox.size_y = float(region.width), float(region.height)
        out.detections.append(one)
    return out

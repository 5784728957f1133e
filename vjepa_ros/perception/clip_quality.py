# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What about a clip and its camera makes a result less sure."""

from __future__ import annotations

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.sampling import Sample
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.frozen_camera import FrozenWatch
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Quality


def clip_quality(sample: Sample, view: View, optics: Optics, frozen: FrozenWatch, age_s: float,
                 settings: Settings) -> Quality:
    """Flags of a clip whose newest frame is `age_s` old [s]; NaN when that is unknown."""
    flags = Quality(0)
    if view.coverage < 0.999:
        flags |= Quality.PARTIAL_VIEW
    if age_problem(age_s, settings.max_frame_age):
        flags |= Quality.STALE
    if sample.distinct < len(sample.slots):
        flags |= Quality.SLOW_CAMERA
    if optics.assumed:
        flags |= Quality.ASSUMED_INTRINSICS
    if frozen.frozen:
        flags |= Quality.FROZEN
    return flags

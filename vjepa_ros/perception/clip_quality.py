# SPDX-License-Identifier: Apache-2.0
"""What about a clip and its camera makes a result less sure."""

from __future__ import annotations

from vjepa_ros.clip.preprocess import View
from vjepa_ros.clip.sample import Sample
from vjepa_ros.perception.assessment import Quality
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.frozen import FrozenWatch
from vjepa_ros.perception.settings import Settings


def clip_quality(sample: Sample, view: View, optics: Optics, frozen: FrozenWatch, age_s: float,
                 settings: Settings) -> Quality:
    """Flags of a clip whose newest frame is `age_s` old [s]; NaN when that is unknown."""
    flags = Quality(0)
    if view.coverage < 0.999:
        flags |= Quality.PARTIAL_VIEW
    if age_s > settings.max_frame_age:
        flags |= Quality.STALE
    if sample.distinct < len(sample.slots):
        flags |= Quality.SLOW_CAMERA
    if optics.assumed:
        flags |= Quality.ASSUMED_INTRINSICS
    if frozen.frozen:
        flags |= Quality.FROZEN
    return flags

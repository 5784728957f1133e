# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What about a clip and its camera makes a result less sure."""

from __future__ import annotations

import math

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.sampling import Sample
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.frozen_camera import FrozenWatch
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Quality

# How far a stamp may lie ahead of the clock [s]. Clocks that NTP or PTP keep together differ by
# milliseconds, and simulated time lags behind the stamps by up to a tick, at most 0.1 s at 10 Hz.
# An approach is not seen late for it: looming comes from the time between stamps.
AHEAD_S = 0.1


def age_problem(age_s: float, max_age_s: float) -> str:
    """Why something of this age [s] does not count as current, '' when it does.

    Parameters
    ----------
    age_s
        Now minus stamp [s]; NaN when the clock has not started.
    max_age_s
        Greatest age [s].
    """
    if math.isnan(age_s):
        return 'of unknown age'
    if age_s < -AHEAD_S:
        return f'{-age_s:.2f} s in the future'
    return f'{age_s:.2f} s old' if age_s > max_age_s else ''


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

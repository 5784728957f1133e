# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The live settings of perception: thresholds, smoothing, region of interest.

One frozen object is replaced as a whole, so a result is always made with one consistent set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LOOMING_METHODS = ('geometric', 'learned', 'fused')
SMOOTHING_METHODS = ('ema', 'median', 'none')


@dataclass(frozen=True)
class Settings:
    """Live settings, safe to change between two results.

    Attributes
    ----------
    collision_horizon
        ``collision_probability`` speaks of contact within this time [s].
    approach_speed
        Where heads hold, ``collision_probability`` also speaks of contact within the horizon if
        the robot went ahead at this speed [m/s]; 0 leaves that out.
    caution_ttc, warning_ttc, danger_ttc
        Times to contact at which the levels begin [s]; must fall in this order.
    motion_threshold, obstacle_threshold
        Scores above these raise at least CAUTION; 1.0 switches the rule off.
    looming_threshold
        Looming rates below this count as not approaching: no region and no bearing [1/s].
    smoothing_method
        'ema' (asymmetric exponential), 'median' (of ``smoothing_window`` results) or 'none'.
    smoothing_rise, smoothing_fall
        Time constants of the exponential while danger rises and falls [s].
    smoothing_window
        Results in the median.
    hysteresis
        A level is left only when the time to contact exceeds its threshold by this part.
    level_hold
        Least time a level is kept before it may fall [s].
    roi
        Region of interest as fractions of the image (left, top, right, bottom).
    collision_margin
        A surface is on course when the camera will pass it within this angle [rad].
    min_confidence
        Cells of the looming field below this confidence are unknown.
    min_known
        With less than this part of the region of interest known, and nothing seen coming, the
        level is UNKNOWN. Below a quarter the assessment is flagged low_texture in any case.
    max_frame_age
        Older frames give an assessment flagged stale with level UNKNOWN [s]. So do frames that
        are ahead of the clock by more than 0.1 s, or of unknown age.
    looming_method
        Where looming and collision come from, as far as there are heads that hold: 'geometric',
        'learned' or 'fused' (see `vjepa_ros.perception.fusion`).
    """

    collision_horizon: float = 2.0
    approach_speed: float = 1.0
    caution_ttc: float = 4.0
    warning_ttc: float = 2.5
    danger_ttc: float = 1.2
    motion_threshold: float = 1.0
    obstacle_threshold: float = 1.0
    looming_threshold: float = 0.1
    smoothing_method: str = 'ema'
    smoothing_rise: float = 0.05
    smoothing_fall: float = 0.5
    smoothing_window: int = 5
    hysteresis: float = 0.25
    level_hold: float = 0.4
    roi: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    collision_margin: float = 0.05
    min_confidence: float = 0.2
    min_known: float = 0.05
    max_frame_age: float = 1.0
    looming_method: str = 'fused'

    def __post_init__(self) -> None:
        problem = self.problem()
        if problem:
            raise ValueError(problem)

    def problem(self) -> str:
        """What is wrong across the fields, '' when nothing is."""
        if len(self.roi) != 4:
            return f'roi is {list(self.roi)}, must be [left, top, right, bottom]'
        left, top, right, bottom = self.roi
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            return (f'roi is {list(self.roi)}, must be [left, top, right, bottom] fractions of '
                    'the image with left < right and top < bottom')
        if not self.danger_ttc < self.warning_ttc < self.caution_ttc:
            return (f'thresholds are danger_ttc {self.danger_ttc}, warning_ttc '
                    f'{self.warning_ttc}, caution_ttc {self.caution_ttc}; '
                    'must be danger < warning < caution')
        if self.smoothing_method not in SMOOTHING_METHODS:
            return (f"smoothing_method is '{self.smoothing_method}', must be one of "
                    f'{", ".join(SMOOTHING_METHODS)}')
        if self.looming_method not in LOOMING_METHODS:
            return (f"looming_method is '{self.looming_method}', must be one of "
                    f'{", ".join(LOOMING_METHODS)}')
        for name in ('collision_horizon', 'approach_speed', 'collision_margin'):
            if not math.isfinite(getattr(self, name)):
                return f'{name} is {getattr(self, name)}, must be finite'
        return ''

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Settings of perception: what shapes the frame memory, what is live, and what to compute.

Each is frozen and replaced as a whole, so that a result is made with one consistent set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.clip.resize import MODES
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES

GEOMETRIES = ('auto', 'host', 'device')
LOOMING_METHODS = ('geometric', 'learned', 'fused')
SMOOTHING_METHODS = ('ema', 'median', 'none')


@dataclass(frozen=True)
class Settings:
    """Live settings, safe to change between two results."""

    # ``collision_probability`` and ``collision_if_ahead`` cover contact within this time [s]
    collision_horizon: float = 2.0
    # ``collision_if_ahead`` assumes that the robot goes ahead at this speed [m/s]; with 0 it is
    # unknown
    approach_speed: float = 1.0
    # caution_ttc, warning_ttc, danger_ttc: times to contact at which the levels begin [s]; must
    # fall in this order
    caution_ttc: float = 4.0
    warning_ttc: float = 2.5
    danger_ttc: float = 1.2
    # motion_threshold, obstacle_threshold: scores above these raise at least CAUTION; 1.0
    # switches the rule off
    motion_threshold: float = 1.0
    obstacle_threshold: float = 1.0
    # Looming rates below this count as not approaching: no region and no bearing [1/s]
    looming_threshold: float = 0.1
    # 'ema' (asymmetric exponential), 'median' (of ``smoothing_window`` results) or 'none'
    smoothing_method: str = 'ema'
    # smoothing_rise, smoothing_fall: time constants of the exponential while danger rises and
    # falls [s]
    smoothing_rise: float = 0.1
    smoothing_fall: float = 0.1
    smoothing_window: int = 5  # results in the median
    # A level is left only when the time to contact exceeds its threshold by this part
    hysteresis: float = 0.25
    level_hold: float = 0.4  # least time a level is kept before it may fall [s]
    # Region of interest as fractions of the image (left, top, right, bottom)
    roi: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    # A surface is on course when the camera will pass it within this angle [rad]
    collision_margin: float = 0.05
    min_confidence: float = 0.2  # cells of the looming field below this confidence are unknown
    # With less than this part of the region of interest known, and nothing seen coming, the
    # level is UNKNOWN. Below a quarter the assessment is flagged low_texture in any case.
    min_known: float = 0.05
    # Older frames give an assessment flagged stale with level UNKNOWN [s]. So do frames that are
    # ahead of the clock by more than 0.1 s, or of unknown age.
    max_frame_age: float = 1.0
    # Source of looming and collision where heads are valid: 'geometric', 'learned' or 'fused'
    # (see `vjepa_ros.perception.fusion`); geometric elsewhere
    looming_method: str = 'fused'

    def __post_init__(self) -> None:
        object.__setattr__(self, 'roi', tuple(self.roi))
        problem = self.problem()
        if problem:
            raise ValueError(problem)

    def problem(self) -> str:
        """Return what is wrong across the fields, '' for nothing."""
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


@dataclass(frozen=True)
class TrackConfig:
    """Shape of the frame memory of a camera; a change needs a new track."""

    # num_frames, image_size: frames in a clip and side of the encoder's input [px]
    num_frames: int = NUM_FRAMES
    image_size: int = IMAGE_SIZE
    clip_fps: float = 4.0  # rate at which clips are sampled [Hz]
    resize_mode: str = 'squash'  # how a frame becomes the encoder's input: see `View`
    max_frame_gap: float = 1.0  # longest time between frames before the clip starts anew [s]
    # Frames are shrunk for the looming estimate to this width if they are 4:3, others to the
    # same number of pixels [px]
    looming_width: int = 384
    looming_history: float = 0.6  # time the looming estimate may look back [s]
    # Where frames are resized and looming is measured: 'host', 'device' (the one of the model)
    # or 'auto': the device with CUDA, else the host
    geometry: str = 'auto'
    horizontal_fov: float = math.radians(65.0)  # field of view assumed without camera_info [rad]

    def __post_init__(self) -> None:
        if self.resize_mode not in MODES:
            raise ValueError(f"resize_mode is '{self.resize_mode}', must be one of "
                             f'{", ".join(MODES)}')
        if self.geometry not in GEOMETRIES:
            raise ValueError(f"geometry is '{self.geometry}', must be one of "
                             f'{", ".join(GEOMETRIES)}')
        for name in ('clip_fps', 'max_frame_gap', 'looming_history', 'horizontal_fov'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f'{name} is {value}, must be a positive number')


@dataclass(frozen=True)
class Wants:
    """Products of a result that somebody uses; the others are not computed."""

    # The motion score, or anything else that needs the encoder with any weights
    features: bool = True
    looming: bool = True  # anything that needs the looming field
    image: bool = True  # the newest frame itself
    # The features themselves or the map of their change, even where heads make the score
    change: bool = True
    moving: bool = True  # the map of what moves by itself, where heads are valid

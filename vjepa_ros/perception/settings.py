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
from vjepa_ros.parameter import parameter

PLACES = ('auto', 'host', 'device')


@dataclass(frozen=True)
class Settings:
    """Live settings, safe to change between two results."""

    collision_horizon: float = parameter(
        2.0, 'Time within which collision_probability and collision_if_ahead predict contact',
        low=0.1, high=10.0, unit='s')
    approach_speed: float = parameter(
        1.0, 'Speed ahead that collision_if_ahead assumes; 0 leaves it unknown', low=0.0,
        high=10.0, unit='m/s')
    caution_ttc: float = parameter(
        4.0, 'Time to contact below which the level is CAUTION', name='thresholds.caution_ttc',
        low=0.05, high=60.0, unit='s')
    warning_ttc: float = parameter(
        2.5, 'Time to contact below which the level is WARNING', name='thresholds.warning_ttc',
        low=0.05, high=60.0, unit='s')
    danger_ttc: float = parameter(
        1.2, 'Time to contact below which the level is DANGER', name='thresholds.danger_ttc',
        low=0.05, high=60.0, unit='s')
    roi: tuple[float, float, float, float] = parameter(
        (0.0, 0.0, 1.0, 1.0), 'Region of interest: left, top, right, bottom as fractions of the '
        'image', low=0.0, high=1.0)
    max_frame_age: float = parameter(
        1.0, 'Largest age of a frame; older ones, those more than 0.1 s ahead of the clock, and '
        'those of unknown age are flagged stale with level unknown', low=0.01, high=3600.0,
        unit='s')
    # Looming rates below this count as not approaching: no region and no bearing [1/s]
    looming_threshold: float = 0.1
    # Time constant [s] of the exponential smoothing of scores and of the looming of patches; 0:
    # none. A longer one warns later
    smoothing: float = 0.1
    # A level is left only when the time to contact exceeds its threshold by this part
    hysteresis: float = 0.25
    level_hold: float = 0.4  # least time a level is kept before it may fall [s]
    # A surface is on course when the camera will pass it within this angle [rad]
    collision_margin: float = 0.05
    min_confidence: float = 0.2  # patches whose looming is less certain are unknown
    # With less than this part of the region of interest known, and nothing seen coming, the
    # level is UNKNOWN. Below a quarter the assessment is flagged low_texture in any case.
    min_known: float = 0.05

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
    clip_fps: float = parameter(
        4.0, 'Rate at which frames are sampled for whole clips; streams, as of the bundled '
        'weights, choose their own', low=0.25, high=60.0, unit='Hz')
    resize_mode: str = parameter(
        'squash', 'How a frame is fitted to the encoder input; hf and meta are the exact profiles '
        'of the published weights', choices=MODES)
    max_frame_gap: float = parameter(
        1.0, 'Longest gap between frames of a clip; a longer one starts a new clip', low=0.02,
        high=60.0, unit='s')
    horizontal_fov: float = parameter(
        math.radians(65.0), 'Horizontal field of view until camera_info arrives',
        name='assumed_fov', low=10.0, high=170.0, unit='deg')
    # Where frames are resized: 'host', 'device' (the one of the model) or 'auto': the device with
    # CUDA, else the host
    frames_on: str = 'auto'

    def __post_init__(self) -> None:
        if self.resize_mode not in MODES:
            raise ValueError(f"resize_mode is '{self.resize_mode}', must be one of "
                             f'{", ".join(MODES)}')
        if self.frames_on not in PLACES:
            raise ValueError(f"frames_on is '{self.frames_on}', must be one of "
                             f'{", ".join(PLACES)}')
        for name in ('clip_fps', 'max_frame_gap', 'horizontal_fov'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f'{name} is {value}, must be a positive number')


@dataclass(frozen=True)
class Wants:
    """Products of a result that somebody uses; the others are not computed."""

    # The motion score, or anything else that needs the encoder with any weights
    features: bool = True
    looming: bool = True  # anything that needs looming or contact
    image: bool = True  # the newest frame itself
    # The features themselves or the map of their change, even where heads make the score
    change: bool = True
    moving: bool = True  # the map of what moves by itself, where heads are valid

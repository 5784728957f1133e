# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What shapes the frame memory of a camera, and what of a result is wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vjepa_ros.clip.view import MODES

GEOMETRIES = ('auto', 'host', 'device')


@dataclass(frozen=True)
class TrackConfig:
    """What shapes the frame memory of a camera; a change of it needs a new track.

    Attributes
    ----------
    num_frames, image_size
        Frames in a clip and side of the encoder's input [px].
    clip_fps
        Rate at which clips are sampled [Hz].
    resize_mode
        How a frame becomes the encoder's input: see `View`.
    max_frame_gap
        Longest time between frames before the clip starts anew [s].
    looming_width
        Frames are shrunk for the looming estimate to this width if they are 4:3, others to the
        same number of pixels [px].
    looming_history
        Time the looming estimate may look back [s].
    geometry
        Where frames are resized and looming is measured: 'host', 'device' (the one of the model)
        or 'auto': the device with CUDA, else the host.
    horizontal_fov
        Field of view assumed without camera_info [rad].
    """

    num_frames: int = 8
    image_size: int = 192
    clip_fps: float = 4.0
    resize_mode: str = 'squash'
    max_frame_gap: float = 1.0
    looming_width: int = 384
    looming_history: float = 0.6
    geometry: str = 'auto'
    horizontal_fov: float = math.radians(65.0)

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
    """Which products of a result somebody will use; the others are not computed.

    Attributes
    ----------
    features
        The motion score, or anything else that the encoder is needed for with any weights.
    looming
        Anything that needs the looming field.
    image
        The newest frame itself.
    change
        The features themselves or the map of their change, also where heads make the score.
    moving
        The map of what moves by itself, where heads hold.
    """

    features: bool = True
    looming: bool = True
    image: bool = True
    change: bool = True
    moving: bool = True

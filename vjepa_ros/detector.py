# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The plain Python interface: frames in, assessments out, no ROS."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.patch_maps import motion_map
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Assessment, Result
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.sources.encodings import MAX_PIXELS, check_aspect, check_size
from vjepa_ros.sources.gain import GainControl

log = logging.getLogger(__name__)
CAMERA = 'camera'
HASTY_FRAMES, HASTY_S = 16, 0.1     # so many frames without stamps in less are of a file
LATEST_S = 1e11                 # a stamp after the year 5000 does not count in seconds
GAPS, GAP_FACTOR = 3, 4.0       # nor do the first, so much longer apart than frames of a clip
UNITS = 'ms by 1e3, us by 1e6, ns by 1e9'
LEAST_STEP_S = 1e-3             # that a stamp must resolve
TRACK_OPTIONS = ('clip_fps', 'resize_mode', 'max_frame_gap', 'frames_on')


class ObstacleDetector:
    """Obstacle and collision perception on the frames of one camera.

    Parameters
    ----------
    model_size, img_size, num_frames, device
        Variant ('tiny', 'small', 'base', 'large', ...); side of the encoder's input [px], a
        multiple of 16; frames in a clip, even, at least 4; 'auto', 'cpu', 'cuda', 'cuda:N' or
        'mps'.
    frame_rate
        Rate of frames that come without a stamp [Hz]; 0 takes their time of arrival. Set it
        when frames are read from a file faster than they were taken.
    settings
        Thresholds, smoothing and region of interest.
    weights, heads, allow_random_weights
        Checkpoint of the encoder: file, folder or name on the Hugging Face hub; empty: the one
        of this package for the size, if it has one; 'random': none, which must be allowed, and
        every assessment then carries the untrained flag. Safetensors file of learned heads for
        these weights; empty: those in the file of the weights, if it has some.
    clip_fps, max_frame_gap
        Rate at which whole clips are sampled from the frames [Hz], unused by streams, as those of
        the bundled weights; longest time between frames before a clip starts anew [s].
    resize_mode, frames_on
        'squash', 'crop', 'letterbox', 'hf' or 'meta'; where frames are resized: 'host', 'device'
        or 'auto'.
    model_version, weights_part, require_device, precision, seed, cpu_threads
        Further fields of `ModelConfig`.

    Raises
    ------
    ValueError, WeightsError, DeviceError
        Naming the parameter, its value and the remedy.

    Examples
    --------
    >>> detector = ObstacleDetector()
    >>> for rgb, stamp in frames:                              # doctest: +SKIP
    ...     detector.add_frame(rgb, stamp)
    ...     if (seen := detector.assess()) is not None:
    ...         print(seen.level.name, seen.time_to_contact)
    """

    def __init__(self, model_size: str = ModelConfig.model_size,
                 img_size: int = ModelConfig.image_size,
                 num_frames: int = ModelConfig.num_frames, device: str = ModelConfig.device, *,
                 frame_rate: float = 0.0, settings: Settings | None = None,
                 **options: Any) -> None:
        of_track = {name: options.pop(name) for name in TRACK_OPTIONS if name in options}
        config = ModelConfig(model_size=model_size, image_size=img_size, num_frames=num_frames,
                             device=device, **options)
        track = TrackConfig(num_frames=num_frames, image_size=img_size, **of_track)
        self.settings = settings or Settings()
        self.engine = Model.load(config)
        self.engine.noise_floor()    # measured now, and not with the first result
        self._perception = Perception(self.engine, track, [CAMERA])
        self._frame_rate = frame_rate
        self._gain = GainControl()
        self._frames = 0
        self._first_ns = 0               # arrival of the first frame without a stamp
        self._stamp_s = math.nan         # of the last frame
        self._gaps = 0                   # long ones in a row before it
        self._result: Result | None = None

    @property
    def track(self) -> CameraState:
        """Return the frame memory of the camera."""
        return self._perception.tracks[CAMERA]

    def set_intrinsics(self, fx: float, fy: float, cx: float, cy: float,
                       distortion: Distortion | None = None) -> None:
        """Set the intrinsics of the frames [px], and the distortion of their lens.

        Without a call a field of view is assumed.
        """
        self.track.intrinsics, self.track.distortion = (fx, fy, cx, cy), distortion

    def add_frame(self, rgb: np.ndarray, stamp: float | None = None, frame_id: str = '',
                  gain: int = 0) -> None:
        """Add one frame.

        Parameters
        ----------
        rgb
            RGB (H, W, 3), or grey (H, W), uint8 or uint16. 16 bits are shown in 8 by the range
            of values in use; where that changes much, a new clip starts.
        stamp
            Time of capture [s], on any clock that only moves forward; None: the time of
            arrival, or evenly spaced frames when ``frame_rate`` was given.
        frame_id, gain
            A change of one starts a new clip.

        Raises
        ------
        ValueError
            When the array is not an image, or one that is too large, or too long and thin, or the
            stamp is no time in seconds.
        """
        rgb = np.asarray(rgb)
        if rgb.dtype == '>u2' or rgb.dtype == '<u2':
            rgb = rgb.astype(np.uint16, copy=False)     # in the byte order of this machine
        if rgb.ndim == 2:
            rgb = np.repeat(rgb[..., None], 3, axis=2)
        if (rgb.dtype not in (np.uint8, np.uint16) or rgb.ndim != 3 or rgb.shape[2] != 3
                or 0 in rgb.shape):
            raise ValueError(f'frame is {rgb.dtype} {rgb.shape}, must be uint8 or uint16 (height, '
                             'width, 3) in RGB order')
        height, width = rgb.shape[:2]
        check_size(width, height, MAX_PIXELS)
        check_aspect(width, height)
        if rgb.dtype == np.uint16:
            rgb, gain = self._gain.reduce(rgb)
        if stamp is not None:
            stamp_ns = round(self._checked(stamp) * 1e9)
        elif self._frame_rate > 0:
            stamp_ns = round((self._frames + 1) / self._frame_rate * 1e9)
        else:
            stamp_ns = time.monotonic_ns()
            self._warn_of_haste(stamp_ns)
        self._frames += 1
        # Zero means unstamped to the ring; here it is simply the first moment of a file.
        # A copy, because callers reuse their buffers (cv2.VideoCapture.read does).
        self.track.push(rgb.copy(), stamp_ns or 1, frame_id, gain=gain)

    def _checked(self, stamp: float) -> float:
        """Return the stamp of a frame [s]; ValueError where stamps can not be seconds."""
        stamp = _seconds(stamp)
        gap_s, self._stamp_s = stamp - self._stamp_s, stamp
        longest = GAP_FACTOR * self.track.config.max_frame_gap
        self._gaps = self._gaps + 1 if gap_s > longest else 0       # the first one is NaN
        if self._gaps >= max(GAPS, self._frames):       # from the first frame on
            raise ValueError(f'stamp is {stamp:g}, {gap_s:g} s after the one before, as all '
                             f'before it: stamps count in seconds, divide {UNITS}; '
                             'where frames are that rare, raise max_frame_gap above '
                             f'{gap_s / GAP_FACTOR:g}')
        return stamp

    def _warn_of_haste(self, arrival_ns: int) -> None:
        """Warn once of frames without stamps that come faster than any camera takes them."""
        if self._frames == 0:
            self._first_ns = arrival_ns
        passed_s = (arrival_ns - self._first_ns) / 1e9
        if self._frames == HASTY_FRAMES - 1 and passed_s < HASTY_S:
            log.warning('%d frames without a stamp came within %.3f s, faster than a camera takes '
                        'them, so clips span too little time: pass `stamp` to add_frame, or set '
                        '`frame_rate` to the rate at which they were taken', HASTY_FRAMES,
                        passed_s)

    def assess(self) -> Assessment | None:
        """Assess the newest clip; None until the frames cover one."""
        result = self.result()
        return None if result is None else result.assessment

    def result(self) -> Result | None:
        """Return the assessment with maps and features; computed once per newest frame."""
        samples = self._perception.pending()
        if samples:
            self._result = None     # stays None where this fails: an old one is not the newest
            self._result = self._perception.run(
                samples, self.settings, {CAMERA: Wants()}, lambda stamp: 0.0)[0]
        elif self.track.sample() is None:
            self._result = None
        return self._result

    def detect_obstacles(self) -> tuple[np.ndarray | None, float]:
        """Return (features, motion_score) of the newest clip; for the score see `Assessment`.

        Features are float32 (T', Hp, Wp, D); the score is 0..1. Until the frames cover a clip:
        (None, NaN), because nothing is known then.
        """
        result = self.result()
        if result is None:
            return None, math.nan
        return result.features, result.assessment.motion_score

    def features(self, layers: Sequence[int] | None = None, levels: int = 0,
                 per: str = 'grid') -> np.ndarray | None:
        """Encode the newest clip anew, to any depth, as a grid or pooled; None as `assess`.

        For the arguments and what comes back see `vjepa_ros.runtime.model.Model.features`.
        """
        sample = self.track.sample()
        if sample is None:
            return None
        stamps = None if self.engine.not_streaming else [sample.moments()]
        return self.engine.features([self.track.store.clip(sample.frames)], layers, levels, per,
                                    stamps=stamps)[0]

    def analyze_spatial_features(self, features: np.ndarray | None) -> np.ndarray | None:
        """Compute the motion map (Hp, Wp), 0..1, of features (T', Hp, Wp, D).

        For the features of the newest result this is its own map; for others, whose pixels are
        unknown, the map is made from the features alone and misses slow motion.
        """
        if features is None:
            return None
        if self._result is not None and features is self._result.features:
            return self._result.motion_map
        return motion_map(features, self.engine.noise_floor())

    def update_settings(self, **changes: Any) -> None:
        """Replace fields of the settings, from the next result on."""
        self.settings = replace(self.settings, **changes)

    def close(self) -> None:
        """Release the model and its memory."""
        self._perception.close()

    def __enter__(self) -> ObstacleDetector:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _seconds(stamp: Any) -> float:
    """Return a stamp in seconds; ValueError for what is none."""
    kinds = int | float | np.integer | np.floating
    if isinstance(stamp, bool) or not isinstance(stamp, kinds) or not 0 <= stamp <= LATEST_S:
        raise ValueError(f'stamp is {stamp!r:.99} ({type(stamp).__name__}), must be a number of '
                         f'seconds from 0 on, such as time.monotonic() gives: divide {UNITS}')
    if isinstance(stamp, np.floating) and np.spacing(stamp) > LEAST_STEP_S:
        raise ValueError(f'stamp is {stamp} ({stamp.dtype}), which is exact to '
                         f'{np.spacing(stamp):g} s only; give seconds as float64')
    return float(stamp)

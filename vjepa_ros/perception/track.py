# SPDX-License-Identifier: Apache-2.0
"""Follow one camera: frames in, clips out, and results made from clip, features and looming."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import cv2
import numpy as np

from vjepa_ros.clip.preprocess import MODES, View, sample_to_patches
from vjepa_ros.clip.ring import FrameRing, Push, Sample
from vjepa_ros.perception.assessment import Assessment, Quality, Result
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.collision import Optics, find_threats
from vjepa_ros.perception.looming import LoomingEstimator, LoomingField, LoomingSettings
from vjepa_ros.perception.motion import motion_map, motion_score
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.noise import NoiseFloor

NS = 1e9
MIN_LOOMING_SIDE = 64   # px; optical flow needs a few cells in each direction


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
    horizontal_fov: float = math.radians(65.0)

    def __post_init__(self) -> None:
        if self.resize_mode not in MODES:
            raise ValueError(f"resize_mode is '{self.resize_mode}', must be one of "
                             f'{", ".join(MODES)}')
        for name in ('clip_fps', 'max_frame_gap', 'looming_history', 'horizontal_fov'):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f'{name} is {value}, must be a positive number')


@dataclass(frozen=True)
class Wants:
    """Which products of a result somebody will use; the others are not computed."""

    features: bool = True      # anything that needs the encoder
    looming: bool = True       # anything that needs the looming field
    image: bool = True         # the newest frame itself


class Track:
    """The frame memory and the state of one camera. Used by one thread only.

    Parameters
    ----------
    name
        Name of the camera.
    config
        Shape of the memory.
    """

    def __init__(self, name: str, config: TrackConfig) -> None:
        self.name = name
        self.config = config
        self.assessor = Assessor()
        self.ring = FrameRing(config.num_frames, config.clip_fps, config.max_frame_gap,
                              history=config.looming_history, name=name)
        self.view: View | None = None
        self.image: np.ndarray | None = None
        self.intrinsics: tuple[float, float, float, float] | None = None
        # Everything with its confidence: what counts as known is a live setting.
        self._looming = LoomingEstimator(LoomingSettings(min_confidence=0.0))
        self._input = np.empty((0,), np.uint8)
        self._clip: np.ndarray | None = None
        self._last: tuple[int, LoomingField | None] | None = None

    def push(self, rgb: np.ndarray, stamp_ns: int, frame_id: str = '',
             arrival_ns: int | None = None) -> Push:
        """Take one decoded frame: RGB uint8 (H, W, 3), stamp [ns] (see `FrameRing.push`)."""
        size = (rgb.shape[1], rgb.shape[0])
        if self.view is None or self.view.source_size != size:
            self.view = View(self.config.resize_mode, size, self.config.image_size)
            side = self.config.image_size
            self._input = np.empty((side, side, 3), np.uint8)
        resets = sum(self.ring.resets.values())
        planes = {'rgb': self.view.apply(rgb, out=self._input), 'gray': self._gray(rgb)}
        push = self.ring.push(stamp_ns, planes, frame_id=frame_id, size=size,
                              arrival_ns=arrival_ns)
        if sum(self.ring.resets.values()) != resets:
            self.assessor.reset()
        if push in (Push.ACCEPTED, Push.RESET):
            self.image = rgb
        return push

    def take_over(self, old: Track) -> None:
        """Go on where another track of the same camera was: levels, smoothing and counts."""
        self.assessor = old.assessor
        self.ring.take_over(old.ring)

    def reset(self, reason: str = 'manual') -> None:
        """Start anew: forget the frames and the smoothed state."""
        self.ring.reset(reason)
        self.image = None
        self.assessor.reset()
        self._last = None

    def sample(self) -> Sample | None:
        """The newest clip, None until the ring is full."""
        return self.ring.sample()

    def clip(self, sample: Sample) -> np.ndarray:
        """The encoder's input of a sample: RGB uint8 (num_frames, S, S, 3).

        The buffer is reused by the next call.
        """
        side = self.config.image_size
        shape = (self.config.num_frames, side, side, 3)
        if self._clip is None:
            self._clip = np.empty(shape, np.uint8)
        return self.ring.gather(sample, 'rgb', out=self._clip)

    def optics(self) -> Optics:
        """Intrinsics of the source image, assumed when no camera_info is known."""
        if self.intrinsics is None:
            return Optics.assume(self.ring.size, self.config.horizontal_fov)
        return Optics(*self.intrinsics, assumed=False)

    def looming(self) -> LoomingField | None:
        """The looming field at the newest frame (computed once per frame); None = unknown."""
        newest = self.ring.newest_ns
        if newest is None or min(self.ring.newest('gray').shape) < MIN_LOOMING_SIDE:
            return None
        if self._last is None or self._last[0] != newest:
            optics, width = self.optics(), self.ring.newest('gray').shape[1]
            scale = width / self.ring.size[0]
            field = self._looming.estimate(
                self.ring.recent('gray', self.config.looming_history),
                focal_px=optics.fx * scale,
                center=((optics.cx + 0.5) * scale - 0.5, (optics.cy + 0.5) * scale - 0.5))
            self._last = (newest, field)
        return self._last[1]

    def result(self, sample: Sample, features: np.ndarray | None, floor: NoiseFloor,
               settings: Settings, *, age_s: float, flags: Quality, wants: Wants,
               timings: dict[str, float]) -> Result:
        """Assess a clip.

        Parameters
        ----------
        sample
            The clip's frames.
        features
            (T', Hp, Wp, D) of the encoder for the last `clip`, None when not wanted.
        floor
            Noise floor of the model.
        settings
            Live settings.
        age_s
            Age of the newest frame now [s]; NaN when unknown.
        flags
            Flags of the engine (untrained, fallback).
        wants
            What to compute.
        timings
            Milliseconds by stage so far; the stages of this step are added to a copy.
        """
        timings = dict(timings)
        view, optics = self.view, self.optics()
        motion, score = None, math.nan
        clock = time.perf_counter()
        if features is not None:
            valid = view.patch_valid() > 0.5
            motion = motion_map(features, floor, self._clip, valid)
            if sample.distinct < 2:
                # One frame repeated shows no change, whatever moves: unknown, not stillness.
                motion = np.full_like(motion, np.nan)
            score = motion_score(motion, mask=valid & roi_mask(view, settings.roi))
            clock = _lap(timings, 'motion', clock)
        field = self.looming() if wants.looming else None
        if wants.looming:
            clock = _lap(timings, 'looming', clock)
        threat = find_threats(field, self.ring.size, optics, settings)
        flags |= self._quality(sample, optics, age_s, settings)
        scores = self.assessor.update(threat, score, sample.newest_ns, flags, settings)
        grid = self._looming_map(field, settings) if wants.looming else None
        _lap(timings, 'assess', clock)
        assessment = Assessment(
            camera=self.name, stamp_ns=sample.newest_ns, frame_id=sample.frame_id,
            motion_score=scores.motion_score, obstacle_score=scores.obstacle_score,
            collision_probability=scores.collision_probability,
            time_to_contact=scores.time_to_contact, looming_rate=scores.looming_rate,
            bearing=scores.bearing, elevation=scores.elevation, level=scores.level,
            flags=scores.flags, regions=threat.regions, timings=timings,
            clip_span_s=sample.span_s, clip_rate_hz=sample.rate_hz,
            known_fraction=threat.known_fraction)
        return Result(assessment, motion, grid, field, features, view,
                      self.image if wants.image else None)

    def _quality(self, sample: Sample, optics: Optics, age_s: float,
                 settings: Settings) -> Quality:
        flags = Quality(0)
        if self.view.coverage < 0.999:
            flags |= Quality.PARTIAL_VIEW
        if age_s > settings.max_frame_age:
            flags |= Quality.STALE
        if sample.distinct < len(sample.slots):
            flags |= Quality.SLOW_CAMERA
        if optics.assumed:
            flags |= Quality.ASSUMED_INTRINSICS
        return flags

    def _looming_map(self, field: LoomingField | None, settings: Settings) -> np.ndarray:
        """The field on the patch grid (Hp, Wp), NaN where unknown."""
        if field is None:
            return np.full(self.view.patch_valid().shape, np.nan, np.float32)
        rate = np.where(field.confidence >= settings.min_confidence, field.rate, np.nan)
        return sample_to_patches(rate, field.centers, field.gray_size, self.view)

    def _gray(self, rgb: np.ndarray) -> np.ndarray:
        """Grey picture with as many pixels as a 4:3 image of `looming_width`, or its own."""
        height, width = rgb.shape[:2]
        scale = math.sqrt(0.75 * self.config.looming_width ** 2 / (width * height))
        if scale < 1:
            # By area, not by width: a panorama of the same width would show nothing any more.
            small = (max(2, round(width * scale)), max(2, round(height * scale)))
            rgb = cv2.resize(rgb, small, interpolation=cv2.INTER_AREA)
        return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)


def roi_mask(view: View, roi: tuple[float, float, float, float]) -> np.ndarray:
    """Patches whose centre lies in the region of interest, (Hp, Wp) bool."""
    boxes = view.patch_boxes()
    x = 0.5 * (boxes[..., 0] + boxes[..., 2]) / view.source_size[0]
    y = 0.5 * (boxes[..., 1] + boxes[..., 3]) / view.source_size[1]
    return (x >= roi[0]) & (x <= roi[2]) & (y >= roi[1]) & (y <= roi[3])


def with_timings(result: Result, **extra: float) -> Result:
    """A result with more stages [ms] in its timings."""
    timings = {**result.assessment.timings, **extra}
    return replace(result, assessment=replace(result.assessment, timings=timings))


def _lap(timings: dict[str, float], stage: str, since: float) -> float:
    now = time.perf_counter()
    timings[stage] = (now - since) * 1e3
    return now

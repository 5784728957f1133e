# SPDX-License-Identifier: Apache-2.0
"""Follow one camera: frames in, clips out, and results made from clip, encoder and looming."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace

import numpy as np

from vjepa_ros.clip.preprocess import View, sample_to_patches
from vjepa_ros.clip.ring import FrameRing, Push, Sample
from vjepa_ros.model.meta import BundleMeta
from vjepa_ros.perception.assessment import Assessment, Quality, Result
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.config import TrackConfig, Wants
from vjepa_ros.perception.fusion import judge
from vjepa_ros.perception.geometry import RING_BYTES, Geometry, geometry_for
from vjepa_ros.perception.learned import LearnedField, evened, learned_field, range_problem
from vjepa_ros.perception.looming import LoomingField
from vjepa_ros.perception.motion import motion_map, motion_of, motion_score
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.noise import NoiseFloor
from vjepa_ros.runtime.outputs import Output
from vjepa_ros.runtime.replay import Queue
from vjepa_ros.runtime.staging import Clip

__all__ = ['Track', 'TrackConfig', 'Wants', 'roi_mask', 'with_timings']

log = logging.getLogger(__name__)

NS = 1e9


class Track:
    """The frame memory and the state of one camera. Used by one thread only.

    Parameters
    ----------
    name
        Name of the camera.
    config
        Shape of the memory.
    heads
        What the learned heads of the model say about themselves; None without heads.
    queue
        Of the device on which frames are resized and looming is measured; None: on the host.
    """

    def __init__(self, name: str, config: TrackConfig, heads: BundleMeta | None = None,
                 queue: Queue | None = None) -> None:
        self.name = name
        self.config = config
        self.heads = heads
        self.assessor = Assessor()
        self.ring = FrameRing(config.num_frames, config.clip_fps, config.max_frame_gap,
                              history=config.looming_history, name=name, max_bytes=RING_BYTES)
        self.view: View | None = None
        self.image: np.ndarray | None = None
        self.intrinsics: tuple[float, float, float, float] | None = None
        self._queue = queue
        self._geometry: Geometry | None = None
        self._last: tuple[int, LoomingField | None] | None = None
        self._warned_broken = False
        self._ahead_s = 0.0     # what `begin_looming` and `look_ahead` have spent
        self._told: set[str] = set()     # kinds of trouble with the heads, logged once each

    def push(self, rgb: np.ndarray, stamp_ns: int, frame_id: str = '',
             arrival_ns: int | None = None) -> Push:
        """Take one decoded frame: RGB uint8 (H, W, 3), stamp [ns] (see `FrameRing.push`)."""
        size = (rgb.shape[1], rgb.shape[0])
        if self.view is None or self.view.source_size != size:
            self.view = View(self.config.resize_mode, size, self.config.image_size)
            self._geometry, problem = geometry_for(self.config, self.view, self.ring, self._queue,
                                                   self.heads is not None)
            if problem:
                self._tell('geometry', f'frames are resized and looming is measured on the host: '
                           f'{problem}')
        resets = sum(self.ring.resets.values())
        push = self._geometry.push(self.ring, rgb, stamp_ns, frame_id, arrival_ns)
        if sum(self.ring.resets.values()) != resets:
            self.assessor.reset()
        if push in (Push.ACCEPTED, Push.RESET):
            self.image = rgb
        return push

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """A copy of a frame, for `push`, where it is best to have one."""
        same = self.view is not None and self.view.source_size == (rgb.shape[1], rgb.shape[0])
        return self._geometry.own(rgb) if same else rgb.copy()

    @property
    def grey_size(self) -> tuple[int, int]:
        """Width and height of the image that looming is measured in."""
        return self._geometry.grey_size

    @property
    def geometry(self) -> str:
        """Where frames are resized and looming is measured, in words; '' before the first."""
        return '' if self._geometry is None else self._geometry.where

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

    def release(self) -> None:
        """Let go of frames and of the memory on the device.

        Levels, smoothing and counts are left alone: another track may go on with them.
        """
        self.view = self._geometry = self.image = self._last = None

    def sample(self) -> Sample | None:
        """The newest clip, None until the ring is full."""
        sample = self.ring.sample()
        if sample is not None and self.heads is not None:
            sample = evened(sample, self.config.clip_fps)
        return sample

    def heads_problem(self, sample: Sample) -> str:
        """Why the heads do not hold for a clip; '' when they do or there are none."""
        if self.heads is None:
            return ''
        problem = range_problem(self.heads, self.config.num_frames, self.config.image_size,
                                self.config.resize_mode, sample)
        if problem:
            self._tell(problem.partition(' is ')[0], f'the learned heads do not hold, geometry '
                       f'is used instead: {problem}')
        return problem

    def heads_wanted(self, sample: Sample, wants: Wants, settings: Settings) -> bool:
        """Whether the heads hold for a clip and somebody will use what they say."""
        geometric = settings.looming_method == 'geometric'
        if settings.looming_method == 'learned' and self.heads is None:
            self._tell('none', "looming_method is 'learned', but no heads are loaded: geometry is "
                       'used; give `weights` with heads, or `heads`')
        if self.heads is None or self.heads_problem(sample):
            return False
        return wants.features or wants.moving or (wants.looming and not geometric)

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            log.warning('%s: %s', self.name, text)

    def clip(self, sample: Sample) -> Clip:
        """The encoder's input of a sample: RGB uint8 (num_frames, S, S, 3).

        It may be changed by the next call and by `push`.
        """
        return self._geometry.clip(self.ring, sample)

    def optics(self) -> Optics:
        """Intrinsics of the source image, assumed when no camera_info is known."""
        if self.intrinsics is None:
            return Optics.assume(self.ring.size, self.config.horizontal_fov)
        return Optics(*self.intrinsics, assumed=False)

    def looming(self) -> LoomingField | None:
        """The looming field at the newest frame (computed once per frame); None = unknown."""
        newest = self.ring.newest_key
        if newest is None:
            return None
        if self._last is None or self._last[0] != newest:
            self._last = (newest, self._geometry.looming(self.ring, self.optics()))
        return self._last[1]

    def begin_looming(self) -> None:
        """Start the looming field at the newest frame, where a device can go on by itself."""
        newest = self.ring.newest_key
        if newest is not None and (self._last is None or self._last[0] != newest):
            clock = time.perf_counter()
            self._geometry.begin(self.ring, self.optics())
            self._ahead_s = time.perf_counter() - clock

    def look_ahead(self) -> None:
        """Compute the looming field before `result` asks for it."""
        clock = time.perf_counter()
        self.looming()
        self._ahead_s += time.perf_counter() - clock

    def result(self, sample: Sample, output: Output | None, floor: NoiseFloor,
               settings: Settings, *, age_s: float, flags: Quality, wants: Wants,
               timings: dict[str, float]) -> Result:
        """Assess a clip.

        Parameters
        ----------
        sample
            The clip's frames.
        output
            What the model gave for the last `clip`, None when not wanted.
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
        clock = time.perf_counter()
        problem = self.heads_problem(sample) or self._broken(output)
        learned = self._learned(sample, output, problem)
        motion, score = None, math.nan
        features = output.features if output is not None and wants.features else None
        if features is not None and (wants.change or learned is None):
            motion = self._change(sample, output, floor)
        if learned is not None or motion is not None:
            seen = motion if learned is None else learned.moving
            score = motion_score(seen, mask=self.valid()
                                 & roi_mask(view, settings.roi))
            clock = _lap(timings, 'motion', clock)
        method = settings.looming_method
        field = None
        if wants.looming:
            if method != 'learned' or learned is None:
                field = self.looming()
            clock, self._ahead_s = _lap(timings, 'looming', clock - self._ahead_s), 0.0
        found = judge(field, learned if wants.looming else None, self.ring.size,
                      self.grey_size, optics, settings)
        flags |= self._quality(sample, optics, age_s, settings)
        if problem:
            flags |= Quality.HEADS_OUT_OF_RANGE
        if found.disagrees:
            flags |= Quality.DISAGREEMENT
        scores = self.assessor.update(found.threat, score, sample.newest_ns, flags, settings,
                                      found.probability, found.believed)
        grid = self._looming_map(found.field, settings) if wants.looming else None
        _lap(timings, 'assess', clock)
        assessment = Assessment(
            camera=self.name, stamp_ns=sample.newest_ns, frame_id=sample.frame_id,
            motion_score=scores.motion_score, obstacle_score=scores.obstacle_score,
            collision_probability=scores.collision_probability,
            time_to_contact=scores.time_to_contact, looming_rate=scores.looming_rate,
            bearing=scores.bearing, elevation=scores.elevation, level=scores.level,
            flags=scores.flags, regions=found.threat.regions, timings=timings,
            clip_span_s=sample.span_s, clip_rate_hz=sample.rate_hz,
            known_fraction=found.threat.known_fraction)
        return Result(assessment, motion, grid, found.field, features, view,
                      self.image if wants.image else None, learned, found.method, problem)

    def _learned(self, sample: Sample, output: Output | None,
                 problem: str) -> LearnedField | None:
        if output is None or output.heads is None or problem:
            return None
        return learned_field(output.heads, sample, self.view,
                             self._geometry.pixels(self.ring, sample))

    def _broken(self, output: Output | None) -> str:
        """What is wrong with the numbers of the heads; '' for nothing."""
        if output is None or output.heads is None or all(
                np.isfinite(values).all() for values in vars(output.heads).values()):
            return ''
        problem = 'the heads give values that are not finite; set `precision: fp32`'
        if not self._warned_broken:
            log.warning('%s: %s; geometry is used meanwhile', self.name, problem)
        self._warned_broken = True
        return problem

    def valid(self) -> np.ndarray:
        """(Hp, Wp) bool, patches that show the image."""
        return self.view.patch_valid() > 0.5

    def _change(self, sample: Sample, output: Output, floor: NoiseFloor) -> np.ndarray:
        if output.change is not None:
            motion = motion_of(output.change, floor, self.valid())
        else:
            motion = motion_map(output.features, floor, self._geometry.pixels(self.ring, sample),
                                self.valid())
        # One frame repeated shows no change, whatever moves: unknown, not stillness.
        return motion if sample.distinct > 1 else np.full_like(motion, np.nan)

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

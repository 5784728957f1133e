# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow one camera: frames in, clips out, and results made from clip, encoder and looming."""

from __future__ import annotations

import logging
import math
import time

import numpy as np

from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import FrameRing, Push, Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.looming.structure import Shown
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.perception.assessment import Measured, assess
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.collision import UNKNOWN, Optics
from vjepa_ros.perception.config import TrackConfig, Wants
from vjepa_ros.perception.frame_store import Geometry, Prepared, geometry_for, host_planes
from vjepa_ros.perception.frozen_camera import FrozenWatch
from vjepa_ros.perception.head_validity import HeadsUse
from vjepa_ros.perception.learned_field import evened, learned_field
from vjepa_ros.perception.looming_job import LoomingJob, OnCourse
from vjepa_ros.perception.motion_map import motion_map, motion_of, motion_score
from vjepa_ros.perception.patch_maps import looming_map, score_mask, valid_mask
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.stage_timing import await_features, lap
from vjepa_ros.perception.types import Assessment, Quality, Result
from vjepa_ros.runtime.cuda.frame_upload import Clip
from vjepa_ros.runtime.cuda.graph_replay import Queue
from vjepa_ros.runtime.errors import SessionError
from vjepa_ros.runtime.noise_floor import NoiseFloor
from vjepa_ros.runtime.outputs import Output

__all__ = ['Track', 'TrackConfig', 'Wants']

log = logging.getLogger(__name__)


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
        self.heads = HeadsUse(name, heads, config)
        self.assessor = Assessor()
        self.frozen = FrozenWatch()
        self.ring = FrameRing(config.num_frames, config.clip_fps, config.max_frame_gap,
                              history=config.looming_history, name=name)
        self.view: View | None = None
        self.image: np.ndarray | None = None
        self.intrinsics: tuple[float, float, float, float] | None = None
        self._queue = queue
        self._geometry: Geometry | None = None
        self._released = False
        self._clip: np.ndarray | None = None
        self._job: LoomingJob | None = None
        self._shown: tuple[object, Shown] | None = None

    def prepare(self, rgb: np.ndarray) -> Prepared:
        """What `push` needs of a frame, made before. Any thread may call this.

        With geometry on a device the frame is uploaded, but for the first one, before which there
        is no place for it.
        """
        geometry = self._geometry
        if geometry is not None and geometry.on_device:
            return geometry.prepare(rgb)
        if geometry is None and self._queue is not None:
            return Prepared()
        return Prepared(host_planes(rgb, self._view_of(rgb), self.config.looming_width))

    def push(self, rgb: np.ndarray, stamp_ns: int, frame_id: str = '',
             arrival_ns: int | None = None,
             prepared: Prepared | None = None) -> Push:
        """Take one decoded frame: RGB uint8 (H, W, 3), stamp [ns] (see `FrameRing.push`).

        The frame must not change before the next one. `prepared` is what `prepare` has made of
        it, if that was done before.
        """
        view = self._view_of(rgb)
        resets = sum(self.ring.resets.values())
        if self._released:
            raise SessionError(f'{self.name}: frames can not be taken, the model is closed')
        if view is not self.view:
            if self.on_device:
                # Its memory first: a device may not have room for both.
                self.view = self._geometry = self._job = None
                self.ring.reset('size_change')
            self._geometry, problem = geometry_for(self.config, view, self.ring, self._queue,
                                                   self.heads.meta is not None)
            self.view = view
            if problem:
                log.warning('%s: frames are resized and looming is measured on the host: %s',
                            self.name, problem)
        push = self._geometry.push(self.ring, rgb, stamp_ns, frame_id, arrival_ns,
                                   prepared or Prepared())
        if sum(self.ring.resets.values()) != resets:
            self.assessor.reset()
            push = Push.RESET if push is Push.ACCEPTED else push    # also where it was begun here
        if push in (Push.ACCEPTED, Push.RESET):
            self.image = rgb
            self.frozen.show(rgb, stamp_ns)
        return push

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """A copy of a frame, for `push`, where it is best to have one."""
        same = self.view is not None and self._view_of(rgb) is self.view
        return self._geometry.own(rgb) if same else rgb.copy()

    @property
    def grey_size(self) -> tuple[int, int]:
        """Width and height of the image that looming is measured in."""
        return self._place.grey_size

    @property
    def geometry(self) -> str:
        """Where frames are resized and looming is measured, in words; '' before the first."""
        geometry = self._geometry    # diagnostics ask from another thread
        return '' if geometry is None else geometry.where

    @property
    def on_device(self) -> bool:
        """Whether the frames are on a device."""
        return self._geometry is not None and self._geometry.on_device

    @property
    def _place(self) -> Geometry:
        """Where the frames are."""
        if self._geometry is None:
            raise SessionError(f'{self.name}: there are no frames, or they went with the model, '
                               'which is closed')
        return self._geometry

    def take_over(self, old: Track) -> None:
        """Go on where another track of the same camera was: levels, smoothing and counts."""
        self.assessor = old.assessor
        self.ring.take_over(old.ring)

    def reset(self, reason: str = 'manual') -> None:
        """Start anew: forget the frames and the smoothed state."""
        self.ring.reset(reason)
        self.image = None
        self.assessor.reset()
        self.frozen.reset()
        self._job = self._shown = None

    def release(self) -> None:
        """Let go of the memory on the device; then nothing can be asked of it any more.

        Levels, smoothing and counts are left alone: another track may go on with them.
        """
        if self.on_device:
            self.frozen.look()
            self.view = self._geometry = self.image = self._job = None
            self._released = True

    def sample(self) -> Sample | None:
        """The newest clip, None until the ring is full."""
        sample = self.ring.sample()
        if sample is not None and self.heads.meta is not None:
            sample = evened(sample, self.config.clip_fps)
        return sample

    def frames(self, sample: Sample) -> Clip:
        """The encoder's input of a sample, without a copy: num_frames times RGB uint8 (S, S, 3).

        It is valid until the next `push`.
        """
        return self._place.frames(self.ring, sample)

    def clip(self, sample: Sample) -> np.ndarray:
        """A copy of `frames`: RGB uint8 (num_frames, S, S, 3), valid until the next call."""
        self._clip = np.stack(self._place.pixels(self.ring, sample), out=self._clip)
        return self._clip

    def optics(self) -> Optics:
        """Intrinsics of the source image, assumed when no camera_info is known."""
        if self.intrinsics is None:
            return Optics.assume(self.ring.size, self.config.horizontal_fov)
        return Optics(*self.intrinsics, assumed=False)

    def looming_job(self) -> LoomingJob:
        """Looming at the newest frame, on its way or done; the same job for the same frame.

        Raises
        ------
        SessionError
            When there are no frames.
        """
        newest = self.ring.newest_key
        if newest is None:
            raise SessionError(f'{self.name}: there are no frames')
        if self._job is None or self._job.key != newest:
            self._job = LoomingJob(self._place, self.ring, self.optics())
        return self._job

    def looming(self) -> LoomingField | None:
        """The looming field at the newest frame (computed once per frame); None = unknown."""
        return None if self.ring.newest_key is None else self.looming_job().finish()

    def work_ahead(self, settings: Settings) -> None:
        """Do what `result` will need of looming and of the picture, while a model runs."""
        job, clock = self.looming_job(), time.perf_counter()
        self.frozen.look()
        job.ahead_s += time.perf_counter() - clock
        self._on_course(job, settings)

    def shown(self, sample: Sample) -> Shown:
        """What the frames of a clip show (computed once per clip), for the heads."""
        key = self.ring.newest_key, sample
        if self._shown is None or self._shown[0] != key:
            clock = time.perf_counter()
            self._shown = key, Shown.by(self.view.patch_valid(),
                                        self._place.pixels(self.ring, sample))
            self.looming_job().ahead_s += time.perf_counter() - clock
        return self._shown[1]

    def _on_course(self, job: LoomingJob, settings: Settings) -> OnCourse:
        return job.on_course(self.optics(), settings,
                             self.view if self.heads.meta is None else None)

    def result(self, sample: Sample, output: Output | None, floor: NoiseFloor,
               settings: Settings, *, age_s: float, flags: Quality, wants: Wants,
               timings: dict[str, float]) -> Result:
        """Assess a clip.

        Parameters
        ----------
        sample
            The clip's frames.
        output
            What the model gave for its frames, None when not wanted. No frame may have been
            pushed since.
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
        job = self.looming_job()
        ahead_s, clock = job.ahead_s, time.perf_counter()
        problem = self.heads.problem(sample) or self.heads.broken(output)
        learned, motion, score = None, None, math.nan
        if output is not None and output.heads is not None and not problem:
            learned = learned_field(output.heads, sample, view, self.shown(sample))
        featured = output is not None and wants.features and output.has_features
        if featured and (wants.change or learned is None):
            motion = self._change(sample, output, floor)
        if learned is not None or motion is not None:
            moving = motion if learned is None else learned.moving
            score = motion_score(moving, mask=score_mask(view, tuple(settings.roi)))
            clock = lap(timings, 'motion', clock)
        field, seen = None, OnCourse(UNKNOWN, None)
        if wants.looming:
            if settings.looming_method != 'learned' or learned is None:
                field = job.finish()
            timings['looming'] = job.looming_s * 1e3
            clock = time.perf_counter()
            if field is not None:
                seen = self._on_course(job, settings)
        found, quality = assess(Measured(
            sample, view, optics, self.ring.size, self.grey_size, field, seen.threat,
            learned if wants.looming else None, age_s, self.frozen.frozen,
            wants.looming and job.failed, problem), settings)
        scores = self.assessor.update(found.threat, score, sample.newest_ns, flags | quality,
                                      settings, found.probability, found.believed)
        grid = None
        if wants.looming:
            grid = (seen.grid.copy() if found.field is field and seen.grid is not None
                    else looming_map(view, found.field, settings.min_confidence))
        lap(timings, 'assess', clock - ahead_s)
        if featured:
            await_features(output, timings)
        assessment = Assessment(
            camera=self.name, stamp_ns=sample.newest_ns, frame_id=sample.frame_id,
            **vars(scores), regions=found.threat.regions, timings=timings,
            clip_span_s=sample.span_s, clip_rate_hz=sample.rate_hz,
            known_fraction=found.threat.known_fraction,
            clearance=math.nan if learned is None else learned.free_way)
        return Result(assessment, motion, grid, found.field,
                      output.features if featured else None, view,
                      self.image if wants.image else None, learned, found.method, problem,
                      self.frozen.unchanged_s)

    def _change(self, sample: Sample, output: Output, floor: NoiseFloor) -> np.ndarray:
        if output.change is not None:
            motion = motion_of(output.change, floor, valid_mask(self.view))
        else:
            motion = motion_map(output.features, floor, self.clip(sample), valid_mask(self.view))
        # One frame repeated shows no change, whatever moves: unknown, not stillness.
        return motion if sample.distinct > 1 else np.full_like(motion, np.nan)

    def _view_of(self, rgb: np.ndarray) -> View:
        view, size = self.view, (rgb.shape[1], rgb.shape[0])
        if view is None or view.source_size != size:
            view = View(self.config.resize_mode, size, self.config.image_size)
        return view

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow one camera: frames in, clips out, and results from clip, encoder and looming."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from vjepa_ros.clip.optics import Distortion, Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import FrameRing, Push, Sample
from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.looming.gyroscope import Gyroscope
from vjepa_ros.looming.still_view import StillView
from vjepa_ros.looming.structure import Shown
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.perception.assessment import FrameEvidence, LevelFilter, assess
from vjepa_ros.perception.frame_store import (
    Geometry,
    Prepared,
    geometry_for,
    grey_size,
    host_planes,
)
from vjepa_ros.perception.fusion import SourceVerdict, judge_geometry, judge_heads
from vjepa_ros.perception.learned import HeadsUse, LearnedField, evened, learned_field
from vjepa_ros.perception.patch_maps import (
    looming_map,
    motion_map,
    motion_of,
    motion_score,
    score_mask,
    valid_mask,
)
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Quality, Result
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.memory import release_memory
from vjepa_ros.runtime.noise_floor import NoiseFloor
from vjepa_ros.runtime.prediction import Prediction
from vjepa_ros.runtime.runner import Clip

T = TypeVar('T')
log = logging.getLogger(__name__)

LARGE_BYTES = 16 << 20   # images whose memory is given back when smaller ones follow


@dataclass(frozen=True)
class OnCourse:
    """Results of a looming field alone."""

    alone: SourceVerdict | None  # what is on course; None where looming is unknown
    grid: np.ndarray | None  # (Hp, Wp) looming rate of the patches; None where it was not wanted


class LoomingJob:
    """The looming field of the frame that is the newest when the job is made.

    `finish` alone gives the field. `start` and `proceed` may come before it, so that a device
    works on one camera while the host is busy with another; left out or called twice they change
    nothing. A step that fails raises, and is tried again by the next call until `give_up`. A step
    after a newer frame raises SessionError, unless the field is finished.

    Parameters
    ----------
    geometry
        Where the frames are.
    ring
        The frames.
    optics
        Of the source image.
    with_map
        Whether the looming map of geometry alone is wanted.
    gyroscope
        Of the camera, if it has one.

    Attributes
    ----------
    geometry, optics
        As given.
    expired
        Whether there is a newer frame.
    failed
        Whether measuring was given up.
    looming_s, ahead_s
        Time that the host has spent on the field, and on all else that needs no model and was
        done before the result [s].
    """

    def __init__(self, geometry: Geometry, ring: FrameRing, optics: Optics,
                 with_map: bool = True, gyroscope: Gyroscope | None = None) -> None:
        self.optics = optics
        self._with_map = with_map
        self.expired = self.failed = False
        self.looming_s = self.ahead_s = 0.0
        self.geometry, self._ring, self._gyroscope = geometry, ring, gyroscope
        self._done = False
        self._field: LoomingField | None = None
        self._on_course: tuple[object, OnCourse] | None = None

    def start(self) -> None:
        """Start on a device."""
        if not self._done and self.geometry.on_device:
            self._timed(self.geometry.begin, self._ring, self.optics, self._gyroscope)

    def proceed(self) -> None:
        """Continue what `start` has begun where the device waits for the host."""
        if not self._done:
            self._timed(self.geometry.proceed)

    @property
    def ready(self) -> bool:
        """Whether `finish` would not wait for a device."""
        return self._done or self.geometry.measured()

    def finish(self) -> LoomingField | None:
        """Return the looming field, computed once; None: unknown."""
        if not self._done:
            self._field = self._timed(self.geometry.looming, self._ring, self.optics,
                                      self._gyroscope)
            self._done = True
        return self._field

    def give_up(self) -> None:
        """Do without the field: measuring it has failed."""
        self._done, self.failed, self._field = True, True, None

    def on_course(self, optics: Optics, settings: Settings) -> OnCourse:
        """Return the results of the field, computed once for the same arguments."""
        asked = optics, settings
        if self._on_course is None or self._on_course[0] != asked:
            field, clock, view = self.finish(), time.perf_counter(), self.geometry.view
            grid = looming_map(view, field, settings.min_confidence) if self._with_map else None
            alone = (None if field is None else
                     judge_geometry(field, view.source_size, optics, settings))
            self._on_course = asked, OnCourse(alone, grid)
            self.ahead_s += time.perf_counter() - clock
        return self._on_course[1]

    def _timed(self, step: Callable[..., T], *args: object) -> T:
        if self.expired:
            raise SessionError('looming can only be measured at the newest frame')
        clock = time.perf_counter()
        try:
            return step(*args)
        finally:
            self.looming_s += time.perf_counter() - clock


@dataclass(frozen=True)
class ModelFacts:
    """What a track needs to know of its model."""

    noise_floor: Callable[[], NoiseFloor]  # returns the change of the features of a still scene
    heads: BundleMeta | None  # training range of its heads; None without heads
    flags: Quality  # flags of every result of it
    # Returns the keys of frames in which tubelets end that are encoded already, where the model
    # streams; None where it encodes whole clips
    remembered: Callable[[], Container[object]] | None = None


class Track:
    """The frame memory and the state of one camera. Used by one thread only.

    Parameters
    ----------
    name
        Name of the camera.
    config
        Shape of the memory.
    model
        The model whose outputs `result` gets; None for geometry alone.
    queue
        Of the device on which frames are resized and looming is measured; None: on the host.
    """

    def __init__(self, name: str, config: TrackConfig, model: ModelFacts | None = None,
                 queue: DeviceStream | None = None) -> None:
        self.name = name
        self.config = config
        self.heads = HeadsUse(name, None if model is None else model.heads, config)
        self.level_filter = LevelFilter()
        self.still = StillView()
        self.ring = FrameRing(config.num_frames, config.clip_fps, config.max_frame_gap,
                              history=config.looming_history, name=name)
        self.image: np.ndarray | None = None
        self.intrinsics: tuple[float, float, float, float] | None = None
        self.distortion: Distortion | None = None     # counts with intrinsics
        self.gyroscope: Gyroscope | None = None
        self._model = model
        self._queue = queue
        self._gain = 0
        self._geometry: Geometry | None = None
        self._released = False
        self._clip: np.ndarray | None = None
        # Of the newest frame: its clip, once computed, its looming, what the clip shows.
        self._sample: tuple[Sample | None] | None = None
        self._job: LoomingJob | None = None
        self._field: LoomingField | None = None      # of the clip before: the same cells
        self._heads_read: tuple[Prediction, tuple[str, LearnedField | None]] | None = None
        self._heads_alone: tuple[LearnedField, tuple[Settings, Optics],
                                 SourceVerdict] | None = None
        self._moved: tuple[Prediction, np.ndarray | None] | None = None
        self._shown: tuple[Sample, Shown] | None = None
        self._optics: tuple[object, Optics] | None = None

    def prepare(self, rgb: np.ndarray) -> Prepared:
        """Do what `push` can do earlier with a frame. Any thread may call this.

        With geometry on a device this uploads the frame, except for the first one, before which
        there is no store for it.
        """
        geometry = self._geometry
        if geometry is not None and (
                geometry.on_device or geometry.view.source_size == rgb.shape[1::-1]):
            return geometry.prepare(rgb)
        if geometry is None and self._queue is not None:
            return Prepared()
        view = self._view_for(rgb)
        return Prepared(host_planes(rgb, view, grey_size(view.source_size,
                                                         self.config.looming_width)))

    def push(self, rgb: np.ndarray, stamp_ns: int, frame_id: str = '',
             arrival_ns: int | None = None, prepared: Prepared | None = None,
             gain: int = 0) -> Push:
        """Take one decoded frame, see `FrameRing.push`.

        `rgb`: RGB uint8 (H, W, 3); `stamp_ns, frame_id, arrival_ns`: stamp [ns], frame id and
        time of arrival [ns].
        """
        if self._released:
            raise SessionError(f'{self.name}: frames can not be taken, the model is closed')
        resets, geometry = sum(self.ring.resets.values()), self._geometry
        if gain != self._gain and len(self.ring):
            self.ring.reset('gain_change')
        self._gain = gain
        if geometry is None or geometry.view.source_size != rgb.shape[1::-1]:
            geometry = self._change_size(rgb)
        self._sample = None
        try:
            push = geometry.push(self.ring, rgb, stamp_ns, frame_id, arrival_ns,
                                 prepared or Prepared())
        except BaseException:
            self._expire()
            raise
        if sum(self.ring.resets.values()) != resets:
            self.level_filter.reset()
            push = Push.RESET if push is Push.ACCEPTED else push    # also where it was begun here
        if push in (Push.ACCEPTED, Push.RESET):
            self._expire()
            before, self.image = 0 if self.image is None else self.image.nbytes, rgb
            self.still.show(rgb, self.ring.newest_ns or stamp_ns)
            if before > max(LARGE_BYTES, rgb.nbytes):
                release_memory(torch.device('cpu'))     # what copies of large images took
        return push

    def _change_size(self, rgb: np.ndarray) -> Geometry:
        view = self._view_for(rgb)
        if self.on_device:
            # Its memory first: a device may not have room for both.
            self._geometry = None
            self._expire()
            self.ring.reset('size_change')
        self._geometry, problem = geometry_for(self.config, view, self.ring, self._queue)
        if problem:
            log.warning('%s: frames are resized and looming is measured on the host: %s',
                        self.name, problem)
        return self._geometry

    def _expire(self) -> None:
        """Drop what belongs to the newest frame."""
        if self._job is not None:
            self._job.expired = True
        self._job = self._shown = self._sample = None
        self._heads_read = self._heads_alone = self._moved = None

    def own(self, rgb: np.ndarray) -> np.ndarray:
        """Copy a frame into memory that suits `push`."""
        geometry = self._geometry
        if geometry is None or geometry.view.source_size != rgb.shape[1::-1]:
            return rgb.copy()
        return geometry.own(rgb)

    @property
    def view(self) -> View | None:
        """Geometry of the encoder's input; None before the first frame."""
        geometry = self._geometry
        return None if geometry is None else geometry.view

    @property
    def geometry(self) -> str:
        """Where frames are resized and looming is measured; '' before the first frame."""
        geometry = self._geometry    # diagnostics read it from another thread
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
        """Continue the levels, smoothing and counts of another track of the same camera."""
        self.level_filter = old.level_filter
        self.ring.take_over(old.ring)

    def reset(self, reason: str = 'manual') -> None:
        """Start anew: forget the frames and the smoothed state."""
        self.ring.reset(reason)
        self._expire()
        self.image = None
        self.level_filter.reset()
        self.still.reset()

    def release(self) -> None:
        """Release frames and the memory on the device; the track can not be used any more.

        Levels, smoothing and counts stay: another track may continue them.
        """
        if self.on_device:
            self.still.look()
            self._expire()
            self._geometry = self.image = None
            self._released = True
        self.ring.release()

    def sample(self) -> Sample | None:
        """Return the newest clip, None until the ring is full."""
        if self._sample is None:
            if self._model is not None and self._model.remembered is not None:
                sample = self.ring.sample_stream(self._model.remembered())
            else:
                sample = self.ring.sample()
            if sample is not None and not self.heads.timed:
                sample = evened(sample, self.config.clip_fps)
            self._sample = (sample,)
        return self._sample[0]

    def frames(self, sample: Sample) -> Clip:
        """Return the encoder's input of a sample without a copy, valid until the next `push`.

        It is num_frames times RGB uint8 (S, S, 3).
        """
        return self._place.frames(self.ring, sample)

    def clip(self, sample: Sample) -> np.ndarray:
        """Copy `frames` to RGB uint8 (num_frames, S, S, 3), valid until the next call."""
        pixels = self._place.pixels(self.ring, sample)
        if self._clip is None:
            self._clip = np.empty((len(pixels), *pixels[0].shape), np.uint8)
        return np.stack(pixels, out=self._clip)

    def optics(self) -> Optics:
        """Return the intrinsics of the source image, assumed while no camera_info is known."""
        key = self.intrinsics, self.distortion, self.ring.size
        if self._optics is None or self._optics[0] != key:
            self._optics = key, (
                Optics.assume(self.ring.size, self.config.horizontal_fov)
                if self.intrinsics is None else
                Optics(*self.intrinsics, assumed=False, distortion=self.distortion))
        return self._optics[1]

    def looming_job(self) -> LoomingJob:
        """Return the job of looming at the newest frame; the same one for the same frame."""
        if self._job is None:
            if not len(self.ring):
                raise SessionError(f'{self.name}: there are no frames')
            # Heads change the looming map.
            self._job = LoomingJob(self._place, self.ring, self.optics(),
                                   self.heads.meta is None, self.gyroscope)
        return self._job

    def looming(self) -> LoomingField | None:
        """Return the looming field at the newest frame (computed once per frame); None unknown."""
        return self.looming_job().finish() if len(self.ring) else None

    def work_ahead(self, settings: Settings | None) -> None:
        """Compute what `result` will need of looming; None leaves it to a device."""
        job = self.looming_job()
        if settings is not None:
            job.on_course(job.optics, settings)

    def shown(self, sample: Sample) -> Shown:
        """Return where the frames of a clip show structure (computed once per clip)."""
        if self._shown is None or self._shown[0] is not sample:
            clock, job = time.perf_counter(), self.looming_job()
            place = job.geometry
            self._shown = sample, Shown.by(place.view.patch_valid(),
                                           place.structure(self.ring, sample))
            job.ahead_s += time.perf_counter() - clock
        return self._shown[1]

    def read_heads(self, sample: Sample, output: Prediction) -> tuple[str, LearnedField | None]:
        """Return why the heads are not valid for a clip, and else what they say of it."""
        known = self._heads_read
        if known is None or known[0] is not output:
            problem = self.heads.problem(sample)
            learned = None
            if output.heads is not None and not problem:
                learned = learned_field(output.heads, self.heads.interval_s(sample),
                                        self._place.view, self.shown(sample))
            self._heads_read = known = output, (problem, learned)
        return known[1]

    def judge_heads(self, learned: LearnedField, settings: Settings) -> SourceVerdict:
        """Return what the heads alone say on the cells of the last looming field, see `judge`."""
        known, asked = self._heads_alone, (settings, self.optics())
        if known is None or known[0] is not learned or known[1] != asked:
            place = self._place
            self._heads_alone = known = learned, asked, judge_heads(
                learned, self._field, place.view.source_size, place.grey_size, asked[1],
                settings)
        return known[2]

    def read_ahead(self, sample: Sample, output: Prediction, settings: Settings,
                   wants: Wants) -> None:
        """Compute what `result` will need of the model, while a device measures looming.

        Computed before, nothing happens.
        """
        self.shown(sample)      # whose time it counts itself
        job, clock = self.looming_job(), time.perf_counter()
        if output.heads is not None:
            learned = self.read_heads(sample, output)[1]
            if learned is not None and settings.looming_method == 'fused':
                self.judge_heads(learned, settings)
        if wants.features and wants.change and output.change is not None:
            self._motion(sample, output, job.geometry)
        job.ahead_s += time.perf_counter() - clock

    def result(self, sample: Sample, output: Prediction | None, settings: Settings, wants: Wants,
               age_s: float = 0.0, timings: Mapping[str, float] | None = None) -> Result:
        """Assess a clip.

        `output`: of the model for them, None when not wanted; `age_s`: age of the newest frame
        now [s]; NaN when unknown.
        """
        times, job = dict(timings or {}), self.looming_job()
        place = job.geometry
        optics = self.optics()
        ahead_s, clock = job.ahead_s, time.perf_counter()
        problem, learned = (self.heads.problem(sample), None) if output is None else (
            self.read_heads(sample, output))
        now = time.perf_counter()
        ahead_s, clock = ahead_s + now - clock, now
        flags = Quality(0) if self._model is None else self._model.flags
        featured = output if output is not None and wants.features and output.has_features \
            else None
        motion, score = None, math.nan
        if output is not None and not output.finite:
            flags |= Quality.NOT_FINITE
            motion = np.full(place.view.patch_valid().shape, np.nan, np.float32)
        elif featured is not None and (wants.change or learned is None):
            motion = self._motion(sample, featured, place)
        moving = motion if learned is None else learned.moving
        if moving is not None:
            score = motion_score(moving, score_mask(place.view, settings.roi))
            now = time.perf_counter()
            times['motion'], clock = (now - clock) * 1e3, now
        field, by_heads, seen = None, None, OnCourse(None, None)
        if wants.looming:
            if learned is None or settings.looming_method != 'learned':
                field = self._field = job.finish()
            times['looming'], clock = job.looming_s * 1e3, time.perf_counter()
            if learned is not None and field is not None and settings.looming_method == 'fused':
                by_heads = self.judge_heads(learned, settings)
            seen = seen if field is None else job.on_course(optics, settings)
        still = self.still
        still.roi = settings.roi
        for flag, is_set in ((Quality.FROZEN, still.frozen),
                             (Quality.GEOMETRY_FAILED, wants.looming and job.failed),
                             (Quality.HEADS_OUT_OF_RANGE, bool(problem))):
            flags |= flag if is_set else Quality(0)
        found, raw = assess(FrameEvidence(
            self.name, sample, place.view, place.grey_size, optics, field, seen.alone,
            learned if wants.looming else None, by_heads, score, age_s, flags, still.still_s,
            still.sight), settings)
        assessment = self.level_filter.smooth(raw, found, settings)
        grid = None
        if wants.looming:
            grid = (seen.grid.copy() if found.field is field and seen.grid is not None
                    else looming_map(place.view, found.field, settings.min_confidence))
        times['assess'] = (time.perf_counter() - clock + ahead_s) * 1e3
        if featured is not None:
            _await_features(featured, times)
        assessment.timings.update(times)
        return Result(assessment, motion, grid, found.field,
                      None if featured is None else featured.features, place.view,
                      self.image if wants.image else None, learned, found.method, problem,
                      still.unchanged_s, None if field is None else field.gyroscope)

    def _motion(self, sample: Sample, output: Prediction, place: Geometry) -> np.ndarray | None:
        known = self._moved
        if known is None or known[0] is not output:
            self._moved = known = output, self._measured_motion(sample, output, place)
        return None if known[1] is None else known[1].copy()

    def _measured_motion(self, sample: Sample, output: Prediction,
                         place: Geometry) -> np.ndarray | None:
        if self._model is None:
            return None
        floor, valid = self._model.noise_floor(), valid_mask(place.view)
        if output.change is not None:
            motion = motion_of(output.change, floor, valid)
        elif (features := output.features) is not None:
            motion = motion_map(features, floor, self.clip(sample), valid)
        else:
            return None
        # One frame repeated shows no change, whatever moves: unknown, not stillness.
        return motion if sample.distinct > 1 else np.full_like(motion, np.nan)

    def _view_for(self, rgb: np.ndarray) -> View:
        return View(self.config.resize_mode, (rgb.shape[1], rgb.shape[0]), self.config.image_size)


def _await_features(output: Prediction, timings: dict[str, float]) -> None:
    """Wait for features that arrive last; their times count in the stages of the rest."""
    clock = time.perf_counter()
    download_ms = 0.0 if output.source is None else output.source.wait_for_features()
    if download_ms:
        waited_ms = (time.perf_counter() - clock) * 1e3
        for stage, ms in (('download', download_ms), ('await', waited_ms)):
            timings[stage] = timings.get(stage, 0.0) + ms

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
from vjepa_ros.perception.assessor import Assessor
from vjepa_ros.perception.clip_quality import clip_quality
from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.config import TrackConfig, Wants
from vjepa_ros.perception.frame_store import Geometry, Prepared, geometry_for, host_planes
from vjepa_ros.perception.frozen_camera import FrozenWatch
from vjepa_ros.perception.fusion import judge
from vjepa_ros.perception.head_validity import HeadsUse
from vjepa_ros.perception.learned_field import evened, learned_field
from vjepa_ros.perception.motion_map import motion_map, motion_of, motion_score
from vjepa_ros.perception.patch_maps import looming_map, score_mask, valid_mask
from vjepa_ros.perception.result_cache import Ahead, Seen
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
        self._last: tuple[int | None, LoomingField | None] = (None, None)
        self._lost: int | None = None    # frame whose looming could not be computed
        self._ahead = Ahead()
        # What the steps before `result` have spent, on looming and on the rest.
        self._ahead_s = self._judged_s = 0.0

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
                self.view = self._geometry = None
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
        self._last = (None, None)

    def release(self) -> None:
        """Let go of the memory on the device; then nothing can be asked of it any more.

        Levels, smoothing and counts are left alone: another track may go on with them.
        """
        if self.on_device:
            self.frozen.look()
            self.view = self._geometry = self.image = None
            self._last, self._released = (None, None), True

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

    def looming(self) -> LoomingField | None:
        """The looming field at the newest frame (computed once per frame); None = unknown."""
        newest = self.ring.newest_key
        if newest is None:
            return None
        if self._last[0] != newest:
            self._last = (newest, self._place.looming(self.ring, self.optics()))
        return self._last[1]

    def begin_looming(self) -> None:
        """Start the looming field at the newest frame, where a device can go on by itself."""
        clock, newest = time.perf_counter(), self.ring.newest_key
        self._judged_s = 0.0
        if self.on_device and newest not in (None, self._last[0]):
            self._geometry.begin(self.ring, self.optics())
        self._ahead_s = time.perf_counter() - clock

    def proceed_looming(self) -> None:
        """Go on with what `begin_looming` has begun; the device then works on it again."""
        clock = time.perf_counter()
        self._place.proceed()
        self._ahead_s += time.perf_counter() - clock

    def look_ahead(self, settings: Settings) -> None:
        """Compute the looming field and what it says before `result` asks for it."""
        clock = time.perf_counter()
        self.frozen.look()
        field = self.looming()
        now = time.perf_counter()
        self._ahead_s += now - clock
        self._seen(field, settings)
        self._judged_s += time.perf_counter() - now

    def look_at(self, sample: Sample) -> None:
        """Look at the pictures of a clip before `result` needs that for the heads."""
        clock = time.perf_counter()
        self._shown(sample)
        self._judged_s += time.perf_counter() - clock

    def _seen(self, field: LoomingField | None, settings: Settings) -> Seen:
        return self._ahead.seen(field, self.ring.size, self.optics(), settings,
                                self.view if self.heads.meta is None else None)

    def _shown(self, sample: Sample) -> Shown:
        return self._ahead.shown(sample, self.view,
                                 lambda: self._place.pixels(self.ring, sample))

    def lose_looming(self) -> None:
        """Do without the looming field of the newest frame: measuring it has failed."""
        self._lost = self.ring.newest_key
        self._last = (self._lost, None)

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
        clock = time.perf_counter()
        problem = self.heads.problem(sample) or self.heads.broken(output)
        learned, motion, score = None, None, math.nan
        if output is not None and output.heads is not None and not problem:
            learned = learned_field(output.heads, sample, view, self._shown(sample))
        featured = output is not None and wants.features and output.has_features
        if featured and (wants.change or learned is None):
            motion = self._change(sample, output, floor)
        if learned is not None or motion is not None:
            moving = motion if learned is None else learned.moving
            score = motion_score(moving, mask=score_mask(view, tuple(settings.roi)))
            clock = lap(timings, 'motion', clock)
        method = settings.looming_method
        field = None
        if wants.looming:
            if method != 'learned' or learned is None:
                field = self.looming()
            if field is None and self._lost is not None and self._lost == self.ring.newest_key:
                flags |= Quality.GEOMETRY_FAILED
            clock, self._ahead_s = lap(timings, 'looming', clock - self._ahead_s), 0.0
        seen = self._seen(field, settings)
        found = judge(field, learned if wants.looming else None, self.ring.size,
                      self.grey_size, optics, settings, by_geometry=seen.threat)
        flags |= clip_quality(sample, view, optics, self.frozen, age_s, settings)
        if problem:
            flags |= Quality.HEADS_OUT_OF_RANGE
        if found.disagrees:
            flags |= Quality.DISAGREEMENT
        scores = self.assessor.update(found.threat, score, sample.newest_ns, flags, settings,
                                      found.probability, found.believed)
        grid = None
        if wants.looming:
            grid = (seen.grid.copy() if found.field is field and seen.grid is not None
                    else looming_map(view, found.field, settings.min_confidence))
        lap(timings, 'assess', clock - self._judged_s)
        self._judged_s = 0.0
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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Follow one camera: frames in, clips out, and results of the model."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from vjepa_ros.clip.optics import Distortion, Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.clip.ring import Frame, FrameRing, Push, Sample
from vjepa_ros.perception.assessment import LevelFilter, assess
from vjepa_ros.perception.frame_store import HostFrames
from vjepa_ros.perception.judgement import Judgement, Said, judge
from vjepa_ros.perception.learned import (
    HeadsSaid,
    HeadsUse,
    LearnedField,
    evened,
    learned_fields,
)
from vjepa_ros.perception.patch_maps import (
    motion_map,
    motion_of,
    motion_score,
    score_mask,
    valid_mask,
)
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.structure import Shown, StillView
from vjepa_ros.perception.types import Quality, Result
from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.memory import is_out_of_memory, release_memory
from vjepa_ros.runtime.model import Model
from vjepa_ros.runtime.prediction import Prediction
from vjepa_ros.runtime.runner import Clip

if TYPE_CHECKING:
    from vjepa_ros.perception.gpu_frames import DeviceFrames
    from vjepa_ros.runtime.cuda.graph_replay import DeviceStream

    Frames = HostFrames | DeviceFrames

T = TypeVar('T')
log = logging.getLogger(__name__)

NS = 1e9
NO_RATES = np.empty((0, 0), np.float32), 0
LARGE_BYTES = 16 << 20   # images whose memory is given back when smaller ones follow


class Observation:
    """What is known of the newest clip of a camera; each part is computed when first read."""

    def __init__(self, track: CameraState, sample: Sample, settings: Settings,
                 wants: Wants) -> None:
        self.track, self.sample, self.settings, self.wants = track, sample, settings, wants
        self.store, self.optics = track.store, track.optics()
        # Why no heads are valid; or ''
        self.heads_problem = track.heads.problem(sample)
        # Whether the model is asked for them.
        self.by_heads = track.heads.wanted(self.heads_problem, wants)
        self.prediction: Prediction | None = None   # None where the model was not asked
        self.learned: LearnedField | None = None    # what valid heads say, see `learn`
        self.times: dict[str, float] = {}   # milliseconds by stage

    def under(self, settings: Settings) -> Observation:
        """Return what is known of the same clip, to be assessed by other settings."""
        other = copy(self)
        vars(other).pop('judgement', None)
        other.settings, other.times = settings, dict(self.times)
        return other

    @property
    def clip(self) -> Clip:
        """The encoder's input, without a copy; valid until the next frame."""
        return self.store.clip(self.sample.frames)

    @property
    def pixels(self) -> np.ndarray:
        """A copy of it on the host, RGB uint8 (num_frames, S, S, 3)."""
        return np.stack(self.store.pixels(self.sample.frames))

    # -- the model -------------------------------------------------------------------------

    @cached_property
    def shown(self) -> Shown:
        """Where the frames show structure."""
        return Shown.by(self.store.view.patch_valid,
                        self.store.structure(self.sample.frames[::-1]))

    @property
    def said(self) -> HeadsSaid | None:
        """The outputs of valid heads."""
        heads = None if self.prediction is None else self.prediction.heads
        if heads is None or self.heads_problem:
            return None
        return HeadsSaid(heads, self.track.heads.interval_s(self.sample), self.store.view,
                         self.shown)

    @property
    def counts(self) -> Said:
        """What of that counts for contact: as far as it is wanted."""
        return Said(self.learned if self.wants.looming else None, self.optics)

    @cached_property
    def judgement(self) -> Judgement:
        """What heads say of contact; `Perception.observe` judges all cameras at once."""
        return self._timed('assess', judge, [self.counts], self.settings)[0]

    @cached_property
    def motion(self) -> np.ndarray | None:
        """Change of the features of each patch; None where it is not wanted."""
        found, view = self.prediction, self.store.view
        if found is not None and not found.finite:
            return np.full(view.patch_valid.shape, np.nan, np.float32)
        if found is None or not self._has_features or not (
                self.wants.change or self.learned is None):
            return None
        return self._timed('motion', self._motion, found, view)

    @property
    def _has_features(self) -> bool:
        return (self.prediction is not None and self.wants.features
                and self.prediction.has_features)

    def _motion(self, found: Prediction, view: View) -> np.ndarray | None:
        engine, valid = self.track.engine, valid_mask(view)
        assert engine is not None
        if found.change is not None:
            motion = motion_of(found.change, engine.noise_floor(), valid)
        elif (features := found.features) is not None:
            motion = motion_map(features, engine.noise_floor(), self.pixels, valid)
        else:
            return None
        # One frame repeated shows no change, whatever moves: unknown, not stillness.
        return motion if self.sample.distinct > 1 else np.full_like(motion, np.nan)

    def features(self) -> np.ndarray | None:
        """Wait for the features, which come last; their times count in the stages of the rest."""
        if self.prediction is None or not self._has_features:
            return None
        clock, source = time.perf_counter(), self.prediction.source
        late_ms = 0.0 if source is None else source.wait_for_features()
        if late_ms:
            waited_ms = (time.perf_counter() - clock) * 1e3
            for stage, ms in (('download', late_ms), ('await', waited_ms)):
                self.times[stage] = self.times.get(stage, 0.0) + ms
        return self.prediction.features

    def _timed(self, stage: str, step: Callable[..., T], *args: object) -> T:
        clock = time.perf_counter()
        try:
            return step(*args)
        finally:
            spent = (time.perf_counter() - clock) * 1e3
            self.times[stage] = self.times.get(stage, 0.0) + spent


def learn(seen: Sequence[Observation]) -> None:
    """Convert what valid heads say of clips, of all at once."""
    said = [(one, said) for one in seen if (said := one.said) is not None]
    if said:
        clock = time.perf_counter()
        fields = learned_fields([each for _, each in said])
        share_ms = (time.perf_counter() - clock) * 1e3 / len(said)
        for (one, _), field in zip(said, fields, strict=True):
            one.learned = one.track.steadied(field, one.sample.newest_ns, one.settings.smoothing)
            one.times['assess'] = share_ms


class CameraState:
    """The frame memory and the state of one camera. Used by one thread only.

    `engine`: None where nothing is assessed; `stream`: of the device on which frames are resized,
    None: on the host.
    """

    def __init__(self, name: str, config: TrackConfig, engine: Model | None = None,
                 stream: DeviceStream | None = None) -> None:
        self.name, self.config, self.engine = name, config, engine
        self.streams = engine is not None and not engine.not_streaming
        heads = None if engine is None else engine.report.heads
        self.heads = HeadsUse(name, None if heads is None else heads.meta, config)
        self.level_filter = LevelFilter()
        self._rates = NO_RATES      # smoothed ones of the last result, and its stamp [ns]
        self.still = StillView()
        self.ring = FrameRing(config.num_frames, config.clip_fps, config.max_frame_gap,
                              name=name, stream=self.streams)
        self.image: np.ndarray | None = None
        self.intrinsics: tuple[float, float, float, float] | None = None
        self.distortion: Distortion | None = None     # counts with intrinsics
        self._stream = stream
        self._gain = 0
        self._store: Frames | None = None
        self._released = False

    # -- frames ----------------------------------------------------------------------------

    def prepare(self, rgb: np.ndarray) -> Frame | None:
        """Resize or upload a frame before `push`, in any thread; None where only that can."""
        store = self._store
        if store is None or store.view.source_size != rgb.shape[1::-1]:
            return None
        return store.prepare(rgb)

    def push(self, rgb: np.ndarray, stamp_ns: int, frame_id: str = '',
             arrival_ns: int | None = None, frame: Frame | None = None, gain: int = 0) -> Push:
        """Take one decoded frame, see `FrameRing.push`.

        `rgb`: RGB uint8 (H, W, 3); `stamp_ns, frame_id, arrival_ns`: stamp [ns], frame id and
        time of arrival [ns]; `frame`: by `prepare`.
        """
        if self._released:
            raise SessionError(f'{self.name}: frames can not be taken, the model is closed')
        ring, resets = self.ring, self.ring.resets.total()
        if gain != self._gain and len(ring):
            ring.reset('gain_change')
        self._gain, store = gain, self._store
        if store is None or store.view.source_size != rgb.shape[1::-1]:
            store = self._change_size(rgb)
        if frame is None or (frame.rgb is None) != store.on_device:
            frame = store.prepare(rgb)
        store.place(frame, ring.frames)
        push = ring.push(stamp_ns, frame, frame_id=frame_id, size=store.view.source_size,
                         arrival_ns=arrival_ns)
        if push.stored:
            try:
                store.store(frame, rgb)
            except BaseException:
                ring.reset('upload_failed')     # its place shows another picture
                raise
        if ring.resets.total() != resets:
            self.level_filter.reset()
            self._rates = NO_RATES
            push = Push.RESET if push is Push.ACCEPTED else push    # also where it was begun here
        if push in (Push.ACCEPTED, Push.RESET):
            before, self.image = 0 if self.image is None else self.image.nbytes, rgb
            self.still.show(rgb, frame.stamp_ns)
            if before > max(LARGE_BYTES, rgb.nbytes):
                release_memory(torch.device('cpu'))     # what copies of large images took
        return push

    def _change_size(self, rgb: np.ndarray) -> Frames:
        view = View(self.config.resize_mode, (rgb.shape[1], rgb.shape[0]), self.config.image_size)
        if self.on_device:
            # Its memory first: a device may not have room for both.
            self._store = None
            self.ring.reset('size_change')
        self._store, problem = _store_for(self.config, view, self.ring, self._stream)
        if problem:
            log.warning('%s: frames are resized on the host: %s', self.name, problem)
        return self._store

    @property
    def view(self) -> View | None:
        """Where the encoder's input lies; None before the first frame."""
        store = self._store
        return None if store is None else store.view

    @property
    def where(self) -> str:
        """Where frames are resized; '' before the first frame."""
        store = self._store    # diagnostics read it from another thread
        return '' if store is None else store.where

    @property
    def on_device(self) -> bool:
        """Whether the frames are on a device."""
        return self._store is not None and self._store.on_device

    @property
    def store(self) -> Frames:
        """Where the frames are."""
        if self._store is None:
            raise SessionError(f'{self.name}: there are no frames, or they went with the model, '
                               'which is closed')
        return self._store

    def take_over(self, old: CameraState) -> None:
        """Continue the levels, smoothing and counts of another track of the same camera."""
        self.level_filter = old.level_filter
        self.ring.take_over(old.ring)

    def reset(self, reason: str = 'manual') -> None:
        """Start anew: forget the frames and the smoothed state."""
        self.ring.reset(reason)
        self.image = None
        self.level_filter.reset()
        self._rates = NO_RATES
        self.still.reset()

    def release(self) -> None:
        """Release frames and the memory on the device; the track can not be used any more.

        Levels, smoothing and counts stay: another track may continue them.
        """
        if self.on_device:
            self.still.look()
            self._store = self.image = None
            self._released = True
        self.ring.release()

    def steadied(self, field: LearnedField, stamp_ns: int, tau_s: float) -> LearnedField:
        """Smooth the looming rates of patches over time; what was unknown counts for nothing."""
        rate, (last, last_ns) = field.rate, self._rates
        if tau_s > 0 and last.shape == rate.shape and last_ns < stamp_ns:
            keep = np.float32(math.exp((last_ns - stamp_ns) / NS / tau_s))
            rate = np.where(np.isnan(last), rate, rate + keep * (last - rate))
        self._rates = rate, stamp_ns
        return replace(field, rate=rate)

    # -- clips -----------------------------------------------------------------------------

    def sample(self) -> Sample | None:
        """Return the newest clip, None until the ring is full."""
        if self.engine is not None and self.streams:
            return self.ring.sample_stream(self.engine.remembered())
        sample = self.ring.sample()
        if sample is None or self.heads.timed:
            return sample
        return evened(sample, self.config.clip_fps)

    def optics(self) -> Optics:
        """Return the intrinsics of the source image, assumed while no camera_info is known."""
        if self.intrinsics is None:
            return Optics.assume(self.ring.size, self.config.horizontal_fov)
        return Optics(*self.intrinsics, assumed=False, distortion=self.distortion)

    def observe(self, sample: Sample, settings: Settings, wants: Wants) -> Observation:
        """Return what is known of the newest clip before the model has been asked."""
        return Observation(self, sample, settings, wants)

    def assess(self, seen: Observation, age_s: float = 0.0) -> Result:
        """Assess a clip: what the model says of contact, and smoothing.

        `age_s`: age of the newest frame now [s]; NaN when unknown.
        """
        settings, wants, view = seen.settings, seen.wants, seen.store.view
        judgement, learned = seen.judgement, seen.learned
        flags, score = self._flags(), math.nan
        if seen.prediction is not None and not seen.prediction.finite:
            flags |= Quality.NOT_FINITE
        motion = seen.motion
        moving = motion if learned is None else learned.moving
        if moving is not None:
            score = motion_score(moving, score_mask(view, settings.roi))
        clock, still = time.perf_counter(), self.still
        still.roi = settings.roi
        for flag, is_set in ((Quality.FROZEN, still.frozen),
                             (Quality.HEADS_OUT_OF_RANGE, bool(seen.heads_problem))):
            flags |= flag if is_set else Quality(0)
        found, raw = assess(self.name, seen.sample, view, seen.counts, judgement, settings,
                            motion_score=score, age_s=age_s, flags=flags, still_s=still.still_s,
                            sight=still.sight)
        assessment = self.level_filter.smooth(raw, found, settings)
        looming = None
        if wants.looming:
            looming = np.full(view.patch_valid.shape, np.nan, np.float32) if learned is None else (
                np.where(learned.known(settings.min_confidence), learned.rate, np.float32(np.nan)))
        times = seen.times
        times['assess'] = times.get('assess', 0.0) + (time.perf_counter() - clock) * 1e3
        features = seen.features()
        assessment.timings.update(times)
        return Result(assessment, motion, looming, features, view,
                      self.image if wants.image else None, learned, seen.heads_problem,
                      still.unchanged_s)

    def _flags(self) -> Quality:
        """Return the flags of every result of the model."""
        engine, flags = self.engine, Quality(0)
        if engine is not None and not engine.report.trained:
            flags |= Quality.UNTRAINED
        if engine is not None and (engine.choice.fell_back or engine.config.shrunk):
            flags |= Quality.DEVICE_FALLBACK
        return flags


def _store_for(config: TrackConfig, view: View, ring: FrameRing,
                  stream: DeviceStream | None) -> tuple[Frames, str]:
    """Return the store for images of one size, and why it is not on the device or ''."""
    if stream is None:
        return HostFrames(view), ''
    # Robots without a GPU do not load it.
    from vjepa_ros.perception.gpu_frames import DeviceFrames, DeviceView

    problem = DeviceView.problem(view)
    if problem:
        return HostFrames(view), problem
    room = ring.room(3 * config.image_size ** 2)
    try:
        store = DeviceFrames(view, stream, room)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        release_memory(stream.device)
        return HostFrames(view), f'{stream.device} has no memory for {room} frames'
    ring.capacity = room
    return store, ''

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run one model over the clips of all cameras."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import torch

from vjepa_ros.clip.device_resize import kernels_of
from vjepa_ros.clip.ring import Sample
from vjepa_ros.looming.gpu.kernels import prepare_kernels
from vjepa_ros.perception.camera_track import LoomingJob, ModelFacts, Track
from vjepa_ros.perception.patch_maps import valid_mask
from vjepa_ros.perception.settings import Settings, TrackConfig, Wants
from vjepa_ros.perception.types import Quality, Result
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream
from vjepa_ros.runtime.engine import Engine
from vjepa_ros.runtime.prediction import Prediction
from vjepa_ros.runtime.streaming import Keys

log = logging.getLogger(__name__)
# By this part of a period a result may be early. Otherwise, once one was late by more than a
# period, a camera of just the greatest rate would wait with each frame while its messages jitter.
EARLY = 0.25
SOON_S = 0.002      # a pass that takes longer is waited for with less haste
# A pass that takes less [ms] is submitted behind looming, which then is there before it: the host
# has time for what looming says. Longer ones have time for that anyway.
SHORT_MS = 1.0
OnError = Callable[[str, Exception], None]      # gets a camera and what went wrong


class Perception:
    """One engine and one track per camera. Used by one thread only.

    Parameters
    ----------
    engine
        The loaded, warmed model.
    config
        Shape of the frame memories; must fit the engine.
    cameras
        Names of the cameras.

    Attributes
    ----------
    heads
        Training range of the heads; None without heads.
    flags
        Flags of every result of this engine.

    Raises
    ------
    ValueError
        When frames or size differ between engine and config, or the device can not do geometry.
    """

    def __init__(self, engine: Engine, config: TrackConfig, cameras: Sequence[str]) -> None:
        made = (engine.config.num_frames, engine.config.image_size)
        if made != (config.num_frames, config.image_size):
            raise ValueError(f'engine runs {made[0]} frames at {made[1]} px, the tracks hold '
                             f'{config.num_frames} frames at {config.image_size} px')
        self.engine = engine
        self.config = config
        self.heads = engine.report.heads.meta if engine.report.heads is not None else None
        less = engine.choice.fell_back or engine.config.shrunk
        self.flags = ((Quality(0) if engine.report.trained else Quality.UNTRAINED)
                      | (Quality.DEVICE_FALLBACK if less else Quality(0)))
        streams = not engine.not_streaming
        model = ModelFacts(engine.noise_floor, self.heads, self.flags,
                           engine.remembered if streams else None)
        queue = _queue(config.geometry, engine.choice.device)
        self._on_device = queue is not None
        self.tracks = {name: Track(name, config, model, queue) for name in cameras}
        self._done: dict[str, int] = {}
        self._looming_first = False     # in the pass before
        # A CPU computes a pass at once. The threads of its layers often wait for each other, so
        # that what needs no model costs less beside it than after it, but not on a single core.
        beside = engine.choice.device.type == 'cpu' and torch.get_num_threads() > 1
        self._helper = (ThreadPoolExecutor(1, 'looming') if beside and not self._on_device
                        else None)
        engine.prepare(len(self.tracks), change=self._on_device)

    def pending(self, names: Sequence[str] | None = None) -> dict[str, Sample]:
        """Return clips that end in a frame not assessed yet, by camera."""
        out = {}
        for name in self.tracks if names is None else names:
            if not self._assessed(name):
                sample = self.tracks[name].sample()
                if sample is not None:
                    out[name] = sample
        return out

    def _assessed(self, name: str) -> bool:
        """Return whether the newest frame of a camera is assessed; True where there is none."""
        return self.tracks[name].ring.newest_key == self._done.get(name)

    def encode(self, samples: Mapping[str, Sample], wants: Mapping[str, Wants],
               settings: Settings | None = None, on_error: OnError | None = None
               ) -> tuple[dict[str, Prediction], dict[str, float]]:
        """Run the model on the clips that need it, in one forward pass."""
        settings = settings or Settings()
        names, keys, heads, looming, features = self._asked(samples, wants, settings)
        if not names:
            return {}, {}
        if self._begins_with_looming():
            self._each(LoomingJob.start, looming, on_error)
        start = time.perf_counter()
        clips = [self.tracks[name].frames(samples[name]) for name in names]
        handed = time.perf_counter()
        valid = self._valid(names) if features and self._on_device else None
        # A gap leaves tubelets that no clip will ask for.
        held = set[int]()
        for track in self.tracks.values():
            held |= track.ring.held
        self.engine.keep(held)
        begun = time.perf_counter()
        beside = partial(self._work_beside, samples, heads, looming, settings, on_error)
        helped = None if self._helper is None else self._helper.submit(beside)
        try:
            pending = self.engine.submit(clips, features=features, keys=keys, valid=valid,
                                         stamps=[samples[name].moments(self.config.clip_fps)
                                                 for name in names])
            submitted = time.perf_counter()
        finally:
            if helped is not None:
                wait([helped])      # nothing else may use the tracks meanwhile
        beside() if helped is None else helped.result()
        waiting = submitted if helped is not None else time.perf_counter()
        idle_s = 0.0
        if self._on_device:
            for name in looming:
                idle_s += self._first_come(name, pending, on_error)
                if _arrived(pending):       # before looming, which is measured still
                    for each, output in zip(names, self.engine.wait(pending), strict=True):
                        self._read_ahead(each, samples[each], output, settings, wants[each])
                self._try(name, on_error, Track.work_ahead, settings)
            waiting = time.perf_counter() - idle_s
        outputs = dict(zip(names, self.engine.wait(pending), strict=True))
        awaited = time.perf_counter()
        self._retry(outputs, samples)
        return outputs, {'gather': (handed - start) * 1e3, **self.engine.timings,
                         'submit': (submitted - begun) * 1e3,
                         'await': (awaited - waiting) * 1e3}

    def _retry(self, outputs: Mapping[str, Prediction], samples: Mapping[str, Sample]) -> None:
        """Let the engine try a clip in fp32 whose output is not finite."""
        for name, output in outputs.items():
            if not output.finite:
                self.engine.retry(partial(self.tracks[name].clip, samples[name]),
                                  samples[name].moments(self.config.clip_fps))

    def _first_come(self, name: str, pending: Sequence[Prediction],
                    on_error: OnError | None) -> float:
        """Wait for the pass or for the looming of a camera; return for how long [s]."""
        begun, ready = time.perf_counter(), list[bool]()
        while not _arrived(pending) and not any(ready):
            # There is nothing that waits for either. Long passes leave Python to other threads.
            time.sleep(0 if time.perf_counter() - begun < SOON_S else 2e-4)
            job = self.tracks[name].looming_job()
            self._try(name, on_error, lambda track, job=job: ready.append(job.ready))
        return time.perf_counter() - begun

    def _read_ahead(self, name: str, sample: Sample, output: Prediction, settings: Settings,
                    want: Wants) -> None:
        """Read an output before it is asked for; `result` meets an error again."""
        try:
            self.tracks[name].read_ahead(sample, output, settings, want)
        except Exception:
            log.debug('%s: the output can not be read ahead', name, exc_info=True)

    def _asked(self, samples: Mapping[str, Sample], wants: Mapping[str, Wants],
               settings: Settings) -> tuple[list[str], list[Keys], list[str], list[str], bool]:
        """Return cameras that need the model, with their keys, its heads, and looming.

        And whether features have to be brought.
        """
        keys, heads, looming, features = [], [], [], False
        names = []
        for name, sample in samples.items():
            track, want = self.tracks[name], wants[name]
            known = track.ring.keys(sample)
            self._done[name] = known[-1]
            by_heads = track.heads.wanted(sample, want, settings)
            if by_heads:
                heads.append(name)
            if by_heads or want.features:
                names.append(name)
                keys.append(known)
            features |= want.features and (want.change or not by_heads)
            if want.looming and not (by_heads and settings.looming_method == 'learned'):
                looming.append(name)
        return names, keys, heads, looming, features

    def _valid(self, names: Sequence[str]) -> list[np.ndarray] | None:
        """Return the valid patches of cameras whose change is made on the device, or None."""
        views = []
        for name in names:
            track = self.tracks[name]
            # Elsewhere the features themselves are needed, or are there anyway.
            if not track.on_device or track.view is None:
                return None
            views.append(valid_mask(track.view))
        return views

    def _work_beside(self, samples: Mapping[str, Sample], heads: Sequence[str],
                     looming: Sequence[str], settings: Settings, on_error: OnError | None) -> None:
        """Do what needs no model, beside its pass; not what waits for looming on a device."""
        # A GPU is at work now, and has room for looming beside it.
        if self._on_device:
            for step in (LoomingJob.start, LoomingJob.proceed):     # started already: the rest
                self._each(step, looming, on_error)
        # The CPU has time for what needs no model.
        for name in heads:
            self.tracks[name].shown(samples[name])
        for name in looming:
            self._try(name, on_error, Track.work_ahead,
                      None if self.tracks[name].on_device else settings)

    def _begins_with_looming(self) -> bool:
        """Return whether passes are so short that looming starts before them."""
        # Beside looming a pass takes longer, which must not change the order again.
        limit_ms = SHORT_MS * (2 if self._looming_first else 1)
        self._looming_first = (self._on_device
                               and self.engine.timings.get('encode', math.inf) < limit_ms)
        return self._looming_first

    def _each(self, step: Callable[[LoomingJob], None], names: Sequence[str],
              on_error: OnError | None) -> None:
        """Do a step of the looming of cameras on a device; done already, nothing changes."""
        for name in names:
            if self.tracks[name].on_device:
                self._try(name, on_error, lambda track: step(track.looming_job()))

    def _try(self, name: str, on_error: OnError | None, step: Callable[..., None],
             *args: object) -> None:
        """Do a step of the looming of one camera; its failure does not affect the others."""
        try:
            step(self.tracks[name], *args)
        except Exception as error:
            if on_error is None:
                raise
            self.tracks[name].looming_job().give_up()
            on_error(name, error)

    def result(self, name: str, sample: Sample, output: Prediction | None, settings: Settings,
               wants: Wants, age_s: float, timings: Mapping[str, float]) -> Result:
        """Assess the clip of one camera with its output of `encode`.

        May be called several times for a clip, with other settings: encoder and geometric
        looming are not computed again. Each call advances the smoothing (`Track.level_filter`).
        """
        return self.tracks[name].result(sample, output, settings, wants, age_s,
                                        None if output is None else timings)

    def run(self, samples: Mapping[str, Sample], settings: Settings,
            wants: Mapping[str, Wants], age_s: Callable[[int], float]) -> list[Result]:
        """Encode and assess clips by camera, from `pending`.

        Where the model computes values that are not finite, they are encoded again in fp32.

        `age_s`: age [s] of a stamp [ns] now.
        """
        outputs, timings = self.encode(samples, wants, settings)
        if self.engine.settle():
            outputs, timings = self.encode(samples, wants, settings)
        return [self.result(name, sample, outputs.get(name), settings, wants[name],
                            age_s(sample.newest_ns), timings)
                for name, sample in samples.items()]

    def take_over(self, old: Perception) -> None:
        """Continue from the perception that served before, camera by camera.

        What that has assessed is not assessed again: the smoothing continues with the next frame.
        """
        for name, track in self.tracks.items():
            before = old.tracks[name]
            track.take_over(before)
            newest = track.ring.newest_key
            if newest is not None and old._assessed(name) and (
                    track.ring.newest_ns == before.ring.newest_ns):
                self._done[name] = newest

    def close(self) -> None:
        """Release the frames, and the model. May be called twice."""
        for track in self.tracks.values():
            track.release()
        if self._helper is not None:
            self._helper.shutdown()
        self.engine.close()

    def reset(self, reason: str) -> None:
        """Start all cameras anew."""
        for track in self.tracks.values():
            track.reset(reason)
        self.engine.forget()


def on_device(geometry: str, device: torch.device) -> bool:
    """Return whether frames are resized and looming is measured where the model runs."""
    if geometry == 'device' and device.type not in ('cuda', 'cpu'):
        raise ValueError(f"geometry is 'device', but {device} can not do it: it has no float64; "
                         "use 'host' or 'auto'")
    return geometry == 'device' or (geometry == 'auto' and device.type == 'cuda')


def _queue(geometry: str, device: torch.device) -> DeviceStream | None:
    """Return the queue for frames and looming on the device; None: on the host."""
    there = on_device(geometry, device)
    log.info("frames are resized and looming is measured on %s: geometry is '%s' and the model "
             'runs on %s', device if there else 'the host', geometry, device)
    if not there:
        return None
    # Now, and not at the first frame.
    prepare_kernels(device)
    kernels_of(device)
    return DeviceStream(device)


def _arrived(predictions: Sequence[Prediction]) -> bool:
    return all(one.source is None or one.source.arrived() for one in predictions)


def known_age(now_ns: int, stamp_ns: int) -> float:
    """Return the age of a stamp [s]; NaN when the clock has not started (simulated time zero)."""
    return (now_ns - stamp_ns) / 1e9 if now_ns > 0 else math.nan

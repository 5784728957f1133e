# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The one thread that stores frames, infers and publishes, always on the newest clip."""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext

import numpy as np
from rclpy.clock import Clock
from rclpy.impl.rcutils_logger import RcutilsLogger

from vjepa_ros.clip.ring import Push, Sample
from vjepa_ros.overlay import Layers, OverlayStatus, draw_overlay
from vjepa_ros.perception.pipeline import EARLY, Perception, known_age
from vjepa_ros.perception.types import Result
from vjepa_ros.ros.common.message_conversion import make_header
from vjepa_ros.ros.perception_node.camera_input import CameraInput, Frame
from vjepa_ros.ros.perception_node.decoder import Decoder
from vjepa_ros.ros.perception_node.diagnostics import CameraStats
from vjepa_ros.ros.perception_node.obstacle_output import WAIT_S
from vjepa_ros.ros.perception_node.outputs import LATE, OVERLAYS, Outputs, Publishing, wants_of
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.model import Model

BACKOFF_S = 0.2          # pause after an unexpected error, so that it can not flood the log
LOG_EVERY_S = 2.0        # at most one error is logged in this time; all are counted
IDLE_S = 0.25            # longest sleep without news
SILENT_EVERY_S = 1.0     # between overlays of a silent camera


class Worker:
    """Store, infer, publish: paused at first."""

    def __init__(self, perception: Perception, config: NodeConfig,
                 cameras: Mapping[str, CameraInput], outputs: Mapping[str, Outputs],
                 clock: Clock, log: RcutilsLogger) -> None:
        self.perception = perception
        self.config = config
        # Copies: this worker may be in a long inference when the node drops them.
        self._cameras, self._outputs = dict(cameras), dict(outputs)
        self._clock = clock
        self._log = log
        self.stats = {name: CameraStats() for name in cameras}
        self.errors = 0
        self.last_error = ''
        self.starved: Model | None = None       # the model that ran out of memory last
        self._publishing = threading.Lock()     # held while publishing
        self._open = False
        self._activation = 0      # its number: an old one must not publish in a new one
        self._candidate: Perception | None = None
        # Held by the worker while it uses the candidate, and to take that away; never by the
        # executor.
        self._storing = threading.Lock()
        self._wake = threading.Event()
        self._decoder = Decoder(self._cameras, self._count_for,
                                lambda: self.config.max_image_pixels, self._wake.set)
        self._counting = threading.Lock()
        self._running = True
        self._resets: deque[str] = deque()
        self._drawn_s = dict.fromkeys(cameras, -math.inf)    # when each was drawn as silent
        self._due = dict.fromkeys(cameras, 0.0)
        for camera in self._cameras.values():
            camera.notify = self.notify
        self._thread = threading.Thread(target=self._loop, name='vjepa_worker', daemon=True)
        self._thread.start()

    # -- called by the executor ------------------------------------------------------------

    def resume(self) -> None:
        """Begin to work (on activate)."""
        self.request_reset('activate')
        for stats in self.stats.values():
            stats.begin()
        with self._publishing:
            self._open = True
            self._activation += 1
        self.notify()

    def pause(self) -> None:
        """Stop work and output: nothing is published once this has returned."""
        with self._publishing:
            self._open = False
        self._clear()
        self.notify()

    def stop(self) -> None:
        """End the threads after the inference they may be in; the model is released then."""
        self.pause()
        self._decoder.stop()
        self._running = False
        self._wake.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads to end; False when one is still at work."""
        deadline = time.monotonic() + timeout_s
        self._thread.join(max(0.0, timeout_s))
        return self._decoder.join(deadline - time.monotonic()) and not self._thread.is_alive()

    def notify(self) -> None:
        """Take note of news: a message, a request."""
        if self._decoder.tracks is not None:
            self._decoder.notify()
        self._wake.set()

    def request_reset(self, reason: str) -> None:
        """Start all cameras anew before the next clip, without what came until now."""
        self._clear()
        self._resets.append(reason)
        self._wake.set()

    def _clear(self) -> None:
        for camera in self._cameras.values():
            camera.queue.clear()

    # -- called by the loader --------------------------------------------------------------

    def offer(self, perception: Perception) -> None:
        """Swap to this model as soon as its clips are full."""
        self._candidate = perception
        self._wake.set()

    def withdraw(self) -> Perception:
        """Release an offer that is not adopted; returns what serves, and waits for a frame."""
        with self._storing:
            unused, self._candidate = self._candidate, None
            serving = self.perception
        if unused is not None:
            let_go(unused, serving)
        return serving

    @property
    def swapping(self) -> bool:
        """Whether a new model waits for its clips to fill."""
        return self._candidate is not None

    # -- the thread ------------------------------------------------------------------------

    def _loop(self) -> None:
        wait_s = IDLE_S
        try:
            self.perception.engine.noise_floor()     # while the first clips fill
        except Exception as error:
            self._count('measuring the noise floor', error)
        while True:
            self._wake.wait(wait_s)
            self._wake.clear()
            if not self._running:
                break
            try:
                wait_s = self._step()
            except Exception as error:
                # Whatever happens to one clip must not end the service of the next.
                self._count('inference step', error)
                if is_out_of_memory(error):
                    self.starved = self.perception.engine
                time.sleep(BACKOFF_S)
                wait_s = IDLE_S
        self._release()

    def _count(self, what: str, error: Exception) -> None:
        with self._counting:   # a decoder may have an error at the same time
            self.errors += 1
            self.last_error = f'{what}: {type(error).__name__}: {error}'
        self._log.error(f'{what} failed, continuing: '
                        f'{"".join(traceback.format_exception(error))}',
                        throttle_duration_sec=LOG_EVERY_S)

    def _count_for(self, camera: str, what: str, error: Exception) -> None:
        self.stats[camera].fail(what, error)
        self._count(f"camera '{camera}': {what}", error)

    def _release(self) -> None:
        try:
            with closing(self.perception):       # whatever becomes of one that is on offer
                self.withdraw()
        except Exception as error:
            # At the end of the thread nobody else would report it.
            self._count('releasing the model', error)

    def _step(self) -> float:
        """Handle what is there; returns seconds to sleep when nothing new comes."""
        # Asked before the resets are taken: an activation is never seen without its own.
        with self._publishing:
            active, activation = self._open, self._activation
        perception = self.perception
        # Frames closer together than this are not all needed when the worker is behind.
        spacing_ns = round(min(0.25 / perception.config.clip_fps, 0.05) * 1e9)
        if active and not self._decoder.alone:
            self._decoder.settle(perception.tracks, spacing_ns)
        fresh: set[str] = set()
        with self._storing:
            candidate = self._candidate
            while self._resets:
                reason = self._resets.popleft()
                self.perception.reset(reason)
                if candidate is not None:
                    candidate.reset(reason)
            if candidate is not None and (not active or self._primed(candidate)):
                self._adopt(candidate)
                candidate = None
            if not active:
                return IDLE_S
            for name in self._cameras:
                if self._store(name, candidate, spacing_ns):
                    fresh.add(name)
        wanted = {name: out.wanted() for name, out in self._outputs.items()}
        samples, wait_s = self._choose(wanted)
        if samples:
            # On the CPU decoding would take the cores that the model computes on.
            beside = (nullcontext() if self.perception.engine.choice.device.type == 'cpu'
                      else self._decoder.ahead(self.perception.tracks, spacing_ns))
            with beside:
                self._serve(samples, wanted, activation)
        self._publish_states(wanted, fresh - samples.keys(), activation)
        return wait_s

    def _store(self, name: str, candidate: Perception | None, spacing_ns: int) -> bool:
        """Push what came from a camera into its memories; whether there is a new newest frame."""
        stats, track = self.stats[name], self.perception.tracks[name]
        frames, skipped = self._decoder.take(name, track, spacing_ns)
        stats.skipped += skipped
        fresh = False
        for frame in frames:
            start = time.perf_counter()
            # Simulated time may stand still while a frame is decoded.
            waited_ms = max(0.0, (self._clock.now().nanoseconds - frame.arrival_ns) / 1e6
                            - frame.decode_ms - frame.prepare_ms)
            try:
                fresh |= self._push(name, frame, self.perception) in (Push.ACCEPTED, Push.RESET)
                if candidate is not None:
                    self._push(name, frame, candidate)
            except Exception as error:
                # Other frames and other cameras are not affected.
                self._count_for(name, 'storing a frame', error)
                continue
            stored_ms = (time.perf_counter() - start) * 1e3
            sent_ns = frame.stamp_ns or frame.arrival_ns     # 0: nobody stamped it
            stats.add_stages({'transport': (frame.arrival_ns - sent_ns) / 1e6,
                              'wait': waited_ms, 'decode': frame.decode_ms,
                              'preprocess': frame.prepare_ms + stored_ms})
        stats.observe(track)
        return fresh

    def _push(self, name: str, frame: Frame, perception: Perception) -> Push:
        track, (height, width) = perception.tracks[name], frame.rgb.shape[:2]
        camera = self._cameras[name]
        track.intrinsics, track.distortion = camera.lens_for((width, height))
        track.ring.left_out = frame.left_out
        return track.push(frame.rgb, frame.stamp_ns, frame.frame_id, frame.arrival_ns,
                          frame.prepared if frame.track is track else None, frame.gain)

    def _choose(self, wanted: Mapping[str, frozenset[str]]) -> tuple[dict[str, Sample], float]:
        """Return the clips to run now, and how long until the next may run [s]."""
        now, period = time.monotonic(), 1.0 / self.config.max_rate
        samples, wait_s = {}, IDLE_S
        names = [n for n in self._cameras if wanted[n]]
        for name, sample in self.perception.pending(names).items():
            self._due[name] = min(self._due[name], now + period)     # the period may change
            early = self._due[name] - EARLY * period - now
            if early > 0:
                wait_s = min(wait_s, early)
                continue
            self._due[name] = max(self._due[name] + period, now)
            samples[name], self.stats[name].pass_s = sample, now
        return samples, wait_s

    def _serve(self, samples: Mapping[str, Sample], wanted: Mapping[str, frozenset[str]],
               activation: int) -> None:
        """Run the clips and publish their results."""
        wants = {name: wants_of(wanted[name]) for name in samples}
        perception, results = self.perception, []
        try:
            seen = perception.observe(samples, wants, self.config.settings)
        except Exception as error:
            for name in samples:     # none of them has a result, and their status must say so
                self.stats[name].fail('inference', error)
            raise
        for name, sample in samples.items():
            try:
                age_s = known_age(self._clock.now().nanoseconds, sample.newest_ns)
                result = perception.tracks[name].assess(seen[name], age_s)
                if self._publish(result, wanted[name], activation):
                    results.append(result)
            except Exception as error:
                # The other cameras keep their results.
                self._count_for(name, 'assessing and publishing', error)
        self._finish(results, wanted, activation)

    def _finish(self, results: Sequence[Result], wanted: Mapping[str, frozenset[str]],
                activation: int) -> None:
        """Do what must not delay the assessment of any camera, such as a wait for tf."""
        until_s = time.monotonic() + WAIT_S
        for result in results:
            name = result.assessment.camera
            if wanted[name].isdisjoint(LATE):
                continue
            try:
                with self._publishing:
                    if self._open and activation == self._activation:
                        self._outputs[name].publish_late(
                            result, wanted[name], self.perception.tracks[name].optics(),
                            lambda name=name, result=result: self._draw(name, result, None),
                            until_s)
            except Exception as error:
                self._count_for(name, 'publishing obstacles and overlay', error)
        for result in results:
            self.perception.tracks[result.assessment.camera].still.look()

    def _publish(self, result: Result, wanted: frozenset[str], activation: int) -> bool:
        """Publish what is at hand of a result and count it; False when the activation is over."""
        a, start = result.assessment, time.perf_counter()
        latency_ms = known_age(self._clock.now().nanoseconds, a.stamp_ns) * 1e3
        how = Publishing(latency_ms, self.perception.tracks[a.camera].optics(),
                         self.perception.engine.report.tensors_sha256)
        with self._publishing:
            if not self._open or activation != self._activation:
                return False
            self._outputs[a.camera].publish(result, wanted, how)
        a.timings['publish'] = (time.perf_counter() - start) * 1e3
        stats = self.stats[a.camera]
        stats.add(result, known_age(self._clock.now().nanoseconds, a.stamp_ns) * 1e3)
        stats.warn_of_clock(self._log, a.camera, latency_ms / 1e3)
        return True

    def _publish_states(self, wanted: Mapping[str, frozenset[str]], fresh: set[str],
                        activation: int) -> None:
        """Publish overlays without a result: of cameras that are buffering, or silent."""
        for name, camera in self._cameras.items():
            if wanted[name].isdisjoint(OVERLAYS):
                continue
            track, now_s, silent_s = self.perception.tracks[name], time.monotonic(), None
            if name in fresh and track.sample() is not None:
                continue
            if name not in fresh:
                if not camera.silent or now_s - self._drawn_s[name] < SILENT_EVERY_S:
                    continue
                self._drawn_s[name], silent_s = now_s, camera.silent_s
            try:
                bgr = self._draw(name, None, math.inf if track.image is None else silent_s)
                newest = track.ring.newest_ns
                header = make_header(self._clock.now().nanoseconds if newest is None else newest,
                                     track.ring.frame_id)
                with self._publishing:
                    if self._open and activation == self._activation:
                        self._outputs[name].publish_overlay(header, bgr, wanted[name])
            except Exception as error:
                self._count_for(name, 'drawing its state', error)

    def _draw(self, name: str, result: Result | None, silent_s: float | None) -> np.ndarray:
        track, stats, now = self.perception.tracks[name], self.stats[name], time.monotonic()
        engine, config = self.perception.engine, self.config
        status = OverlayStatus(
            camera=name, model=engine.config.model_size, device=str(engine.choice.device),
            fill=track.ring.fill, num_frames=track.config.num_frames,
            rate_in_hz=self._cameras[name].rate.hz(now), rate_out_hz=stats.rate.hz(now),
            latency_ms=stats.latency()[0], stale_s=silent_s,
            warnings=('switching model',) if self.swapping else (),
            untrained=not engine.report.trained,
            focal_px=track.optics().fx if track.ring.size[0] else None)
        image = track.image if result is None else result.image
        known = {} if result is None else {'motion_map': result.moves,
                                          'looming_map': result.looming_map}
        return draw_overlay(
            image, None if result is None else result.assessment,
            Layers(view=track.view, **known),
            status, config.overlay_width)

    def _primed(self, candidate: Perception) -> bool:
        """Return whether the new model has clips of every camera that is alive."""
        patience_s = 1.0 + self.perception.config.max_frame_gap
        return all(track.sample() is None or candidate.tracks[name].sample() is not None
                   or self._cameras[name].silent_s > patience_s
                   for name, track in self.perception.tracks.items())

    def _adopt(self, candidate: Perception) -> None:
        old, self.perception, self._candidate = self.perception, candidate, None
        candidate.take_over(old)
        let_go(old, candidate)
        config = candidate.engine.config
        self._log.info(f"now serving model '{config.model_size}' with {config.num_frames} frames "
                       f'of {config.image_size} px on {candidate.engine.choice.device}')


def let_go(unused: Perception, other: Perception) -> None:
    """Release a perception: its frames, and its model unless the other uses it."""
    if unused.engine is not other.engine:
        unused.close()
        return
    for track in unused.tracks.values():
        track.release()

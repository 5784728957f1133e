# SPDX-License-Identifier: Apache-2.0
"""The one thread that decodes, infers and publishes, always on the newest clip.

The executor thread never waits for it: requests are left under a lock and taken up between two
clips. Nothing is published after `pause` has returned.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping

from vjepa_ros.clip.ring import Push, Sample
from vjepa_ros.perception.assessment import Result
from vjepa_ros.perception.overlay import OverlayStatus, draw_overlay
from vjepa_ros.perception.pipeline import Perception, known_age
from vjepa_ros.perception.track import Wants, with_timings
from vjepa_ros.ros.camera_input import CameraInput
from vjepa_ros.ros.convert import ImageError, decode
from vjepa_ros.ros.outputs import OVERLAYS, Outputs, Publishing, make_header
from vjepa_ros.ros.parameters import NodeConfig
from vjepa_ros.ros.stats import CameraStats

BACKOFF_S = 0.2          # pause after an unexpected error, so that it can not flood the log
LOG_EVERY_S = 2.0        # at most one error is logged in this time; all are counted
IDLE_S = 0.25            # longest sleep without news


class Worker:
    """Decode, infer, publish.

    Parameters
    ----------
    perception
        The model and the camera tracks to begin with.
    config
        Parameters at configure.
    cameras, outputs
        Input and output side of each camera.
    now_ns
        The node's clock [ns] (simulated or not).
    log
        The node's logger.
    """

    def __init__(self, perception: Perception, config: NodeConfig,
                 cameras: Mapping[str, CameraInput], outputs: Mapping[str, Outputs],
                 now_ns: Callable[[], int], log: object) -> None:
        self.perception = perception
        self.config = config
        self._cameras = cameras
        self._outputs = outputs
        self._now_ns = now_ns
        self._log = log
        self.stats = {name: CameraStats() for name in cameras}
        self.errors = 0
        self.last_error = ''
        self.listener: Callable[[Result], None] | None = None
        self._candidate: Perception | None = None
        self._wake = threading.Condition()
        self._news = False
        self._running = False
        self._resets: list[str] = []
        self._silence: dict[str, float] = {}
        self._due = dict.fromkeys(cameras, 0.0)
        self._gate = threading.Lock()    # held while publishing
        self._active = False
        self._generation = 0             # of activations: an old one must not publish in a new
        self._thread: threading.Thread | None = None

    # -- called by the executor ------------------------------------------------------------

    def start(self) -> None:
        """Start the thread (paused)."""
        self._running = True
        self._thread = threading.Thread(target=self._loop, name='vjepa_worker', daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Begin to work (on activate)."""
        self.request_reset('activate')
        with self._gate:
            self._active = True
            self._generation += 1
        self.notify()

    def pause(self) -> None:
        """Stop work and output: nothing is published once this has returned."""
        with self._gate:
            self._active = False
        self.notify()

    def stop(self) -> None:
        """End the thread after the inference it may be in; it releases the model itself."""
        self.pause()
        with self._wake:
            self._running = False
            self._news = True
            self._wake.notify()
        if self._thread is None:
            self._release()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; False when it is still in an inference."""
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))
        return self._thread is None or not self._thread.is_alive()

    def notify(self) -> None:
        """There is news: a message, a request."""
        with self._wake:
            self._news = True
            self._wake.notify()

    def request_reset(self, reason: str) -> None:
        """Start all cameras anew before the next clip."""
        with self._wake:
            self._resets.append(reason)
            self._news = True
            self._wake.notify()

    def report_silence(self, camera: str, seconds: float) -> None:
        """Draw the overlay of a silent camera as stale."""
        with self._wake:
            self._silence[camera] = seconds
            self._news = True
            self._wake.notify()

    # -- called by the loader --------------------------------------------------------------

    def offer(self, perception: Perception) -> None:
        """Swap to this model as soon as its clips are full."""
        with self._wake:
            self._candidate = perception
            self._news = True
            self._wake.notify()

    def withdraw(self) -> Perception:
        """Take back an offer that is not adopted yet, and give what serves now."""
        with self._wake:
            unused, self._candidate = self._candidate, None
            serving = self.perception
        if unused is not None and unused.engine is not serving.engine:
            unused.close()
        return serving

    @property
    def swapping(self) -> bool:
        """Whether a new model waits for its clips to fill."""
        return self._candidate is not None

    # -- the thread ------------------------------------------------------------------------

    def _loop(self) -> None:
        wait_s = IDLE_S
        while True:
            with self._wake:
                if not self._news:
                    self._wake.wait(wait_s)
                self._news = False
                if not self._running:
                    break
            try:
                wait_s = self._step()
            except Exception as error:
                # Whatever happens to one clip must not end the service of the next.
                self._count(error, 'inference step')
                time.sleep(BACKOFF_S)
                wait_s = IDLE_S
        self._release()

    def _count(self, error: Exception, where: str) -> None:
        self.errors += 1
        self.last_error = f'{type(error).__name__}: {error}'
        self._log.error(f'{where} failed, going on: {traceback.format_exc()}',
                        throttle_duration_sec=LOG_EVERY_S)

    def _release(self) -> None:
        self.withdraw().close()

    def _step(self) -> float:
        """Work off what is there; seconds to sleep when nothing new comes."""
        with self._wake:
            resets, self._resets = self._resets, []
            silence, self._silence = self._silence, {}
            candidate = self._candidate
        with self._gate:
            active, generation = self._active, self._generation
        for reason in resets:
            self.perception.reset(reason)
            if candidate is not None:
                candidate.reset(reason)
        if candidate is not None and (not active or self._primed(candidate)):
            self._adopt(candidate)
            candidate = None
        if not active:
            return IDLE_S
        wanted = {name: out.wanted() for name, out in self._outputs.items()}
        fresh = {name: self._ingest(name, candidate) for name in self._cameras}
        samples, wait_s = self._choose(wanted)
        if samples:
            wants = {name: self._wants(wanted[name]) for name in samples}
            settings = self.config.settings
            begin = time.perf_counter()
            outputs, timings = self.perception.encode(samples, wants, settings)
            for name, sample in samples.items():
                try:
                    result = self.perception.result(
                        name, sample, outputs.get(name), settings, wants[name],
                        self._age(sample.newest_ns), timings)
                    self.stats[name].session_ms = (time.perf_counter() - begin) * 1e3
                    self._publish(result, wanted[name], generation)
                except Exception as error:
                    # One camera in trouble must not take its results from the others.
                    self._count(error, f"camera '{name}'")
        for name, new in fresh.items():
            buffering = new and self.perception.tracks[name].sample() is None
            if buffering or name in silence:
                self._publish_state(name, wanted[name], silence.get(name), generation)
        return wait_s

    def _wants(self, wanted: frozenset[str]) -> Wants:
        if self.listener is not None:
            return Wants()
        return Outputs.wants(wanted)

    def _choose(self, wanted: Mapping[str, frozenset[str]]) -> tuple[dict[str, Sample], float]:
        """The clips to run now, and how long until the next may run."""
        now, period = time.monotonic(), 1.0 / self.config.max_rate
        samples, wait_s = {}, IDLE_S
        names = [n for n in self._cameras if wanted[n] or self.listener is not None]
        for name, sample in self.perception.pending(names).items():
            early = self._due[name] - now
            if early > 0:
                wait_s = min(wait_s, early)
                continue
            self._due[name] = max(self._due[name] + period, now)
            samples[name] = sample
        return samples, wait_s

    def _ingest(self, name: str, candidate: Perception | None) -> bool:
        """Decode what came in and push it into the tracks; whether a frame was stored."""
        camera, stats = self._cameras[name], self.stats[name]
        spacing = min(0.25 / self.perception.config.clip_fps, 0.05)
        waiting, skipped = camera.inbox.take(round(spacing * 1e9))
        stats.skipped += skipped
        fresh = False
        for item in waiting:
            stats.take(item, self._now_ns())
            start = time.perf_counter()
            try:
                rgb = decode(item.message)
            except ImageError as error:
                camera.refuse(error)
                continue
            stats.add_stage('decode', (time.perf_counter() - start) * 1e3)
            start = time.perf_counter()
            for perception in (self.perception, candidate):
                if perception is None:
                    continue
                track = perception.tracks[name]
                track.intrinsics = camera.intrinsics_for((rgb.shape[1], rgb.shape[0]))
                push = track.push(rgb, item.stamp_ns, item.message.header.frame_id,
                                  item.arrival_ns)
                if perception is self.perception:
                    fresh = fresh or push in (Push.ACCEPTED, Push.RESET)
            stats.add_stage('preprocess', (time.perf_counter() - start) * 1e3)
        stats.observe(self.perception.tracks[name])
        return fresh

    def _primed(self, candidate: Perception) -> bool:
        """Whether the new model can go on for every camera that is alive."""
        patience_s = 1.0 + self.perception.config.max_frame_gap
        return all(track.sample() is None or candidate.tracks[name].sample() is not None
                   or self._cameras[name].silent_s > patience_s
                   for name, track in self.perception.tracks.items())

    def _adopt(self, candidate: Perception) -> None:
        with self._wake:
            if self._candidate is not candidate:
                return   # taken back meanwhile
            old, self.perception, self._candidate = self.perception, candidate, None
        candidate.take_over(old)
        if old.engine is not candidate.engine:
            old.close()
        config = candidate.engine.config
        self._log.info(f"now serving model '{config.model_size}' with {config.num_frames} frames "
                       f'of {config.image_size} px on {candidate.engine.choice.device}')

    def _age(self, stamp_ns: int) -> float:
        return known_age(self._now_ns(), stamp_ns)

    def _publish(self, result: Result, wanted: frozenset[str], generation: int) -> None:
        a = result.assessment
        stats = self.stats[a.camera]
        latency_ms = self._age(a.stamp_ns) * 1e3
        start = time.perf_counter()
        how = Publishing(self.config.features_reduce, latency_ms,
                         lambda: self._draw(a.camera, result, None),
                         self.perception.tracks[a.camera].optics())
        with self._gate:
            if not self._active or generation != self._generation:
                return
            self._outputs[a.camera].publish(result, wanted, how)
        result = with_timings(result, publish=(time.perf_counter() - start) * 1e3)
        stats.add(result, self._age(a.stamp_ns) * 1e3)
        stats.tell(self._log, a, latency_ms)
        if self.listener is not None:
            self.listener(result)

    def _publish_state(self, name: str, wanted: frozenset[str], silent_s: float | None,
                       generation: int) -> None:
        """The overlay while there is no assessment: buffering, or a camera fallen silent."""
        track = self.perception.tracks[name]
        if wanted.isdisjoint(OVERLAYS):
            return
        bgr = self._draw(name, None, math.inf if track.image is None else silent_s)
        newest = track.ring.newest_ns
        header = make_header(self._now_ns() if newest is None else newest, track.ring.frame_id)
        with self._gate:
            if self._active and generation == self._generation:
                self._outputs[name].publish_overlay(header, bgr, wanted)

    def _draw(self, name: str, result: Result | None, silent_s: float | None) -> object:
        track, stats, now = self.perception.tracks[name], self.stats[name], time.monotonic()
        engine = self.perception.engine
        status = OverlayStatus(
            camera=name, model=engine.config.model_size, device=str(engine.choice.device),
            fill=track.ring.fill, num_frames=track.config.num_frames,
            rate_in_hz=self._cameras[name].rate.hz(now), rate_out_hz=stats.rate.hz(now),
            latency_ms=stats.latency.summary()[0], stale_s=silent_s,
            warnings=('switching model',) if self.swapping else (),
            untrained=not engine.report.trained,
            focal_px=track.optics().fx if track.ring.size[0] else None)
        image = track.image if result is None else result.image
        return draw_overlay(
            image, None if result is None else result.assessment,
            None if result is None else result.moves,
            None if result is None else result.looming, track.view, status=status,
            width=self.config.overlay_width,
            min_confidence=self.config.settings.min_confidence)

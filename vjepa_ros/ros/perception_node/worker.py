# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The one thread that infers and publishes, always on the newest clip.

The executor thread never waits for it: requests are left under a lock and taken up between two
clips. Nothing is published after `pause` has returned.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing

from vjepa_ros.clip.ring import Sample
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.decoder import Decoder
from vjepa_ros.ros.perception_node.frame_intake import Intake
from vjepa_ros.ros.perception_node.obstacle_inputs import WAIT_S
from vjepa_ros.ros.perception_node.outputs import Outputs, Pass, PublicationGate
from vjepa_ros.ros.perception_node.parameters import NodeConfig

BACKOFF_S = 0.2          # pause after an unexpected error, so that it can not flood the log
LOG_EVERY_S = 2.0        # at most one error is logged in this time; all are counted
IDLE_S = 0.25            # longest sleep without news
# Of a period. Once a result was late by more than a period, a camera of just the greatest rate
# would wait with each frame for as long as its messages jitter.
EARLY = 0.25


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
        # Copies: this worker may be in a long inference when the node has let go of them.
        self._cameras = cameras = dict(cameras)
        outputs = dict(outputs)
        self._log = log
        self._gate = PublicationGate(cameras, outputs, now_ns, log)
        self._decoder = Decoder(cameras, self._count_for,
                                lambda: self.config.max_image_pixels, self._wake_up)
        self.stats = self._gate.stats
        self._intake = Intake(self._decoder, cameras, self.stats, now_ns,
                              self._count_for)
        self.errors = 0
        self.last_error = ''
        self.listener: Callable[[Result], None] | None = None
        self._candidate: Perception | None = None
        # Held by the worker while it uses the candidate, and to take that away; the executor
        # never asks for it.
        self._storing = threading.Lock()
        self._wake = threading.Condition()
        self._news = False
        self._running = False
        self._resets: list[str] = []
        self._silence: dict[str, float] = {}
        self._due = dict.fromkeys(cameras, 0.0)
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
        self._gate.open()
        self.notify()

    def pause(self) -> None:
        """Stop work and output: nothing is published once this has returned."""
        self._gate.shut()
        self._decoder.clear()
        self.notify()

    def stop(self) -> None:
        """End the threads after the inference they may be in; the model is released then."""
        self.pause()
        self._decoder.stop()
        with self._wake:
            self._running = False
            self._news = True
            self._wake.notify()
        if self._thread is None:
            self._release()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads to end; False when one is still at work."""
        deadline = time.monotonic() + timeout_s
        if self._thread is not None:
            self._thread.join(max(0.0, timeout_s))
        ended = self._decoder.join(deadline - time.monotonic())
        return ended and (self._thread is None or not self._thread.is_alive())

    def notify(self) -> None:
        """There is news: a message, a request."""
        self._decoder.notify()
        self._wake_up()

    def _wake_up(self) -> None:
        with self._wake:
            self._news = True
            self._wake.notify()

    def request_reset(self, reason: str) -> None:
        """Start all cameras anew before the next clip, without what came until now."""
        self._decoder.clear()
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
        """Take back and release an offer that is not adopted yet, and give what serves now."""
        serving, unused = self.take_back()
        if unused is not None:
            let_go(unused, serving)
        return serving

    def take_back(self) -> tuple[Perception, Perception | None]:
        """What serves now, and an offer that is not adopted yet and now is none any more.

        Waits while frames are stored, but not for a pass.
        """
        with self._storing:
            unused, self._candidate = self._candidate, None
            return self.perception, unused

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
                self._count('inference step', error)
                time.sleep(BACKOFF_S)
                wait_s = IDLE_S
        self._release()

    def _count(self, what: str, error: Exception) -> None:
        with self._wake:   # the decoder may have an error at the same time
            self.errors += 1
            self.last_error = f'{what}: {type(error).__name__}: {error}'
        self._log.error(f'{what} failed, going on: '
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
            # At the end of the thread nobody else would tell of it.
            self._count('releasing the model', error)

    def _step(self) -> float:
        """Work off what is there; seconds to sleep when nothing new comes."""
        # Asked before the resets are taken: an activation is never seen without its own.
        active, generation = self._gate.admission()
        if active:
            self._intake.settle(self.perception)
        with self._wake:
            resets, self._resets = self._resets, []
            silence, self._silence = self._silence, {}
        with self._storing:
            candidate = self._candidate
            for reason in resets:
                self.perception.reset(reason)
                if candidate is not None:
                    candidate.reset(reason)
            if candidate is not None and (not active or self._primed(candidate)):
                self._adopt(candidate)
                candidate = None
            if not active:
                return IDLE_S
            fresh = {name: self._intake.store(name, self.perception, candidate)
                     for name in self._cameras}
        wanted = self._gate.wanted()
        samples, wait_s = self._choose(wanted)
        if samples:
            with self._intake.meanwhile(self.perception):
                self._serve(samples, wanted, generation)
        for name, new in fresh.items():
            buffering = new and self.perception.tracks[name].sample() is None
            silent = name in silence and not new     # it may have come back meanwhile
            try:
                if buffering or silent:
                    self._gate.publish_state(
                        name, wanted[name], silence[name] if silent else None,
                        self._pass(generation))
            except Exception as error:
                self._count_for(name, 'drawing its state', error)
        return wait_s

    def _serve(self, samples: Mapping[str, Sample], wanted: Mapping[str, frozenset[str]],
               generation: int) -> None:
        """Run the clips and publish what they show."""
        wants = {name: self._wants(wanted[name]) for name in samples}
        settings = self.config.settings
        begin, results = time.perf_counter(), []
        try:
            outputs, timings = self.perception.encode(
                samples, wants, settings,
                lambda name, error: self._count_for(name, 'geometry', error))
        except Exception as error:
            for name in samples:     # none of them has a result, and its status must not be well
                self.stats[name].fail('inference', error)
            raise
        for name, sample in samples.items():
            try:
                result = self.perception.result(
                    name, sample, outputs.get(name), settings, wants[name],
                    self._gate.age_s(sample.newest_ns), timings)
                self.stats[name].session_ms = (time.perf_counter() - begin) * 1e3
                result = self._gate.publish(result, wanted[name], self._pass(generation))
                if result is None:
                    continue
                results.append(result)
                listener = self.listener
                if listener is not None:
                    listener(result)
            except Exception as error:
                # One camera in trouble must not take its results from the others.
                self._count_for(name, 'assessing and publishing', error)
        # After the assessments of all cameras, which no wait for tf must hold up.
        until_s = time.monotonic() + WAIT_S
        for result in results:
            name = result.assessment.camera
            try:
                self._gate.publish_late(result, wanted[name], self._pass(generation), until_s)
            except Exception as error:
                self._count_for(name, 'publishing obstacles and overlay', error)

    def _pass(self, generation: int) -> Pass:
        return Pass(generation, self.perception, self.config, self.swapping)

    def _wants(self, wanted: frozenset[str]) -> Wants:
        if self.listener is not None:
            wanted |= {'assessment'}
        return Outputs.wants(wanted)

    def _choose(self, wanted: Mapping[str, frozenset[str]]) -> tuple[dict[str, Sample], float]:
        """The clips to run now, and how long until the next may run."""
        now, period = time.monotonic(), 1.0 / self.config.max_rate
        samples, wait_s = {}, IDLE_S
        names = [n for n in self._cameras if wanted[n] or self.listener is not None]
        for name, sample in self.perception.pending(names).items():
            early = self._due[name] - EARLY * period - now
            if early > 0:
                wait_s = min(wait_s, early)
                continue
            self._due[name] = max(self._due[name] + period, now)
            samples[name] = sample
        return samples, wait_s

    def _primed(self, candidate: Perception) -> bool:
        """Whether the new model can go on for every camera that is alive."""
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


def let_go(unused: Perception, *others: Perception) -> None:
    """Release what one holds: its frames on the device, and its model unless another uses it."""
    if all(unused.engine is not other.engine for other in others):
        unused.close()
        return
    for track in unused.tracks.values():
        track.release()

# SPDX-License-Identifier: Apache-2.0
"""Statistics of one camera's results, written by the worker and read by diagnostics."""

from __future__ import annotations

import json
import threading
import time

from rclpy.logging import LoggingSeverity

from vjepa_ros.perception.assessment import Assessment, Level, Quality, Result
from vjepa_ros.perception.track import Track
from vjepa_ros.ros.decoder import Frame
from vjepa_ros.ros.rates import Rate, Recent

OLD_MS = 60_000.0        # a frame of this age or from so far ahead: the clocks differ


class CameraStats:
    """Rates, latency, stage times and the last state of one camera."""

    def __init__(self) -> None:
        self.rate = Rate()
        self.latency = Recent()
        self.stages: dict[str, Recent] = {}
        self.skipped = 0
        self.errors = 0
        self.last_error = ''
        self.trouble = ''               # what went wrong since the last result
        self.level = Level.UNKNOWN
        self.flags = Quality(0)
        self.clip_rate_hz = float('nan')
        self.method = ''                # what looming came from
        self.moving = False             # whether the motion score is what moves by itself
        self.heads_problem = ''
        self.disagreements = 0
        self.full = False
        self.memory: dict[str, object] = {'clip_fill': 'empty'}
        self.session_ms = float('nan')  # of the last pass, from its clip to its assessment
        self._newest: dict[str, float] = {}   # stages of the result that is being made
        self._warned_of_clock = False
        self._lock = threading.Lock()

    def take(self, frame: Frame, waited_ms: float, stored_ms: float) -> None:
        """Note the way of a frame into the memory: how long it waited, and took to store [ms]."""
        spent = frame.spent_ms
        self.add_stage('transport', (frame.arrival_ns - frame.stamp_ns) / 1e6)
        self.add_stage('wait', waited_ms)
        self.add_stage('decode', spent['decode'])
        self.add_stage('preprocess', spent['preprocess'] + stored_ms)

    def fail(self, what: str, error: Exception) -> None:
        """Count what went wrong with this camera; a result makes it good."""
        with self._lock:   # decoding and storing may fail at the same time
            self.errors += 1
        self.trouble = self.last_error = f'{what}: {type(error).__name__}: {error}'

    def add(self, result: Result, latency_ms: float) -> None:
        """Take one published result; latency is now - stamp [ms]."""
        assessment = result.assessment
        self.trouble = ''
        self.method, self.moving = result.method, result.learned is not None
        self.heads_problem = result.heads_problem
        self.disagreements += Quality.DISAGREEMENT in assessment.flags
        self.rate.tick(time.monotonic())
        self.latency.add(latency_ms)
        self.level, self.flags = assessment.level, assessment.flags
        self.clip_rate_hz = assessment.clip_rate_hz
        for stage, ms in assessment.timings.items():
            self.add_stage(stage, ms)

    def observe(self, track: Track) -> None:
        """Note the state of the frame memory; the track itself belongs to the worker."""
        ring = track.ring
        self.memory = {
            'clip_fill': f'{ring.fill}/{ring.num_frames}',
            'view_seen': f'{track.view.coverage:.2f}' if track.view else 'unknown',
            'ring_memory_mb': f'{ring.nbytes / 2**20:.1f}',
            **{f'frames.{key}': count for key, count in sorted(ring.counts.items())},
            **{f'resets.{key}': count for key, count in sorted(ring.resets.items())},
        }
        self.full = ring.fill == ring.num_frames

    def add_stage(self, stage: str, ms: float) -> None:
        """Take the time of one stage [ms]."""
        if stage not in self.stages:
            self.stages = {**self.stages, stage: Recent()}   # replaced: read by another thread
        self.stages[stage].add(ms)
        self._newest[stage] = ms

    def tell(self, log: object, assessment: Assessment, latency_ms: float) -> None:
        """Warn once of a clock that differs; at level DEBUG, log where the time of a result went.

        Parameters
        ----------
        log
            The node's logger.
        assessment
            What was published.
        latency_ms
            Its age when publishing began.
        """
        if abs(latency_ms) > OLD_MS and not self._warned_of_clock:
            self._warned_of_clock = True
            log.warning(
                f"camera '{assessment.camera}': frames are {latency_ms / 1e3:.0f} s old by this "
                "node's clock, so every result is flagged stale and level unknown. For a bag: "
                'play it with --clock and set use_sim_time; for a camera: synchronise its clock')
        stages, self._newest = self._newest, {}
        if log.is_enabled_for(LoggingSeverity.DEBUG):
            log.debug('result ' + json.dumps(
                {'camera': assessment.camera, 'stamp_ns': assessment.stamp_ns,
                 'latency_ms': latency_ms, 'session_ms': self.session_ms, 'stages_ms': stages}))

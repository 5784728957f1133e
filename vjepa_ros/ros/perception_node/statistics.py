# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Statistics of one camera's results, written by the worker and read by diagnostics."""

from __future__ import annotations

import json
import math
import threading
import time

from rclpy.logging import LoggingSeverity

from vjepa_ros.perception.camera_track import Track
from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.types import Assessment, Level, Quality, Result
from vjepa_ros.ros.common.rates import Rate, Recent
from vjepa_ros.ros.perception_node.decoder import Frame

# Reasons of resets that the images of two publishers on one topic have in turn.
MIXED = ('size_change', 'frame_id_change', 'time_backwards')
OLD_S = 60.0             # a frame of this age: the clocks differ


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
        self.mixed = 0                  # resets as by the images of two cameras
        self.session_ms = float('nan')  # of the last pass, from its clip to its assessment
        self._newest: dict[str, float] = {}   # stages of the result that is being made
        self._warned_of_clock: set[str] = set()
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
        self.mixed = sum(ring.resets[reason] for reason in MIXED)

    def add_stage(self, stage: str, ms: float) -> None:
        """Take the time of one stage [ms]."""
        if stage not in self.stages:
            self.stages = {**self.stages, stage: Recent()}   # replaced: read by another thread
        self.stages[stage].add(ms)
        self._newest[stage] = ms

    def tell(self, log: object, assessment: Assessment, latency_ms: float) -> None:
        """Warn once of each way in which a clock is wrong; at level DEBUG, log where time went.

        Parameters
        ----------
        log
            The node's logger.
        assessment
            What was published.
        latency_ms
            Its age when publishing began.
        """
        kind, text = _clock_problem(latency_ms / 1e3)
        if text and kind not in self._warned_of_clock:
            self._warned_of_clock.add(kind)
            log.warning(f"camera '{assessment.camera}': {text}. Every such result is flagged "
                        'stale, with level unknown')
        stages, self._newest = self._newest, {}
        if log.is_enabled_for(LoggingSeverity.DEBUG):
            log.debug('result ' + json.dumps(
                {'camera': assessment.camera, 'stamp_ns': assessment.stamp_ns,
                 'latency_ms': latency_ms, 'session_ms': self.session_ms, 'stages_ms': stages}))


def _clock_problem(age_s: float) -> tuple[str, str]:
    """A word for what is wrong with the clock, and the whole of it; '' when nothing is."""
    problem = age_problem(age_s, OLD_S)
    if not problem:
        return '', ''
    if math.isnan(age_s):
        return 'unknown', ("frames are of unknown age, because this node's clock stands at zero: "
                           "'use_sim_time' is true and nothing comes on /clock. Publish /clock "
                           '(for a bag: play it with --clock), or set use_sim_time to false')
    return 'future' if age_s < 0 else 'old', (
        f"frames are {problem} by this node's clock. For a camera: synchronise the clocks (NTP "
        'or PTP); for a bag or a simulation: publish /clock (a bag: play it with --clock) and '
        'set use_sim_time')

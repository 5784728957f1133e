# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Statistics of one camera, written by the worker and read by diagnostics."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Mapping

import numpy as np
from rclpy.logging import LoggingSeverity  # pyright: ignore[reportPrivateImportUsage] its place

from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.types import Assessment, Level, Quality, Result
from vjepa_ros.ros.common.logs import Logger

# Reasons of resets that two publishers on one topic cause in turn.
MIXED = ('size_change', 'frame_id_change', 'time_backwards')
OLD_S = 60.0             # a frame of this age: the clocks differ
OBSERVE_S = 0.2          # least time between two observations of a frame memory


class Rate:
    """Events per second over a sliding window. Any thread may use it.

    Parameters
    ----------
    window_s
        Length of the window [s]; at least the two newest events count.
    """

    def __init__(self, window_s: float = 3.0) -> None:
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=1024)
        self._lock = threading.Lock()
        self.total = 0

    def tick(self, now_s: float) -> None:
        """Count one event at a steady time [s]."""
        with self._lock:
            self._times.append(now_s)
            self.total += 1

    def hz(self, now_s: float) -> float:
        """Return the rate in the window that ends now [Hz].

        0 when nothing happened in it, unless the next event is not overdue yet: it may take twice
        as long as the newest interval.
        """
        with self._lock:
            while len(self._times) > 2 and now_s - self._times[0] > self._window_s:
                self._times.popleft()
            if len(self._times) < 2:
                return 0.0
            span = self._times[-1] - self._times[0]
            interval = span / (len(self._times) - 1)
            if now_s - self._times[-1] > max(self._window_s, 2 * interval):
                return 0.0
            return 1 / interval if interval > 0 else 0.0


class Recent:
    """Median and 95th percentile of the last values. Any thread may use it."""

    def __init__(self, length: int = 100) -> None:
        self._values: deque[float] = deque(maxlen=length)
        self._lock = threading.Lock()

    def add(self, value: float) -> None:
        """Take one value; NaN is left out."""
        if not math.isnan(value):
            with self._lock:
                self._values.append(value)

    def summary(self) -> tuple[float, float]:
        """Return (median, 95th percentile), NaN when empty."""
        with self._lock:
            values = list(self._values)
        if not values:
            return math.nan, math.nan
        median, high = np.percentile(values, (50, 95))
        return float(median), float(high)


class CameraStats:
    """Rates, latency, stage times and the last state of one camera."""

    def __init__(self) -> None:
        self.rate = Rate()
        self.latency = Recent()
        self.skipped = 0
        self.errors = 0
        self.last_error = ''
        self.trouble = ''               # what went wrong since the last result
        self.level = Level.UNKNOWN
        self.flags = Quality(0)
        self.clip_rate_hz = math.nan
        self.method = ''                # source of looming
        self.moving = False             # whether the motion score is what moves by itself
        self.heads_problem = ''
        self.gyroscope: str | None = None      # see Result.gyroscope
        self.disagreements = 0
        self.not_finite = 0             # results for which the model gave no finite values
        self.full = False
        self.gap_problem = ''           # see FrameRing.problem
        self.result_s = -math.inf       # steady time of the last result [s]
        self.pass_s = math.nan          # when the pass that runs began [steady s]; NaN: none runs
        self.waits_s = math.nan         # from then on frames have come without one; NaN: none have
        self.memory: dict[str, object] = {'clip_fill': 'empty'}
        self.mixed = 0                  # resets as by the images of two cameras
        self.session_ms = math.nan      # of the last pass, from its clip to its assessment
        self._observed: tuple[float, object] = (-math.inf, None)
        self._stages: dict[str, deque[float]] = {}
        self._newest: dict[str, float] = {}   # stages of the result that is being made
        self._warned_of_clock: set[str] = set()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Wait for a first result (on activate)."""
        self.result_s, self.waits_s, self.pass_s = -math.inf, math.nan, math.nan

    def fail(self, what: str, error: Exception) -> None:
        """Count an error of this camera; the next result clears the trouble."""
        with self._lock:   # decoding and storing may fail at the same time
            self.errors += 1
        self.pass_s = math.nan
        self.trouble = self.last_error = f'{what}: {type(error).__name__}: {error}'

    def add(self, result: Result, latency_ms: float) -> None:
        """Take one published result; latency is now - stamp [ms]."""
        assessment = result.assessment
        self.trouble = ''
        self.method, self.moving = result.method, result.learned is not None
        self.heads_problem, self.gyroscope = result.heads_problem, result.gyroscope
        self.disagreements += Quality.DISAGREEMENT in assessment.flags
        self.not_finite += Quality.NOT_FINITE in assessment.flags
        self.result_s, self.waits_s, self.pass_s = time.monotonic(), math.nan, math.nan
        self.rate.tick(self.result_s)
        self.latency.add(latency_ms)
        self.level, self.flags = assessment.level, assessment.flags
        self.clip_rate_hz = assessment.clip_rate_hz
        self.add_stages(assessment.timings)

    def add_stages(self, timings: Mapping[str, float]) -> None:
        """Take the times of stages [ms]."""
        with self._lock:
            for stage, ms in timings.items():
                if not math.isnan(ms):
                    self._stages.setdefault(stage, deque(maxlen=100)).append(ms)
            self._newest.update(timings)

    def stages(self) -> dict[str, float]:
        """Return the median time of each stage [ms], by name."""
        with self._lock:
            known = {stage: list(times) for stage, times in sorted(self._stages.items())}
        return {stage: float(np.median(times)) for stage, times in known.items()}

    def observe(self, track: CameraState) -> None:
        """Note the state of the frame memory now and then; the worker owns the track."""
        ring, now = track.ring, time.monotonic()
        if math.isnan(self.waits_s) and ring.fill:
            self.waits_s = now
        resets = dict(ring.resets)
        if now - self._observed[0] < OBSERVE_S and self._observed[1] == (id(track), resets):
            return
        self._observed = now, (id(track), resets)
        fill, view = ring.fill, track.view
        memory: dict[str, object] = {
            'clip_fill': f'{fill}/{ring.num_frames}',
            'view_seen': 'unknown' if view is None else f'{view.coverage:.2f}',
            'ring_memory_mb': f'{ring.nbytes / 2**20:.1f}'}
        for kind, counts in (('frames', ring.counts), ('resets', resets)):
            for key in sorted(counts):
                memory[f'{kind}.{key}'] = counts[key]
        self.memory = memory
        self.full, self.gap_problem = fill == ring.num_frames, ring.problem
        self.mixed = 0
        for reason in MIXED:
            self.mixed += resets.get(reason, 0)

    def log(self, log: Logger, assessment: Assessment, latency_ms: float) -> None:
        """Warn once of each clock problem; at level DEBUG, log the times of the stages."""
        age_s = latency_ms / 1e3
        if not 0.0 <= age_s <= OLD_S and (problem := age_problem(age_s, OLD_S)):
            kind, text = _clock_problem(age_s, problem)
            if kind not in self._warned_of_clock:
                self._warned_of_clock.add(kind)
                log.warning(f"camera '{assessment.camera}': {text}. Every such result is flagged "
                            'stale, with level unknown')
        stages, self._newest = self._newest, {}
        if log.is_enabled_for(LoggingSeverity.DEBUG):
            log.debug('result ' + json.dumps(
                {'camera': assessment.camera, 'stamp_ns': assessment.stamp_ns,
                 'latency_ms': latency_ms, 'session_ms': self.session_ms, 'stages_ms': stages}))


def _clock_problem(age_s: float, problem: str) -> tuple[str, str]:
    """Return the kind of a clock problem, and its explanation."""
    if math.isnan(age_s):
        return 'unknown', ("frames are of unknown age, because this node's clock stands at zero: "
                           "'use_sim_time' is true and nothing comes on /clock. Publish /clock "
                           '(for a bag: play it with --clock), or set use_sim_time to false')
    return 'future' if age_s < 0 else 'old', (
        f"frames are {problem} by this node's clock. For a camera: synchronise the clocks (NTP "
        'or PTP); for a bag or a simulation: publish /clock (a bag: play it with --clock) and '
        'set use_sim_time')

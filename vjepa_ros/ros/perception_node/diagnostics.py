# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Statistics of cameras and memory, and the diagnostic_msgs made of them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import psutil
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.impl.rcutils_logger import RcutilsLogger

from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.types import Level, Quality, Result
from vjepa_ros.ros.common.diagnostics import OK, STALE, WARN, number, status
from vjepa_ros.ros.perception_node.camera_input import CameraInput, Rate
from vjepa_ros.runtime.memory import SMALLER, device_memory

# Quality flags that make a camera's status WARN.
WORTH_WARNING = (Quality.UNTRAINED | Quality.STALE | Quality.LOW_TEXTURE
                 | Quality.DEVICE_FALLBACK | Quality.LOOMING_UNKNOWN
                 | Quality.HEADS_OUT_OF_RANGE | Quality.FROZEN | Quality.NOT_FINITE)
PROCESS = psutil.Process()
QUIET_S = 3.0            # without a result, after which one was due
LONG_S = 10.0            # of frames without a result
SLOW_S = 1.0             # of a pass
FULL_SHARE = 0.9         # of the memory of a device, above which to warn
PARTS, PART_S = 6, 100.0  # of the window over which growth is judged: each above that before
LEAST_SHARE, LEAST_BYTES = 0.03, 32 << 20      # growth below both is none
OLD_S = 60.0             # a frame of this age: the clocks differ
OTHER_CLOCK = (
    "frames are {} by this node's clock. For a camera: synchronise the clocks (NTP or PTP); for a "
    'bag or a simulation: publish /clock (a bag: play it with --clock) and set use_sim_time')
CLOCK = {'old': OTHER_CLOCK, 'future': OTHER_CLOCK, 'unknown': (
    "frames are of unknown age, because this node's clock stands at zero: 'use_sim_time' is true "
    'and nothing comes on /clock. Publish /clock (for a bag: play it with --clock), or set '
    'use_sim_time to false')}
OBSERVE_S = 0.2          # least time between two observations of a frame memory


class CameraStats:
    """Rates, latency, stage times and the last state of one camera."""

    def __init__(self) -> None:
        self.rate = Rate()
        self.skipped = 0
        self.errors = 0
        self.last_error = ''
        self.trouble = ''               # what went wrong since the last result
        self.level = Level.UNKNOWN
        self.flags = Quality(0)
        self.clip_rate_hz = math.nan
        self.moving = False             # whether the motion score is what moves by itself
        self.heads_problem = ''
        self.disagreements = 0
        self.not_finite = 0             # results for which the model gave no finite values
        self.full = False
        self.gap_problem = ''           # see FrameRing.problem
        self.result_s = -math.inf       # steady time of the last result [s]
        self.pass_s = math.nan          # when the pass that runs began [steady s]; NaN: none runs
        self.waits_s = math.nan         # from then on frames have come without one; NaN: none have
        self.memory: dict[str, object] = {'clip_fill': 'empty'}
        self._observed_s = -math.inf
        self._latency: deque[float] = deque(maxlen=100)     # of results [ms]
        self._stages: dict[str, deque[float]] = {}      # times [ms]
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
        self.moving, self.heads_problem = result.learned is not None, result.heads_problem
        self.disagreements += Quality.DISAGREEMENT in assessment.flags
        self.not_finite += Quality.NOT_FINITE in assessment.flags
        self.result_s, self.waits_s, self.pass_s = time.monotonic(), math.nan, math.nan
        self.rate.tick(self.result_s)
        if not math.isnan(latency_ms):
            self._latency.append(latency_ms)
        self.level, self.flags = assessment.level, assessment.flags
        self.clip_rate_hz = assessment.clip_rate_hz
        self.add_stages(assessment.timings)

    def add_stages(self, timings: Mapping[str, float]) -> None:
        """Take the times of stages [ms]."""
        for stage, ms in timings.items():
            if not math.isnan(ms):
                self._stages.setdefault(stage, deque(maxlen=100)).append(ms)

    def latency(self) -> tuple[float, float]:
        """Return median and 95th percentile of the last results [ms], NaN before the first."""
        values = list(self._latency)
        median, high = np.percentile(values, (50, 95)) if values else (math.nan, math.nan)
        return float(median), float(high)

    def stages(self) -> dict[str, float]:
        """Return the median time of each stage [ms], by name."""
        return {stage: float(np.median(list(self._stages[stage])))
                for stage in sorted(self._stages)}

    def observe(self, track: CameraState) -> None:
        """Note the state of the frame memory now and then; the worker owns the track."""
        ring, now = track.ring, time.monotonic()
        if math.isnan(self.waits_s) and ring.fill:
            self.waits_s = now
        if now - self._observed_s < OBSERVE_S:
            return
        self._observed_s = now
        fill, view = ring.fill, track.view
        memory: dict[str, object] = {
            'clip_fill': f'{fill}/{ring.num_frames}',
            'view_seen': 'unknown' if view is None else f'{view.coverage:.2f}',
            'ring_memory_mb': f'{ring.nbytes / 2**20:.1f}'}
        for kind, counts in (('frames', ring.counts), ('resets', ring.resets)):
            memory |= {f'{kind}.{key}': counts[key] for key in sorted(counts)}
        self.memory = memory
        self.full, self.gap_problem = fill == ring.num_frames, ring.problem

    def warn_of_clock(self, log: RcutilsLogger, camera: str, age_s: float) -> None:
        """Warn once of each problem of the clock, by the age of a result [s]."""
        if 0.0 <= age_s <= OLD_S or not (problem := age_problem(age_s, OLD_S)):
            return
        kind = 'unknown' if math.isnan(age_s) else 'future' if age_s < 0 else 'old'
        if kind not in self._warned_of_clock:
            self._warned_of_clock.add(kind)
            log.warning(f"camera '{camera}': {CLOCK[kind].format(problem)}. Every such result is "
                        'flagged stale, with level unknown')


class MemoryTrend:
    """Growth of the memory of this process, by the least of each part of a window: no peaks."""

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._parts: list[int] = []      # least memory of each part, the newest last
        self._used = 0

    def measure(self) -> None:
        """Take a measurement of this process."""
        self.add(PROCESS.memory_info().rss, time.monotonic())

    def add(self, used_bytes: int, now_s: float) -> None:
        """Take a measurement at a steady time [s]."""
        self._used = used_bytes
        if now_s - self._began_s >= PART_S:
            self._began_s = now_s
            self._parts = [*self._parts[-PARTS:], used_bytes]
        else:
            self._parts[-1] = min(self._parts[-1], used_bytes)

    @property
    def bytes_per_hour(self) -> float:
        """Growth over the window [bytes/h]; NaN before it is full."""
        if len(self._parts) <= PARTS:
            return math.nan
        whole = self._parts[:-1]          # the newest part is not over yet
        return (whole[-1] - whole[0]) / (PART_S * (PARTS - 1)) * 3600

    @property
    def steady(self) -> bool:
        """Whether memory has grown in every part of a full window, and not just a little."""
        whole = self._parts[:-1]
        if len(whole) < PARTS or any(b <= a for a, b in pairwise(whole)):
            return False
        growth, late = whole[-1] - whole[0], whole[-1] - whole[PARTS // 2 - 1]
        # A start that takes long slows down.
        return growth > max(LEAST_BYTES, LEAST_SHARE * whole[0]) and late > growth / 3

    @property
    def values(self) -> dict[str, object]:
        """Return values for diagnostics."""
        growth = self.bytes_per_hour / 2**20
        return {'memory_rss_mb': f'{self._used / 2**20:.0f}',
                'memory_growth_mb_per_h': 'unknown' if math.isnan(growth) else f'{growth:.0f}'}

    @property
    def problem(self) -> str:
        """Return a warning of steady growth, '' for none."""
        return '' if not self.steady else (
            f'memory of the process grows steadily, by {self.bytes_per_hour / 2**20:.0f} MB per '
            'hour: report this with the log, and restart the node before it runs out')


def model_values(perception: Perception) -> dict[str, object]:
    """Return values about the model that serves."""
    engine, config = perception.engine, perception.config
    choice, weights, held = engine.choice, engine.report, device_memory(engine.choice.device)
    heads = weights.heads
    values = {
        'device': choice.device, 'device_reason': choice.reason,
        'precision': choice.precision, 'execution': engine.execution,
        'execution_reason': engine.execution_reason or 'none',
        'streaming': f'off: {engine.not_streaming}' if engine.not_streaming else 'on',
        'model': engine.config.model_size, 'model_version': weights.version,
        'num_frames': engine.config.num_frames, 'image_size': engine.config.image_size,
        'clip_fps': config.clip_fps, 'resize_mode': config.resize_mode,
        'weights': weights.path or 'random', 'weights_sha256': weights.sha256 or 'none',
        'weights_layout': weights.layout or 'none', 'weights_part': weights.part or 'none',
        'weights_dtype': weights.dtype, 'weights_made_for': str(weights.profile or 'unknown'),
        'trained': weights.trained,
        'heads': 'none' if heads is None else f'{heads.path} (sha256 {heads.sha256[:16]})',
        'model_memory_mb': f'{engine.memory_bytes() / 2**20:.0f}'}
    return values if held is None else {
        **values, 'device_memory_used_mb': f'{held.used / 2**20:.0f}',
        'device_memory_limit_mb': f'{held.limit / 2**20:.0f}',
        'device_memory_share': f'{held.share:.2f}'}


def model_problems(perception: Perception) -> list[str]:
    """Return what is wrong with the model that serves; '' is nothing."""
    engine = perception.engine
    held, device = device_memory(engine.choice.device), engine.choice.device
    return [
        '' if engine.report.trained else 'untrained: random weights',
        'no learned heads: contact is unknown; set `weights` or `heads`'
        if engine.report.heads is None else '',
        engine.choice.reason if engine.choice.fell_back else '', engine.config.shrunk,
        engine.trouble,
        f'{held.share:.0%} of the memory of {device} is used: {SMALLER}'
        if held is not None and held.share > FULL_SHARE else '']


def camera_status(node: str, state: str, camera: CameraInput, stats: CameraStats,
                  perception: Perception, due_s: float, obstacles: Mapping[str, object]
                  ) -> DiagnosticStatus:
    """Return the status of a camera whose results may take so long [s]."""
    track, steady = perception.tracks[camera.name], time.monotonic()
    if camera.silent:
        stats.waits_s = math.nan
    quiet = steady - stats.result_s > max(QUIET_S, due_s)
    median, high = stats.latency()
    values: dict[str, object] = {
        'transport': camera.images.chosen or 'none yet',
        'image_topic': camera.images.topic or 'none yet',
        'transport_reason': camera.images.reason or 'none yet',
        'camera_info': camera.calibration_problem() or 'used',
        'rate_in_hz': number(camera.rate.hz(steady)),
        'rate_out_hz': number(stats.rate.hz(steady)), 'frames_in': camera.rate.total,
        'assessments_out': stats.rate.total, 'latency_ms_median': number(median),
        'latency_ms_p95': number(high), 'level': 'unknown' if quiet else stats.level.name.lower(),
        'flags': 'none' if quiet else ' '.join(stats.flags.names) or 'none',
        'clip_rate_hz': number(stats.clip_rate_hz),
        'heads': (f'not valid: {stats.heads_problem}' if stats.heads_problem else
                  'hold' if stats.moving else 'not used'),
        'frames_on': track.where or 'none yet',
        'motion_score': 'what moves by itself' if stats.moving else 'all change',
        'disagreements': stats.disagreements, 'not_finite': stats.not_finite,
        'errors': stats.errors, 'last_error': stats.last_error or 'none',
        'dropped.inbox': camera.queue.dropped, 'dropped.skipped': stats.skipped,
    }
    values |= stats.memory
    values |= obstacles
    values['input_fault'] = camera.last_fault or 'none'
    values |= {f'input.{k}': v for k, v in sorted(dict(camera.counts).items())}
    values |= {f'stage_ms.{stage}': number(ms) for stage, ms in stats.stages().items()}
    level, message = OK, state
    if state == 'active':
        level, message = condition(camera, stats, quiet, steady)
    return status(f'{node}: camera {camera.name}', level, message, values,
                  str(perception.engine.choice.device))


def condition(camera: CameraInput, stats: CameraStats, quiet: bool,
              now_s: float) -> tuple[bytes, str]:
    """Return level and message of an active camera; `quiet`: a result is overdue."""
    if camera.silent:
        return STALE, 'no frames'
    if stats.trouble:
        return WARN, stats.trouble
    if not quiet:
        flags = stats.flags & WORTH_WARNING
        return (WARN, ' '.join(flags.names)) if flags else (OK, 'running')
    if now_s - camera.fault_s < QUIET_S:
        return WARN, f'no result, images are refused: {camera.last_fault}'
    if now_s - stats.pass_s > SLOW_S:
        return WARN, (f'no result, inference has taken {now_s - stats.pass_s:.0f} s so far: '
                      'choose a smaller model_size, image_size or num_frames, or fewer cameras')
    if stats.full:
        return OK, 'nobody listens'
    if stats.gap_problem:
        return WARN, f'no result: {stats.gap_problem}'
    if now_s - stats.waits_s > LONG_S:
        return WARN, (f'no result for {now_s - stats.waits_s:.0f} s: no clip fills, see clip_fill '
                      'and resets')
    return OK, 'buffering'

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe the state of the node and of each camera as diagnostic_msgs."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import psutil
from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.model.checkpoint.layouts import HeadsReport
from vjepa_ros.perception.types import Quality
from vjepa_ros.ros.common.diagnostics import OK, STALE, WARN, number, status
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.statistics import CameraStats
from vjepa_ros.runtime.memory import DeviceMemory, SMALLER, device_memory

if TYPE_CHECKING:
    from vjepa_ros.ros.perception_node.node import Configured

# Quality flags that make a camera's status WARN.
WORTH_WARNING = (Quality.UNTRAINED | Quality.STALE | Quality.LOW_TEXTURE
                 | Quality.DEVICE_FALLBACK | Quality.LOOMING_UNKNOWN
                 | Quality.HEADS_OUT_OF_RANGE | Quality.FROZEN | Quality.GEOMETRY_FAILED
                 | Quality.GYROSCOPE_UNUSED | Quality.NOT_FINITE)
PROCESS = psutil.Process()
QUIET_S = 3.0            # without a result, after which one was due
LONG_S = 10.0            # of frames without a result
SLOW_S = 1.0             # of a pass
FULL_SHARE = 0.9         # of the memory of a device, above which to warn


def used_memory() -> int:
    """Return the memory of this process [bytes]."""
    return PROCESS.memory_info().rss


def report(node: str, state: str, failure: str, parts: Configured | None,
           memory: MemoryTrend) -> list[DiagnosticStatus]:
    """Return one status for the node and one for each camera."""
    growth = memory.bytes_per_hour / 2**20
    values: dict[str, object] = {
        'state': state, 'memory_rss_mb': f'{used_memory() / 2**20:.0f}',
        'memory_growth_mb_per_h': 'unknown' if math.isnan(growth) else f'{growth:.0f}'}
    problems, hardware, cameras = [failure] if failure else [], '', []
    if memory.steady:
        problems.append(f'memory of the process grows steadily, by {growth:.0f} MB per hour: '
                        'report this with the log, and restart the node before it runs out')
    if parts is not None:
        hardware = str(parts.worker.perception.engine.choice.device)
        values |= _model_values(parts)
        problems += _problems(parts)
        held = device_memory(parts.worker.perception.engine.choice.device)
        if held is not None:
            values |= _device_values(held)
            if held.share > FULL_SHARE:
                problems.append(f'{held.share:.0%} of the memory of {hardware} is used: {SMALLER}')
        cameras = [_camera_status(node, state, parts, name) for name in parts.cameras]
    return [status(f'{node}: model', WARN if problems else OK, '; '.join(problems) or state,
                   values, hardware), *cameras]


def _device_values(held: DeviceMemory) -> dict[str, object]:
    return {'device_memory_used_mb': f'{held.used / 2**20:.0f}',
            'device_memory_limit_mb': f'{held.limit / 2**20:.0f}',
            'device_memory_share': f'{held.share:.2f}'}


def _model_values(parts: Configured) -> dict[str, object]:
    worker = parts.worker
    engine, config = worker.perception.engine, worker.perception.config
    choice, weights = engine.choice, engine.report
    return {
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
        'trained': weights.trained, 'heads': _heads_file(weights.heads),
        'looming_method': worker.config.settings.looming_method,
        'model_memory_mb': f'{engine.memory_bytes() / 2**20:.0f}',
        'errors': worker.errors, 'last_error': worker.last_error or 'none',
        'model_change': _change(parts),
    }


def _problems(parts: Configured) -> list[str]:
    worker, engine = parts.worker, parts.worker.perception.engine
    problems = []
    if not engine.report.trained:
        problems.append('untrained: random weights')
    if worker.config.settings.looming_method == 'learned' and engine.report.heads is None:
        problems.append("looming.method is 'learned' but there are no heads: geometry is used")
    if engine.choice.fell_back:
        problems.append(engine.choice.reason)
    if engine.config.shrunk:
        problems.append(engine.config.shrunk)
    if engine.trouble:
        problems.append(engine.trouble)
    if worker.errors:
        problems.append(f'{worker.errors} errors, last {worker.last_error}')
    if parts.swapper.error:
        problems.append(f'model not changed: {parts.swapper.error}')
    return problems


def _heads_file(heads: HeadsReport | None) -> str:
    return 'none' if heads is None else f'{heads.path} (sha256 {heads.sha256[:16]})'


def _change(parts: Configured) -> str:
    if parts.swapper.loading:
        return f'loading {parts.swapper.loading}'
    if parts.worker.swapping:
        return 'waiting for clips of the new model to fill'
    return f'failed: {parts.swapper.error}' if parts.swapper.error else 'none'


def _camera_status(node: str, state: str, parts: Configured, name: str) -> DiagnosticStatus:
    camera, stats, perception = parts.cameras[name], parts.worker.stats[name], \
        parts.worker.perception
    obstacles = parts.outputs[name].obstacles
    steady = time.monotonic()
    if camera.silent:
        stats.waits_s = math.nan
    quiet = steady - stats.result_s > max(QUIET_S, 2.0 / parts.worker.config.max_rate)
    median, high = stats.latency.summary()
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
        'looming_method': stats.method or 'none yet',
        'heads': 'none' if perception.tracks[name].heads.meta is None else _heads_state(stats),
        'geometry': perception.tracks[name].geometry or 'none yet',
        'motion_score': 'what moves by itself' if stats.moving else 'all change',
        'disagreements': stats.disagreements, 'not_finite': stats.not_finite,
        'errors': stats.errors, 'last_error': stats.last_error or 'none',
        'dropped.inbox': camera.queue.dropped, 'dropped.skipped': stats.skipped,
    }
    values |= {} if camera.imu is None else camera.imu.report(stats.gyroscope)
    values |= stats.memory
    values |= {} if obstacles is None else obstacles.report()
    values['input_fault'] = camera.last_fault or 'none'
    values |= {f'input.{k}': v for k, v in sorted(dict(camera.counts).items())}
    values |= {f'stage_ms.{stage}': number(ms) for stage, ms in stats.stages().items()}
    level, message = OK, state
    if state == 'active':
        level, message = _condition(camera, stats, quiet, steady)
    return status(f'{node}: camera {name}', level, message, values,
                  str(perception.engine.choice.device))


def _condition(camera: CameraInput, stats: CameraStats, quiet: bool,
               now_s: float) -> tuple[bytes, str]:
    """Return level and message of the status of a camera of an active node.

    `quiet`: no result has come for so long that one was due. Times are steady ones [s].
    """
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


def _heads_state(stats: CameraStats) -> str:
    if stats.heads_problem:
        return f'out of range: {stats.heads_problem}'
    return 'hold' if stats.moving else 'not used'


WINDOW_S = 600.0         # over which growth is judged
PARTS = 6                # of the window; the least memory of each must be above that before
LEAST_SHARE, LEAST_BYTES = 0.03, 32 << 20      # growth below both is none


class MemoryTrend:
    """Growth of the memory of a process.

    Passing peaks do not count: the least memory of each part of the window does.

    Parameters
    ----------
    window_s : float
        Over which growth is judged [s].
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._part_s = window_s / PARTS
        self._began_s = -math.inf
        self._parts: list[int] = []      # least memory of each part, the newest last

    def add(self, used_bytes: int, now_s: float) -> None:
        """Take a measurement at a steady time [s]."""
        if now_s - self._began_s >= self._part_s:
            self._began_s = now_s
            self._parts = [*self._parts[-PARTS:], used_bytes]
        else:
            self._parts[-1] = min(self._parts[-1], used_bytes)

    @property
    def _whole(self) -> list[int]:
        return self._parts[:-1]          # the newest part is not over yet

    @property
    def bytes_per_hour(self) -> float:
        """Growth over the window [bytes/h]; NaN before it is full."""
        if len(self._whole) < PARTS:
            return math.nan
        return (self._whole[-1] - self._whole[0]) / (self._part_s * (PARTS - 1)) * 3600

    @property
    def steady(self) -> bool:
        """Whether memory has grown in every part of a full window, and not just a little."""
        whole = self._whole
        if len(whole) < PARTS or any(b <= a for a, b in pairwise(whole)):
            return False
        growth, late = whole[-1] - whole[0], whole[-1] - whole[PARTS // 2 - 1]
        # A start that takes long slows down.
        return growth > max(LEAST_BYTES, LEAST_SHARE * whole[0]) and late > growth / 3

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe the state of the node and of each camera as diagnostic_msgs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil
from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.model.checkpoint.metadata import HeadsReport
from vjepa_ros.perception.types import Quality
from vjepa_ros.ros.common.diagnostics import OK, STALE, WARN, number, status
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.statistics import CameraStats
from vjepa_ros.ros.perception_node.worker import Worker

# What Quality flags make a camera's status WARN.
WORTH_WARNING = (Quality.UNTRAINED | Quality.STALE | Quality.LOW_TEXTURE
                 | Quality.DEVICE_FALLBACK | Quality.LOOMING_UNKNOWN
                 | Quality.HEADS_OUT_OF_RANGE | Quality.FROZEN | Quality.GEOMETRY_FAILED)
PROCESS = psutil.Process()


@dataclass(frozen=True)
class Situation:
    """What the node knows when it reports."""

    node: str
    state: str
    worker: Worker | None
    config: NodeConfig | None
    cameras: Mapping[str, CameraInput]
    swap_error: str
    loading: str
    last_failure: str
    obstacles: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def report(now: Situation) -> list[DiagnosticStatus]:
    """One status for the node and one for each camera."""
    statuses = [_node_status(now)]
    if now.worker is not None:
        statuses += [_camera_status(now, camera, now.worker.stats[name])
                     for name, camera in now.cameras.items()]
    return statuses


def _node_status(now: Situation) -> DiagnosticStatus:
    values: dict[str, object] = {'state': now.state,
                                 'memory_rss_mb': f'{PROCESS.memory_info().rss / 2**20:.0f}'}
    problems = []
    hardware = ''
    if now.last_failure:
        problems.append(now.last_failure)
    if now.worker is not None:
        engine = now.worker.perception.engine
        choice, weights = engine.choice, engine.report
        hardware = str(choice.device)
        method = now.worker.config.settings.looming_method
        values |= {
            'device': choice.device, 'device_reason': choice.reason,
            'precision': choice.precision, 'execution': engine.execution,
            'execution_reason': engine.execution_reason or 'none',
            'model': engine.config.model_size, 'model_version': engine.config.model_version,
            'num_frames': engine.config.num_frames, 'image_size': engine.config.image_size,
            'clip_fps': now.worker.perception.config.clip_fps,
            'resize_mode': now.worker.perception.config.resize_mode,
            'weights': weights.path or 'random', 'weights_sha256': weights.sha256 or 'none',
            'weights_layout': weights.layout or 'none', 'weights_part': weights.part or 'none',
            'weights_dtype': weights.dtype, 'weights_made_for': str(weights.profile or 'unknown'),
            'trained': weights.trained, 'heads': _heads_file(weights.heads),
            'looming_method': method,
            'model_memory_mb': f'{engine.memory_bytes() / 2**20:.0f}',
            'errors': now.worker.errors, 'last_error': now.worker.last_error or 'none',
            'model_change': _change(now),
        }
        if not weights.trained:
            problems.append('untrained: random weights')
        if method == 'learned' and weights.heads is None:
            problems.append("looming.method is 'learned' but there are no heads: geometry is used")
        if choice.fell_back:
            problems.append(choice.reason)
        if now.worker.errors:
            problems.append(f'{now.worker.errors} errors, last {now.worker.last_error}')
        if now.swap_error:
            problems.append(f'model not changed: {now.swap_error}')
    return status(f'{now.node}: model', WARN if problems else OK,
                  '; '.join(problems) or now.state, values, hardware)


def _heads_file(heads: HeadsReport | None) -> str:
    return 'none' if heads is None else f'{heads.path} (sha256 {heads.sha256[:16]})'


def _change(now: Situation) -> str:
    if now.loading:
        return f'loading {now.loading}'
    if now.worker is not None and now.worker.swapping:
        return 'waiting for clips of the new model to fill'
    return f'failed: {now.swap_error}' if now.swap_error else 'none'


def _camera_status(now: Situation, camera: CameraInput, stats: CameraStats) -> DiagnosticStatus:
    steady = time.monotonic()
    median, high = stats.latency.summary()
    active = now.state == 'active'
    values: dict[str, object] = {
        'transport': camera.chosen or 'none yet', 'rate_in_hz': number(camera.rate.hz(steady)),
        'rate_out_hz': number(stats.rate.hz(steady)), 'frames_in': camera.rate.total,
        'assessments_out': stats.rate.total, 'latency_ms_median': number(median),
        'latency_ms_p95': number(high), 'level': stats.level.name.lower(),
        'flags': ' '.join(stats.flags.names) or 'none',
        'clip_rate_hz': number(stats.clip_rate_hz),
        'looming_method': stats.method or 'none yet', 'heads': _heads_state(now, stats),
        'geometry': now.worker.perception.tracks[camera.name].geometry or 'none yet',
        'motion_score': 'what moves by itself' if stats.moving else 'all change',
        'disagreements': stats.disagreements,
        'errors': stats.errors, 'last_error': stats.last_error or 'none',
        'dropped.inbox': camera.inbox.dropped, 'dropped.skipped': stats.skipped,
    }
    values |= stats.memory
    values |= now.obstacles.get(camera.name, {})
    values['input_fault'] = camera.last_fault or 'none'
    values |= {f'input.{k}': v for k, v in sorted(dict(camera.counts).items())}
    for stage, recent in sorted(stats.stages.items()):
        values[f'stage_ms.{stage}'] = number(recent.summary()[0])
    level, message = OK, 'running' if active else now.state
    if active and camera.silent:
        level, message = STALE, 'no frames'
    elif active and stats.trouble:
        level, message = WARN, stats.trouble
    elif active and not stats.rate.total:
        message = 'nobody listens' if stats.full else 'buffering'
    elif active and stats.flags & WORTH_WARNING:
        level, message = WARN, ' '.join((stats.flags & WORTH_WARNING).names)
    return status(f'{now.node}: camera {camera.name}', level, message, values,
                  str(now.worker.perception.engine.choice.device))


def _heads_state(now: Situation, stats: CameraStats) -> str:
    if now.worker.perception.heads is None:
        return 'none'
    if stats.heads_problem:
        return f'out of range: {stats.heads_problem}'
    return 'hold' if stats.moving else 'not used'

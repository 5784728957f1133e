# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe what the guard does as diagnostic_msgs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import Decision, Limit, Motion
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status

LEVEL = {'idle': OK, 'free': OK, 'slowed': OK, 'stopped': WARN, 'fault': ERROR, 'override': ERROR}


class Times:
    """The last times of one kind [ms], and the longest of all."""

    def __init__(self, length: int = 2000) -> None:
        self._values = np.empty(length)   # an array: the guard must not halt to sort a list
        self.last = self.worst = math.nan
        self.count = 0

    def add(self, value_ms: float) -> None:
        """Take one; NaN is left out."""
        if not math.isnan(value_ms):
            self._values[self.count % len(self._values)] = value_ms
            self.last = value_ms
            self.worst = value_ms if self.count == 0 else max(self.worst, value_ms)
            self.count += 1

    def summary(self) -> tuple[float, float]:
        """(median, 99th percentile) of the last ones, NaN when there is none."""
        values = np.sort(self._values[:min(self.count, len(self._values))])
        if not len(values):
            return math.nan, math.nan
        return float(values[len(values) // 2]), float(values[int(0.99 * (len(values) - 1))])


def guard_status(node: str, state: str, decision: Decision | None, values: Mapping[str, object],
                 problems: list[str], faults: list[str]) -> DiagnosticStatus:
    """The status of the guard as a whole.

    `problems` are errors of the wiring; `faults` are those of sources, which act only on motion
    towards them and are told also when there is none.
    """
    level, message = OK, state
    found = dict(values)
    if decision is not None:
        level = max(LEVEL[decision.state], WARN if decision.blind else OK)
        message = decision.state + (f': {decision.reason}' if decision.reason else '')
        found = {'action': decision.state, 'reason': decision.reason or 'none',
                 **_motion('asked', decision.asked),
                 **_motion('sent', decision.motion), 'blind': decision.blind, **found}
    if faults and level == OK:
        level, message = WARN, '; '.join([message, *faults])
    if problems:
        level, message = ERROR, '; '.join([*problems, message])
    return status(f'{node}: guard', level, message, {'state': state, **found})


def source_status(node: str, source: SourceGuard, limit: Limit | None, now_s: float,
                  guard: VelocityGuard) -> DiagnosticStatus:
    """The status of one camera as the guard sees it."""
    report = source.report
    values: dict[str, object] = {'yaw': number(source.yaw)}
    fault = source.fault(now_s, guard.history, guard.settings)
    if report is not None:
        values |= {
            'level': report.level.name.lower(), 'age_ms': number(1e3 * (now_s - report.stamp_s)),
            'time_to_contact': number(report.time_to_contact),
            'collision_probability': number(report.collision_probability),
            'side': report.side or 'none', 'flags': ' '.join(report.flags.names) or 'none',
            'clearance': number(report.clearance)}
    way = source.way
    values |= {'free_way': number(way.distance), 'way_known_by': way.known_by,
               'obstacle': source.obstacle, 'period_ms': number(1e3 * source.timing.period_s),
               'arrival_age_ms': number(1e3 * source.timing.arrival_age_s)}
    if limit is not None:
        values |= {'limit': limit.kind, 'limit_speed': number(limit.speed)}
    if fault:
        return status(f'{node}: source {source.name}', ERROR, f'{fault[0]}: {fault[1]}', values)
    slow = source.timing.problem(guard.settings.source_timeout)
    if slow:
        return status(f'{node}: source {source.name}', WARN, slow, values)
    message = 'no limit' if limit is None or not limit.reason else limit.reason
    return status(f'{node}: source {source.name}', OK, message, values)


def _motion(name: str, motion: Motion | None) -> dict[str, str]:
    if motion is None:
        return {f'{name}.vx': 'none', f'{name}.vy': 'none', f'{name}.omega': 'none'}
    return {f'{name}.vx': number(motion.vx), f'{name}.vy': number(motion.vy),
            f'{name}.omega': number(motion.omega)}

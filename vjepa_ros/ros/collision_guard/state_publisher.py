# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Report what the guard does: ``~/state``, ``/diagnostics`` and the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import Decision, Limit, Motion
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.state_publisher import Teller

if TYPE_CHECKING:
    from vjepa_ros.ros.collision_guard.node import CollisionGuard

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


class GuardTeller(Teller):
    """Tells of a `CollisionGuard`, see `Teller`.

    Attributes
    ----------
    reaction, latency
        Times from the stamp, and from the arrival, of an assessment to its command.
    """

    _node: CollisionGuard

    def renew(self) -> None:
        """Begin to count anew (on configure)."""
        super().renew()
        self.reaction, self.latency = Times(), Times()
        self._uncovered = ''

    def key(self, decided: Decision) -> tuple[str, ...]:
        """State and strongest limit, of a fault also which one.

        A perception that is too slow holds the robot by timeouts and releases in turns: one key.
        """
        if not decided.limits:
            which = decided.reason if decided.state == 'fault' else ''
            return decided.state, which
        first, guard = decided.limits[0], self._node.guard
        source = guard.sources.get(first.source)
        slow = source.timing.problem(guard.settings.source_timeout) if source else ''
        if slow and first.reason.endswith(slow):
            return 'slow', first.source
        word = first.reason.partition(':')[0] if first.kind == 'fault' else ''
        return decided.state, first.source, first.kind, word

    def warns(self, decided: Decision) -> bool:
        """Whether a decision is a warning in the log."""
        return decided.state in ('fault', 'override') or decided.blind

    def report(self, label: str, decided: Decision | None, now_s: float, failure: str) -> None:
        """Publish diagnostics, and warn of an override as long as it lasts."""
        if label == 'active' and decided is not None and decided.state == 'override':
            self._node.get_logger().warning(decided.reason)
        super().report(label, decided, now_s, failure)

    def tell_uncovered(self) -> None:
        """Warn of directions that no source looks at, once and when they change."""
        text = self._node.guard.uncovered_text()
        if text and text != self._uncovered:
            self._node.get_logger().warning(f"{text} (parameter 'uncovered')")
        self._uncovered = text

    def statuses(self, name: str, label: str, decided: Decision | None, problems: list[str],
                 now_s: float) -> list[DiagnosticStatus]:
        """One of the guard, one of each camera while it decides."""
        guard = self._node.guard
        sources, faults = [], []
        if guard is not None and decided is not None:
            found = ((n, s.fault(now_s, guard.history, guard.settings))
                     for n, s in guard.sources.items())
            faults = [f'{n}: {fault[0]}: {fault[1]}' for n, fault in found if fault]
            limits = {limit.source: limit for limit in decided.limits}
            sources = [source_status(name, source, limits.get(source.name), now_s, guard)
                       for source in guard.sources.values()]
        return [guard_status(name, label, decided, self._values(now_s), problems, faults),
                *sources]

    def _values(self, now_s: float) -> dict[str, object]:
        guard, reaction, latency = self._node.guard, self.reaction, self.latency
        (median, high), (taken, longest) = reaction.summary(), latency.summary()
        return {
            'uncovered': ('' if guard is None else guard.uncovered_text()) or 'none',
            'override_left_s': number(0.0 if guard is None else guard.override_left(now_s)),
            'reaction_ms': number(reaction.last), 'reaction_ms.median': number(median),
            'reaction_ms.p99': number(high), 'reaction_ms.worst': number(reaction.worst),
            'latency_ms.median': number(taken), 'latency_ms.p99': number(longest),
            'latency_ms.worst': number(latency.worst), 'latency.count': latency.count,
            'assessments_refused': self.refused, 'clock_jumps': self.jumps,
            'callbacks_failed': self.failed}


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
    path = source.free_path
    values |= {'free_way': number(path.distance), 'way_known_by': path.known_by,
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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Report the state of the guard on ``~/state``, ``/diagnostics`` and in the log."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import Decision, Limit, Motion
from vjepa_ros.ros.command.state_publisher import StatePublisher
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.lifecycle import ManagedNode

LEVEL = {'idle': OK, 'free': OK, 'slowed': OK, 'stopped': WARN, 'fault': ERROR, 'override': ERROR}


class DurationStatistics:
    """Statistics of the last durations [ms], and the longest of all."""

    def __init__(self, length: int = 2000) -> None:
        self._values = np.empty(length)   # an array, because sorting a list delays the guard
        self.last = self.worst = math.nan
        self.count = 0

    def add(self, value_ms: float) -> None:
        """Add a duration [ms]; NaN is ignored."""
        if not math.isnan(value_ms):
            self._values[self.count % len(self._values)] = value_ms
            self.last = value_ms
            self.worst = value_ms if self.count == 0 else max(self.worst, value_ms)
            self.count += 1

    def summary(self) -> tuple[float, float]:
        """Return median and 99th percentile of the last durations [ms], NaN without any."""
        values = np.sort(self._values[:min(self.count, len(self._values))])
        if not len(values):
            return math.nan, math.nan
        return float(values[len(values) // 2]), float(values[int(0.99 * (len(values) - 1))])


class GuardStatePublisher(StatePublisher[Decision]):
    """Reports on a collision guard, see `StatePublisher`.

    Parameters
    ----------
    node
        The node.
    guard
        Returns its guard; None while unconfigured.
    odometry
        Returns whether it is to read odometry.

    Attributes
    ----------
    reaction, latency
        Times from stamp and from arrival of an assessment to its command.
    """

    def __init__(self, node: ManagedNode, guard: Callable[[], VelocityGuard | None],
                 odometry: Callable[[], bool]) -> None:
        super().__init__(node)
        self._guard, self._odometry = guard, odometry

    def renew(self) -> None:
        """Reset all statistics (on configure)."""
        super().renew()
        self.reaction, self.latency = DurationStatistics(), DurationStatistics()
        self._uncovered = ''

    def key(self, decided: Decision) -> tuple[str, ...]:
        """Return state and lowest limit, and the name of a fault.

        A perception that is too slow causes timeouts and releases in turn, which share one key.
        """
        if not decided.limits:
            which = decided.reason if decided.state == 'fault' else ''
            return decided.state, which
        first, guard = decided.limits[0], self._guard()
        source = None if guard is None else guard.sources.get(first.source)
        if guard is not None and source is not None:
            slow = source.timing.problem(guard.settings.source_timeout)
            if slow and first.reason.endswith(slow):
                return 'slow', first.source
        fault = first.reason.partition(':')[0] if first.kind == 'fault' else ''
        return decided.state, first.source, first.kind, fault

    def warns(self, decided: Decision) -> bool:
        """Return whether a decision is a warning in the log."""
        return decided.state in ('fault', 'override') or decided.blind

    def report(self, label: str, decided: Decision | None, now_s: float, failure: str) -> None:
        """Publish diagnostics, and warn of an override as long as it lasts."""
        if label == 'active' and decided is not None and decided.state == 'override':
            self._ros.get_logger().warning(decided.reason)
        super().report(label, decided, now_s, failure)

    def warn_uncovered(self, guard: VelocityGuard) -> None:
        """Warn of directions where no source looks, once and at each change.

        No warning, but an information, where `uncovered` is given: somebody has decided.
        """
        text = guard.uncovered_text()
        if text and text != self._uncovered:
            log, said = self._ros.get_logger(), f"{text} (parameter 'uncovered')"
            # One call site per severity: rclpy binds the severity to the line that logs.
            if 'uncovered' in self._ros._parameter_overrides:
                log.info(said)
            else:
                log.warning(said)
        self._uncovered = text

    def statuses(self, name: str, label: str, decided: Decision | None, problems: list[str],
                 now_s: float) -> list[DiagnosticStatus]:
        """Return a status of the guard, and one of each camera while it decides."""
        guard = self._guard()
        sources, faults = [], []
        if guard is not None and decided is not None:
            found = ((n, s.fault(now_s, guard.history, guard.settings))
                     for n, s in guard.sources.items())
            faults = [f'{n}: {fault[0]}: {fault[1]}' for n, fault in found if fault]
            if self._odometry() and not guard.measures_speed(now_s):
                faults.append('no odometry on odom that is current: commands count as motion')
            if problem := guard.speed_problem(now_s):
                faults.append(problem)
            limits = {limit.source: limit for limit in decided.limits}
            sources = [source_status(name, source, limits.get(source.name), now_s, guard)
                       for source in guard.sources.values()]
        return [guard_status(name, label, decided, self._values(now_s), problems, faults),
                *sources]

    def _values(self, now_s: float) -> dict[str, object]:
        guard, reaction, latency = self._guard(), self.reaction, self.latency
        (median, high), (latency_median, latency_high) = reaction.summary(), latency.summary()
        return {
            'uncovered': ('' if guard is None else guard.uncovered_text()) or 'none',
            'override_left_s': number(0.0 if guard is None else guard.override_left(now_s)),
            'reaction_ms': number(reaction.last), 'reaction_ms.median': number(median),
            'reaction_ms.p99': number(high), 'reaction_ms.worst': number(reaction.worst),
            'latency_ms.median': number(latency_median),
            'latency_ms.p99': number(latency_high),
            'latency_ms.worst': number(latency.worst), 'latency.count': latency.count,
            'assessments_refused': self.refused, 'clock_jumps': self.jumps,
            'callbacks_failed': self.failed}


def guard_status(node: str, state: str, decision: Decision | None, values: Mapping[str, object],
                 problems: list[str], faults: list[str]) -> DiagnosticStatus:
    """Return the status of the guard as a whole.

    `problems` are errors of the topics. `faults` are those of sources; they are reported even
    without motion towards the source.
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
    """Return the status of one camera."""
    report = source.report
    values: dict[str, object] = {'yaw': number(source.yaw)}
    fault = source.fault(now_s, guard.history, guard.settings)
    if report is not None:
        values |= {
            'level': report.level.name.lower(), 'age_ms': number(1e3 * (now_s - report.stamp_s)),
            'time_to_contact': number(report.time_to_contact),
            'collision_probability': number(report.collision_probability),
            'collision_if_ahead': number(report.collision_if_ahead),
            'approach_speed': number(report.approach_speed),
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

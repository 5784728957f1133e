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
from vjepa_ros.ros.command.state_publisher import StatePublisher, report_values
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.lifecycle import ManagedNode

LEVEL = {'idle': OK, 'free': OK, 'slowed': OK, 'stopped': WARN, 'fault': ERROR, 'override': ERROR}
KEPT = 2000              # durations


class Durations:
    """The last durations [ms]."""

    def __init__(self) -> None:
        self._values = np.empty(KEPT)     # an array, because sorting a list delays the guard
        self._count = 0

    def add(self, value_ms: float) -> None:
        """Add a duration [ms]; NaN is ignored."""
        if not math.isnan(value_ms):
            self._values[self._count % KEPT] = value_ms
            self._count += 1

    def told(self, name: str) -> dict[str, str]:
        """Return median and 99th percentile as values of a state."""
        values = np.sort(self._values[:self._count]).tolist()
        return {f'{name}.{what}': number(
            values[int(part * (len(values) - 1))] if values else math.nan)
            for what, part in (('median', 0.5), ('p99', 0.99))}


class GuardStatePublisher(StatePublisher):
    """Reports on a collision guard, which is None while unconfigured."""

    def __init__(self, node: ManagedNode, guard: Callable[[], VelocityGuard | None],
                 odometry: Callable[[], bool]) -> None:
        super().__init__(node)
        self._guard, self._odometry = guard, odometry

    def renew(self) -> None:
        """Reset all statistics (on configure)."""
        super().renew()
        self.reaction = Durations()      # from the stamp of an assessment to its command
        self.latency = Durations()       # from its arrival
        self._uncovered = ''

    def key(self, decided: Decision) -> tuple[str, ...]:
        """Return state and lowest limit, and the name of a fault.

        A perception that is too slow causes timeouts and releases in turn, which share one key.
        """
        if not decided.limits:
            return decided.state, decided.reason if decided.state == 'fault' else ''
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
            faults = [f'{n}: {": ".join(fault)}' for n, fault in found if fault]
            if self._odometry() and not guard.measures_speed(now_s):
                faults.append('no odometry on odom that is current: commands count as motion')
            if problem := guard.speed_problem(now_s):
                faults.append(problem)
            limits = {limit.source: limit for limit in decided.limits}
            sources = [source_status(name, source, limits.get(source.name), now_s, guard)
                       for source in guard.sources.values()]
        values = {
            'uncovered': ('' if guard is None else guard.uncovered_text()) or 'none',
            'override_left_s': number(0.0 if guard is None else guard.override_left(now_s)),
            **self.reaction.told('reaction_ms'), **self.latency.told('latency_ms'),
            'assessments_refused': self.refused, 'clock_jumps': self.jumps,
            'callbacks_failed': self.failed}
        return [guard_status(name, label, decided, values, problems, faults), *sources]


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
    path, timing = source.free_path, source.timing
    values = {**report_values(source, now_s), 'free_way': number(path.distance),
              'way_known_by': path.known_by, 'obstacle': source.obstacle,
              'period_ms': number(1e3 * timing.period_s),
              'arrival_age_ms': number(1e3 * timing.arrival_age_s)}
    if limit is not None:
        values |= {'limit': limit.kind, 'limit_speed': number(limit.speed)}
    level, message = OK, 'no limit' if limit is None or not limit.reason else limit.reason
    if fault := source.fault(now_s, guard.history, guard.settings):
        level, message = ERROR, ': '.join(fault)
    elif slow := timing.problem(guard.settings.source_timeout):
        level, message = WARN, slow
    return status(f'{node}: source {source.name}', level, message, values)


def _motion(name: str, motion: Motion | None) -> dict[str, str]:
    return {f'{name}.{part}': 'none' if motion is None else number(getattr(motion, part))
            for part in ('vx', 'vy', 'omega')}

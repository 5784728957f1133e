# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Report the state of a node between controller and base, on topics and in the log."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from diagnostic_msgs.msg import DiagnosticArray

from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.guard.types import Motion
from vjepa_ros.ros.common.diagnostics import ERROR, number, stamped, status

STATE_S = 0.2            # longest time between two messages on ~/state
LOG_EVERY_S = 1.0


class Description(NamedTuple):
    """What a node reports of its decider."""

    level: bytes
    faults: list[str]        # said beside the decision
    values: dict[str, object]
    sources: dict[str, tuple[bytes, str, dict[str, str]]]     # level, message, values of cameras


class StatePublisher:
    """Publishes the state at every change and five times a second; diagnostics on request.

    What the node, a `CommandNode`, has decided has a `state` in one word and a `reason` as text.
    """

    def __init__(self, node: Any) -> None:
        self._ros = node
        self._state = node.create_publisher(DiagnosticArray, '~/state', 10)
        self._diagnostics = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.renew()

    def renew(self) -> None:
        """Forget what was told (on configure)."""
        self._problems: list[str] = []
        self._published: tuple[str, ...] = ()
        self._published_s = -math.inf
        self._logged: tuple[str, ...] = ()
        self._logged_s = {True: -math.inf, False: -math.inf}     # warnings, and the rest

    def publish(self, decided: Any) -> None:
        """Publish the state of an active node when it is due, and log changes."""
        key, steady = self._ros.state_key(decided), time.monotonic()   # simulated time may stand
        self._log(key, decided, steady)
        if key == self._published and steady - self._published_s < STATE_S:
            return
        self._published, self._published_s = key, steady
        self._send(self._state, decided, self._ros.callback_failure)

    def _log(self, key: tuple[str, ...], decided: Any, steady_s: float) -> None:
        """Log changes, at most once a second; a change that lasts is logged later, never lost."""
        warns = decided.warns
        if key == self._logged or steady_s - self._logged_s[warns] < LOG_EVERY_S:
            return
        self._logged, self._logged_s[warns] = key, steady_s
        # One call site per severity: rclpy binds the severity to the line that logs.
        if warns:
            self._ros.get_logger().warning(said(decided))
        else:
            self._ros.get_logger().info(said(decided))

    def report(self, decided: Any, problems: list[str]) -> None:
        """Publish diagnostics, and the state of a node that is not active; log new problems."""
        for problem in problems:
            if problem not in self._problems:
                self._ros.get_logger().error(problem)
        self._problems = problems
        failure = self._ros.failure
        if self._ros.state != 'active':
            self._send(self._state, None, failure)
        self._send(self._diagnostics, decided, failure)

    def _send(self, publisher: Any, decided: Any, failure: str) -> None:
        contained = decided is not None and failure in decided.reason
        problems = [failure, *self._problems] if failure and not contained else self._problems
        node = self._ros
        name = node.get_fully_qualified_name().lstrip('/')
        values: dict[str, object] = {'state': node.state}
        if decided is not None:
            values |= {'action': decided.state, 'reason': decided.reason or 'none',
                       **motion_values('asked', decided.asked),
                       **motion_values('sent', decided.motion)}
        report = node.describe(decided)
        level, message = report.level, node.state if decided is None else said(decided)
        message = '; '.join([message, *report.faults])
        if problems:
            level, message = ERROR, '; '.join([*problems, message])
        values |= report.values | {'clock_jumps': node.clock_jumps,
                                   'callbacks_failed': node.callbacks_failed}
        publisher.publish(stamped(node, [
            status(f'{name}: {node.NAME}', level, message, values),
            *(status(f'{name}: source {source}', *more)
              for source, more in report.sources.items())]))


def said(decided: Any) -> str:
    return decided.state + (f': {decided.reason}' if decided.reason else '')


def motion_values(name: str, motion: Motion | None) -> dict[str, str]:
    return {f'{name}.{part}': 'none' if motion is None else number(getattr(motion, part))
            for part in Motion._fields}


def report_values(source: SourceGuard, now_s: float) -> dict[str, str]:
    """Return what a camera reported last, as values of a state."""
    report, values = source.report, {'yaw': number(source.yaw)}
    if report is not None:
        values |= {
            'level': report.level.name.lower(), 'age_ms': number(1e3 * (now_s - report.stamp_s)),
            **{name: number(getattr(report, name)) for name in (
                'time_to_contact', 'collision_probability', 'collision_if_ahead',
                'approach_speed', 'clearance')},
            'side': report.side or 'none', 'flags': ' '.join(report.flags.names) or 'none'}
    return values

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Report the state of a node between controller and base, on topics and in the log."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from vjepa_ros.guard.source import SourceGuard
from vjepa_ros.ros.common.diagnostics import number, stamped
from vjepa_ros.ros.common.lifecycle import ManagedNode

STATE_S = 0.2            # longest time between two messages on ~/state
LOG_EVERY_S = 1.0


class StatePublisher(ABC):
    """Publishes the state at every change and five times a second; diagnostics on request.

    What a node has decided has a `state` in one word and a `reason` as text.
    """

    def __init__(self, node: ManagedNode) -> None:
        self._ros = node
        self.failed = 0          # callbacks that raised an exception
        self._state = node.create_publisher(DiagnosticArray, '~/state', 10)
        self._diagnostics = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.renew()

    def renew(self) -> None:
        """Reset all counters (on configure)."""
        self.jumps = self.refused = 0        # of the clock, and messages that could not be read
        self._problems: list[str] = []
        self._published: tuple[str, ...] = ()
        self._published_s = -math.inf
        self._logged: tuple[str, ...] = ()
        self._logged_s = {True: -math.inf, False: -math.inf}     # warnings, and the rest

    @abstractmethod
    def key(self, decided: Any) -> tuple[str, ...]:
        """Return the part of a decision whose change is published at once."""

    @abstractmethod
    def warns(self, decided: Any) -> bool:
        """Return whether a decision is a warning in the log."""

    @abstractmethod
    def statuses(self, name: str, label: str, decided: Any, problems: list[str],
                 now_s: float) -> list[DiagnosticStatus]:
        """Return the full report; `decided` is None without a decision."""

    def publish(self, decided: Any, now_s: float) -> None:
        """Publish the state of an active node when it is due, and log changes."""
        key, steady = self.key(decided), time.monotonic()     # a simulated clock may stand
        self._log(key, decided, steady)
        if key == self._published and steady - self._published_s < STATE_S:
            return
        self._published, self._published_s = key, steady
        self._send(self._state, 'active', decided, now_s, self._ros.callback_failure)

    def _log(self, key: tuple[str, ...], decided: Any, steady_s: float) -> None:
        """Log changes, at most once a second; a change that lasts is logged later, never lost."""
        warns = self.warns(decided)
        if key == self._logged or steady_s - self._logged_s[warns] < LOG_EVERY_S:
            return
        self._logged, self._logged_s[warns] = key, steady_s
        text = decided.state + (f': {decided.reason}' if decided.reason else '')
        if warns:
            self._ros.get_logger().warning(text)
        else:
            self._ros.get_logger().info(text)

    def report(self, label: str, decided: Any, now_s: float, failure: str) -> None:
        """Publish diagnostics, and the state of a node that is not active."""
        if label != 'active':
            self._send(self._state, label, None, now_s, failure)
        self._send(self._diagnostics, label, decided, now_s, failure)

    def set_problems(self, problems: list[str]) -> None:
        """Set the errors of the topics; new ones are logged."""
        for problem in problems:
            if problem not in self._problems:
                self._ros.get_logger().error(problem)
        self._problems = problems

    def _send(self, publisher: Any, label: str, decided: Any, now_s: float,
              failure: str) -> None:
        name = self._ros.get_fully_qualified_name().lstrip('/')
        contained = decided is not None and failure in decided.reason
        problems = [failure, *self._problems] if failure and not contained else self._problems
        publisher.publish(stamped(self._ros, self.statuses(name, label, decided, problems,
                                                           now_s)))


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

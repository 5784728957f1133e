# SPDX-License-Identifier: Apache-2.0
"""Tell what the guard does: ``~/state``, ``/diagnostics`` and the log."""

from __future__ import annotations

import math
import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.reports import Decision
from vjepa_ros.ros.guard_state import Times, guard_status, number, source_status

STATE_S = 0.2            # longest time between two messages on ~/state
LOG_EVERY_S = 1.0


class Teller:
    """Publishes the state at every change of it and five times a second; diagnostics when asked.

    Parameters
    ----------
    node
        The guard's node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._state = node.create_publisher(DiagnosticArray, '~/state', 10)
        self._diagnostics = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.renew()

    def renew(self) -> None:
        """Begin to count anew (on configure)."""
        self.reaction, self.latency = Times(), Times()
        self.problems: list[str] = []
        self.jumps = self.refused = 0
        self._uncovered = ''
        self._told: tuple[str, ...] = ()
        self._told_s = -math.inf

    def tell(self, now_s: float, label: str, decision: Decision, guard: VelocityGuard) -> None:
        """Publish the state when it is due, log it when it has changed."""
        first = decision.limits[0] if decision.limits else None
        key = (decision.state,)
        if first is not None:
            word = first.reason.partition(':')[0] if first.kind == 'fault' else ''
            key += (first.source, first.kind, word)
        steady = time.monotonic()       # a simulated clock may stand
        due = steady - self._told_s >= STATE_S
        if key == self._told and not due:
            return
        if key != self._told:
            self._log(decision)
        self._told, self._told_s = key, steady
        self._send(self._state, label, decision, guard, now_s)

    def report(self, label: str, decision: Decision | None, guard: VelocityGuard | None,
               now_s: float, failure: str) -> None:
        """Publish diagnostics, and the state, too, while nothing else does."""
        if label != 'active':
            self._send(self._state, label, None, None, now_s, failure)
        elif decision is not None and decision.state == 'override':
            self._node.get_logger().warning(decision.reason)
        self._send(self._diagnostics, label, decision, guard, now_s, failure)

    def tell_uncovered(self, guard: VelocityGuard) -> None:
        """Warn of directions that no source looks at, once and when they change."""
        text = guard.uncovered_text()
        if text and text != self._uncovered:
            self._node.get_logger().warning(f"{text} (parameter 'uncovered')")
        self._uncovered = text

    def set_problems(self, problems: list[str]) -> None:
        """Take what is wrong with the wiring; what is new is logged."""
        for problem in problems:
            if problem not in self.problems:
                self._node.get_logger().error(problem)
        self.problems = problems

    def _log(self, decision: Decision) -> None:
        text = decision.state + (f': {decision.reason}' if decision.reason else '')
        if decision.state in ('fault', 'override') or decision.blind:
            self._node.get_logger().warning(text, throttle_duration_sec=LOG_EVERY_S)
        else:
            self._node.get_logger().info(text, throttle_duration_sec=LOG_EVERY_S)

    def _send(self, publisher: object, label: str, decision: Decision | None,
              guard: VelocityGuard | None, now_s: float, failure: str = '') -> None:
        array = DiagnosticArray(status=self._statuses(label, decision, guard, now_s, failure))
        array.header.stamp = self._node.get_clock().now().to_msg()
        publisher.publish(array)

    def _statuses(self, label: str, decision: Decision | None, guard: VelocityGuard | None,
                  now_s: float, failure: str) -> list[DiagnosticStatus]:
        name = self._node.get_fully_qualified_name().lstrip('/')
        problems = [failure, *self.problems] if failure else self.problems
        statuses, faults = [], []
        if guard is not None and decision is not None:
            found = ((n, s.fault(now_s, guard.history, guard.settings))
                     for n, s in guard.sources.items())
            faults = [f'{n}: {fault[0]}: {fault[1]}' for n, fault in found if fault]
            limits = {limit.source: limit for limit in decision.limits}
            statuses += [source_status(name, source, limits.get(source.name), now_s, guard)
                         for source in guard.sources.values()]
        return [guard_status(name, label, decision, self._values(guard, now_s), problems, faults),
                *statuses]

    def _values(self, guard: VelocityGuard | None, now_s: float) -> dict[str, object]:
        reaction, latency = self.reaction.summary(), self.latency.summary()
        return {
            'uncovered': ('' if guard is None else guard.uncovered_text()) or 'none',
            'override_left_s': number(0.0 if guard is None else guard.override_left(now_s)),
            'reaction_ms': number(self.reaction.last), 'reaction_ms.median': number(reaction[0]),
            'reaction_ms.p99': number(reaction[1]), 'reaction_ms.worst': number(
                self.reaction.worst),
            'latency_ms.median': number(latency[0]), 'latency_ms.p99': number(latency[1]),
            'latency_ms.worst': number(self.latency.worst), 'latency.count': self.latency.count,
            'assessments_refused': self.refused, 'clock_jumps': self.jumps}

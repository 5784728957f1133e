# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell what the guard does: ``~/state``, ``/diagnostics`` and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.guard.types import Decision
from vjepa_ros.ros.collision_guard.status import Times, guard_status, source_status
from vjepa_ros.ros.common.diagnostics import number
from vjepa_ros.ros.common.state_publisher import Teller

if TYPE_CHECKING:
    from vjepa_ros.ros.collision_guard.node import CollisionGuard


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

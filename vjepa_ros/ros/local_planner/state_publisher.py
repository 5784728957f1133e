# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Report the state of the local planner on ``~/state``, ``/diagnostics`` and in the log."""

from __future__ import annotations

import math
from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.planning.local_config import Twist
from vjepa_ros.ros.command.state_publisher import StatePublisher
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.lifecycle import ManagedNode
from vjepa_ros.ros.local_planner.decision import Choice, LocalDecider

LEVELS = {'stopped': WARN, 'waiting': WARN, 'refused': WARN, 'fault': ERROR}


class LocalStatePublisher(StatePublisher[Choice]):
    """Reports on a local planner, see `StatePublisher`.

    Parameters
    ----------
    node
        The node.
    decider
        Returns its decider; None while unconfigured.

    Attributes
    ----------
    took_ms
        Duration of the last decision [ms].
    """

    def __init__(self, node: ManagedNode, decider: Callable[[], LocalDecider | None]) -> None:
        super().__init__(node)
        self._decider = decider

    def renew(self) -> None:
        """Reset all statistics (on configure)."""
        super().renew()
        self.took_ms = math.nan

    def key(self, decided: Choice) -> tuple[str, ...]:
        """Return the state, and the name of a fault: the part of its reason before numbers."""
        if decided.state not in ('fault', 'refused'):
            return (decided.state,)
        return decided.state, *decided.reason.split(':')[:2]

    def warns(self, decided: Choice) -> bool:
        """Return whether a choice is a warning in the log."""
        return decided.state in ('fault', 'refused')

    def statuses(self, name: str, label: str, decided: Choice | None, problems: list[str],
                 now_s: float) -> list[DiagnosticStatus]:
        """Return a status of the planner, and one of each camera while it decides."""
        decider = self._decider()
        planner = self._planner(f'{name}: planner', label, decided, problems)
        if decider is None or decided is None:
            return [planner]
        return [planner, *(_source(f'{name}: source {source}', decider, source, now_s)
                           for source in decider.sources)]

    def _planner(self, name: str, label: str, choice: Choice | None,
                 problems: list[str]) -> DiagnosticStatus:
        decider = self._decider()
        level, message = OK, label
        values: dict[str, object] = {'state': label}
        if choice is not None:
            level = LEVELS.get(choice.state, OK)
            message = choice.state + (f': {choice.reason}' if choice.reason else '')
            plan = choice.plan
            values |= {
                'action': choice.state, 'reason': choice.reason or 'none',
                **_twist('asked', choice.asked), **_twist('sent', choice.twist),
                'risk': number(math.nan if plan is None else plan.risk),
                'risk_of_command': number(math.nan if plan is None or choice.asked is None else
                                          float(plan.candidates['risk'][0])),
                'points': 0 if plan is None else plan.points,
                'choice_ms': number(self.took_ms)}
        if decider is not None:
            values |= {**_twist('speed', decider.motion), 'speed_from': decider.config.speed_from,
                       'course': decider.course_state}
        if problems:
            level, message = ERROR, '; '.join([*problems, message])
        return status(name, level, message, {**values, 'refused': self.refused,
                                             'clock_jumps': self.jumps,
                                             'callbacks_failed': self.failed})


def _source(name: str, decider: LocalDecider, source: str, now_s: float) -> DiagnosticStatus:
    """Return the status of one camera."""
    report, fault = decider.sources[source].watch.report, decider.fault(source, now_s)
    values: dict[str, object] = {'yaw': number(decider.sources[source].watch.yaw)}
    if report is not None:
        values |= {'level': report.level.name.lower(),
                   'age_ms': number(1e3 * (now_s - report.stamp_s)),
                   'collision_probability': number(report.collision_probability),
                   'collision_if_ahead': number(report.collision_if_ahead),
                   'approach_speed': number(report.approach_speed),
                   'clearance': number(report.clearance),
                   'flags': ' '.join(report.flags.names) or 'none'}
    if fault:
        return status(name, ERROR, ': '.join(fault), values)
    return status(name, OK, 'trusted', values)


def _twist(name: str, twist: Twist | None) -> dict[str, str]:
    return {f'{name}.{part}': 'none' if twist is None else number(getattr(twist, part))
            for part in Twist._fields}

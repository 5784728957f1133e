# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell what the twist planner does and why: ``~/state``, ``/diagnostics`` and the log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.planning.twist_config import Twist
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.state_publisher import Teller
from vjepa_ros.ros.twist_planner.decision import Choice, TwistDecider

if TYPE_CHECKING:
    from vjepa_ros.ros.twist_planner.node import TwistPlannerNode

LEVELS = {'stopped': WARN, 'fault': ERROR}


class TwistTeller(Teller):
    """Tells of a `TwistPlannerNode`, see `Teller`.

    Attributes
    ----------
    took_ms
        The last choice [ms].
    """

    _node: TwistPlannerNode

    def renew(self) -> None:
        """Begin to count anew (on configure)."""
        super().renew()
        self.took_ms = math.nan

    def key(self, decided: Choice) -> tuple[str, ...]:
        """The state, of a fault also which one: the part before the numbers in its reason."""
        if decided.state != 'fault':
            return (decided.state,)
        return decided.state, *decided.reason.split(':')[:2]

    def warns(self, decided: Choice) -> bool:
        """Whether a choice is a warning in the log."""
        return decided.state == 'fault'

    def statuses(self, name: str, label: str, decided: Choice | None, problems: list[str],
                 now_s: float) -> list[DiagnosticStatus]:
        """One of the planner, one of each camera while it chooses."""
        decider = self._node.decider
        sources = () if decider is None or decided is None else decider.sources
        return [self._planner(f'{name}: planner', label, decided, decider, problems),
                *(_source(f'{name}: source {source}', decider, source, now_s)
                  for source in sources)]

    def _planner(self, name: str, label: str, choice: Choice | None, decider: TwistDecider | None,
                 problems: list[str]) -> DiagnosticStatus:
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
                'risk_of_command': number(
                    float(plan.candidates['risk'][0]) if plan is not None else math.nan),
                'points': 0 if plan is None else plan.points,
                'choice_ms': number(self.took_ms)}
        if decider is not None:
            values |= {**_twist('speed', decider.motion), 'speed_from': decider.config.speed_from}
        if problems:
            level, message = ERROR, '; '.join([*problems, message])
        return status(name, level, message, {**values, 'refused': self.refused,
                                             'clock_jumps': self.jumps,
                                             'callbacks_failed': self.failed})


def _source(name: str, decider: TwistDecider, source: str, now_s: float) -> DiagnosticStatus:
    """What is known of one camera."""
    report, fault = decider.sources[source].watch.report, decider.fault(source, now_s)
    values: dict[str, object] = {'yaw': number(decider.sources[source].watch.yaw)}
    if report is not None:
        values |= {'level': report.level.name.lower(),
                   'age_ms': number(1e3 * (now_s - report.stamp_s)),
                   'collision_probability': number(report.collision_probability),
                   'clearance': number(report.clearance),
                   'flags': ' '.join(report.flags.names) or 'none'}
    if fault:
        return status(name, ERROR, ': '.join(fault), values)
    return status(name, OK, 'trusted', values)


def _twist(name: str, twist: Twist | None) -> dict[str, str]:
    return {f'{name}.{part}': 'none' if twist is None else number(getattr(twist, part))
            for part in Twist._fields}

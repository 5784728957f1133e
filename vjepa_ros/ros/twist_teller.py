# SPDX-License-Identifier: Apache-2.0
"""Tell what the twist planner does and why: ``~/state``, ``/diagnostics`` and the log."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from vjepa_ros.perception.twist_config import Twist
from vjepa_ros.ros.twist_pilot import Choice, TwistPilot

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
LEVELS = {'stopped': WARN, 'fault': ERROR}
STATE_S = 0.2            # longest time between two messages on ~/state
LOG_EVERY_S = 1.0


class TwistTeller:
    """Publishes the state at every change of it and five times a second; diagnostics when asked.

    Parameters
    ----------
    node
        The planner's node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._state = node.create_publisher(DiagnosticArray, '~/state', 10)
        self._diagnostics = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.renew()

    def renew(self) -> None:
        """Begin to count anew (on configure)."""
        self.problems: list[str] = []
        self.counts = {'refused': 0, 'clock_jumps': 0}
        self.took_ms = math.nan          # a choice
        self._told: tuple[str, ...] = ()
        self._told_s = -math.inf

    def tell(self, label: str, choice: Choice, pilot: TwistPilot, now_s: float) -> None:
        """Publish the state when it is due, log it when it has changed."""
        # Of a fault also which one: the part before the numbers in its reason.
        key = (choice.state, *choice.reason.split(':')[:2]) if choice.state == 'fault' else (
            choice.state,)
        steady = time.monotonic()       # a simulated clock may stand
        if key == self._told and steady - self._told_s < STATE_S:
            return
        if key != self._told:
            text = choice.state + (f': {choice.reason}' if choice.reason else '')
            # One call for each severity: the throttle belongs to the line of code.
            if choice.state == 'fault':
                self._node.get_logger().warning(text, throttle_duration_sec=LOG_EVERY_S)
            else:
                self._node.get_logger().info(text, throttle_duration_sec=LOG_EVERY_S)
        self._told, self._told_s = key, steady
        self._send(self._state, label, choice, pilot, now_s, '')

    def report(self, label: str, choice: Choice | None, pilot: TwistPilot | None, now_s: float,
               failure: str) -> None:
        """Publish diagnostics, and the state, too, while nothing else does."""
        if label != 'active':
            self._send(self._state, label, None, None, now_s, failure)
        self._send(self._diagnostics, label, choice, pilot, now_s, failure)

    def set_problems(self, problems: list[str]) -> None:
        """Take what is wrong with the wiring; what is new is logged."""
        for problem in problems:
            if problem not in self.problems:
                self._node.get_logger().error(problem)
        self.problems = problems

    def _send(self, publisher: object, label: str, choice: Choice | None,
              pilot: TwistPilot | None, now_s: float, failure: str) -> None:
        name = self._node.get_fully_qualified_name().lstrip('/')
        statuses = [self._status(f'{name}: planner', label, choice, pilot, failure)]
        if pilot is not None and choice is not None:
            statuses += [_source(f'{name}: source {source}', pilot, source, now_s)
                         for source in pilot.sources]
        array = DiagnosticArray(status=statuses)
        array.header.stamp = self._node.get_clock().now().to_msg()
        publisher.publish(array)

    def _status(self, name: str, label: str, choice: Choice | None, pilot: TwistPilot | None,
                failure: str) -> DiagnosticStatus:
        level, message = OK, label
        values: dict[str, object] = {'state': label}
        if choice is not None:
            level = LEVELS.get(choice.state, OK)
            message = choice.state + (f': {choice.reason}' if choice.reason else '')
            plan = choice.plan
            values |= {
                'action': choice.state, 'reason': choice.reason or 'none',
                **_twist('asked', choice.asked), **_twist('sent', choice.twist),
                'risk': _number(math.nan if plan is None else plan.risk),
                'risk_of_command': _number(
                    float(plan.candidates['risk'][0]) if plan is not None else math.nan),
                'points': 0 if plan is None else plan.points,
                'choice_ms': _number(self.took_ms)}
        if pilot is not None:
            values |= {**_twist('speed', pilot.motion), 'speed_from': pilot.config.speed_from}
        problems = [failure, *self.problems] if failure else self.problems
        if problems:
            level, message = ERROR, '; '.join([*problems, message])
        return _status(name, level, message, {**values, **self.counts})


def _source(name: str, pilot: TwistPilot, source: str, now_s: float) -> DiagnosticStatus:
    """What is known of one camera."""
    report, fault = pilot.sources[source].watch.report, pilot.fault(source, now_s)
    values: dict[str, object] = {'yaw': _number(pilot.sources[source].watch.yaw)}
    if report is not None:
        values |= {'level': report.level.name.lower(),
                   'age_ms': _number(1e3 * (now_s - report.stamp_s)),
                   'collision_probability': _number(report.collision_probability),
                   'clearance': _number(report.clearance),
                   'flags': ' '.join(report.flags.names) or 'none'}
    if fault:
        return _status(name, ERROR, ': '.join(fault), values)
    return _status(name, OK, 'trusted', values)


def _twist(name: str, twist: Twist | None) -> dict[str, str]:
    return {f'{name}.{part}': 'none' if twist is None else _number(getattr(twist, part))
            for part in Twist._fields}


def _number(value: float) -> str:
    return 'unknown' if math.isnan(value) else f'{value:.3f}'


def _status(name: str, level: bytes, message: str, values: Mapping[str, object]
            ) -> DiagnosticStatus:
    return DiagnosticStatus(name=name, level=level, message=message,
                            values=[KeyValue(key=k, value=str(v)) for k, v in values.items()])

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node before the guard: drives near a command, to a goal or along a path."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.guard.types import Motion
from vjepa_ros.planning.decision import Choice, LocalDecider
from vjepa_ros.planning.local_config import ODOMETRY, Twist
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.state_publisher import StatePublisher, report_values
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.lifecycle import ManagedNode
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.local_planner import inputs as twist_inputs
from vjepa_ros.ros.local_planner.inputs import LocalInputs
from vjepa_ros.ros.local_planner.parameters import LocalNodeConfig, SCHEMA

TOPIC_CHECK_S = 0.2      # period of the check for a publisher of the speed
LEVELS = {'stopped': WARN, 'waiting': WARN, 'refused': WARN, 'fault': ERROR}


class LocalStatePublisher(StatePublisher):
    """Reports on a local planner, whose decider is None while it is unconfigured."""

    def __init__(self, node: ManagedNode, decider: Callable[[], LocalDecider | None]) -> None:
        super().__init__(node)
        self._decider = decider

    def renew(self) -> None:
        """Reset all statistics (on configure)."""
        super().renew()
        self.took_ms = math.nan      # for the last decision

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
        faults = {source: decider.fault(source, now_s) for source in decider.sources}
        return [planner, *(status(
            f'{name}: source {source}', ERROR if fault else OK, ': '.join(fault or ('trusted',)),
            report_values(decider.sources[source].watch, now_s))
            for source, fault in faults.items())]

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


def _twist(name: str, twist: Twist | None) -> dict[str, str]:
    return {f'{name}.{part}': 'none' if twist is None else number(getattr(twist, part))
            for part in Twist._fields}


class LocalPlannerNode(CommandNode):
    """Subscribes ``cmd_vel_in``, ``goal_pose``, ``path``, cameras and the speed.

    Publishes ``cmd_vel_out``, ``~/candidates``, ``~/state`` and ``/diagnostics``.
    """

    FLOOD_S = 0.01           # a choice takes some milliseconds
    RATE_HZ = 20.0

    def __init__(self, node_name: str = 'local_planner', **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        self.decider: LocalDecider | None = None
        self._candidates: Any = None
        self._checked_s = -math.inf
        self.state_publisher = LocalStatePublisher(self, lambda: self.decider)
        self.params = Declared(self, SCHEMA, self._on_changed, lambda: self.state == 'active')
        self.begin()

    def prepare(self, config: LocalNodeConfig) -> str:
        """Create the decider and the output of candidates."""
        self.configured.callback(self._drop)
        if config.speed_from == ODOMETRY:
            twist_inputs.odometry()             # fails here rather than on activate
        self.decider = LocalDecider(config, self.now_s())
        self._candidates = self.create_output(PointCloud2, '~/candidates')
        listened = ', '.join(f'{name} ({config.topics[name]}, {math.degrees(mount.yaw):.0f} deg)'
                             for name, mount in config.mounts.items())
        return (f'uses {listened}; it plans, but does not guard: put a collision_guard behind '
                'it')

    def _drop(self) -> None:
        self.decider = self._candidates = None

    def _configured_decider(self) -> LocalDecider:
        assert self.decider is not None, 'called between configure and release only'
        return self.decider

    def create_inputs(self, config: LocalNodeConfig) -> LocalInputs:
        """Create the subscriptions to cameras and the speed."""
        decider = self._configured_decider()
        decider.reset(self.now_s())
        decider.no_command()                    # its zero was sent
        return LocalInputs(self, config, decider, self.now_s, self.act_unless_flooded)

    def forget(self, now_s: float) -> None:
        """Drop everything received before, even the command."""
        self._configured_decider().clock_jumped(now_s)

    def topics(self, config: LocalNodeConfig) -> dict[str, str]:
        """Return topics and their types."""
        return twist_inputs.topics(config)

    def problems(self) -> list[str]:
        """Return the problems of the topics of a configured node, one sentence each."""
        return [*super().problems(), *twist_inputs.changed_behind(self, self.config)]

    def apply(self, config: LocalNodeConfig) -> LocalNodeConfig:
        """Apply what may change while the node runs; all else stays."""
        config = replace(self.config or config, twist=config.twist, watch=config.watch,
                         on_fault=config.on_fault)
        self._configured_decider().configure(config)
        return config

    def commanded(self, motion: Motion, now_s: float) -> None:
        """Take a command, even one that is not finite."""
        self._configured_decider().command(Twist(motion.vx, motion.vy, motion.omega), now_s)

    def act(self, news: bool) -> None:
        """Decide, and publish the twist, even an unchanged one, and the state."""
        start, decider = time.perf_counter(), self._configured_decider()
        decider.hold_reason = self.callback_failure
        steady_s, now_s = time.monotonic(), self.now_s()
        holds_s = decider.holds_until(now_s) - now_s
        choice = self.decided = decider.decide(now_s)
        self.state_publisher.took_ms = 1e3 * (time.perf_counter() - start)
        self.send(None if choice.twist is None else Motion(*choice.twist), news=True,
                  holds_until_s=steady_s + holds_s)
        if choice.plan is not None and self._candidates.get_subscription_count():
            header = Header(stamp=self.get_clock().now().to_msg(),
                            frame_id=self.config.base_frame)
            self._candidates.publish(cloud(header, choice.plan.candidates))
        if self._inputs is not None:
            self.state_publisher.refused = self._inputs.refused
        self.state_publisher.publish(choice, self.now_s())

    def _on_tick(self) -> None:
        if self._inputs is not None and time.monotonic() - self._checked_s >= TOPIC_CHECK_S:
            self._checked_s = time.monotonic()
            self._inputs.watch()
        super()._on_tick()

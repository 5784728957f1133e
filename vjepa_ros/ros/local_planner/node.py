# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node before the guard: drives near a command, to a goal or along a path."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.planning.decision import Choice, LocalDecider
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.state_publisher import motion_values, report_values, said
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number, status
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.local_planner.inputs import LocalInputs, changed_behind, topics
from vjepa_ros.ros.local_planner.parameters import LocalNodeConfig, SCHEMA

TOPIC_CHECK_S = 0.2      # period of the check for a publisher of the speed
LEVELS = {'stopped': WARN, 'waiting': WARN, 'refused': WARN, 'fault': ERROR}


class LocalPlannerNode(CommandNode):
    """Subscribes ``cmd_vel_in``, ``goal_pose``, ``path``, cameras and the speed."""

    FLOOD_S = 0.01           # a choice takes some milliseconds
    RATE_HZ = 20.0

    def __init__(self, node_name: str = 'local_planner', **kwargs: Any) -> None:
        super().__init__(node_name, SCHEMA, **kwargs)
        self._candidates: Any = None
        self._checked_s = -math.inf
        self._took_ms = math.nan      # for the last decision

    def prepare(self, config: LocalNodeConfig) -> str:
        self.decider = LocalDecider(config, self.now_s())
        self._candidates = self.create_output(PointCloud2, '~/candidates')
        listened = ', '.join(f'{name} ({config.topics[name]}, {math.degrees(mount.yaw):.0f} deg)'
                             for name, mount in config.mounts.items())
        return (f'uses {listened}; it plans, but does not guard: put a collision_guard behind '
                'it')

    def create_inputs(self, config: LocalNodeConfig) -> LocalInputs:
        self.decider.reset(self.now_s())
        self.decider.no_command()               # its zero was sent
        return LocalInputs(self, config, self.decider, self.now_s, self.act_unless_flooded)

    def topics(self, config: LocalNodeConfig) -> dict[str, str]:
        return topics(config)

    def problems(self) -> list[str]:
        return [*super().problems(), *changed_behind(self, self.config)]

    def apply(self, config: LocalNodeConfig) -> LocalNodeConfig:
        """Apply what may change while the node runs; all else stays."""
        config = replace(self.config or config, twist=config.twist, watch=config.watch,
                         on_fault=config.on_fault)
        self.decider.configure(config)
        return config

    def act(self, news: bool) -> None:
        """Decide, and publish the motion, even an unchanged one, and the candidates."""
        start = time.perf_counter()
        super().act(True)
        self._took_ms = 1e3 * (time.perf_counter() - start)
        plan = self.decided.plan
        if plan is not None and self._candidates.get_subscription_count():
            header = Header(stamp=self.get_clock().now().to_msg(),
                            frame_id=self.config.base_frame)
            self._candidates.publish(cloud(header, plan.candidates))

    def _on_tick(self) -> None:
        if self._inputs is not None and time.monotonic() - self._checked_s >= TOPIC_CHECK_S:
            self._checked_s = time.monotonic()
            self._inputs.watch()
        super()._on_tick()

    # -- reports -----------------------------------------------------------------------------

    def state_key(self, decided: Choice) -> tuple[str, ...]:
        """Return the state, and the name of a fault: the part of its reason before numbers."""
        if decided.state not in ('fault', 'refused'):
            return (decided.state,)
        return decided.state, *decided.reason.split(':')[:2]

    def warns(self, decided: Choice) -> bool:
        return decided.state in ('fault', 'refused')

    def statuses(self, decided: Choice | None, problems: list[str]) -> list[DiagnosticStatus]:
        decider, now_s = self.decider, self.now_s()
        name = self.get_fully_qualified_name().lstrip('/')
        level, message = OK, self.state
        values: dict[str, object] = {'state': self.state}
        sources = []
        if decided is not None:
            level, message = LEVELS.get(decided.state, OK), said(decided)
            plan = decided.plan
            values |= {
                'action': decided.state, 'reason': decided.reason or 'none',
                **motion_values('asked', decided.asked), **motion_values('sent', decided.motion),
                'risk': number(math.nan if plan is None else plan.risk),
                'risk_of_command': number(math.nan if plan is None or decided.asked is None else
                                          float(plan.candidates['risk'][0])),
                'points': 0 if plan is None else plan.points,
                'choice_ms': number(self._took_ms)}
            faults = {source: decider.fault(source, now_s) for source in decider.sources}
            sources = [status(
                f'{name}: source {source}', ERROR if fault else OK,
                ': '.join(fault or ('trusted',)),
                report_values(decider.sources[source].watch, now_s))
                for source, fault in faults.items()]
        if decider is not None:
            values |= {**motion_values('speed', decider.motion),
                       'speed_from': decider.config.speed_from, 'course': decider.course_state}
        if problems:
            level, message = ERROR, '; '.join([*problems, message])
        values |= {'refused': self.state_publisher.refused,
                   'clock_jumps': self.state_publisher.jumps,
                   'callbacks_failed': self.callbacks_failed}
        return [status(f'{name}: planner', level, message, values), *sources]

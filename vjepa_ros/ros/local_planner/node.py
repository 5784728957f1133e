# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node before the guard: drives near a command, to a goal or along a path."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from rclpy.node import NodeNameNonExistentError
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.planning.decision import Choice, LocalDecider, SENT
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.peers import CLOUD, full_name
from vjepa_ros.ros.command.state_publisher import Description, motion_values, report_values
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, number
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.local_planner.inputs import LocalInputs
from vjepa_ros.ros.local_planner.parameters import LocalNodeConfig, SCHEMA

TOPIC_CHECK_S = 0.2      # period of the check for a publisher of the speed
TWISTS = {'geometry_msgs/msg/Twist', 'geometry_msgs/msg/TwistStamped'}
LEVELS = {'stopped': WARN, 'waiting': WARN, 'refused': WARN, 'fault': ERROR}


class LocalPlannerNode(CommandNode):
    """Subscribes ``cmd_vel_in``, ``goal_pose``, ``path``, cameras and the speed."""

    NAME = 'planner'
    INPUTS = LocalInputs
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

    def topics(self, config: LocalNodeConfig) -> dict[str, str]:
        sent = ('cmd_vel_sent',) if config.speed_from == SENT else ()
        return {**dict.fromkeys(sent, f'geometry_msgs/msg/{self._kind.__name__}'),
                **{f'{prefix}/{topic}': CLOUD for prefix in config.topics.values()
                   for topic in ('assessment', 'looming_field')}}

    def problems(self) -> list[str]:
        """Return also nodes that may change the commands which this one takes for its speed."""
        problems = super().problems()
        output, own = (self.resolve_topic_name(f'cmd_vel_{part}') for part in ('out', 'in'))
        if self.config.speed_from != SENT or self.resolve_topic_name('cmd_vel_sent') != output:
            return problems
        for info in self.get_subscriptions_info_by_topic(output):
            try:
                published = self.get_publisher_names_and_types_by_node(info.node_name,
                                                                       info.node_namespace)
            except NodeNameNonExistentError:          # it has just ended
                continue
            problems += [
                f'cmd_vel_sent is cmd_vel_out, but {full_name(info)} listens to {output} and '
                f'publishes {topic}: what it changes is not known; remap cmd_vel_sent to {topic}'
                for topic, kinds in published
                if topic not in (own, output) and TWISTS & set(kinds)]
        return problems

    def apply(self, config: LocalNodeConfig) -> LocalNodeConfig:
        """Apply what may change while the node runs; all else stays."""
        config = replace(self.config, twist=config.twist, watch=config.watch,
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

    def describe(self, decided: Choice | None) -> Description:
        decider, now_s, level = self.decider, self.now_s(), OK
        values: dict[str, object] = {}
        sources = {}
        if decided is not None:
            level, plan = LEVELS.get(decided.state, OK), decided.plan
            values |= {
                'risk': number(math.nan if plan is None else plan.risk),
                'risk_of_command': number(math.nan if plan is None or decided.asked is None else
                                          float(plan.candidates['risk'][0])),
                'points': 0 if plan is None else plan.points,
                'choice_ms': number(self._took_ms)}
            for name, source in decider.sources.items():
                fault = decider.fault(name, now_s)
                sources[name] = (ERROR if fault else OK, ': '.join(fault or ('trusted',)),
                                 report_values(source.watch, now_s))
        if decider is not None:
            values |= {**motion_values('speed', decider.motion),
                       'speed_from': decider.config.speed_from, 'course': decider.course_state}
        return Description(level, [], values | {'refused': self.refused}, sources)

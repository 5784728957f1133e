# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node before the guard: drives near a command, to a goal or along a path."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.guard.types import Motion
from vjepa_ros.planning.local_config import Twist
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.local_planner import inputs as twist_inputs
from vjepa_ros.ros.local_planner.decision import LocalDecider
from vjepa_ros.ros.local_planner.inputs import LocalInputs
from vjepa_ros.ros.local_planner.parameters import LocalNodeConfig, ODOMETRY, OWN, SCHEMA
from vjepa_ros.ros.local_planner.state_publisher import LocalStatePublisher

TOPIC_CHECK_S = 0.2      # period of the check for a publisher of the speed


class LocalPlannerNode(CommandNode[LocalNodeConfig, LocalInputs, LocalStatePublisher]):
    """Subscribes ``cmd_vel_in``, ``goal_pose``, ``path``, cameras and the speed.

    Publishes ``cmd_vel_out``, ``~/candidates``, ``~/state`` and ``/diagnostics``.

    Attributes
    ----------
    decider
        Decides in a configured node.
    """

    FLOOD_S = 0.01           # a choice takes some milliseconds

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
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.mount.yaw):.0f} deg)'
                             for s in config.sources)
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
        if self.config is None:
            return []
        return [*super().problems(), *twist_inputs.changed_behind(self, self.config)]

    def apply(self, config: LocalNodeConfig) -> LocalNodeConfig:
        """Apply what may change while the node runs; all else stays."""
        config = replace(self.config or config, twist=config.twist, watch=config.watch,
                         speed_timeout=config.speed_timeout, on_fault=config.on_fault)
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
        if choice.twist is not None and decider.config.speed_from == OWN:
            decider.moves(choice.twist, self.now_s())
        if choice.plan is not None:
            header = Header(stamp=self.get_clock().now().to_msg(),
                            frame_id=decider.config.base_frame)
            if self._candidates.get_subscription_count():
                self._candidates.publish(cloud(header, choice.plan.candidates))
        if self._inputs is not None:
            self.state_publisher.refused = self._inputs.refused
        self.state_publisher.publish(choice, self.now_s())

    def _on_tick(self) -> None:
        if self._inputs is not None and time.monotonic() - self._checked_s >= TOPIC_CHECK_S:
            self._checked_s = time.monotonic()
            self._inputs.watch()
        super()._on_tick()

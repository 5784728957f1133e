# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node between controller and guard: the safest twist nearest the commanded one."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.guard.types import Motion
from vjepa_ros.planning.twist_config import Twist
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.twist_planner import inputs as twist_inputs
from vjepa_ros.ros.twist_planner.decision import Choice, TwistDecider
from vjepa_ros.ros.twist_planner.inputs import TwistInputs
from vjepa_ros.ros.twist_planner.parameters import ODOMETRY, OWN, SCHEMA, TwistNodeConfig
from vjepa_ros.ros.twist_planner.state_publisher import TwistTeller

WIRING_S = 0.2           # how often the speed's publisher is looked for


class TwistPlannerNode(CommandNode):
    """Subscribes ``cmd_vel_in``, cameras and the speed; publishes ``cmd_vel_out``.

    Publishes ``~/candidates``, ``~/state`` and ``/diagnostics``, too.
    """

    FLOOD_S = 0.01           # a choice takes some milliseconds

    def __init__(self, node_name: str = 'twist_planner', **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self.decider: TwistDecider | None = None
        self._candidates = None
        self._looked_s = -math.inf
        self.teller = TwistTeller(self)
        self.params = Declared(self, SCHEMA, self._on_changed, lambda: self.state == 'active')
        self.begin()

    def prepare(self, config: TwistNodeConfig) -> str:
        """Make the decider, and the output of candidates."""
        self.configured.callback(self._drop)
        if config.speed_from == ODOMETRY:
            twist_inputs.odometry()             # fails now, with the remedy, rather than later
        self.decider = TwistDecider(config, self.now_s())
        self._candidates = self.create_output(PointCloud2, '~/candidates')
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.mount.yaw):.0f} deg)'
                             for s in config.sources)
        return (f'looks through {listened}; it plans, but does not guard: put a collision_guard '
                'behind it')

    def _drop(self) -> None:
        self.decider = self._candidates = None

    def listen(self) -> TwistInputs:
        """What subscribes to cameras and the speed."""
        self.decider.no_command()                 # its zero was sent
        return TwistInputs(self, self.config, self.decider, self.now_s, self.act_unless_flooded)

    def forget(self, now_s: float) -> None:
        """All that came before counts no more, the command as well."""
        self.decider.reset(now_s)

    def topics(self, config: TwistNodeConfig) -> dict[str, str]:
        """Topics and their types."""
        return twist_inputs.topics(config)

    def problems(self) -> list[str]:
        """What is wrong with the topics of a configured node, one sentence each."""
        return [*super().problems(), *twist_inputs.changed_behind(self, self.config)]

    def apply(self, config: TwistNodeConfig) -> TwistNodeConfig:
        """Take what may change while the node runs."""
        config = replace(self.config, twist=config.twist, watch=config.watch,
                         speed_timeout=config.speed_timeout, on_fault=config.on_fault)
        self.decider.configure(config)
        return config

    def commanded(self, motion: Motion, now_s: float) -> None:
        """Take a command, also one that is no number."""
        self.decider.command(Twist(motion.vx, motion.vy, motion.omega), now_s)

    def act(self, news: bool) -> None:
        """Choose, publish, also what has not changed, and tell."""
        began = time.perf_counter()
        self.decider.hold_reason = self.callback_failure
        choice = self.decided = self.decider.decide(self.now_s())
        self.teller.took_ms = 1e3 * (time.perf_counter() - began)
        self.send(None if choice.twist is None else Motion(*choice.twist), news=True)
        if choice.twist is not None and self.config.speed_from == OWN:
            self.decider.moves(choice.twist, self.now_s())
        self._show(choice)
        self.teller.refused = self._inputs.refused
        self.teller.tell(choice, self.now_s())

    def _show(self, choice: Choice) -> None:
        if choice.plan is not None and self._candidates.get_subscription_count():
            header = Header(stamp=self.get_clock().now().to_msg(),
                            frame_id=self.config.base_frame)
            self._candidates.publish(cloud(header, choice.plan.candidates))

    def _on_tick(self) -> None:
        if time.monotonic() - self._looked_s >= WIRING_S:
            self._looked_s = time.monotonic()
            self._inputs.watch()
        super()._on_tick()

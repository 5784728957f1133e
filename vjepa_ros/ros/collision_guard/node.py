# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node between controller and base: lets through what the cameras allow."""

from __future__ import annotations

import math
from dataclasses import replace

from std_srvs.srv import SetBool

from vjepa_ros.guard.guard import VelocityGuard
from vjepa_ros.guard.types import Motion
from vjepa_ros.ros.collision_guard.camera_directions import Frames
from vjepa_ros.ros.collision_guard.inputs import GuardInputs, epoch_ns, odometry
from vjepa_ros.ros.collision_guard.parameters import SCHEMA, GuardConfig
from vjepa_ros.ros.collision_guard.state_publisher import GuardTeller
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.wiring import CLOUD, twist_type
from vjepa_ros.ros.common.declared_parameters import Declared


class CollisionGuard(CommandNode):
    """Subscribes ``cmd_vel_in`` and assessments, publishes ``cmd_vel_out`` and ``~/state``."""

    def __init__(self, node_name: str = 'collision_guard', **kwargs: object) -> None:
        super().__init__(node_name, **kwargs)
        self.guard: VelocityGuard | None = None
        self._frames: Frames | None = None
        self.teller = GuardTeller(self)
        self.params = Declared(self, SCHEMA, self._on_changed, lambda: self.state == 'active')
        self.create_service(SetBool, '~/override', self._on_override)
        self.begin()

    def prepare(self, config: GuardConfig) -> str:
        """Make the guard."""
        self.configured.callback(self._drop)
        if config.odometry:
            odometry()                          # fails now, with the remedy, rather than later
        if any(source.from_tf for source in config.sources):
            self._frames = Frames(self, config.base_frame)
            self.configured.callback(self._frames.close)
        self.guard = VelocityGuard(config.settings, {s.name: s.yaw for s in config.sources},
                                   {r.name: r.yaw for r in config.ranges})
        if self._frames is None:                # else once tf has told where cameras look
            self.teller.tell_uncovered()
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.yaw):.0f} deg)'
                             for s in config.sources)
        return f'guards against {listened or "ranges alone"}'

    def _drop(self) -> None:
        self.guard = self._frames = None

    def listen(self) -> GuardInputs:
        """What subscribes to cameras, range sensors and odometry."""
        self.guard.no_command()                 # its zero was sent
        return GuardInputs(self, self.config, self.guard, self.now_s, self._on_news, self._frames)

    def forget(self, now_s: float) -> None:
        """All that came before counts no more."""
        self.guard.clock_jumped(now_s)

    def topics(self, config: GuardConfig) -> dict[str, str]:
        """Topics and their types."""
        twist = twist_type(config.stamped)
        return {'cmd_vel_in': twist, 'cmd_vel_out': twist,
                **{source.topic: CLOUD for source in config.sources}}

    def apply(self, config: GuardConfig) -> GuardConfig:
        """Take new settings."""
        self.guard.settings = config.settings
        return replace(self.config, settings=config.settings)

    # -- commands --------------------------------------------------------------------------

    def commanded(self, motion: Motion, now_s: float) -> None:
        """Take a command, also one that is no number."""
        self.guard.command(motion, now_s)

    def act(self, news: bool) -> None:
        """Decide, and publish what is new."""
        self.guard.hold_reason = self.callback_failure
        self.decided = self.guard.decide(self.now_s())
        self.send(self.decided.motion, news)
        self.teller.reaction.add(1e3 * self.decided.reaction_s)

    def _on_news(self, arrival_ns: int) -> None:
        self.act(True)
        if arrival_ns:
            self.teller.latency.add((epoch_ns() - arrival_ns) / 1e6)

    def _on_tick(self) -> None:
        super()._on_tick()
        self.teller.refused = self._inputs.refused
        self.teller.tell(self.decided, self.now_s())    # here: it must not hold up a stop

    # -- override, reports -----------------------------------------------------------------

    def _on_override(self, request: SetBool.Request, response: SetBool.Response
                     ) -> SetBool.Response:
        if self.state != 'active':
            response.success = False
            response.message = f'the guard is {self.state}: there is nothing to override'
            return response
        self.guard.override(request.data, self.now_s())
        response.success = True
        if request.data:
            response.message = (f'OVERRIDE: nothing is guarded for '
                                f'{self.config.settings.override_timeout:g} s')
            self.get_logger().warning(response.message)
        else:
            response.message = 'override has ended: the guard acts again'
            self.get_logger().info(response.message)
        return response

    def _on_report(self) -> None:
        if self.config is not None and (self._frames is None or self.state == 'active'):
            self.teller.tell_uncovered()
        super()._on_report()

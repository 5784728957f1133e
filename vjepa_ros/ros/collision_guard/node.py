# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node between controller and base: limits commands by what the cameras see."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_srvs.srv import SetBool

from vjepa_ros.guard.guard import OVERRIDE_S, VelocityGuard
from vjepa_ros.guard.types import Motion
from vjepa_ros.ros.collision_guard.inputs import Frames, GuardInputs, odometry
from vjepa_ros.ros.collision_guard.parameters import GuardConfig, SCHEMA
from vjepa_ros.ros.collision_guard.state_publisher import GuardStatePublisher
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.command.peers import CLOUD, Heartbeat, twist_type
from vjepa_ros.ros.common.declared_parameters import Declared
from vjepa_ros.ros.common.lifecycle import FAILURE, SUCCESS, transition


class CollisionGuard(CommandNode):
    """Subscribes ``cmd_vel_in`` and assessments, publishes ``cmd_vel_out`` and ``~/state``."""

    def __init__(self, node_name: str = 'collision_guard', **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        self.guard: VelocityGuard | None = None
        self._before: VelocityGuard | None = None    # the last one, for what it remembers
        self._frames: Frames | None = None
        self._heartbeat: Heartbeat | None = None
        self.state_publisher = GuardStatePublisher(
            self, lambda: self.guard, lambda: self.config is not None and self.config.odometry)
        self.params = Declared(self, SCHEMA, self._on_changed, lambda: self.state == 'active')
        self.create_service(SetBool, '~/override', self._on_override)
        self.begin()

    def prepare(self, config: GuardConfig) -> str:
        """Create the guard."""
        self.configured.callback(self._drop)
        if config.odometry:
            odometry()                          # fails here rather than on activate
        if config.heartbeat:
            self._heartbeat = Heartbeat(self, config.heartbeat, lambda: self.state,
                                        lambda: self._out, self._steady, config.watchdog)
            self.configured.callback(self._heartbeat.close)
        if any(source.from_tf for source in config.sources):
            self._frames = Frames(self)
            self.configured.callback(self._frames.close)
        self.guard = VelocityGuard(config.settings, {s.name: s.yaw for s in config.sources},
                                   {r.name: r.yaw for r in config.ranges})
        if self._before is not None:
            self.guard.restart(self._before)
        if self._frames is None:                # else once tf has given the directions
            self.state_publisher.warn_uncovered(self.guard)
        listened = ', '.join(f'{s.name} ({s.topic}, {math.degrees(s.yaw):.0f} deg)'
                             for s in config.sources)
        return f'guards by {listened or "range sensors alone"}'

    def _drop(self) -> None:
        self._before = self.guard or self._before
        self.guard = self._frames = self._heartbeat = None

    def _configured_guard(self) -> VelocityGuard:
        assert self.guard is not None, 'called between configure and release only'
        return self.guard

    def lease_s(self, config: GuardConfig) -> float:
        """Return the longest silence of a guard that lives."""
        return config.heartbeat

    def create_inputs(self, config: GuardConfig) -> GuardInputs:
        """Create the subscriptions to cameras, range sensors and odometry."""
        guard = self._configured_guard()
        guard.restart()
        return GuardInputs(self, config, guard, self.now_s, self._on_news, self._frames)

    @transition(undo='undo_activate', on_failure=FAILURE)
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe, and start to pass commands."""
        answer = super().on_activate(state)
        if answer == SUCCESS and self._heartbeat is not None:
            self._heartbeat.activate()
        return answer

    def forget(self, now_s: float) -> None:
        """Drop everything received before."""
        self._configured_guard().clock_jumped(now_s)

    def topics(self, config: GuardConfig) -> dict[str, str]:
        """Return topics and their types."""
        twist = twist_type(config.stamped)
        return {'cmd_vel_in': twist, 'cmd_vel_out': twist,
                **{source.topic: CLOUD for source in config.sources}}

    def apply(self, config: GuardConfig) -> GuardConfig:
        """Apply new settings; all others stay."""
        self._configured_guard().settings = config.settings
        return replace(self.config or config, settings=config.settings)

    # -- commands ----------------------------------------------------------------------------

    def commanded(self, motion: Motion, now_s: float) -> None:
        """Take a command, even one that is not finite."""
        self._configured_guard().command(motion, now_s)

    def act(self, news: bool) -> None:
        """Decide, and publish what is new."""
        guard = self._configured_guard()
        guard.hold_reason = self.callback_failure or (
            '' if self._heartbeat is None else self._heartbeat.problem())
        steady_s, now_s = time.monotonic(), self.now_s()
        holds_s = guard.holds_until(now_s) - now_s
        self.decided = decision = guard.decide(now_s)
        self.send(decision.motion, news, steady_s + holds_s)
        self.state_publisher.reaction.add(1e3 * decision.reaction_s)

    def _on_news(self, arrival_ns: int) -> None:
        self.act(True)
        if arrival_ns:      # by the clock of DDS time stamps
            self.state_publisher.latency.add((time.time_ns() - arrival_ns) / 1e6)

    def _on_tick(self) -> None:
        super()._on_tick()
        if self._inputs is not None:
            self.state_publisher.refused = self._inputs.refused
        # On the timer, so that it cannot delay a stop.
        self.state_publisher.publish(self.decided, self.now_s())

    def wait_for_zeros(self) -> None:
        """Let a moment pass in which zeros are sent, so that the watchdog need not do it."""
        if self._heartbeat is not None:
            self._heartbeat.beat('' if self.suspending else 'deactivating')
        super().wait_for_zeros()

    # -- override, reports -------------------------------------------------------------------

    def _on_override(self, request: SetBool.Request, response: SetBool.Response
                     ) -> SetBool.Response:
        guard = self.guard
        if self.state != 'active' or guard is None:
            response.success = False
            response.message = f'the guard is {self.state}: there is nothing to override'
            return response
        guard.override(request.data, self.now_s())
        response.success = True
        if request.data:
            response.message = f'OVERRIDE: nothing is guarded for {OVERRIDE_S:g} s'
            self.get_logger().warning(response.message)
        else:
            response.message = 'override has ended: the guard acts again'
            self.get_logger().info(response.message)
        return response

    def _on_report(self) -> None:
        if self.guard is not None and self.config is not None and (
                self._frames is None or self.state == 'active'):
            self.state_publisher.warn_uncovered(self.guard)
        super()._on_report()

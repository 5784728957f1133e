# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A node that stops a base without a timeout of its own when the guard is killed or hangs.

From the moment that an active guard has been silent on ``heartbeat`` for ``timeout`` until it
beats again it publishes zeros on ``cmd_vel``, the topic of the base. A guard that ends in order or
is deactivated says so, and the watchdog stands by. Each beat is confirmed on ``heartbeat_heard``.
Motion on ``cmd_vel`` before any guard was heard is that of a guard which was never found, or of
somebody who goes round it: zeros, until that motion has ended.
"""

from __future__ import annotations

import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Header

from vjepa_ros.ros.command.peers import Endpoints, HEARD, QOS, READY, twist_class
from vjepa_ros.ros.command_watchdog import SCHEMA
from vjepa_ros.ros.common.declared_parameters import read_once
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, stamped, status
from vjepa_ros.ros.common.node import ResilientNode

CHECKS = 8               # of the silence within `timeout`
RATE_HZ = 20.0           # of zeros: a base may time out after less than they are apart
NOT_HEARD, ENDED = 'not heard', 'unconfigured'
# After `timeout` and the last command that moves, of a guard that was never heard, that motion has
# ended; and one that is not active has gone without a word.
GONE_S = 1.0


class CommandWatchdog(ResilientNode):
    """Publishes zeros while an active guard is silent; parameters are read at the start."""

    def __init__(self, node_name: str = 'command_watchdog', **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        values = read_once(self, SCHEMA)
        self._timeout_s, self._kind = values['timeout'], twist_class(values['message'])
        self._heard_s: float | None = None      # last beat of an active guard
        self._beat_s = 0.0                      # of any
        self._state = NOT_HEARD
        self._silent, self.stops = False, 0     # and how often it has stopped the base
        # First and last command that moves, as long as no guard has been heard.
        self._moves_s: tuple[float, float] | None = None
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        self._out = self.create_publisher(self._kind, 'cmd_vel', reliable)
        self._listeners = Endpoints()
        self.create_subscription(self._kind, 'cmd_vel', self._on_motion, reliable)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 1)
        self._beats = self.create_subscription(Header, 'heartbeat', self._on_beat, QOS)
        self._heard = self.create_publisher(Header, self._beats.topic_name + HEARD, reliable)
        self.create_timer(self._timeout_s / CHECKS, self._check, clock=self.steady)
        self._zeros = self.create_timer(1 / RATE_HZ, self._send_zero, clock=self.steady)
        self._zeros.cancel()
        self.create_timer(1.0, self._report, clock=self.steady)
        self.get_logger().info(f'watches {self._beats.topic_name} for {self._out.topic_name}, '
                               f'timeout {self._timeout_s:g} s')

    def suspend(self) -> bool:
        """Go on at Ctrl-Z: a guard in the same terminal stops."""
        return False

    def _on_beat(self, beat: Header) -> None:
        self._state = f'{beat.frame_id:.99}'
        self._beat_s = time.monotonic()
        self._heard_s = self._beat_s if beat.frame_id == 'active' else None
        self._moves_s = None
        if self._silent:
            self._go_on(f'the guard is back ({self._state}): no more zeros')
        ready = READY if self._listeners.reach_base(self, self._out) else (
            f'nobody else listens on {self._out.topic_name}')
        self._heard.publish(Header(stamp=beat.stamp, frame_id=ready))

    def _on_motion(self, msg: Twist | TwistStamped) -> None:
        twist = msg.twist if isinstance(msg, TwistStamped) else msg
        if self._state != NOT_HEARD or twist == Twist():     # also its own zeros
            return
        now = time.monotonic()
        self._moves_s = (now if self._moves_s is None else self._moves_s[0]), now
        if self._silent:
            self._send_zero()

    def _check(self) -> None:
        now = time.monotonic()
        gone_s = self._timeout_s + GONE_S
        if self._state not in ('active', ENDED) and now - self._beat_s > gone_s:
            self._state = NOT_HEARD
        if self._moves_s is not None and now - self._moves_s[1] > gone_s:
            self._moves_s = None
            if self._silent:
                self._go_on('the motion without a guard has ended: no more zeros')
        elif self._silent:
            return
        elif self._moves_s is not None and now - self._moves_s[0] > self._timeout_s:
            self._stop(f'{self._out.topic_name} has motion, but no guard was ever heard on '
                       f'{self._beats.topic_name} (set its parameter heartbeat, or remap): zeros '
                       'until it ends')
        elif self._heard_s is not None and now - self._heard_s > self._timeout_s:
            self._stop(f'the guard has been silent for {self._timeout_s:g} s: zeros on '
                       f'{self._out.topic_name} until it beats again')

    def _stop(self, why: str) -> None:
        self._silent = True
        self.stops += 1
        self._send_zero()
        self._zeros.reset()
        self.get_logger().error(why)

    def _go_on(self, why: str) -> None:
        self._silent = False
        self._zeros.cancel()
        self.get_logger().warning(why)

    def _send_zero(self) -> None:
        zero = self._kind()
        if isinstance(zero, TwistStamped):
            zero.header.stamp = self.get_clock().now().to_msg()
        self._out.publish(zero)

    def _report(self) -> None:
        level, said = OK, f'the guard is {self._state}'
        if self._silent:
            level, said = ERROR, ('the guard is silent: the base is held at zero'
                                  if self._moves_s is None else
                                  'motion without a guard: the base is held at zero')
        elif self._heard_s is None:
            level, said = WARN, f'{said}: nothing is watched'
        self._diagnostics.publish(stamped(self, [status(
            f'{self.get_name()}: guard', level, said,
            {'state': self._state, 'stops': self.stops})]))

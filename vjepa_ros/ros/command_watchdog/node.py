# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A node that stops a base without a timeout of its own when the guard is killed or hangs.

It subscribes to ``heartbeat`` (std_msgs/Header, ``~/heartbeat`` of the guard) and publishes zeros
on ``cmd_vel``, the topic of the base, from the moment that an active guard has been silent for
``timeout`` until it beats again. A guard that ends in order or is deactivated says so, and the
watchdog stands by.
"""

from __future__ import annotations

import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.clock import (
    Clock,
    ClockType,  # pyright: ignore[reportPrivateImportUsage] # clock_type is not in Humble
)
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Header

from vjepa_ros.ros.command.heartbeat import QOS
from vjepa_ros.ros.command_watchdog.parameters import SCHEMA
from vjepa_ros.ros.common.declared_parameters import read_once
from vjepa_ros.ros.common.diagnostics import ERROR, OK, WARN, stamped, status
from vjepa_ros.ros.common.spin import Served

CHECKS = 8               # of the silence within `timeout`


class CommandWatchdog(Served):
    """Publishes zeros while an active guard is silent; parameters are read at the start.

    Attributes
    ----------
    stops
        How often it has stopped the base.
    """

    def __init__(self, node_name: str = 'command_watchdog', **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        values = read_once(self, SCHEMA)
        self._timeout_s, self._stamped = values['timeout'], values['message'] == 'twist_stamped'
        self._heard_s: float | None = None      # last beat of an active guard
        self._state = 'not heard yet'
        self._silent, self.stops = False, 0
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        self._out = self.create_publisher(TwistStamped if self._stamped else Twist, 'cmd_vel',
                                          reliable)
        self._diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 1)
        self._beats = self.create_subscription(Header, 'heartbeat', self._on_beat, QOS)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(self._timeout_s / CHECKS, self._check, clock=steady)
        self._zeros = self.create_timer(1 / values['rate'], self._send_zero, clock=steady)
        self._zeros.cancel()
        self.create_timer(1.0, self._report, clock=steady)
        self.get_logger().info(f'watches {self._beats.topic_name} for {self._out.topic_name}, '
                               f'timeout {self._timeout_s:g} s')

    def suspend(self) -> bool:
        """Go on at Ctrl-Z: a guard in the same terminal stops."""
        return False

    def _on_beat(self, beat: Header) -> None:
        self._state = f'{beat.frame_id:.99}'
        self._heard_s = time.monotonic() if beat.frame_id == 'active' else None
        if self._silent:
            self._silent = False
            self._zeros.cancel()
            self.get_logger().warning(f'the guard is back ({self._state}): no more zeros')

    def _check(self) -> None:
        if self._silent or self._heard_s is None or (
                time.monotonic() - self._heard_s <= self._timeout_s):
            return
        self._silent = True
        self.stops += 1
        self._send_zero()
        self._zeros.reset()
        self.get_logger().error(f'the guard has been silent for {self._timeout_s:g} s: zeros on '
                                f'{self._out.topic_name} until it beats again')

    def _send_zero(self) -> None:
        zero = TwistStamped() if self._stamped else Twist()
        if isinstance(zero, TwistStamped):
            zero.header.stamp = self.get_clock().now().to_msg()
        self._out.publish(zero)

    def _report(self) -> None:
        level, said = OK, f'the guard is {self._state}'
        if self._silent:
            level, said = ERROR, 'the guard is silent: the base is held at zero'
        elif self._heard_s is None:
            level, said = WARN, f'{said}: nothing is watched'
        self._diagnostics.publish(stamped(self, [status(
            f'{self.get_name()}: guard', level, said,
            {'state': self._state, 'stops': self.stops})]))

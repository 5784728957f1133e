# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the base of a robot that has no timeout of its own, and print the speed it goes at.

It obeys ``cmd_vel`` as the driver of a base does: it subscribes reliably with depth 1 and goes on
with the last command that it received. A line ``speed X`` is written at each change. The first
argument names the reliability, ``reliable`` or ``best_effort``.
"""

from __future__ import annotations

import sys

import rclpy
from geometry_msgs.msg import Twist
from rclpy.qos import QoSProfile, ReliabilityPolicy

speed = None


def obey(twist: Twist) -> None:
    """Go at the commanded speed."""
    global speed
    if twist.linear.x != speed:
        speed = twist.linear.x
        print(f'speed {speed}', flush=True)


if __name__ == '__main__':
    rclpy.init()
    base = rclpy.create_node('base')
    base.create_subscription(Twist, 'cmd_vel', obey, QoSProfile(
        depth=1, reliability=ReliabilityPolicy[sys.argv[1].upper()]))
    rclpy.spin(base)

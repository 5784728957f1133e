# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Commands as messages and as they are judged."""

from __future__ import annotations

import math

from geometry_msgs.msg import Twist

from vjepa_ros.guard.types import STILL, Motion


def motion_of(twist: Twist) -> Motion:
    """A command as it is judged; one that holds anything but numbers is none at all."""
    linear, angular = twist.linear, twist.angular
    if not all(map(math.isfinite, (linear.z, angular.x, angular.y))):
        return Motion(math.nan, math.nan, math.nan)
    return Motion(linear.x, linear.y, angular.z)


def twist_of(motion: Motion, command: Twist | None) -> Twist:
    """The message of a motion; what nobody judges goes through as it was commanded."""
    twist = Twist()
    if command is not None and motion != STILL:
        twist.linear.z = command.linear.z
        twist.angular.x, twist.angular.y = command.angular.x, command.angular.y
    twist.linear.x, twist.linear.y, twist.angular.z = motion.vx, motion.vy, motion.omega
    return twist

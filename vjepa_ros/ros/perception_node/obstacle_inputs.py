# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Inputs of obstacles in metres besides the camera: speed of the robot, and poses from tf."""

from __future__ import annotations

import importlib
import math
import time
from collections import deque
from itertools import pairwise
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy

from vjepa_ros.guard.types import MAX_VELOCITY
from vjepa_ros.obstacles.geometry import Mount
from vjepa_ros.ros.common.message_conversion import stamp_ns
from vjepa_ros.ros.common.transforms import Transforms, Vector

LOOKED_BACK_S = 0.35     # looming is measured over at most this time before the newest frame
AHEAD_S = 0.05           # odometry may be that much newer than a frame and still belong to it
KEPT = 400
WAIT_S = 0.05            # tf may come so much later than images; all cameras of a pass share it
NS = 1e9


class Odometry:
    """Store the newest speeds of a nav_msgs/Odometry topic.

    Parameters
    ----------
    node
        Owner of the subscription.
    topic
        Topic.
    base_frame
        Frame that the speeds should be in; '' for any.

    Raises
    ------
    ValueError
        When nav_msgs is not installed.
    """

    def __init__(self, node: LifecycleNode, topic: str, base_frame: str) -> None:
        try:
            kind = importlib.import_module('nav_msgs.msg').Odometry
        except ImportError:
            raise ValueError(f"parameter 'obstacles.odometry' is '{topic}', but nav_msgs is not "
                             'installed: install it, or set the parameter to an empty text') \
                from None
        self._node = node
        self._base_frame = base_frame
        self._seen: deque[tuple[int, Vector, Vector]] = deque(maxlen=KEPT)
        self._arrival = -math.inf
        self._told: set[str] = set()
        self.topic = node.resolve_topic_name(topic)
        self._subscription = node.create_subscription(
            kind, topic, self._on_message,
            QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT))

    def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
        self._subscription = None

    def closing_speed(self, mount: Mount, at_ns: int, timeout_s: float) -> float:
        """Return the speed of a camera along its axis around a stamp [m/s], NaN if unknown."""
        if time.monotonic() - self._arrival > timeout_s:
            return math.nan
        seen = list(self._seen)
        if not seen:                 # just after a jump of time
            return math.nan
        near = [s for s in seen if -LOOKED_BACK_S <= (s[0] - at_ns) / NS <= AHEAD_S]
        if not near:
            closest = min(seen, key=lambda s: abs(s[0] - at_ns))
            if abs(closest[0] - at_ns) / NS > timeout_s:
                return math.nan
            near = [closest]
        return sum(mount.closing_speed(s[1], s[2]) for s in near) / len(near)

    def motion(self, since_ns: int, at_ns: int, timeout_s: float) -> tuple[float, float]:
        """Return the greatest speed around a stamp, NaN if unknown, and the way since another.

        Turning counts like driving: [m/s] or [rad/s], whichever is more, and [m] or [rad]. What
        came before the oldest message is unknown and counts as no way.

        `since_ns, at_ns`: stamps [ns]; `timeout_s`: from which age on odometry counts as none
        [s].
        """
        seen = list(self._seen)
        if time.monotonic() - self._arrival > timeout_s or not seen:
            return math.nan, 0.0
        now = [s for s in seen if (s[0] - at_ns) / NS >= -LOOKED_BACK_S] or seen[-1:]
        way = sum(_fast(s) * max(0, min(until[0], at_ns) - max(s[0], since_ns)) / NS
                  for s, until in pairwise(seen))
        return max(map(_fast, now)), way

    def _on_message(self, msg: Any) -> None:
        twist = msg.twist.twist
        linear = (twist.linear.x, twist.linear.y, twist.linear.z)
        angular = (twist.angular.x, twist.angular.y, twist.angular.z)
        if not all(abs(value) < MAX_VELOCITY for value in (*linear, *angular)):
            self._warn('speed', f'{self.topic}: a speed is not a number below {MAX_VELOCITY:g} '
                       '(m/s, rad/s); such messages count as none')
            return
        if self._base_frame and msg.child_frame_id not in ('', self._base_frame):
            self._warn('frame', f'{self.topic}: speeds are in the frame '
                       f"'{msg.child_frame_id:.99}', obstacles.base_frame is "
                       f"'{self._base_frame}'; they are taken as if they were the same")
        stamp = stamp_ns(msg.header)
        if self._seen and stamp < self._seen[-1][0]:     # time jumped back
            self._seen.clear()
        self._seen.append((stamp, linear, angular))
        self._arrival = time.monotonic()

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._node.get_logger().warning(text)


def _fast(seen: tuple[int, Vector, Vector]) -> float:
    """Return the greater of speed [m/s] and turn rate [rad/s]."""
    return max(math.hypot(*seen[1]), math.hypot(*seen[2]))


class Poses:
    """Poses of cameras on the robot from tf, where tf2_ros is installed.

    Parameters
    ----------
    node
        Whose executor listens to tf.
    base_frame
        Frame of the robot.
    """

    def __init__(self, node: LifecycleNode, base_frame: str) -> None:
        self.problem = ''
        self._transforms: Transforms | None = None
        try:
            self._transforms = Transforms(node, base_frame)
        except ImportError:
            self.problem = 'tf2_ros is not installed, so the pose can not come from tf'

    def close(self) -> None:
        """Stop listening."""
        transforms, self._transforms = self._transforms, None
        if transforms is not None:
            transforms.close()

    def mount(self, frame_id: str, stamp: Any | None = None, until_s: float = -math.inf
              ) -> tuple[Mount | None, str]:
        """Return the pose of an optical frame, or None and why there is none.

        `stamp`: builtin_interfaces/Time at which; None: the newest that is known; `until_s`:
        steady time until which this waits for tf [s]; only beside the executor.
        """
        transforms = self._transforms        # the executor may close it meanwhile
        if transforms is None:
            return None, self.problem or 'tf is not listened to any more'
        try:
            at, turn = transforms.pose(frame_id, stamp, max(0.0, until_s - time.monotonic()))
            return Mount.from_transform(at, turn), ''
        except ValueError as error:
            return None, str(error)

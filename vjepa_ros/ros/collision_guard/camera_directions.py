# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Directions of cameras, by tf."""

from __future__ import annotations

import math

from rclpy.lifecycle import LifecycleNode
from std_msgs.msg import Header

from vjepa_ros.ros.common.transforms import Transforms

MIN_HORIZONTAL = 0.2     # horizontal part of an optical axis that has a direction


def axis_yaw(x: float, y: float, z: float, w: float) -> float:
    """Return the direction of the axis z of an optical frame (REP 103) [rad]."""
    ahead, left = 2 * (x * z + w * y), 2 * (y * z - w * x)
    if math.hypot(ahead, left) < MIN_HORIZONTAL:
        raise ValueError('its optical axis points up or down; set direction and yaw')
    return math.atan2(left, ahead)


class Frames:
    """Looks up directions in tf.

    Parameters
    ----------
    node
        Node whose executor receives tf.
    base_frame
        Frame of the robot.

    Raises
    ------
    RuntimeError
        When tf2_ros is not installed, with the remedy.
    """

    def __init__(self, node: LifecycleNode, base_frame: str) -> None:
        try:
            self._transforms = Transforms(node, base_frame)
        except ImportError as error:
            raise RuntimeError(
                'a source has direction: tf, which needs the package tf2_ros: install it, or set '
                'direction: yaw and yaw') from error
        self._last: dict[str, tuple[float, float]] = {}    # by source: time and yaw

    def yaw(self, source: str, header: Header, now_s: float, patience_s: float) -> float:
        """Return the direction of a camera at the stamp of its newest image [rad].

        tf may arrive a little after an assessment, on the executor that runs this: so this does
        not wait, and the last answer stays valid for a while.

        `now_s`: time [s]; `patience_s`: how long the last answer is valid [s].
        """
        try:
            yaw = axis_yaw(*self._transforms.pose(header.frame_id, header.stamp)[1])
        except ValueError:
            since, yaw = self._last.get(source, (-math.inf, math.nan))
            if not 0 <= now_s - since <= patience_s:
                raise
            return yaw
        self._last[source] = now_s, yaw
        return yaw

    def close(self) -> None:
        """Stop listening."""
        self._transforms.close()

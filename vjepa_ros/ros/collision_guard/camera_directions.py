# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Where a camera looks, from tf."""

from __future__ import annotations

import math
from typing import Any

from rclpy.lifecycle import LifecycleNode

from vjepa_ros.ros.common.transforms import Transforms

STEEP = 0.2     # horizontal part of the optical axis below which it has no direction


def axis_yaw(x: float, y: float, z: float, w: float) -> float:
    """Direction of the axis z of an optical frame (REP 103) in the frame of the robot [rad].

    Parameters
    ----------
    x, y, z, w
        Rotation from the optical frame to that of the robot, a unit quaternion.

    Raises
    ------
    ValueError
        When the axis points up or down.
    """
    ahead, left = 2 * (x * z + w * y), 2 * (y * z - w * x)
    if math.hypot(ahead, left) < STEEP:
        raise ValueError('its optical axis points up or down; set direction and yaw')
    return math.atan2(left, ahead)


class Frames:
    """Looks directions up in tf.

    Parameters
    ----------
    node
        Whose executor listens to tf.
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
        self._told: dict[str, tuple[float, float]] = {}    # by source: when, and yaw

    def yaw(self, source: str, header: Any, now_s: float, patience_s: float) -> float:
        """Direction of a camera by its optical frame at the stamp of its newest image [rad].

        tf may come a little later than an assessment, and the executor that runs this is what
        would take it: so this does not wait. What was told last holds meanwhile.

        Parameters
        ----------
        source
            Name of the camera.
        header
            Of its assessment.
        now_s
            Time [s].
        patience_s
            How long what was told holds [s].

        Raises
        ------
        ValueError
            When tf does not know it at that time, or it has none.
        """
        try:
            yaw = axis_yaw(*self._transforms.pose(header.frame_id, header.stamp)[1])
        except ValueError:
            since, yaw = self._told.get(source, (-math.inf, math.nan))
            if not 0 <= now_s - since <= patience_s:
                raise
            return yaw
        self._told[source] = now_s, yaw
        return yaw

    def close(self) -> None:
        """Stop listening."""
        self._transforms.close()

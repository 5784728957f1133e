# SPDX-License-Identifier: Apache-2.0
"""Where a camera looks, from tf, as far as tf2_ros is installed."""

from __future__ import annotations

import importlib
import math

from rclpy.lifecycle import LifecycleNode
from rclpy.time import Time

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
            self._tf2 = importlib.import_module('tf2_ros')
        except ImportError as error:
            raise RuntimeError(
                'a source has direction: tf, which needs the package tf2_ros: install it, or set '
                'direction: yaw and yaw') from error
        self._base_frame = base_frame
        self._buffer = self._tf2.Buffer()
        self._listener = self._tf2.TransformListener(self._buffer, node, spin_thread=False)

    def yaw(self, frame_id: str) -> float:
        """Direction of a camera by its optical frame [rad].

        Raises
        ------
        ValueError
            When tf does not know it (yet), or it has none.
        """
        try:
            found = self._buffer.lookup_transform(self._base_frame, frame_id, Time())
        except self._tf2.TransformException as error:
            raise ValueError(f"tf gives no pose of '{frame_id}' in '{self._base_frame}': "
                             f'{error}') from error
        turn = found.transform.rotation
        return axis_yaw(turn.x, turn.y, turn.z, turn.w)

    def close(self) -> None:
        """Stop listening."""
        if hasattr(self._listener, 'unregister'):   # newer distributions
            self._listener.unregister()

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Poses of frames on the robot from tf at the time of a stamp, as far as tf2_ros is installed."""

from __future__ import annotations

import importlib
from typing import Any

from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode
from rclpy.time import Time

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


class Transforms:
    """Listens to tf."""

    def __init__(self, node: LifecycleNode, base_frame: str) -> None:
        self.base_frame = base_frame
        self._tf2 = importlib.import_module('tf2_ros')
        self._buffer = self._tf2.Buffer()
        self._listener = self._tf2.TransformListener(self._buffer, node, spin_thread=False)
        # Python's buffer does not notice by itself, and takes nothing older than it has: after
        # a bag began anew it would never speak again. What is static it keeps.
        self._jump = node.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1),
                          on_clock_change=True), post_callback=lambda _: self._buffer.clear())

    def close(self) -> None:
        """Stop listening."""
        self._jump.unregister()
        if hasattr(self._listener, 'unregister'):   # newer distributions
            self._listener.unregister()

    def pose(self, frame_id: str, stamp: Any | None = None, wait_s: float = 0.0
             ) -> tuple[Vector, Quaternion]:
        """Position [m] and rotation (x, y, z, w) of a frame in the base frame at a time."""
        if not frame_id:
            raise ValueError('there is no frame_id to ask tf for')
        if stamp is not None and not (stamp.sec or stamp.nanosec):
            raise ValueError(f"the stamp of what is in '{frame_id:.99}' is 0, which to tf means "
                             'the newest pose; let its driver set it')
        time = Time() if stamp is None else Time.from_msg(stamp)
        try:
            found = self._buffer.lookup_transform(self.base_frame, frame_id, time,
                                                  timeout=Duration(seconds=wait_s)).transform
        except self._tf2.TransformException as error:
            when = '' if stamp is None else f' at the time {stamp.sec}.{stamp.nanosec:09d}'
            raise ValueError(f"tf gives no pose of '{frame_id:.99}' in '{self.base_frame}'{when} "
                             f'({error!s:.399})') from error
        at, turn = found.translation, found.rotation
        return (at.x, at.y, at.z), (turn.x, turn.y, turn.z, turn.w)

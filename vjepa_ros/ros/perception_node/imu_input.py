# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the gyroscope of one camera from a sensor_msgs/Imu topic."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import Imu

from vjepa_ros.looming.gyroscope import Gyroscope, JITTER_S, rotation_matrix
from vjepa_ros.ros.common.diagnostics import number
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.common.message_conversion import stamp_ns
from vjepa_ros.ros.common.transforms import Transforms
from vjepa_ros.ros.perception_node.diagnostics import Rate
from vjepa_ros.ros.perception_node.parameters import CameraConfig

WAIT_S = 0.02            # samples may come so much later than images; a pass waits once for all
LIVE_S = 0.1             # silence after which nobody waits for a sample
DEPTH = 100              # samples that wait for the executor


class ImuInput:
    """The gyroscope of one camera. Callbacks run on the executor, `wait` on the worker."""

    def __init__(self, node: LifecycleNode, camera: str, config: CameraConfig,
                 camera_frame: Callable[[], str]) -> None:
        self._node, self._camera, self._config = node, camera, config
        self._camera_frame = camera_frame
        self._gyroscope = Gyroscope(config.imu_rotation or None, config.imu_offset, JITTER_S)
        self.rate = Rate()
        self._frame = ''
        self._came = False
        self._arrival = -math.inf
        self._fault = ''
        self._news = threading.Condition()
        self._subscription: Any = None
        self._transforms: Transforms | None = None
        self._found: tuple[str, str] | None = None    # frames whose rotation is in use

    @property
    def topic(self) -> str:
        """Return the resolved name of the topic."""
        return self._node.resolve_topic_name(self._config.imu_topic)

    @property
    def gyroscope(self) -> Gyroscope | None:
        """Return the gyroscope; None before a message, unless its rotation is a parameter."""
        return self._gyroscope if self._came or self._config.imu_rotation else None

    def open(self) -> None:
        """Subscribe (on activate)."""
        self._subscription = subscribe(self._node, Imu, self._config.imu_topic, self._on_message,
                                       depth=DEPTH)

    def close(self) -> None:
        """Unsubscribe and forget the samples (on deactivate)."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._node.destroy_subscription(subscription)
        transforms, self._transforms = self._transforms, None
        if transforms is not None:
            transforms.close()
        self._came, self._found, self._fault = False, None, ''
        self._gyroscope.clear()

    def watch(self) -> None:
        """Look for the rotation to the camera in tf, where it is no parameter."""
        if not self._came:
            return
        problem = self._fault or ('' if self._config.imu_rotation else self._look_up())
        if problem and problem != self._gyroscope.problem:
            self._node.get_logger().warning(
                f"camera '{self._camera}': {self.topic} is not used: {problem}")
        self._gyroscope.problem = problem

    def wait(self, newest_ns: int, until_s: float) -> None:
        """Wait until the samples cover a stamp [ns], or until a steady time [s]."""
        if self.gyroscope is None or self._gyroscope.problem:
            return
        with self._news:
            while not self._gyroscope.covers(newest_ns):
                now = time.monotonic()
                if now >= until_s or now - self._arrival > LIVE_S:
                    return
                self._news.wait(until_s - now)

    def report(self, used: str | None) -> dict[str, object]:
        """Return values for diagnostics; for `used` see `Result.gyroscope`."""
        if self.gyroscope is None:
            return {'gyroscope': f'none on {self.topic}'}
        bias = ' '.join(f'{axis:.4f}' for axis in self._gyroscope.bias)
        return {'gyroscope': ('not asked for' if used is None else
                              f'not used: {used}' if used else 'used'),
                'imu_rate_hz': number(self.rate.hz(time.monotonic())), 'imu_bias_rad_s': bias}

    def _on_message(self, msg: Imu) -> None:
        rate = msg.angular_velocity
        if not self._came and not self._config.imu_rotation:
            self._gyroscope.problem = f'the rotation from {self.topic} to the camera is not known'
        # By the definition of the message: there is no such measurement.
        self._fault = '' if msg.angular_velocity_covariance[0] != -1 else (
            'its angular_velocity_covariance says that it has no angular velocity')
        self._frame, self._arrival = msg.header.frame_id, time.monotonic()
        self.rate.tick(self._arrival)
        self._gyroscope.push(stamp_ns(msg.header), (rate.x, rate.y, rate.z))
        self._came = True
        with self._news:
            self._news.notify_all()

    def _look_up(self) -> str:
        """Take the rotation from tf, once for each pair of frames; return what is wrong or ''."""
        frames = self._frame, self._camera_frame()
        remedy = f"set '{self._camera}.imu_rotation'"
        if not all(frames):
            return f'its messages or the images have no frame_id; {remedy}'
        if frames == self._found:
            return ''
        try:
            if frames[0] == frames[1]:
                quaternion = 0.0, 0.0, 0.0, 1.0
            else:
                if self._transforms is None:
                    self._transforms = Transforms(self._node, frames[1])
                self._transforms.base_frame = frames[1]
                quaternion = self._transforms.pose(frames[0])[1]
            self._gyroscope.matrix = rotation_matrix(quaternion)
        except ImportError:
            return f'tf2_ros is not installed, so its rotation can not come from tf; {remedy}'
        except ValueError as error:
            return f'{error}; {remedy}'
        self._found = frames
        return ''

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Simulate cameras and a controller for a guard, and write its figures as one line of JSON.

First assessments and commands are published at steady rates: the guard measures the time from the
arrival of an assessment to its command (`latency_ms`) and from its stamp (`reaction_ms`). Then the
cameras fall silent repeatedly, as when the perception process is killed, and DDS time stamps give
the time from the stamp of the last assessment to the publication of the first zero.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any, TYPE_CHECKING

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.message_conversion import pack_assessment

if TYPE_CHECKING:
    from rclpy.subscription import MessageInfo

NS = 1_000_000_000
PATIENCE_S = 30.0
SPEED = 1.0


class GuardLoad(Node):
    """Cameras, controller and subscriber.

    ROS parameters: cameras (names), camera_rate and command_rate [Hz], seconds [s], stops (how
    often the cameras fall silent).
    """

    def __init__(self) -> None:
        super().__init__('guard_load')
        defaults = {'cameras': 'camera', 'camera_rate': 30.0, 'command_rate': 50.0,
                    'seconds': 30.0, 'stops': 20}
        value: dict[str, Any] = {name: self.declare_parameter(name, default).value
                                 for name, default in defaults.items()}
        self.seconds, self.stops = value['seconds'], value['stops']
        self._cameras = [self.create_publisher(PointCloud2, f'vjepa_node/{name}/assessment', 10)
                         for name in value['cameras'].split(',')]
        self._controller = self.create_publisher(Twist, 'cmd_vel_in', 1)
        self.create_subscription(Twist, 'cmd_vel_out', self._on_out, 100)
        self.create_subscription(DiagnosticArray, 'collision_guard/state', self._on_state, 10)
        self.looking, self.stamp_ns, self.speed, self.zero_ns = True, 0, math.nan, 0
        self.values: dict[str, str] = {}
        self.create_timer(1.0 / value['camera_rate'], self._look)
        self.create_timer(1.0 / value['command_rate'], self._command)

    def _look(self) -> None:
        if not self.looking:
            return
        for camera in self._cameras:
            self.stamp_ns = time.time_ns()
            seen = Assessment('camera', self.stamp_ns, 'optical', 0.0, 0.0, 0.0, math.inf, 0.0,
                              math.nan, math.nan, Level.CLEAR, Quality(0), known_fraction=1.0)
            header = Header(frame_id='optical')
            header.stamp.sec, header.stamp.nanosec = divmod(self.stamp_ns, NS)
            camera.publish(message_conversion.cloud(header, pack_assessment(seen, 0.0)))

    def _command(self) -> None:
        twist = Twist()
        twist.linear.x = SPEED
        self._controller.publish(twist)

    def _on_out(self, msg: Twist, info: MessageInfo) -> None:
        self.speed = msg.linear.x
        if self.speed == 0 and not self.zero_ns:
            self.zero_ns = info['source_timestamp']

    def _on_state(self, msg: DiagnosticArray) -> None:
        self.values = {pair.key: pair.value for pair in next(iter(msg.status)).values}


def measure(node: GuardLoad, executor: SingleThreadedExecutor) -> dict[str, object]:
    """Return the figures.

    Raises
    ------
    TimeoutError
        When the guard does not release the robot or does not stop it.
    """
    def spin(until: Callable[[], bool], limit_s: float, what: str) -> None:
        end = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > end:
                raise TimeoutError(f'no {what} within {limit_s:g} s')
            executor.spin_once(timeout_sec=0.05)

    def wait(seconds: float) -> None:
        end = time.monotonic() + seconds
        spin(lambda: time.monotonic() > end, seconds + PATIENCE_S, 'time')

    spin(lambda: node.speed == SPEED, PATIENCE_S, 'motion')
    wait(node.seconds)
    values, stops = dict(node.values), []
    for _ in range(node.stops):
        spin(lambda: node.speed == SPEED, PATIENCE_S, 'motion')
        wait(random.uniform(0.1, 0.4))
        node.looking, node.zero_ns = False, 0
        spin(lambda: node.zero_ns > 0, PATIENCE_S, 'stop')
        stops.append((node.zero_ns - node.stamp_ns) / 1e6)
        node.looking = True
    keys = ('latency_ms.median', 'latency_ms.p99', 'latency_ms.worst', 'reaction_ms.median',
            'reaction_ms.p99', 'reaction_ms.worst', 'latency.count')
    return {**{key: float(values[key]) for key in keys}, 'stops_ms': stops}


def main(args: list[str] | None = None) -> int:
    """Measure and write; return 1 with the reason when that fails."""
    rclpy.init(args=args)
    node = GuardLoad()
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        figures = measure(node, executor)
    except TimeoutError as error:
        sys.stderr.write(f'{error}\n')
        return 1
    finally:
        executor.shutdown(timeout_sec=0.1)
        node.destroy_node()
        rclpy.try_shutdown()
    sys.stdout.write(json.dumps(figures) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())

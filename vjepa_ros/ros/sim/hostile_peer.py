# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Stand in for camera, controller, base and clock of running nodes, and misbehave on demand."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, PointCloud2

from vjepa_ros.ros import read
from vjepa_ros.ros.common.message_conversion import Header, image, make_header

TICK_S, COMMAND_S = 0.01, 0.05
SPEED = 0.3              # that the controller wants [m/s]
VARIANTS = 6             # of a picture, by the noise of its sensor
ANSWER_S, ASK_AGAIN = 30.0, 800          # longest wait for an answer; ticks until asked again
DEPTH = 100
AT_ONCE = 10             # requests that a service of ROS keeps; the others are lost


class HostilePeer(ABC):
    """A ROS node that plays what surrounds perception and guard, from `begin` until `close`.

    `simulated`: it publishes the time on ``/clock``, with an offset, while that runs. `how` names
    a fault of images, `ahead_ns` is added to their stamps [ns]. The controller wants `command`
    [m/s]; None: it is silent. `told` are the newest diagnostics by the name of the status.
    """

    rate, size, encoding, how, ahead_ns = 20.0, (320, 240), 'rgb8', 'live', 0
    command: float | None = SPEED
    simulated, offset_ns, clock_runs = False, 0, True

    @abstractmethod
    def on_image(self, stamp_ns: int, captured_ns: int, sent_ns: int, truthful: bool) -> None:
        """Take note of an image before it is published, see `Sent`."""

    @abstractmethod
    def on_message(self, kind: str, at_ns: int, msg: Any) -> None:
        """Take an 'assessment', 'out' or 'command', and when it was published [ns]."""

    def begin(self, domain: int) -> None:
        """Take part in a DDS domain."""
        self._context = rclpy.Context()
        rclpy.init(args=['--ros-args', '--disable-stdout-logs'], context=self._context,
                   domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node('hostile_peer', context=self._context)
        self.told: dict[str, dict[str, str]] = {}
        self._now_ns = self._images = 0
        self._look_s = self._command_s = time.monotonic()        # when the next is due
        self._clients: dict[str, Any] = {}
        self._held: list[tuple[Image, int]] = []
        self._last: tuple[Image, int] | None = None
        self._pictures: dict[object, list[Image]] = {}
        self._camera: Any = self._node.create_publisher(Image, 'camera/image_raw', 1)
        self._controller = self._node.create_publisher(Twist, 'cmd_vel_in', 1)
        self._clock = self._node.create_publisher(Clock, '/clock', 1)
        for kind, topic, name in ((PointCloud2, 'vjepa_node/camera/assessment', 'assessment'),
                                  (Twist, 'cmd_vel_out', 'out')):
            self._node.create_subscription(
                kind, topic, lambda msg, info, name=name: self.on_message(
                    name, info['source_timestamp'], msg), DEPTH)
        self._node.create_subscription(DiagnosticArray, '/diagnostics', self._on_told, DEPTH)
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=act, daemon=True)
                         for act in (self._listen, self._play)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def calm(self) -> None:
        """Misbehave no longer."""
        self.how, self.ahead_ns, self.command = 'live', 0, SPEED

    def _listen(self) -> None:
        executor = SingleThreadedExecutor(context=self._context)
        executor.add_node(self._node)
        while not self._ended.is_set():
            executor.spin_once(timeout_sec=0.1)

    def _on_told(self, array: DiagnosticArray) -> None:
        self.told.update({status.name: {'message': status.message, **{
            pair.key: pair.value for pair in status.values}} for status in array.status})

    def _play(self) -> None:
        """Publish time, images and commands."""
        while not self._ended.wait(TICK_S):
            now_s, now_ns = time.monotonic(), time.time_ns()
            if not self.simulated:
                self._now_ns = now_ns
            elif self.clock_runs:
                self._now_ns = now_ns + self.offset_ns
                self._clock.publish(Clock(clock=make_header(self._now_ns, '').stamp))
            if now_s >= self._look_s:
                self._look_s = max(self._look_s + 1 / self.rate, now_s)
                self._look(self.how, self.ahead_ns, now_ns)
            speed = self.command
            if now_s >= self._command_s and speed is not None:
                self._command_s, twist = now_s + COMMAND_S, Twist()
                twist.linear.x = speed
                if math.isfinite(speed):
                    self.on_message('command', now_ns, twist)
                self._controller.publish(twist)

    def _look(self, how: str, ahead_ns: int, now_ns: int) -> None:
        """Capture an image and publish what is due."""
        self._images += 1
        if how == 'restart' and self._images % VARIANTS == 0:
            self._node.destroy_publisher(self._camera)
            self._camera = self._node.create_publisher(Image, 'camera/image_raw', 1)
        if how != 'silent' and (how != 'drop' or self._images % 3 == 0):
            key = self.size, self.encoding, how if how in ('damaged', 'black') else ''
            if key not in self._pictures:
                self._pictures[key] = pictures(*key)
            msg = self._pictures[key][self._images % VARIANTS]
            msg = Image(height=msg.height, width=msg.width, encoding=msg.encoding, step=msg.step,
                        data=msg.data, header=make_header(self._now_ns + ahead_ns, 'optical'))
            if how == 'duplicate' and self._images % 2 and self._last:
                msg, now_ns = self._last
            self._last = (msg, now_ns)
            self._held.append(self._last)
        due: list[tuple[Image, int]] = []
        if how == 'reorder':            # one a period, as a reader keeps the newest alone
            del self._held[:-2]         # older ones are too late to be put in order
            if len(self._held) > 1:
                due = [self._held.pop(0 if self._images % 2 else -1)]
        elif how != 'late':
            due, self._held = self._held, []
        for msg, captured_ns in due:
            self.on_image(read.stamp_ns(msg), captured_ns, time.time_ns(), not ahead_ns)
            self._camera.publish(msg)

    def ask(self, kind: Any, service: str, *requests: Any) -> list[Any]:
        """Send requests all at once; their answers, None for each that has not come in time.

        A server drops its answer to a client that it has not found yet: then it is asked again.
        """
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        client = self._clients[service]
        client.wait_for_service(ANSWER_S)
        calls = [client.call_async(request) for request in requests]
        for tick in range(1, round(ANSWER_S / TICK_S)):
            if all(call.done() for call in calls):
                break
            time.sleep(TICK_S)
            if tick % ASK_AGAIN == 0:
                calls = [call if call.done() else client.call_async(request)
                         for call, request in zip(calls, requests, strict=True)]
        return [call.result() if call.done() else None for call in calls]

    def change_state(self, node: str, label: str) -> bool | None:
        """Request a transition of a lifecycle node; whether it succeeded, None: no answer."""
        request = ChangeState.Request()
        request.transition.label = label
        answer, = self.ask(ChangeState, f'{node}/change_state', request)
        return answer and answer.success

    def set_parameters(self, node: str, values: Sequence[tuple[str, Any]]) -> list[bool | None]:
        """Set parameters, each by a request of its own, ten at once; None: no answer."""
        requests = [SetParameters.Request(parameters=[Parameter(
            name, value=value).to_parameter_msg()]) for name, value in values]
        return [answer and answer.results[0].successful
                for begin in range(0, len(requests), AT_ONCE) for answer in self.ask(
                    SetParameters, f'{node}/set_parameters', *requests[begin:begin + AT_ONCE])]


def pictures(size: tuple[int, int], encoding: str, how: str) -> list[Image]:
    """Make the pictures of a still scene with the noise of a sensor, 'black' or 'damaged' ones."""
    rng, (width, height) = np.random.default_rng(0), size
    coarse = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    scene = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC).astype(np.int16)
    made = []
    for number in range(VARIANTS):
        noisy = scene * (how != 'black') + rng.integers(-2, 3, scene.shape)
        rgb = np.clip(noisy, 0, 255).astype(np.uint8)
        msg = image(Header(), rgb[..., 0] if encoding == 'mono8' else rgb, encoding)
        if how == 'damaged':
            msg.encoding, msg.height = (('nonsense', height), (encoding, height + 9),
                                        (encoding, 0))[number % 3]
        made.append(msg)
    return made

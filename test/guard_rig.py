# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A guard with a controller and assessments that a test plays."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import Twist, TwistStamped
from node_fixtures import now_ns, values_of
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_harness import NodeThread, Session, ros_session
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import SetBool

from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.message_conversion import make_header, pack_assessment

GUARD = 'vjepa_ros.ros.collision_guard'
NS = 1_000_000_000
CLEAR = Assessment('camera', 0, 'optical', 0.0, 0.0, 0.0, math.inf, 0.0, math.nan, math.nan,
                   Level.CLEAR, Quality(0), known_fraction=1.0)
# Quick to release, so that tests need not wait.
QUICK = {'release.hold': 0.1, 'release.acceleration': 50.0, 'release.speed': 2.0,
         'unseen_speed': 2.0, 'min_time_to_contact': 1.5, 'autostart': True}
WITHIN_S = 0.05          # in which the guard must have stopped after source_timeout


def cloud(seen: Assessment) -> PointCloud2:
    return message_conversion.cloud(make_header(seen.stamp_ns, seen.frame_id),
                                    pack_assessment(seen, 1.0))


class Every(threading.Thread):
    """Does something at an even rate until the block ends."""

    def __init__(self, period_s: float, act: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._period_s, self._act = period_s, act
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._period_s):
            self._act()

    def __enter__(self) -> Every:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self.join()


class Late(threading.Thread):
    """How late this machine wakes a thread that sleeps, at worst, until the block ends.

    The guard stops in its own time: of the `WITHIN_S` it takes up to 20 ms by itself, the period
    at which it looks at timeouts. On a machine that others keep busy it is woken late, as this
    thread is. So that much more is granted, and on a machine at rest next to nothing.
    """

    def __init__(self, period_s: float = 0.01) -> None:
        super().__init__(daemon=True)
        self._period_s, self.worst_s = period_s, 0.0
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            start = time.monotonic()
            time.sleep(self._period_s)
            self.worst_s = max(self.worst_s, time.monotonic() - start - self._period_s)

    def __enter__(self) -> Late:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended = True
        self.join()


class Rig:
    """A guard with a camera and a controller that this process plays."""

    def __init__(self, ros: Session, process: NodeThread, stamped: bool = False,
                 name: str = '/collision_guard') -> None:
        self.ros, self.process, self.name = ros, process, name
        node = ros.node
        self.kind = TwistStamped if stamped else Twist
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        self.camera = node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
        self.controller = node.create_publisher(self.kind, 'cmd_vel_in', qos)
        self.out: list[tuple[int, Any]] = []          # (when it was published [ns], Twist)
        self.states: list[DiagnosticArray] = []
        self.seen = CLEAR
        self.stamp: Callable[[], int] = now_ns
        self.looking = True
        self.looked_ns = 0                            # stamp of the newest assessment sent
        node.create_subscription(self.kind, 'cmd_vel_out', self._on_out, 100)
        node.create_subscription(DiagnosticArray, f'{name}/state', self.states.append, 10)

    def _on_out(self, msg: Any, info: Mapping[str, int]) -> None:
        twist = msg.twist if self.kind is TwistStamped else msg
        self.out.append((info['source_timestamp'], twist))

    def stopped_ns(self) -> int:
        """When the guard published the first zero of those that it sends now."""
        self.wait(lambda: self.speed == 0)
        return next(when for (when, twist), (_, before) in zip(
            self.out[:0:-1], self.out[-2::-1], strict=True)
            if twist.linear.x == 0 and before.linear.x)

    def known_ns(self) -> int:
        """Stamp of the newest assessment that the guard has, as it says itself."""
        array = self.states[-1]
        age_ms = float(values_of(array.status[1])['age_ms'])
        return array.header.stamp.sec * NS + array.header.stamp.nanosec - round(1e6 * age_ms)

    def look(self) -> None:
        """Publish one assessment."""
        if self.looking:
            self.looked_ns = self.stamp()
            self.camera.publish(cloud(replace(self.seen, stamp_ns=self.looked_ns)))

    def command(self, vx: float = 1.0, omega: float = 0.0, vy: float = 0.0) -> None:
        twist = Twist()
        twist.linear.x, twist.linear.y, twist.angular.z = vx, vy, omega
        self.controller.publish(
            TwistStamped(twist=twist) if self.kind is TwistStamped else twist)

    @contextmanager
    def driving(self, vx: float = 1.0, omega: float = 0.0, vy: float = 0.0) -> Iterator[None]:
        """A controller that commands this at 20 Hz, and a camera of 20 Hz."""
        with Every(0.05, lambda: self.command(vx, omega, vy)), Every(0.05, self.look):
            yield

    @property
    def speed(self) -> float:
        return self.out[-1][1].linear.x if self.out else math.nan

    def wait(self, test: Callable[[], Any], timeout: float = 30.0) -> None:
        assert self.ros.spin_until(test, timeout), (
            f'{self.speed} {self.message}\n{self.process.output}')

    def wait_for_speed(self, speed: float) -> None:
        before = len(self.out)
        self.wait(lambda: len(self.out) > before and abs(self.speed - speed) < 1e-6)

    def wait_for_state(self, text: str) -> None:
        before = len(self.states)
        self.wait(lambda: any(text in array.status[0].message
                              for array in self.states[before:]))

    @property
    def status(self) -> DiagnosticStatus:
        return self.states[-1].status[0]

    @property
    def message(self) -> str:
        return self.status.message if self.states else 'no state yet'

    def values(self, number: int = 0) -> dict[str, str]:
        return values_of(self.states[-1].status[number])

    def override(self, on: bool) -> SetBool.Response:
        return self.ros.call(SetBool, f'{self.name}/override', SetBool.Request(data=on))


@contextmanager
def active(kind: type[CommandNode], **params: Any) -> Iterator[Any]:
    """An active node that nobody serves."""
    with ros_session() as ros:
        node = kind(context=ros.context, parameter_overrides=[
            Parameter(name, value=value) for name, value in params.items()])
        try:
            if node.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                node.trigger_activate()
            assert node.state == 'active', node.last_failure
            yield node
        finally:
            node.destroy_node()


@contextmanager
def guarding(ros: Session, stamped: bool = False, **params: Any) -> Iterator[Rig]:
    values = {**QUICK, **{key.replace('__', '.'): value for key, value in params.items()}}
    with ros.compose(GUARD, values) as process:
        rig = Rig(ros, process, stamped)
        rig.wait(lambda: rig.camera.get_subscription_count() and
                 rig.controller.get_subscription_count() and rig.states)
        yield rig

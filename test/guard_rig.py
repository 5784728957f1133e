# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Nodes between controller and base, with a controller and cameras that a test plays."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import Twist, TwistStamped
from node_fixtures import Node, now_ns, values_of
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_harness import NodeThread, Session, ros_session
from sensor_msgs.msg import PointCloud2

from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.ros.command.node import CommandNode
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.message_conversion import make_header, pack_assessment
from vjepa_ros.ros.common.process import LARGE_IMAGES

GUARD = 'vjepa_ros.ros.collision_guard'
PLANNER = 'vjepa_ros.ros.local_planner'
WATCHDOG = 'vjepa_ros.ros.command_watchdog'
LAUNCHED = {'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}      # as launch files start nodes
NS = 1_000_000_000
CLEAR = Assessment('camera', 0, 'optical', 0.0, 0.0, 0.0, math.inf, 0.0, math.nan, math.nan,
                   Level.CLEAR, Quality(0), known_fraction=1.0)
# Quick to release, so that tests need not wait.
QUICK = {'unseen_speed': 2.0, 'min_time_to_contact': 1.5, 'autostart': True}
WITHIN_S = 0.05          # in which the guard must have stopped after source_timeout
RELIABLE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)


def waits(*pids: int) -> dict[str, int]:
    """How long each thread was ready to run, but had no core [ns]; Linux counts it."""
    found = {}
    for pid in pids:
        for file in Path(f'/proc/{pid}/task').glob('*/schedstat'):
            with suppress(OSError):                  # it has just ended
                found[str(file)] = int(file.read_text().split()[1])
    return found


def cloud(seen: Assessment) -> PointCloud2:
    return message_conversion.cloud(make_header(seen.stamp_ns, seen.frame_id),
                                    pack_assessment(seen, 1.0))


def twist_of(vx: float = 1.0, omega: float = 0.0, vy: float = 0.0) -> Twist:
    twist = Twist()
    twist.linear.x, twist.linear.y, twist.angular.z = vx, vy, omega
    return twist


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


class Late(Every):
    """How late this machine lets threads of this process and others run, until the block ends.

    A machine that others keep busy wakes threads late, and lets those that are ready wait, which
    Linux counts: so much more than `WITHIN_S` is granted.
    """

    def __init__(self, *pids: int) -> None:
        super().__init__(0.01, self._note)
        self._pids = (os.getpid(), *pids)
        self.worst_s, self._before_s = 0.0, time.monotonic()
        self._waited = waits(*self._pids)

    def _note(self) -> None:
        now_s = time.monotonic()
        self.worst_s = max(self.worst_s, now_s - self._before_s - self._period_s)
        self._before_s = now_s

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.worst_s = max(self.worst_s, *((waited - self._waited.get(file, 0)) / 1e9
                                           for file, waited in waits(*self._pids).items()))


class CommandRig(Node):
    """A node with a controller that this process plays, and what it sends and tells."""

    def __init__(self, ros: Session, process: NodeThread, name: str, stamped: bool) -> None:
        super().__init__(ros, process, name)
        self.kind = TwistStamped if stamped else Twist
        self.controller = ros.node.create_publisher(self.kind, 'cmd_vel_in', RELIABLE)
        self.out: list[tuple[int, Twist]] = []        # when it was published [ns], and what
        self.states: list[DiagnosticArray] = []
        self.listen_to('cmd_vel_out')
        ros.node.create_subscription(DiagnosticArray, f'{name}/state', self.states.append, 10)

    def listen_to(self, topic: str) -> None:
        def hear(msg: Any, info: Mapping[str, int]) -> None:
            if self.kind is TwistStamped:
                assert abs(msg.header.stamp.sec - time.time()) < 60
                msg = msg.twist
            self.out.append((info['source_timestamp'], msg))

        self.ros.node.create_subscription(self.kind, topic, hear, 100)

    def look(self) -> None:
        """Publish what the cameras see."""

    def send(self, publisher: Any, *motion: float) -> None:
        twist = twist_of(*motion)
        publisher.publish(TwistStamped(twist=twist) if self.kind is TwistStamped else twist)

    def command(self, *motion: float) -> None:
        self.send(self.controller, *motion)

    @contextmanager
    def driving(self, *motion: float, also: Callable[[], None] | None = None) -> Iterator[None]:
        """A controller that commands this at 20 Hz, and what else happens at 20 Hz."""
        with ExitStack() as parts:
            for act in filter(None, (lambda: self.command(*motion), self.look, also)):
                parts.enter_context(Every(0.05, act))
            yield

    @property
    def twist(self) -> Twist | None:
        return self.out[-1][1] if self.out else None

    @property
    def status(self) -> DiagnosticStatus | None:
        return self.states[-1].status[0] if self.states else None

    def wait(self, test: Callable[[], Any], timeout: float = 30.0) -> Any:
        found = self.ros.spin_until(test, timeout)
        assert found, f'{self.twist} {self.status}\n{self.process.output}'
        return found

    def wait_for_motion(self, test: Callable[[Twist], Any]) -> None:
        """Wait until something that is sent from now on passes a test."""
        before = len(self.out)
        self.wait(lambda: len(self.out) > before and test(self.twist))

    def wait_for_speed(self, speed: float) -> None:
        self.wait_for_motion(lambda twist: abs(twist.linear.x - speed) < 1e-6)

    def wait_for_state(self, text: str, omega: float | None = None) -> DiagnosticStatus:
        """Wait for a new state with this text, and for a command with this turn."""
        before = len(self.states)
        asked = None if omega is None else ('none', 'nan', f'{omega:.3f}')
        return self.wait(lambda: next(
            (array.status[0] for array in self.states[before:] if text in array.status[0].message
             and (asked is None or values_of(array.status[0])['asked.omega'] in asked)), None))


class Rig(CommandRig):
    """A guard with a camera."""

    def __init__(self, ros: Session, process: NodeThread) -> None:
        super().__init__(ros, process, '/collision_guard', stamped=False)
        self.camera = ros.node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
        self.looked_ns = 0                            # stamp of the newest assessment sent
        self.again()

    def again(self) -> None:
        """A clear view, now."""
        self.seen, self.stamp, self.looking = CLEAR, now_ns, True

    def ready(self) -> Rig:
        """Wait for the node, and return this."""
        self.wait(lambda: self.camera.get_subscription_count() and
                  self.controller.get_subscription_count() and self.states)
        return self

    def look(self) -> None:
        if self.looking:
            self.looked_ns = self.stamp()
            self.camera.publish(cloud(replace(self.seen, stamp_ns=self.looked_ns)))

    def stopped_ns(self) -> int:
        """When the guard published the first zero of those that it sends now."""
        self.wait(lambda: self.twist.linear.x == 0)
        return next(when for (when, twist), (_, before) in zip(
            self.out[:0:-1], self.out[-2::-1], strict=True)
            if twist.linear.x == 0 and before.linear.x)

    def stopped_in_time(self, seen_ns: int, late: Late) -> None:
        """Check that zeros came soon after an assessment with this stamp had become too old."""
        took_s = (self.stopped_ns() - seen_ns) / NS
        assert took_s < GuardSettings.source_timeout + WITHIN_S + late.worst_s


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace('__', '.'): value for name, value in given.items()}


@contextmanager
def active(kind: type[CommandNode], *words: str, **params: Any) -> Iterator[Any]:
    """An active node with these ROS arguments that nobody serves."""
    with ros_session() as ros:
        node = kind(context=ros.context, cli_args=['--ros-args', *words], parameter_overrides=[
            Parameter(name, value=value) for name, value in params.items()])
        try:
            if node.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                node.trigger_activate()
            assert node.state == 'active', node.last_failure
            yield node
        finally:
            node.destroy_node()


@contextmanager
def guarding(ros: Session, **params: Any) -> Iterator[Rig]:
    with ros.compose(GUARD, {**QUICK, **parameters(params)}) as process:
        yield Rig(ros, process).ready()

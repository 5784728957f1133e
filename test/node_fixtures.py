# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A node in its own process, cameras that publish to it, and what a test asks of them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import SetParametersResult
from rcl_interfaces.srv import GetParameters, SetParameters, SetParametersAtomically
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_harness import Running, Session
from rosgraph_msgs.msg import Clock
from scenes import texture
from sensor_msgs.msg import Image, LaserScan, PointCloud2
from std_srvs.srv import Trigger

from vjepa_ros.perception.types import Assessment
from vjepa_ros.ros import read
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.perception_node.outputs import DRAWN, TOPICS

NODE = 'vjepa_ros.ros.perception_node'
# Small and quick: results come 0.3 s after the first frame. On a busy machine they may come late
# without being taken for stale.
SMALL = {'weights': 'random', 'allow_random_weights': True, 'num_frames': 4, 'image_size': 64,
         'cpu_threads': 1, 'clip_fps': 10.0, 'device': 'cpu', 'max_rate': 60.0,
         'max_frame_age': 60.0}
KINDS = {**{name: kind for name, (kind, *_) in TOPICS.items()}, **DRAWN}
METRIC = {'obstacle_points': PointCloud2, 'scan': LaserScan}     # where a camera's pose is known
TRANSITIONS = {name: getattr(Transition, f'TRANSITION_{name.upper()}') for name in (
    'configure', 'activate', 'deactivate', 'cleanup', 'active_shutdown')}
SERVICES = {'change_state': ChangeState, 'get_state': GetState, 'set_parameters': SetParameters,
            'set_parameters_atomically': SetParametersAtomically,
            'get_parameters': GetParameters, 'reset': Trigger}
# How long to wait for what must come: far longer than it takes anywhere, for only a failure costs
# this time. A process that imports PyTorch, and an answer or result of one that runs.
START_S = 180.0
ANSWER_S = 90.0
NS = 1_000_000_000


class Heard(list):
    """Messages of a topic, and in `sent_ns` when they were published."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_ns: list[int] = []

    def take(self, msg: Any, info: Mapping[str, int]) -> None:
        self.sent_ns.append(info['source_timestamp'])
        self.append(msg)


class Node:
    """The node under test, seen through its services and topics."""

    def __init__(self, ros: Session, process: Running, name: str = '/vjepa_node') -> None:
        self.ros = ros
        self.process = process
        self.name = name
        self.reports: dict[str, DiagnosticStatus] = {}
        self.report_count = 0
        self.report_stamp = 0
        self._changed: dict[str, Any] = {}
        ros.node.create_subscription(DiagnosticArray, '/diagnostics', self._on_report, 10)

    def _on_report(self, array: DiagnosticArray) -> None:
        self.reports = {s.name.split(': ', 1)[1]: s for s in array.status}
        self.report_count += 1
        self.report_stamp = read.stamp_ns(array)

    def ask(self, service: str, request: Any = None, timeout: float = ANSWER_S) -> Any:
        """Call a service of the node."""
        return self.ros.call(SERVICES[service], f'{self.name}/{service}', request, timeout)

    def change(self, transition: str) -> bool:
        """Request a transition; whether it succeeded."""
        request = ChangeState.Request(transition=Transition(id=TRANSITIONS[transition]))
        return self.ask('change_state', request, START_S).success

    def do(self, *transitions: str) -> None:
        """Request transitions that must succeed."""
        for transition in transitions:
            assert self.change(transition), f'{transition} failed\n{self.process.output}'

    @property
    def state(self) -> str:
        return self.ask('get_state').current_state.label

    def try_set(self, name: str, value: Any) -> SetParametersResult:
        """Set one parameter; the answer of the node."""
        request = SetParameters.Request(parameters=[Parameter(name, value=value)
                                                    .to_parameter_msg()])
        return self.ask('set_parameters', request).results[0]

    def set(self, **values: Any) -> None:
        """Set parameters together, which must be accepted; ``__`` stands for a dot."""
        if values:
            self._set({name.replace('__', '.'): value for name, value in values.items()})

    def _set(self, values: Mapping[str, Any]) -> None:
        for name in values.keys() - self._changed.keys():
            self._changed[name] = self.get(name)
        request = SetParametersAtomically.Request(parameters=[
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()])
        result = self.ask('set_parameters_atomically', request).result
        assert result.successful, result.reason
        self.get(next(iter(values)))     # by a second answer they have taken effect

    def begin_anew(self, **values: Any) -> None:
        """Become active from scratch, with these parameters and else those of the start."""
        state = self.state
        self.do(*{'active': ('deactivate', 'cleanup'), 'inactive': ('cleanup',)}.get(state, ()))
        if self._changed:
            self._set(self._changed)
            self._changed = {}
        self.set(**values)
        self.do('configure', 'activate')

    def get(self, name: str) -> Any:
        request = GetParameters.Request(names=[name])
        (value,) = self.ask('get_parameters', request).values
        return parameter_value_to_python(value)

    @contextmanager
    def listen(self, topic: str, camera: str = 'camera') -> Iterator[Heard]:
        """Subscribe to an output; the list fills with what arrives."""
        got = Heard()
        subscription = self.ros.node.create_subscription(
            {**KINDS, **METRIC}[topic], f'{self.name}/{camera}/{topic}', got.take, 50)
        try:
            yield got
        finally:
            self.ros.node.destroy_subscription(subscription)

    def wait_until_heard(self, camera: str = 'camera') -> None:
        """Wait until the node has found all subscriptions: who subscribes last is found last.

        The camera must be silent or send: the overlay comes without images, too.
        """
        with self.listen('overlay', camera) as pictures:
            self.some(pictures)

    def next(self, got: list[Any], count: int = 1) -> list[Any]:
        """Wait for messages beyond those in the list; the new ones."""
        have = len(got)
        return self.some(got, have + count)[have:]

    def some(self, got: list[Any], count: int = 1) -> list[Any]:
        """Wait until a list holds so many messages; all of them."""
        assert self.ros.spin_until(lambda: len(got) >= count, ANSWER_S), (
            f'{len(got)} of {count} messages\n{self.process.output}')
        return got

    def assess(self, camera: str = 'camera', since_ns: int | None = None) -> Assessment:
        """An assessment of a clip that was taken as a whole after this call (or that stamp)."""
        since = now_ns() if since_ns is None else since_ns

        def newest() -> Assessment | None:
            seen = read.assessment(got[-1], camera) if got else None
            return seen if seen and seen.stamp_ns - seen.clip_span_s * NS > since else None

        with self.listen('assessment', camera) as got:
            found = self.ros.spin_until(newest, ANSWER_S)
        assert found, f'{len(got)} results\n{self.process.output}'
        return found

    def report(self, part: str = 'model',
               test: Callable[[DiagnosticStatus], Any] = lambda status: True) -> DiagnosticStatus:
        """Wait until a status that was made after this call passes a test."""
        before = self.report_count

        def passed() -> DiagnosticStatus | None:
            status = self.reports.get(part)
            new = self.report_count >= before + 2        # the first may have been on its way
            return status if new and status is not None and test(status) else None

        found = self.ros.spin_until(passed, ANSWER_S)
        assert found, f'{self.reports.get(part)}\n{self.process.output}'
        return found

    def wait_for(self, part: str, test: Callable[[dict[str, str]], Any]) -> dict[str, str]:
        """Wait until the values of a status that was made after this call pass a test."""
        def passes(status: DiagnosticStatus) -> Any:
            with suppress(KeyError, ValueError):
                return test(values_of(status))

        return values_of(self.report(part, passes))

    def values(self, part: str = 'camera camera') -> dict[str, str]:
        """Values of a status that was made after this call."""
        return values_of(self.report(part))

    @property
    def written(self) -> int:
        """How much the process has written; a place to wait from with `wait_for_log`."""
        return len(self.process.output)

    def wait_for_log(self, pattern: str, since: int = 0) -> str:
        """Wait until the process has written what matches, behind a place; all it wrote there."""
        found = self.ros.spin_until(
            lambda: re.search(pattern, self.process.output[since:], re.S), ANSWER_S)
        assert found, f'{pattern!r} was not written, but:\n{self.process.output[since:]}'
        return self.process.output[since:]


def values_of(status: DiagnosticStatus) -> dict[str, str]:
    return {v.key: v.value for v in status.values}


@contextmanager
def node_running(ros: Session, remaps: Mapping[str, str] | None = None,
                 name: str = '/vjepa_node', **params: Any) -> Iterator[Node]:
    """A node of this process with the small model; ``__`` in a parameter stands for a dot."""
    given = {key.replace('__', '.'): value for key, value in params.items()}
    with ros.compose(NODE, {**SMALL, **given}, remaps) as served:
        yield Node(ros, served, name)


# -- cameras --------------------------------------------------------------------------------------

def stamped(msg: Any, stamp_ns: int, frame_id: str = 'optical') -> Any:
    msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(stamp_ns, NS)
    msg.header.frame_id = frame_id
    return msg


def raw(rgb: np.ndarray) -> Image:
    """A raw message of an RGB picture."""
    return message_conversion.image(message_conversion.Header(), rgb, 'rgb8')


def now_ns() -> int:
    """The time of the ROS clock without simulated time."""
    return time.time_ns()


def exact(topic: str = 'camera/image_raw') -> dict[str, Any]:
    """Parameters that make the node read every message of a topic, for tests that count."""
    policies = {'reliability': 'reliable', 'durability': 'transient_local', 'depth': 50}
    return {f'qos_overrides./{topic}.subscription.{k}': v for k, v in policies.items()}


EXACT = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE,
                   durability=DurabilityPolicy.TRANSIENT_LOCAL)
BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def came(stamp_ns: int, *heard: list[Any]) -> bool:
    """Whether every list holds a message with this stamp."""
    return all(any(read.stamp_ns(m) == stamp_ns for m in got) for got in heard)


class Publisher:
    """Publishes messages by hand; none is lost to a node with the parameters `exact`."""

    def __init__(self, ros: Session, topic: str = 'camera/image_raw', kind: Any = Image,
                 qos: QoSProfile | int = EXACT, frame_id: str = 'optical') -> None:
        self.ros = ros
        self.frame_id = frame_id
        self._pub = ros.node.create_publisher(kind, topic, qos)

    def __enter__(self) -> Publisher:
        self.wait_for_reader()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_for_reader(self) -> None:
        """Wait until the node has found this publisher."""
        assert self.ros.spin_until(lambda: self.readers, START_S)

    @property
    def readers(self) -> int:
        return self._pub.get_subscription_count()

    def send(self, msg: Any, stamp_ns: int) -> int:
        """Publish a message with this stamp, which it gives back."""
        self._pub.publish(stamped(msg, stamp_ns, self.frame_id))
        return stamp_ns

    def step(self, msg: Any, stamp_ns: int, *heard: list[Any]) -> int:
        """Publish a message and wait for the results that are due to it, on all these topics."""
        self.send(msg, stamp_ns)
        assert self.ros.spin_until(lambda: came(stamp_ns, *heard), ANSWER_S), (
            f'the frame at {stamp_ns} has no result')
        return stamp_ns

    def play(self, make: Callable[[int], Any], start_ns: int, period_ns: int, *heard: list[Any]
             ) -> int:
        """Publish messages until one has a result on all these topics; its number."""
        for i in range(100):
            stamp = self.send(make(i), start_ns + i * period_ns)
            if self.ros.spin_until(lambda stamp=stamp: came(stamp, *heard), 0.1 * 1.06**i):
                return i
        raise AssertionError(f'no result: {[len(got) for got in heard]} came')

    def tick(self, stamp_ns: int) -> None:
        """Publish a time (for a publisher of rosgraph_msgs/Clock)."""
        self._pub.publish(Clock(clock=stamped(Image(), stamp_ns).header.stamp))

    def close(self) -> None:
        self.ros.node.destroy_publisher(self._pub)


class Camera(Publisher):
    """A camera: a thread that publishes so many pictures per second until the block ends.

    `picture` and `stamp` [ns] take a number; `make` turns an RGB picture into the message.
    """

    def __init__(self, ros: Session, topic: str = 'camera/image_raw', kind: Any = Image, *,
                 rate: float = 30.0, picture: Callable[[int], np.ndarray] | None = None,
                 make: Callable[[np.ndarray], Any] = raw, frame_id: str = 'optical',
                 size: tuple[int, int] = (160, 120),
                 stamp: Callable[[int], int] | None = None,
                 qos: QoSProfile | int = 1) -> None:
        super().__init__(ros, topic, kind, qos, frame_id)
        still = texture(size)
        self._picture = picture or (lambda i: still)
        self._make = make
        self._period = 1.0 / rate
        self._stamp = stamp or (lambda i: now_ns())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.stamps: list[int] = []

    def _run(self) -> None:
        start = time.monotonic()
        i = 0
        while not self._stop.wait(max(0.0, start + i * self._period - time.monotonic())):
            msg = self._make(self._picture(i))
            self.stamps.append(self.send(msg, self._stamp(i)))
            # Being late is no reason to send two pictures at once: a camera drops instead.
            i = max(i + 1, round((time.monotonic() - start) / self._period))

    def __enter__(self) -> Camera:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        super().__exit__(*exc)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Count the modules and calls between a camera message and its published assessment.

Run ``python test/frame_path.py``. The perception node runs in this process with the bundled
`tiny` model on the CPU and one calibrated camera, which drives at a wall; somebody subscribes to
``~/camera/assessment``. Every Python call of a function in `vjepa_ros` counts, as `sys.setprofile`
reports it: also properties, comprehensions and each step of a generator, but not the methods that
dataclasses generate. All threads count; the timers of the node, which run beside frames, do not.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ros_harness import Session, ros_session
from scenes import Approach

import vjepa_ros

PACKAGE = str(Path(vjepa_ros.__file__).parent)
NS = 1_000_000_000
PERIOD_NS = NS // 10     # of the camera
CONTACT_S = 12.0
FULL_FRAMES, WARM_FRAMES = 19, 25    # when the clip is full, and all that is made once is made
TIMERS = ('_on_watch', '_on_report')


class CallCounter:
    """Counts the calls of functions in `vjepa_ros` in every thread that starts from now on."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, str]] = Counter()     # by root, module and function
        self._lock = threading.Lock()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count inside of the block."""
        threading.setprofile(self._on_event)
        try:
            yield
        finally:
            threading.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != 'call' or not _ours(frame):
            return
        root, outer = frame, frame.f_back
        while outer is not None:
            root, outer = outer if _ours(outer) else root, outer.f_back
        if root.f_code.co_name not in TIMERS:
            key = root.f_code.co_name, frame.f_globals['__name__'], frame.f_code.co_qualname
            with self._lock:
                self.calls[key] += 1

    def take(self) -> Counter[tuple[str, str, str]]:
        """Return the calls since the last time."""
        with self._lock:
            calls, self.calls = self.calls, Counter()
        return calls


def _ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE)


def frame_path(frames: int = 9) -> tuple[list[Counter[tuple[str, str, str]]], Any]:
    """Return the calls of each of some frames in the steady state, and the last assessment."""
    counter = CallCounter()
    with ros_session() as ros, counter.installed(), _node(ros), _Camera(ros) as camera:
        for _ in range(WARM_FRAMES):
            camera.step()
        counter.take()
        counts = []
        for _ in range(frames):
            assessment = camera.step()
            counts.append(counter.take())
    return counts, assessment


@contextmanager
def _node(ros: Session) -> Iterator[None]:
    """Run an active perception node in a thread of this process."""
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter

    from vjepa_ros.ros.perception_node.node import VjepaNode

    node = VjepaNode(context=ros.context, parameter_overrides=[
        Parameter(name, value=value) for name, value in {
            'use_sim_time': True, 'device': 'cpu', 'max_rate': 240.0, 'cpu_threads': 1}.items()])
    executor = SingleThreadedExecutor(context=ros.context)
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin, daemon=True)
    try:
        node.trigger_configure()
        node.trigger_activate()
        thread.start()
        yield
    finally:
        executor.shutdown()
        if thread.ident is not None:
            thread.join()
        node.destroy_node()


class _Camera:
    """A camera in simulated time that waits for the assessment of each frame."""

    def __init__(self, ros: Session) -> None:
        from rosgraph_msgs.msg import Clock
        from sensor_msgs.msg import CameraInfo, Image, PointCloud2

        self._ros, self._scene, self._frames = ros, Approach(contact_s=CONTACT_S), 0
        make = ros.node.create_publisher
        self._clock = make(Clock, '/clock', 10)
        self._image = make(Image, 'camera/image_raw', 10)
        self._info = make(CameraInfo, 'camera/camera_info', 10)
        self._answers: list[PointCloud2] = []
        ros.node.create_subscription(PointCloud2, '/vjepa_node/camera/assessment',
                                     self._answers.append, 10)

    def __enter__(self) -> _Camera:
        assert self._ros.spin_until(lambda: all(
            publisher.get_subscription_count() for publisher in (
                self._clock, self._image, self._info)))
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def step(self) -> Any:
        """Send the next frame, wait for its assessment and until the node is at rest again."""
        from builtin_interfaces.msg import Time
        from rosgraph_msgs.msg import Clock
        from sensor_msgs.msg import CameraInfo
        from std_msgs.msg import Header

        from vjepa_ros.ros import read
        from vjepa_ros.ros.common import message_conversion

        self._frames += 1
        since_ns = self._frames * PERIOD_NS
        sec, nanosec = divmod(100 * NS + since_ns, NS)
        header = Header(stamp=Time(sec=sec, nanosec=nanosec), frame_id='camera_optical')
        width, height = self._scene.size
        k = [300.0, 0.0, 159.5, 0.0, 300.0, 119.5, 0.0, 0.0, 1.0]
        self._answers.clear()
        self._clock.publish(Clock(clock=header.stamp))
        time.sleep(0.01)
        self._info.publish(CameraInfo(header=header, width=width, height=height, k=k))
        self._image.publish(message_conversion.image(
            header, self._scene.frame(since_ns / NS), 'rgb8'))
        full = self._frames > FULL_FRAMES
        came = self._ros.spin_until(lambda: self._answers, 60.0 if full else 0.03)
        assert came or not full, 'no assessment was published'
        time.sleep(0.03)
        return read.assessment(self._answers[-1]) if came else None


def steady(counts: list[Counter[tuple[str, str, str]]]) -> Counter[tuple[str, str, str]]:
    """Return the frame with the median number of calls."""
    return sorted(counts, key=Counter.total)[len(counts) // 2]


def modules_of(calls: Counter[tuple[str, str, str]]) -> Counter[str]:
    """Return the calls by module."""
    modules: Counter[str] = Counter()
    for (_, module, _), count in calls.items():
        modules[module] += count
    return modules


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--functions', action='store_true', help='also print every function')
    args = parser.parse_args()
    counts, assessment = frame_path()
    calls = steady(counts)
    modules = modules_of(calls)
    for module, count in modules.most_common():
        print(f'{count:5d}  {module}')
        if args.functions:
            functions: Counter[str] = Counter()
            for (_, where, function), number in calls.items():
                if where == module:
                    functions[function] += number
            for function, number in functions.most_common():
                print(f'{number:11d}  {function}')
    print(f'{calls.total()} calls in {len(modules)} modules; totals of {len(counts)} frames: '
          f'{sorted(c.total() for c in counts)}')
    print(f'assessment: {assessment.level.name}, time to contact '
          f'{assessment.time_to_contact:.2f} s, flags {assessment.flags.names}')


if __name__ == '__main__':
    main()

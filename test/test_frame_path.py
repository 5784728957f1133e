# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that the way of a frame from its message to its assessment does not grow.

``python test/test_frame_path.py`` prints the calls by module. The perception node runs in this
process with the bundled `tiny` model on the CPU and one calibrated camera, which drives at a wall.
Every Python call of a function in `vjepa_ros` counts, as `sys.setprofile` reports it: also
properties, comprehensions and each step of a generator, but not the methods that dataclasses
generate. All threads count; the timers of the node, which run beside frames, do not.
"""

from __future__ import annotations

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

import pytest

pytest.importorskip('rclpy')

from builtin_interfaces.msg import Time
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from ros_harness import Session, ros_session
from rosgraph_msgs.msg import Clock
from scenes import Approach
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

import vjepa_ros
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.perception_node.node import VjepaNode

pytestmark = pytest.mark.ros
# docs/architecture.md has the figures of today.
# A busy computer adds up to 20 calls: whoever waits for another thread looks again.
MODULES, CALLS = 29, 320
PACKAGE = str(Path(vjepa_ros.__file__).parent)
NS = 1_000_000_000
PERIOD_NS = NS // 10     # of the camera
FULL_FRAMES, WARM_FRAMES = 19, 25    # when the clip is full, and all that is made once is made
TIMERS = ('_on_watch', '_on_report')
# The whole way of a frame, with heads.
WAY = {f'vjepa_ros.{name}' for name in (
    'ros.perception_node.camera_input', 'ros.perception_node.decoder', 'clip.ring',
    'runtime.forward.cpu', 'perception.judgement', 'perception.assessment', 'perception.danger',
    'ros.perception_node.outputs')}


def _count(seen: list[str], frame: FrameType, event: str) -> None:
    """Note the module of a call in `vjepa_ros`."""
    if event != 'call' or not _ours(frame):
        return
    root, outer = frame, frame.f_back
    while outer is not None:
        root, outer = outer if _ours(outer) else root, outer.f_back
    if root.f_code.co_name not in TIMERS:
        seen.append(frame.f_globals['__name__'])


def _ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE)


@contextmanager
def _node(ros: Session) -> Iterator[None]:
    """Run an active perception node in a thread of this process."""
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
        self._ros, self._scene, self._frames = ros, Approach(contact_s=12.0), 0
        self._clock, self._image, self._info = publishers = [
            ros.node.create_publisher(kind, topic, 10) for kind, topic in (
                (Clock, '/clock'), (Image, 'camera/image_raw'),
                (CameraInfo, 'camera/camera_info'))]
        self._answers: list[PointCloud2] = []
        ros.node.create_subscription(PointCloud2, '/vjepa_node/camera/assessment',
                                     self._answers.append, 10)
        assert ros.spin_until(lambda: all(p.get_subscription_count() for p in publishers))

    def step(self) -> Any:
        """Send the next frame, wait for its assessment and until the node is at rest again."""
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


def frame_path() -> tuple[Counter[str], Any]:
    """Return the calls of a frame in the steady state, the least of 20, and its assessment.

    A busy computer adds some: whoever waits for another thread looks again. A frame whose threads
    were still at work when the next one came lacks some; it does not count.
    """
    seen, counts = [], []
    threading.setprofile(lambda frame, event, argument: _count(seen, frame, event))
    try:
        with ros_session() as ros, _node(ros):
            camera = _Camera(ros)
            for _ in range(WARM_FRAMES):
                camera.step()
            for _ in range(20):
                seen.clear()
                assessment = camera.step()
                counts.append(Counter(seen))
    finally:
        threading.setprofile(None)
    whole = [calls for calls in counts if set(calls) >= WAY]
    assert whole, counts
    return min(whole, key=Counter.total), assessment


def test_a_frame_takes_few_calls_through_few_modules():
    calls, assessment = frame_path()
    assert len(calls) <= MODULES, calls
    assert calls.total() <= CALLS, calls
    # The whole way was taken, with heads.
    assert assessment.level is not Level.UNKNOWN
    assert Quality.HEADS_OUT_OF_RANGE not in assessment.flags


if __name__ == '__main__':
    found = frame_path()[0]
    for module, count in found.most_common():
        print(f'{count:5d}  {module}')
    print(f'{found.total()} calls in {len(found)} modules')

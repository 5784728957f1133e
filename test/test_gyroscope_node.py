# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The node with sensor_msgs/Imu beside its images: that it is used, and what is told if not."""

from __future__ import annotations

import importlib.util
import math
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from node_fixtures import NS, Camera, node_running, now_ns, stamped
from ros_harness import ros_session
from sensor_msgs.msg import Imu

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros import read
from vjepa_ros.ros.perception_node import imu_input
from vjepa_ros.ros.perception_node.parameters import SCHEMA, ImuConfig
from vjepa_ros.sources.angular_rates import BODY_IN_OPTICAL

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
BIAS = 0.05             # rad/s about the vertical axis of the IMU
PART = 'camera camera'


def message(rate=(0.0, 0.0, 0.0), stamp_ns: int = 0, frame_id: str = 'imu') -> Imu:
    msg = Imu()
    msg.angular_velocity.x, msg.angular_velocity.y, msg.angular_velocity.z = map(float, rate)
    return stamped(msg, stamp_ns, frame_id)


class Driver:
    """An IMU: a thread that publishes what `make` gives, 200 times a second, until the block ends.

    Attributes
    ----------
    make
        Returns the message for a time [ns], or None for silence.
    """

    def __init__(self, ros, make) -> None:
        self.make, self._ros = make, ros
        self._pub = ros.node.create_publisher(Imu, 'camera/imu', 100)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            msg = self.make(now_ns())
            if msg is not None:
                self._pub.publish(msg)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self._stop.set()
        self._thread.join()
        self._ros.node.destroy_publisher(self._pub)


@pytest.fixture(scope='module')
def node():
    with ros_session() as ros, node_running(ros, camera__imu_rotation=list(BODY_IN_OPTICAL)
                                            ) as one:
        one.do('configure', 'activate')
        yield one


def turning(t: int, rate=(0.0, 0.0, BIAS)) -> Imu:
    return message(rate, t)


def slow(t: int) -> Imu | None:
    return turning(t) if t // 5_000_000 % 20 == 0 else None


# What the IMU sends, and what diagnostics say of it.
FAULTS = {
    'silence': (lambda t: None, 'older than the image'),
    'late': (lambda t: turning(t - NS // 2), 'older than the image'),
    'no number': (lambda t: turning(t, (math.nan, 0, 0)), '35 rad/s'),
    'gaps': (slow, 's apart'),
    'contradiction': (lambda t: turning(t, (0, 0, 2.0)), 'another way')}


def test_the_rotation_of_the_imu_is_used_and_faults_are_told(node):
    """The camera stands still, so that the IMU is seen to have a bias, in the axes of the lens."""
    def told(text: str, flagged: bool) -> None:
        node.wait_for(PART, lambda v: text in v['gyroscope'] and (
            'gyroscope_unused' in v['flags'].split()) == flagged)

    with Camera(node.ros, size=(192, 144), rate=15.0), Driver(node.ros, turning) as driver, \
            node.listen('assessment') as got:
        values = node.wait_for(PART, lambda v: v['gyroscope'] == 'used' and abs(
            float(v['imu_bias_rad_s'].split()[1]) + BIAS) < 0.01)
        assert float(values['imu_rate_hz']) > 50
        for make, reason in FAULTS.values():
            driver.make = make
            told(reason, True)
            driver.make = turning
            told('used', False)
    flagged = {bool(read.assessment(msg).flags & Quality.GYROSCOPE_UNUSED) for msg in got}
    assert flagged == {False, True}


@pytest.mark.skipif(importlib.util.find_spec('tf2_ros') is not None, reason='tf2_ros is here')
def test_without_a_rotation_the_frames_must_be_the_same_or_known_to_tf(node):
    node.begin_anew(camera__imu_rotation=[])
    with Camera(node.ros, size=(192, 144), rate=15.0, frame_id='optical'), \
            Driver(node.ros, lambda t: message(stamp_ns=t, frame_id='imu')) as driver, \
            node.listen('assessment'):
        node.wait_for(PART, lambda v: 'tf2_ros' in v['gyroscope']
                      and 'camera.imu_rotation' in v['gyroscope'])
        driver.make = lambda t: message(stamp_ns=t, frame_id='optical')
        node.wait_for(PART, lambda v: v['gyroscope'] == 'used')
        unable = message(frame_id='optical')
        unable.angular_velocity_covariance[0] = -1.0
        driver.make = lambda t: stamped(unable, t, 'optical')
        node.wait_for(PART, lambda v: 'angular_velocity_covariance' in v['gyroscope'])
    node.restore()


def test_a_bad_rotation_is_refused_and_without_messages_nothing_is_flagged(node):
    node.begin_anew(camera__imu_rotation=[])
    with Camera(node.ros, size=(192, 144), rate=15.0), node.listen('assessment'):
        values = node.wait_for(PART, lambda v: int(v['assessments_out']) > 2)
        assert values['gyroscope'] == 'none on /camera/imu'
        assert 'gyroscope_unused' not in values['flags']
    node.do('deactivate', 'cleanup')
    for wrong in ([1.0, 0.0], [1.0, 1.0, 0.0, 0.0]):
        answer = node.try_set('camera.imu_rotation', wrong)
        assert not answer.successful
        assert 'camera.imu_rotation' in answer.reason
    node.restore()


def test_a_pass_waits_for_samples_but_not_long():
    taken = []
    owner = SimpleNamespace(resolve_topic_name=lambda name: f'/{name}',
                            create_subscription=lambda kind, topic, take, *more, **options:
                            taken.append(take))
    one = imu_input.ImuInput(owner, 'cam', ImuConfig('cam/imu', BODY_IN_OPTICAL, 0.0, 0.005), str)
    one.open()

    def waited_s(stamp_ns: int) -> float:
        start = time.monotonic()
        one.wait(stamp_ns, start + 0.5)
        return time.monotonic() - start

    assert waited_s(NS) < 0.1           # nothing has come
    taken[0](message(stamp_ns=NS))
    assert waited_s(NS) < 0.1           # covered
    later = threading.Timer(0.05, taken[0], [message(stamp_ns=2 * NS)])
    later.start()
    assert 0.03 < waited_s(2 * NS) < 0.3
    assert waited_s(3 * NS) < 0.51      # late: no longer than asked
    time.sleep(imu_input.LIVE_S)
    assert waited_s(3 * NS) < 0.1       # silent


def test_rows_name_the_topic_of_their_camera():
    rows = {row.name: row.default for row in SCHEMA.rows_of('left/eye')}
    assert rows['left/eye.imu_topic'] == 'left/eye/imu'

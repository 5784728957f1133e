# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The node with sensor_msgs/Imu beside its images: that it is used, and what is told if not."""

from __future__ import annotations

import importlib.util
import math

import pytest

pytest.importorskip('rclpy')

from node_fixtures import Camera, NS, node_running, now_ns
from ros_harness import ros_session
from sensor_msgs.msg import Imu

from vjepa_ros.perception.types import Quality
from vjepa_ros.ros import read
from vjepa_ros.sources.folder import BODY_IN_OPTICAL

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
BIAS = 0.05             # rad/s about the vertical axis of the IMU
STILL = 0.0, 0.0, BIAS
PART = 'camera camera'


def message(rate=STILL) -> Imu:
    msg = Imu()
    msg.angular_velocity.x, msg.angular_velocity.y, msg.angular_velocity.z = map(float, rate)
    return msg


class Driver(Camera):
    """An IMU of 200 Hz, whose message, delay [ns] and frame can change meanwhile."""

    def __init__(self, ros, **more) -> None:
        self.message, self.late_ns = message(), 0
        super().__init__(ros, 'camera/imu', Imu, rate=200.0, picture=lambda i: None,
                         make=lambda _: self.message, stamp=lambda i: now_ns() - self.late_ns,
                         **more)


@pytest.fixture(scope='module')
def node():
    with ros_session() as ros, \
            node_running(ros, camera__imu_rotation=list(BODY_IN_OPTICAL)) as one:
        one.do('configure', 'activate')
        yield one


# What the IMU sends, and what diagnostics say of it.
FAULTS = [
    ({'late_ns': NS // 2}, 'older than the image'),
    ({'message': message((math.nan, 0, 0))}, '35 rad/s'),
    ({'message': message((0, 0, 2.0))}, 'another way')]


def test_the_rotation_of_the_imu_is_used_and_faults_are_told(node):
    """The camera stands still, so that the IMU is seen to have a bias, in the axes of the lens."""
    def told(text: str, flagged: bool) -> None:
        node.wait_for(PART, lambda v: text in v['gyroscope'] and (
            'gyroscope_unused' in v['flags'].split()) == flagged)

    with Camera(node.ros, size=(192, 144), rate=15.0), Driver(node.ros) as driver, \
            node.listen('assessment') as got:
        values = node.wait_for(PART, lambda v: v['gyroscope'] == 'used' and abs(
            float(v['imu_bias_rad_s'].split()[1]) + BIAS) < 0.01)
        assert float(values['imu_rate_hz']) > 50
        for fault, reason in FAULTS:
            vars(driver).update(fault)
            told(reason, True)
            driver.message, driver.late_ns = message(), 0
            told('used', False)
    flagged = {bool(read.assessment(msg).flags & Quality.GYROSCOPE_UNUSED) for msg in got}
    assert flagged == {False, True}


@pytest.mark.skipif(importlib.util.find_spec('tf2_ros') is not None, reason='tf2_ros is here')
def test_without_a_rotation_the_frames_must_be_the_same_or_known_to_tf(node):
    node.begin_anew(camera__imu_rotation=[])
    with Camera(node.ros, size=(192, 144), rate=15.0, frame_id='optical'), \
            node.listen('assessment'):
        values = node.wait_for(PART, lambda v: int(v['assessments_out']) > 2)
        assert values['gyroscope'] == 'none on /camera/imu'
        assert 'gyroscope_unused' not in values['flags']
        with Driver(node.ros, frame_id='imu'):
            node.wait_for(PART, lambda v: 'tf2_ros' in v['gyroscope']
                          and 'camera.imu_rotation' in v['gyroscope'])
        with Driver(node.ros, frame_id='optical') as driver:
            node.wait_for(PART, lambda v: v['gyroscope'] == 'used')
            driver.message.angular_velocity_covariance[0] = -1.0
            node.wait_for(PART, lambda v: 'angular_velocity_covariance' in v['gyroscope'])

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The node with sensor_msgs/Imu beside its images: that it is used, and what is told if not."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest

pytest.importorskip('rclpy')

from node_fixtures import (
    Camera,
    EXACT,
    NS,
    Publisher,
    exact,
    node_running,
    now_ns,
    raw,
)
from ros_harness import ros_session
from sensor_msgs.msg import Imu

from vjepa_ros.lab.evaluation.recording_replay import Reader, Setup, open_item, read_items
from vjepa_ros.looming.gyroscope import Gyroscope, JITTER_S
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.perception.types import Quality
from vjepa_ros.ros import read
from vjepa_ros.ros.perception_node import imu_input
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
    node.do('deactivate', 'cleanup')
    for wrong in ([1.0, 0.0], [1.0, 1.0, 0.0, 0.0]):
        answer = node.try_set('camera.imu_rotation', wrong)
        assert not answer.successful
        assert 'camera.imu_rotation' in answer.reason
    node.restore()


OFFSET_S = 0.14     # of the recordings of the drone
FRAMES = 14                         # of each that are played, two seconds


@pytest.fixture(scope='module')
def reading_all():
    """A node that loses no message."""
    with ros_session() as ros, node_running(
            ros, camera__imu_rotation=list(BODY_IN_OPTICAL), camera__imu_offset=OFFSET_S,
            max_frame_age=3600.0, **exact()) as node:
        yield node


def recorded(folder, **options):
    """Frames around the fastest turn of a recording, angular rates, and what comes of both."""
    track = TrackConfig(num_frames=4, image_size=64, clip_fps=10.0, geometry='host')
    setup = Setup(('geometric',), Settings(), track,
                  imu=(OFFSET_S, JITTER_S), **options)
    item, = read_items([str(folder)])
    with open_item(item, setup) as source:
        stamps, rates = source.angular_rates()
        reader, frames = Reader(setup, source), list(source)
    fastest = stamps[np.linalg.norm(rates, axis=1).argmax()] + OFFSET_S * NS
    middle = np.abs([frame.stamp_ns - fastest for frame in frames]).argmin()
    first = min(max(middle - FRAMES // 2, 0), len(frames) - FRAMES)
    chosen = frames[first:first + FRAMES]
    results = [reader.take(frame).get('geometric') for frame in chosen]
    return chosen, iter(zip(stamps.tolist(), rates, strict=True)), results


@pytest.mark.parametrize('name', ['drone_turn', 'drone_approach_a', 'drone_approach_b'])
def test_messages_of_a_recorded_drone_have_the_effect_of_its_rates(
        reading_all, shared_data, name, monkeypatch):
    for limit in ('WAIT_S', 'LIVE_S'):      # samples may come late on a busy machine
        monkeypatch.setattr(imu_input, limit, 30.0)
    frames, samples, expected = recorded(shared_data / name, use_imu=True)
    *_, without = recorded(shared_data / name)
    node, shift = reading_all, now_ns() - frames[-1].stamp_ns
    node.begin_anew()
    sent = Gyroscope(offset_s=OFFSET_S)
    with Publisher(node.ros) as camera, \
            Publisher(node.ros, 'camera/imu', Imu, EXACT) as imu, \
            node.listen('assessment') as said, node.listen('looming_map') as maps:
        # Until all is found; then a gap makes the node begin anew.
        camera.play(lambda i: raw(frames[0].rgb), frames[0].stamp_ns + shift - 30 * NS, NS // 10,
                    said, maps)
        for frame, due in zip(frames, expected, strict=True):
            while not sent.covers(frame.stamp_ns):
                stamp, rate = next(samples)
                sent.push(stamp, rate)
                if stamp > frames[0].stamp_ns - NS:
                    imu.send(message(rate), stamp + shift)
            heard = () if due is None else (said, maps)
            camera.step(raw(frame.rgb), frame.stamp_ns + shift, *heard)
    due, plain = ([one for one in each if one is not None] for each in (expected, without))
    said, maps = said[-len(due):], maps[-len(due):]
    assert [read.stamp_ns(msg) - shift for msg in said] == [
        one.assessment.stamp_ns for one in due]
    used = [one.gyroscope == '' for one in due]
    assert np.mean(used) > 0.5
    assert [Quality.GYROSCOPE_UNUSED not in read.assessment(msg).flags for msg in said] == used
    found, wanted, plain = (np.array(each) for each in (
        [read.grid(msg) for msg in maps], *([one.looming_map for one in each]
                                            for each in (due, plain))))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.nanmax(np.abs(found - plain)) > 0.01      # 1/s; without them it is another field

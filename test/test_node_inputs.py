# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what the node makes of cameras: QoS, transports, encodings, faults, breaks in time."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')

import rclpy
from node_fixtures import (
    NS,
    Camera,
    Node,
    Publisher,
    came,
    exact,
    node_running,
    now_ns,
    raw,
    two_camera_node,
)
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_harness import ros_session
from rosgraph_msgs.msg import Clock
from scenes import texture
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read

pytestmark = pytest.mark.ros

PERIOD = NS // 10        # of a clip


@pytest.fixture
def ros():
    with ros_session() as session:
        yield session


@pytest.fixture(scope='module')
def again():
    """A node with two cameras, for tests that begin with a new activation (`begin_anew`)."""
    with ros_session() as session, two_camera_node(session) as node:
        yield node


@pytest.fixture
def shared(again):
    """The same, active as it was started, for tests that leave it as they found it."""
    again.restore()
    return again


@pytest.fixture
def hand(shared):
    """A publisher of single images to the camera 'hand' of the shared node."""
    with Publisher(shared.ros, 'hand/image_raw') as publisher:
        yield publisher


def png(rgb: np.ndarray) -> CompressedImage:
    ok, data = cv2.imencode('.png', rgb[..., ::-1])
    assert ok
    msg = CompressedImage(format='rgb8; png compressed bgr8')
    msg.data.frombytes(data.tobytes())
    return msg


def play(publisher: Publisher, frames, start_ns: int, period_ns: int = PERIOD,
         frame_id: str = 'optical') -> int:
    """Send messages with even stamps; the last of them."""
    publisher.frame_id = frame_id
    for i, msg in enumerate(frames):
        stamp = publisher.send(msg, start_ns + i * period_ns)
        publisher.ros.spin_for(0.03)           # lets results come between the frames
    return stamp


def still(size: tuple[int, int] = (160, 120)) -> np.ndarray:
    return texture(size)


def counts(node: Node, key: str, part: str = 'camera camera') -> int:
    return int(node.values(part).get(key, '0'))


# -- quality of service ---------------------------------------------------------------------------

@pytest.mark.parametrize('reliability', ['reliable', 'best effort', 'latched'])
def test_publishers_of_every_quality_are_read(shared, reliability):
    latched = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                         durability=DurabilityPolicy.TRANSIENT_LOCAL)
    with Camera(shared.ros, reliable=reliability == 'reliable',
                qos=latched if reliability == 'latched' else None) as camera:
        assert shared.assess().frame_id == 'optical'
        assert camera.readers == 1


@pytest.mark.parametrize(('policy', 'value'), [('reliability', 'reliable'),
                                               ('durability', 'transient_local')])
def test_an_incompatible_publisher_is_named_once_with_the_remedy(ros, policy, value):
    override = {f'qos_overrides./camera/image_raw.subscription.{policy}': value}
    with node_running(ros, autostart=True, **override) as node, \
            Camera(ros, reliable=False) as camera:
        log = node.wait_for_log('incompatible')
        assert f'qos_overrides./camera/image_raw.subscription.{policy}' in log
        node.wait_for('camera camera', lambda v: int(v.get('input.incompatible_qos', 0)) >= 1)
        with Camera(ros, reliable=False):           # the same fault again is only counted
            node.wait_for('camera camera', lambda v: int(v.get('input.incompatible_qos', 0)) >= 2)
        assert node.process.output.count('offers an incompatible') == 1
        assert camera.readers == 0
        assert node.state == 'active'


# -- transports -----------------------------------------------------------------------------------

@pytest.mark.any_distro
def test_raw_and_compressed_give_the_same_result(ros):
    topics = {'a/image_raw': Image, 'b/image_raw/compressed': CompressedImage,
              'c/image_raw': Image}
    makers = (raw, png, lambda rgb: raw(rgb, 'bgr8'))
    # Smoothing would remember which clips each camera had a result for.
    params = {'cameras': ['a', 'b', 'c'], 'b.transport': 'compressed',
              'smoothing.method': 'none'}
    for topic in topics:
        params |= exact(topic)
    with node_running(ros, autostart=True, **params) as node:
        pubs = [Publisher(ros, topic, kind) for topic, kind in topics.items()]
        for pub in pubs:
            pub.wait_for_reader()
        with node.listen('features', 'a') as a, node.listen('features', 'b') as b, \
                node.listen('features', 'c') as c, node.listen('assessment', 'a') as seen_a, \
                node.listen('assessment', 'b') as seen_b:
            start, got = now_ns(), (a, b, c, seen_a, seen_b)

            def send(i: int) -> int:
                rgb = texture((160, 120), seed=i)
                for pub, make in zip(pubs, makers, strict=True):
                    stamp = pub.send(make(rgb), start + i * PERIOD)
                return stamp

            # Until the clips are full, and the node has found all who listen.
            for i in range(60):
                last = send(i)
                if ros.spin_until(lambda last=last: came(last, *got), 0.1 * 1.1**i):
                    break
            assert came(last, *got), node.process.output
        newest = [next(m for m in got if read.stamp_ns(m) == last) for got in (a, b, c)]
        features = [read.features(m) for m in newest]
        np.testing.assert_allclose(features[1], features[0], atol=1e-4)
        np.testing.assert_allclose(features[2], features[0], atol=1e-4)
        one, two = (read.assessment(next(m for m in got if read.stamp_ns(m) == last))
                    for got in (seen_a, seen_b))
        assert one.motion_score == pytest.approx(two.motion_score, abs=1e-4)
        assert node.values('camera b')['transport'] == 'compressed'


def test_transport_auto_reads_what_is_published(shared):
    assert shared.values()['transport'] == 'raw'
    with Camera(shared.ros, 'camera/image_raw/compressed', CompressedImage, make=png, rate=15.0):
        assert shared.assess().untrained
        assert shared.values()['transport'] == 'compressed'
    with Camera(shared.ros):
        assert shared.assess().untrained
        assert shared.values()['transport'] == 'raw'


def test_camera_info_replaces_the_assumed_intrinsics(again):
    again.begin_anew()
    ros, node = again.ros, again
    with Camera(ros, size=(160, 120)), node.listen('map_info') as infos, \
            node.listen('assessment') as got:
        assert Quality.ASSUMED_INTRINSICS in read.assessment(node.next(got)[-1]).flags
        # Intrinsics of the full sensor; the images are half its size.
        k = [200.0, 0.0, 159.5, 0.0, 210.0, 119.5, 0.0, 0.0, 1.0]
        info = CameraInfo(width=320, height=240, k=k)
        with Camera(ros, 'camera/camera_info', CameraInfo, make=lambda rgb: info):
            assert ros.spin_until(lambda: got and Quality.ASSUMED_INTRINSICS not in
                                  read.assessment(got[-1]).flags), node.process.output
            scaled = node.next(infos, 2)[-1]
        # 160 source pixels are 4 patches: 40 pixels each.
        assert scaled.k[0] == pytest.approx(100.0 / 40)
        assert scaled.k[4] == pytest.approx(105.0 / 30)
        assert scaled.k[2] == pytest.approx(80.0 / 40 - 0.5, abs=0.02)


@pytest.mark.any_distro
@pytest.mark.parametrize('k', [[0.0] * 9, [float('nan')] * 9])
def test_camera_info_of_an_uncalibrated_camera_is_not_used(shared, k):
    info = CameraInfo(width=160, height=120, k=k)
    with Camera(shared.ros), \
            Camera(shared.ros, 'camera/camera_info', CameraInfo, make=lambda rgb: info) as infos:
        infos.wait_for_reader()
        assert Quality.ASSUMED_INTRINSICS in shared.assess().flags


# -- silence --------------------------------------------------------------------------------------

def test_a_missing_camera_is_named_once_with_the_remedy(again):
    since = again.written
    again.begin_anew(no_frame_timeout=0.5, cameras=['gone'])
    log = again.wait_for_log('no frame for', since)
    assert "camera 'gone'" in log and '/gone/image_raw has 0 publisher' in log
    assert again.report('camera gone').level == b'\x03'            # stale, not an error
    again.ros.spin_for(0.5)
    assert again.process.output[since:].count('no frame for') == 1
    with Camera(again.ros, 'gone/image_raw'):
        assert again.assess('gone').untrained
        again.wait_for_status('camera gone', lambda s: s.level != b'\x03')


@pytest.mark.any_distro
def test_nothing_is_said_before_the_clip_is_full(again):
    again.begin_anew(num_frames=8, no_frame_timeout=0.1)
    topics = ('assessment', 'time_to_contact', 'motion_score', 'obstacles', 'looming_map',
              'features', 'map_info')
    with Publisher(again.ros, 'hand/image_raw') as pub, ExitStack() as stack:
        got = {topic: stack.enter_context(again.listen(topic, 'hand')) for topic in topics}
        again.wait_until_heard('hand')
        start = now_ns()
        play(pub, [raw(still())] * 7, start)
        again.wait_for('camera hand', lambda v: v['clip_fill'] == '7/8')
        again.ros.spin_for(0.3)
        assert not any(got.values())
        last = play(pub, [raw(still())], start + 7 * PERIOD)
        assert again.ros.spin_until(lambda: all(got.values())), got
        assert read.stamp_ns(got['assessment'][0]) == last


# -- malformed images -----------------------------------------------------------------------------

def bad(**changes) -> Image:
    """An image with wrong fields."""
    msg = raw(still())
    for name, value in changes.items():
        setattr(msg, name, value)
    return msg


def no_data(size: int) -> Image:
    msg = raw(still())
    msg.data = msg.data[:size]
    return msg


def corrupt(data: bytes) -> CompressedImage:
    msg = CompressedImage(format='jpeg')
    msg.data.frombytes(data)
    return msg


@pytest.mark.any_distro
def test_malformed_images_are_counted_and_named_once_per_kind_and_the_node_goes_on(again):
    faults = [no_data(1000), no_data(0), bad(width=0, height=0), bad(width=2**31, height=2**31),
              bad(step=7), bad(encoding='x-ray')]
    since = again.written
    again.begin_anew()
    with Publisher(again.ros, 'hand/image_raw') as pub:
        start = now_ns()
        for i, fault in enumerate(2 * faults):
            pub.send(fault, start + i * PERIOD)
            again.ros.spin_for(0.03)
        values = again.wait_for('camera hand', lambda v: v.get('input.bad size') == '10'
                                and v.get('input.unknown encoding') == '2')
        assert values['assessments_out'] == '0'
        assert again.process.output[since:].count('image skipped') == 2
        assert 'x-ray' in again.process.output[since:]
        with again.listen('assessment', 'hand') as got:
            play(pub, [raw(still())] * 5, start + 20 * PERIOD)
            assert again.some(got)
        assert again.values('model')['errors'] == '0'


@pytest.mark.any_distro
def test_corrupt_files_are_counted_and_named_once_per_kind_and_the_node_goes_on(again):
    since, whole = again.written, cv2.imencode('.jpg', still())[1].tobytes()
    again.begin_anew(hand__transport='compressed')
    depth = png(still())
    depth.format = '16UC1; compressedDepth png'
    faults = [*map(corrupt, (whole[:200], bytes(range(256)) * 4, b'', b'hello')), depth]
    with Publisher(again.ros, 'hand/image_raw/compressed', CompressedImage) as pub:
        start = now_ns()
        for i, fault in enumerate(2 * faults):
            pub.send(fault, start + i * PERIOD)
            again.ros.spin_for(0.03)
        again.wait_for('camera hand', lambda v: v.get('input.corrupt') == '6'
                       and v.get('input.empty') == '2' and v.get('input.unknown encoding') == '2')
        assert again.process.output[since:].count('image skipped') == 3
        with again.listen('assessment', 'hand') as got:
            play(pub, [png(still())] * 5, start + 21 * PERIOD)
            assert again.some(got)
        assert again.values('model')['errors'] == '0'


@pytest.mark.any_distro
@pytest.mark.parametrize('size', [(1, 1), (16, 90), (640, 8)])
def test_an_image_of_any_size_is_served(shared, size):
    rgb = texture((max(size[0], 64), max(size[1], 64)))[:size[1], :size[0]]
    with Camera(shared.ros, picture=lambda i: rgb, rate=20.0), shared.listen('overlay'):
        assert shared.assess().frame_id == 'optical'
    assert shared.values('model')['errors'] == '0'


# -- breaks in time and view ----------------------------------------------------------------------

HAND = 'camera hand'


@pytest.mark.any_distro
def test_a_bag_that_loops_starts_a_new_clip_and_is_counted(shared, hand):
    start = now_ns() - 2 * NS
    before = counts(shared, 'resets.time_backwards', HAND)
    with shared.listen('assessment', 'hand') as got:
        for _ in range(3):
            got.clear()
            last = play(hand, [raw(still())] * 8, start)
            assert shared.ros.spin_until(lambda last=last: came(last, got))
            # Every clip of a loop is of this loop alone.
            assert all(read.stamp_ns(m) >= start + 3 * PERIOD for m in got)
    shared.wait_for(HAND, lambda v: int(v.get('resets.time_backwards', 0)) >= before + 2)


@pytest.mark.any_distro
def test_two_publishers_on_one_topic_are_named_once_and_flood_no_log(again):
    since = again.written
    again.begin_anew()
    other = rclpy.create_node('rear_driver', namespace='/robot', context=again.ros.context)
    ros = again.ros
    try:
        with Publisher(ros, 'hand/image_raw') as one, \
                Publisher(replace(ros, node=other), '/hand/image_raw') as two:
            start = now_ns()
            for i in range(0, 40, 2):
                one.send(raw(still()), start + i * PERIOD // 2)
                two.send(raw(still((96, 64))), start + (i + 1) * PERIOD // 2)
                ros.spin_for(0.02)
            again.wait_for('camera hand', lambda v: int(v['resets.size_change']) > 30)
            log = again.wait_for_log('publishers on', since)
            assert '/robot/rear_driver' in log and '/tester' in log
            ros.spin_for(0.5)
            log = again.process.output[since:]
            assert log.count('publishers on') == 1
            assert log.count('reset: size_change') <= 10
    finally:
        if other.executor is not None:
            other.executor.shutdown(timeout_sec=2.0)
        other.destroy_node()


@pytest.mark.any_distro
def test_images_without_a_stamp_take_their_arrival_and_are_named_once(again):
    since = again.written
    again.begin_anew()
    node = again
    with Camera(again.ros, stamp=lambda i: 0), node.listen('assessment') as got:
        before = now_ns()
        node.next(got, 5)
        assert all(before < read.stamp_ns(m) <= now_ns() for m in got)
        log = node.wait_for_log('stamp 0', since)
        assert log.count('stamp 0') == 1
        assert int(node.values()['frames.zero_stamp']) > 5


# -- several cameras ------------------------------------------------------------------------------

@pytest.mark.any_distro
def test_cameras_of_different_size_and_rate_are_all_served_and_wait_for_no_silent_one(again):
    again.begin_anew(cameras=['front', 'rear/left', 'dead'])
    ros, node = again.ros, again
    with Camera(ros, 'front/image_raw', rate=30.0, size=(320, 240), frame_id='f'), \
            Camera(ros, 'rear/left/image_raw', rate=7.0, size=(64, 80), frame_id='r'), \
            node.listen('assessment', 'dead') as silent, \
            node.listen('assessment', 'front') as front, \
            node.listen('assessment', 'rear/left') as rear:
        assert ros.spin_until(lambda: len(front) >= 10 and len(rear) >= 5), (
            f'{len(front)} {len(rear)}\n{node.process.output}')
        assert {m.header.frame_id for m in front} == {'f'}
        assert {m.header.frame_id for m in rear} == {'r'}
        assert not silent
        quick, slow = ([read.assessment(m) for m in got] for got in (front, rear))
        assert all(Quality.SLOW_CAMERA in a.flags for a in slow)
        # A busy machine may lose an image here and there.
        assert np.median([a.clip_rate_hz for a in slow]) == pytest.approx(7.0, rel=0.4)
        assert not all(Quality.SLOW_CAMERA in a.flags for a in quick)


# -- names ----------------------------------------------------------------------------------------

def test_inputs_can_be_remapped_and_live_in_a_namespace(ros):
    remaps = {'__ns': '/robot', '__node': 'eyes', 'camera/image_raw': '/usb/picture',
              'camera/camera_info': '/usb/info'}
    with node_running(ros, name='/robot/eyes', remaps=remaps, autostart=True) as node:
        with Camera(ros, 'usb/picture'):
            assert node.assess().untrained
        # The compressed topic follows the name of the raw one.
        with Camera(ros, 'usb/picture/compressed', CompressedImage, make=png, rate=15.0):
            assert node.assess().untrained
        assert node.report('camera camera').name == 'robot/eyes: camera camera'


# -- simulated time -------------------------------------------------------------------------------

def test_simulated_time_and_its_jump_back(ros):
    with node_running(ros, autostart=True, use_sim_time=True, **exact()) as node, \
            Publisher(ros, '/clock', Clock) as clock, Publisher(ros) as pub:
        def run(start_ns: int, count: int) -> int:
            for i in range(count):
                stamp = start_ns + i * PERIOD
                clock.tick(stamp)
                if i == count - 1:
                    # The newest frame comes when the node knows that it is this late.
                    assert ros.spin_until(lambda stamp=stamp: node.report_stamp == stamp
                                          or clock.tick(stamp))
                else:
                    ros.spin_for(0.03)
                pub.send(raw(still()), stamp)
                ros.spin_for(0.03)
            return stamp

        with node.listen('assessment') as got:
            last = run(100 * NS, 10)
            assert ros.spin_until(lambda: came(last, got)), node.process.output
            # By the clock of the simulation the frames are fresh, whatever the wall clock says.
            seen = read.assessment(next(m for m in got if read.stamp_ns(m) == last))
            assert Quality.STALE not in seen.flags
            assert seen.timings['latency'] == pytest.approx(0.0, abs=1.0)
            got.clear()
            last = run(50 * NS, 10)
            assert ros.spin_until(lambda: came(last, got)), node.process.output
            assert all(read.stamp_ns(m) >= 50 * NS + 3 * PERIOD for m in got
                       if read.stamp_ns(m) < 60 * NS)
        values = node.values()
        assert int(values.get('resets.clock_jump', 0)) \
            + int(values.get('resets.time_backwards', 0)) >= 1
        assert node.values('model')['errors'] == '0'


def test_without_a_clock_simulated_time_leaves_the_age_unknown(ros):
    with node_running(ros, autostart=True, use_sim_time=True) as node, \
            Camera(ros, stamp=lambda i: 5 * NS + i * NS // 30):
        seen = node.assess(since_ns=0)
        assert np.isnan(seen.latency_ms)
        assert Quality.STALE in seen.flags
        assert seen.level == Level.UNKNOWN
        log = node.wait_for_log('use_sim_time')
        assert '/clock' in log and "'use_sim_time'" in log
        assert node.values('model')['errors'] == '0'


@pytest.mark.any_distro
@pytest.mark.parametrize(('stamp', 'latency_ms', 'remedy'), [
    (lambda i: 1_000_000_000 * NS + i * NS // 30, 1e9, 'use_sim_time'),
    (lambda i: now_ns() + 3600 * NS, -3_600_000, 'NTP or PTP')],
    ids=['old', 'of the future'])
def test_frames_that_are_not_of_this_time_are_stale_and_the_remedy_is_named_once(
        again, stamp, latency_ms, remedy):
    since = again.written
    again.begin_anew()
    with Camera(again.ros, stamp=stamp):
        seen = again.assess(since_ns=0)
        assert Quality.STALE in seen.flags and seen.level == Level.UNKNOWN
        assert seen.latency_ms / latency_ms > 0.9
        again.wait_for_log(remedy, since)
        again.ros.spin_for(0.3)
        assert again.process.output[since:].count('use_sim_time') == 1

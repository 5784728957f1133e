# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what the node makes of cameras: QoS, transports, encodings, faults, breaks in time."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')

from node_fixtures import (
    BEST_EFFORT,
    Camera,
    EXACT,
    NS,
    Publisher,
    came,
    exact,
    node_running,
    now_ns,
    raw,
)
from recordings import video_packets
from rosgraph_msgs.msg import Clock
from scenes import texture
from sensor_msgs.msg import CompressedImage, Image

from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read

pytestmark = pytest.mark.ros

PERIOD = NS // 10        # of a clip
STILL = texture((160, 120))
HAND = 'camera hand'


def compressed(data: bytes, form: str = 'rgb8; png compressed bgr8') -> CompressedImage:
    msg = CompressedImage(format=form)
    msg.data.frombytes(data)
    return msg


def png(rgb: np.ndarray) -> CompressedImage:
    return compressed(cv2.imencode('.png', rgb[..., ::-1])[1].tobytes())


def play(publisher: Publisher, frames, start_ns: int) -> int:
    """Send messages with even stamps; the last of them."""
    for i, msg in enumerate(frames):
        stamp = publisher.send(msg, start_ns + i * PERIOD)
        publisher.ros.spin_for(0.03)           # lets results come between the frames
    return stamp


def test_an_incompatible_publisher_is_named_once_with_the_remedy(ros):
    name = 'qos_overrides./camera/image_raw.subscription.reliability'
    with node_running(ros, autostart=True, **{name: 'reliable'}) as node, \
            Camera(ros, qos=BEST_EFFORT) as camera:
        assert name in node.wait_for_log('incompatible')
        assert camera.readers == 0


def test_a_video_is_assessed_and_a_lost_packet_costs_pictures_up_to_the_next_key_frame(again):
    again.begin_anew(hand__transport='ffmpeg')
    frames = [np.roll(STILL, 2 * n, 1) for n in range(20)]
    packets = [compressed(data, 'h264') for data in video_packets(frames, 'h264')]
    with Publisher(again.ros, 'hand/image_raw/ffmpeg', CompressedImage) as pub, \
            again.listen('assessment', 'hand') as got:
        pub.wait_for_reader()
        end = play(pub, packets[11:], now_ns())                     # the key frame is lost
        values = again.wait_for(HAND, lambda v: v.get('input.video') == '9')
        assert 'next key frame' in values['input_fault'] and values['transport'] == 'ffmpeg'
        end = play(pub, packets, end + PERIOD)
        assert again.ros.spin_until(lambda: came(end, got)), again.process.output


JPEG = cv2.imencode('.jpg', STILL)[1].tobytes()


def jpeg(rgb: np.ndarray) -> CompressedImage:
    return compressed(JPEG, 'jpeg')


def reads(node, topic: str, camera: str = 'camera') -> dict[str, str]:
    """Wait until images of a topic are assessed; the values of the camera."""
    node.assess(camera)
    return node.wait_for(f'camera {camera}', lambda v: v['image_topic'] == topic)


@pytest.mark.any_distro
def test_what_delivers_is_read_until_it_falls_silent(again):
    again.begin_anew(max_frame_gap=1.0)
    ros, since, path = again.ros, again.written, '/camera/image_raw/compressed'
    with Publisher(ros, qos=1), Camera(ros, 'hand/image_raw', rate=10.0, qos=EXACT), \
            Camera(ros, path, CompressedImage, make=jpeg, rate=10.0) as jpegs:
        seen = reads(again, path)
        assert seen['transport'] == 'compressed'
        assert '/camera/image_raw brings nothing' in seen['transport_reason']
        again.wait_for_log(f'reading {path}', since)
        ros.spin_for(1.5)                # it is kept
        seen = reads(again, path)
        assert 'reading /camera/image_raw (raw)' not in again.process.output[since:]
        assert int(seen['frames_in']) <= len(jpegs.stamps)            # one topic feeds the clip
        assert {key for key in seen if key.startswith('resets')} == {'resets.activate'}
        reads(again, '/hand/image_raw', 'hand')
    with Camera(ros, rate=10.0):
        assert 'is not published' in reads(again, '/camera/image_raw')['transport_reason']


def test_a_missing_camera_is_named_once_with_the_remedy(again):
    since = again.written
    again.begin_anew(cameras=['gone'])
    log = again.wait_for_log('no frame for', since)
    assert "camera 'gone'" in log and '/gone/image_raw has 0 publisher' in log
    assert again.report('camera gone').level == b'\x03'            # stale, not an error
    again.ros.spin_for(0.5)
    assert again.process.output[since:].count('no frame for') == 1
    with Camera(again.ros, 'gone/image_raw'):
        assert again.assess('gone').untrained
        again.report('camera gone', lambda s: s.level != b'\x03')
    again.report('camera gone', lambda s: s.message == 'no frames')


def bad(size: int | None = None, **changes) -> Image:
    """An image with wrong fields, or so many bytes of data."""
    msg = raw(STILL)
    msg.data = msg.data[:size]
    for name, value in changes.items():
        setattr(msg, name, value)
    return msg


FAULTS = {
    'image_raw': (
        [bad(1000), bad(0), bad(width=0, height=0), bad(width=2**31, height=2**31), bad(step=7),
         bad(encoding='x-ray'), raw(np.zeros((100, 1, 3), np.uint8))],
        {'bad size': '10', 'unknown encoding': '2', 'bad aspect': '2'}),
    'image_raw/compressed': (
        [compressed(JPEG[:200]), compressed(bytes(range(256)) * 4), compressed(b''),
         compressed(b'hello'), compressed(JPEG, '16UC1; compressedDepth png')],
        {'corrupt': '6', 'empty': '2', 'unknown encoding': '2'})}


@pytest.mark.any_distro
@pytest.mark.parametrize('topic', FAULTS)
def test_bad_images_are_counted_and_named_once_per_kind_and_the_node_goes_on(again, topic):
    faults, counted = FAULTS[topic]
    kind, make, transport = {'image_raw': (Image, raw, 'raw')}.get(
        topic, (CompressedImage, png, 'compressed'))
    since = again.written
    again.begin_anew(hand__transport=transport)
    with Publisher(again.ros, f'hand/{topic}', kind) as pub:
        start = now_ns()
        play(pub, 2 * faults, start)
        values = again.wait_for(HAND, lambda v: counted == {
            key: v.get(f'input.{key}') for key in counted})
        assert values['assessments_out'] == '0'
        assert again.process.output[since:].count('image skipped') == len(counted)
        with again.listen('assessment', 'hand') as got:
            play(pub, [make(STILL)] * 5, start + 20 * PERIOD)
            assert again.some(got)
        assert again.values('model')['errors'] == '0'


def test_inputs_can_be_remapped_live_in_a_namespace_and_follow_the_transport_that_is_there(ros):
    remaps = {'__ns': '/robot', '__node': 'eyes', 'camera/image_raw': '/usb/picture',
              'camera/camera_info': '/usb/info', 'front/image_raw': '/front/image/compressed'}
    with node_running(ros, name='/robot/eyes', remaps=remaps, autostart=True,
                      cameras=['camera', 'front']) as node:
        # The compressed topic follows the name of the raw one.
        for topic, kind, make in (('', Image, raw), ('/compressed', CompressedImage, png)):
            with Camera(ros, f'usb/picture{topic}', kind, make=make, rate=15.0):
                assert node.assess().untrained
                assert node.values()['transport'] == (topic[1:] or 'raw')
        assert node.report('camera camera').name == 'robot/eyes: camera camera'
        with Camera(ros, 'front/image/compressed', CompressedImage, make=png, rate=15.0):
            assert node.assess('front').untrained


def test_simulated_time_and_its_jump_back(ros):
    with node_running(ros, autostart=True, use_sim_time=True, **exact()) as node, \
            Publisher(ros, '/clock', Clock) as clock, Publisher(ros) as pub, \
            node.listen('assessment') as got:
        for start in (100 * NS, 50 * NS):
            got.clear()
            for last in range(start, start + 10 * PERIOD, PERIOD):
                clock.tick(last)
                ros.spin_for(0.03)
                if last == start + 9 * PERIOD:      # the node must know that it is this late
                    assert ros.spin_until(lambda last=last: node.report_stamp == last
                                          or clock.tick(last))
                pub.send(raw(STILL), last)
            assert ros.spin_until(lambda last=last: came(last, got)), node.process.output
            # By the clock of the simulation the frames are fresh, whatever the wall clock says.
            seen = read.assessment(next(m for m in got if read.stamp_ns(m) == last))
            assert Quality.STALE not in seen.flags
            assert seen.timings['latency'] == pytest.approx(0.0, abs=1.0)
        assert all(read.stamp_ns(m) >= start + 3 * PERIOD for m in got
                   if read.stamp_ns(m) < start + 10 * NS)
        assert {'resets.clock_jump', 'resets.time_backwards'} & node.values().keys()
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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what the node publishes: headers, shapes, only what is wanted, services, diagnostics."""

from __future__ import annotations

from contextlib import ExitStack

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')

from node_fixtures import ANSWER_S, Camera, KINDS, NS, Publisher, now_ns, raw
from scenes import Approach, texture
from sensor_msgs.msg import CameraInfo

from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read
from vjepa_ros.ros.perception_node.outputs import SCALARS

pytestmark = pytest.mark.ros

PERIOD = NS // 10
STAMPED = tuple(t for t, kind in KINDS.items() if hasattr(kind(), 'header'))
SIZE = (160, 120)
STILL = raw(texture(SIZE))
HAND = 'camera hand'


@pytest.fixture(scope='module')
def everything(again):
    """All outputs for the same newest frame, by topic, and its stamp."""
    # Stamps that a double or a rounded duration would not keep.
    start = now_ns() // NS * NS + 123_456_789
    with ExitStack() as stack:
        got = {topic: stack.enter_context(again.listen(topic, 'hand')) for topic in KINDS}
        stamped = [got[topic] for topic in STAMPED]
        camera = stack.enter_context(Publisher(again.ros, 'hand/image_raw',
                                               frame_id='front_optical'))
        i = 1 + camera.play(lambda i: raw(np.roll(texture(SIZE), 2 * i, axis=1)), start, PERIOD,
                            *stamped)
        # Now everybody is heard: what is unstamped comes with the next result.
        plain = [messages for topic, messages in got.items() if topic not in STAMPED]
        for messages in plain:
            messages.clear()
        stamp = camera.step(STILL, start + i * PERIOD, *stamped)
        assert again.ros.spin_until(lambda: all(plain), ANSWER_S)
    newest = {topic: next(m for m in got[topic] if read.stamp_ns(m) == stamp)
              for topic in STAMPED}
    return {**{topic: messages[-1] for topic, messages in got.items()}, **newest, 'stamp': stamp}


def test_every_header_is_exactly_that_of_the_newest_frame(everything):
    for topic in STAMPED:
        header = everything[topic].header
        assert (header.stamp.sec, header.stamp.nanosec) == divmod(everything['stamp'], NS), topic
        assert header.frame_id == 'front_optical', topic


def test_maps_lie_on_the_patch_grid(everything):
    for topic in ('motion_map', 'moving_map', 'looming_map'):
        assert read.grid(everything[topic]).shape == (4, 4)
    motion = read.grid(everything['motion_map'])
    assert np.all((motion >= 0) & (motion <= 1))
    cells = read.looming_field(everything['looming_field'])
    # There are no heads that could know.
    for topic in ('moving_map', 'looming_map'):
        assert np.isnan(read.grid(everything[topic])).all()
    assert not len(cells)


def test_features_are_organised_as_the_grid(everything):
    features, embedding = (read.features(everything[name]) for name in ('features', 'embedding'))
    assert features.shape == (4, 4, 192) and embedding.shape == (1, 1, 192)
    assert np.isfinite(embedding).all() and np.isfinite(features).all() and features.std() > 0.1


def test_the_assessment_holds_what_the_scalars_say_and_flags_random_weights(everything):
    seen = read.assessment(everything['assessment'])
    for topic in SCALARS:
        assert everything[topic].data == pytest.approx(getattr(seen, topic), nan_ok=True)
    assert (seen.clip_rate_hz, seen.clip_span_s) == pytest.approx((10.0, 0.3))
    assert seen.untrained and Quality.ASSUMED_INTRINSICS in seen.flags


def test_the_overlay_is_a_readable_picture(everything):
    msg, jpeg = everything['overlay'], everything['overlay/compressed']
    picture = np.frombuffer(msg.data, np.uint8).reshape(480, 640, 3)
    packed = cv2.imdecode(np.frombuffer(jpeg.data, np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(packed.astype(int) - picture).mean() < 10 and picture.std() > 20


@pytest.mark.any_distro
def test_only_what_somebody_wants_is_computed(again):
    again.begin_anew()
    with Camera(again.ros) as camera:
        again.wait_for('camera camera', lambda v: v['clip_fill'] == '4/4')
        sent = len(camera.stamps)
        assert again.ros.spin_until(lambda: len(camera.stamps) > sent + 10)
        assert not {'stage_ms.encode', 'stage_ms.assess'} & again.values().keys()
        assert again.report('camera camera').message == 'nobody listens'
        with again.listen('time_to_contact') as got:
            again.some(got, 5)
            again.wait_for('camera camera', lambda v: 'stage_ms.assess' in v
                           and 'stage_ms.encode' not in v)      # there are no heads to tell it
        with again.listen('motion_score'):
            again.wait_for('camera camera', lambda v: 'stage_ms.encode' in v)


@pytest.mark.any_distro
def test_an_approach_is_measured_and_reported_over_the_wire(again):
    again.begin_anew(max_frame_age=3600.0, weights='', num_frames=NUM_FRAMES,
                     image_size=IMAGE_SIZE)
    ros, scene = again.ros, Approach((320, 240), contact_s=6.0)
    info = CameraInfo(width=320, height=240,
                      k=[300.0, 0.0, 159.5, 0.0, 300.0, 119.5, 0.0, 0.0, 1.0])
    with Publisher(ros, 'hand/image_raw') as camera, \
            Camera(ros, 'hand/camera_info', CameraInfo, make=lambda rgb: info) as infos, \
            again.listen('assessment', 'hand') as got, \
            again.listen('obstacles', 'hand') as regions:
        infos.wait_for_reader()
        again.wait_until_heard('hand')
        start = now_ns() - 10 * NS     # they come faster than their stamps, not from the future
        # It begins 3.5 s before contact.
        first = camera.play(lambda i: raw(scene.frame(2.5 + i / 10)), start, PERIOD, got,
                            regions)
        for i in range(first + 1, 26):
            camera.step(raw(scene.frame(2.5 + i / 10)), start + i * PERIOD, got, regions)
    seen = [read.assessment(m) for m in got]
    truth = [scene.truth(2.5 + (a.stamp_ns - start) / NS) for a in seen]
    errors = [abs(a.time_to_contact - t) / t for a, t in zip(seen, truth, strict=True) if t < 5.0]
    assert len(errors) >= 10
    assert np.median(errors) < 0.2
    levels = [a.level for a in seen]
    assert levels[-1] is Level.DANGER and {Level.CAUTION, Level.WARNING} <= set(levels)
    (wall, *_) = read.obstacles(regions[-1])
    assert wall.on_course and wall.time_to_contact == pytest.approx(1.0, rel=0.2)


@pytest.mark.any_distro
def test_reset_starts_clips_and_levels_anew(again):
    again.begin_anew()
    with Publisher(again.ros, 'hand/image_raw') as camera, \
            again.listen('assessment', 'hand') as got:
        start = now_ns() + 30 * NS
        begin = 1 + camera.play(lambda i: STILL, start, PERIOD, got)
        assert again.ask('reset').success
        again.wait_for(HAND, lambda v: v.get('resets.service') == '1')
        for i in range(begin, begin + 3):
            camera.send(STILL, start + i * PERIOD)
        last = camera.step(STILL, start + (begin + 3) * PERIOD, got)
        new = [m for m in got if read.stamp_ns(m) >= start + begin * PERIOD]
        assert [read.stamp_ns(m) for m in new] == [last]
        assert Quality.WARMING_UP in read.assessment(new[0]).flags


def test_diagnostics_tell_what_one_asks_first(again):
    again.begin_anew()
    with Camera(again.ros, rate=20.0), again.listen('assessment') as got:
        again.some(got, 10)
        # The rates are those at which images really come and results really go.
        camera = again.wait_for('camera camera', lambda v: min(
            float(v['rate_in_hz']), float(v['rate_out_hz'])) > 10.0)
        model, report = again.values('model'), again.reports['camera camera']
    assert (report.name, report.hardware_id) == ('vjepa_node: camera camera', 'cpu')
    expected = {'state': 'active', 'device': 'cpu', 'model': 'tiny', 'trained': 'False',
                'heads': 'none', 'errors': '0', 'last_error': 'none'}
    assert {key: model[key] for key in expected} == expected
    assert 0 < float(camera['latency_ms_median']) <= float(camera['latency_ms_p95'])
    assert {f'stage_ms.{stage}' for stage in (
        'decode', 'preprocess', 'encode', 'motion', 'assess', 'publish')} <= camera.keys()

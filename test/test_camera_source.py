# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The camera source, watched over real DDS."""

from __future__ import annotations

import math
import re

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')

from rclpy.parameter import Parameter
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2

from vjepa_ros.ros.read import stamp_ns
from vjepa_ros.ros.sim import camera_source
from vjepa_ros.ros.sim.camera_source import TRUTH
from vjepa_ros.sources import SourceError, SourceFrame, SourceLost, open_source
from vjepa_ros.sources.base import PlayOptions, Source

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

MODULE = 'vjepa_ros.ros.sim.camera_source'
S = 1_000_000_000
END = re.compile(r'end of source: (\d+) frames played, (\d+) skipped')


@pytest.fixture
def ten(tmp_path) -> str:
    """Folder of ten pictures."""
    for number in range(10):
        assert cv2.imwrite(str(tmp_path / f'{number}.png'), np.zeros((24, 32, 3), np.uint8))
    return str(tmp_path)


def listen(ros, kind, topic: str) -> list:
    got: list = []
    ros.node.create_subscription(kind, topic, got.append, 50)
    return got


def playing(source: str, **more) -> dict:
    """Parameters of a source that waits for this test to listen."""
    return {'source': source, 'wait_for_subscribers': True, **more}


def wait_for_all(ros, process, *topics: list) -> None:
    """Wait until every frame that a source has played has come on all topics.

    A busy machine leaves frames out in order to stay in time, and says how many.
    """
    assert ros.spin_until(lambda: END.search(process.output)), process.output
    played = int(END.search(process.output)[1])
    assert ros.spin_until(lambda: all(len(got) == played for got in topics), 30.0), (
        list(map(len, topics)), process.output)


def test_a_scene_arrives_as_images_infos_and_truth_with_one_header(ros):
    images = listen(ros, Image, 'camera/image_raw')
    infos = listen(ros, CameraInfo, 'camera/camera_info')
    truths = listen(ros, PointCloud2, 'camera/truth')
    small = listen(ros, CompressedImage, 'camera/image_raw/compressed')
    params = playing('synthetic:approach', rate=10, width=160, height=120, max_frames=5,
                     truth=True, transport='both')
    with ros.compose(MODULE, params) as process:
        wait_for_all(ros, process, images, infos, truths, small)
        assert process.wait() == 0
    stamps = np.array([stamp_ns(m) for m in images])
    for others in (infos, truths):
        assert [m.header for m in others] == [m.header for m in images]
    # A busy machine leaves some out; the others keep their distance.
    steps = (stamps - stamps[0]) / 1e8
    assert np.allclose(steps, np.round(steps), atol=1e-6) and (np.diff(steps) > 0.5).all()

    image, info, cloud = images[-1], infos[-1], truths[-1]
    assert (image.width, image.height, image.encoding, image.step) == (160, 120, 'rgb8', 480)
    frame = list(open_source('synthetic:approach', PlayOptions(
        rate=10, size=(160, 120), max_frames=round(steps[-1]) + 1)))[-1]
    assert np.array_equal(np.frombuffer(image.data, np.uint8).reshape(120, 160, 3), frame.rgb)
    assert small[-1].format == 'bgr8; jpeg compressed bgr8'
    decoded = cv2.imdecode(np.frombuffer(small[-1].data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    assert np.abs(decoded.astype(float) - frame.rgb).mean() < 8
    assert info.k[0] == pytest.approx(125.0) and info.k[2] == pytest.approx(79.5)
    record, = np.frombuffer(cloud.data, TRUTH)
    assert tuple(record)[:4] == pytest.approx(tuple(frame.truth[key] for key in (
        'time_to_contact_s', 'looming_rate', 'distance_m', 'speed')))


def test_present_stamps_have_the_exact_spacing_of_the_source_and_go_on_in_a_loop(ros, ten):
    images = listen(ros, Image, 'camera/image_raw')
    with ros.compose(MODULE, playing(ten, rate=40, loop=True)) as process:
        assert ros.spin_until(lambda: len(images) > 30), process.output
    steps = np.diff([stamp_ns(image) for image in images]) / 25_000_000
    assert np.allclose(steps, np.round(steps), atol=1e-6) and (steps > 0).all()


class UnpluggedCamera(Source):
    """A camera that delivers three pictures and is then pulled out."""

    live = True

    def _play(self):
        for number in range(3):
            stamp = (100 + number) * S
            yield stamp, lambda stamp=stamp: SourceFrame(stamp, np.zeros((8, 8, 3), np.uint8))
        raise SourceLost('camera 0 stopped delivering pictures')


def test_a_camera_that_is_pulled_out_is_opened_again_and_the_node_stays(ros, monkeypatch):
    opened = []

    def plug(*_, **__):
        opened.append(len(opened))
        if len(opened) == 2:
            raise SourceError('camera 0 cannot be opened')  # still missing at the first retry
        return UnpluggedCamera('camera 0', PlayOptions(), (8, 8), math.nan)

    monkeypatch.setattr(camera_source, 'open_source', plug)
    monkeypatch.setattr(camera_source, 'RETRY_S', 0.05)
    images = listen(ros, Image, 'camera/image_raw')
    overrides = [Parameter('source', value='0'), Parameter('wait_for_subscribers', value=True)]
    node = camera_source.CameraSource(context=ros.context, parameter_overrides=overrides)
    node.start()
    try:
        assert ros.spin_until(lambda: len(images) >= 6 and len(opened) >= 4)
        assert not node.finished.is_set()
        assert stamp_ns(images[0]) == 100 * S  # of the camera, not of the moment
        assert node.stop() and not node.failed
    finally:
        node.destroy_node()


@pytest.mark.parametrize(('source', 'message'), [
    ('/not/there.mp4', "'/not/there.mp4' does not exist; supported: 'synthetic'"),
    ('77', 'camera 77 cannot be opened; video devices here')])
def test_a_source_that_can_not_be_opened_ends_it_with_the_reason(ros, source, message):
    with ros.compose(MODULE, {'source': source}) as process:
        assert process.wait() == 1
        assert message in process.output

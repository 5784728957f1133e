# SPDX-License-Identifier: Apache-2.0
"""Test the input side of cameras without topics: what a refused subscription may cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from rclpy.qos_overriding_options import InvalidQosOverridesError
from sensor_msgs.msg import CompressedImage

from vjepa_ros.ros.camera_input import CameraInput
from vjepa_ros.ros.node import VjepaNode

pytestmark = pytest.mark.ros


class Owner:
    """A node whose camera publishes compressed images only, which it may not subscribe to."""

    def __init__(self) -> None:
        self.refuses = True
        self.subscribed = []

    def resolve_topic_name(self, name: str) -> str:
        return f'/{name}'

    def get_publishers_info_by_topic(self, topic: str) -> list:
        return ['a camera'] if topic.endswith('compressed') else []

    def create_subscription(self, kind, topic: str, *_, **more) -> object:
        if kind is CompressedImage and self.refuses:
            raise InvalidQosOverridesError(f'reliability of {topic} is refused')
        self.subscribed.append(topic)
        return topic

    def destroy_subscription(self, subscription) -> None:
        self.subscribed.remove(subscription)

    def get_logger(self) -> SimpleNamespace:
        return SimpleNamespace(info=lambda text: None)


def test_a_transport_that_is_refused_leaves_the_other_and_is_told_each_time():
    owner = Owner()
    camera = CameraInput(owner, 'cam', 'auto', lambda: None)
    camera.open()
    for _ in range(2):
        with pytest.raises(InvalidQosOverridesError, match='/cam/image_raw/compressed'):
            camera.choose_transport()
        assert camera.chosen == 'raw'
        assert owner.subscribed == ['cam/camera_info', 'cam/image_raw']
    owner.refuses = False
    camera.choose_transport()
    assert camera.chosen == 'compressed'
    assert owner.subscribed == ['cam/camera_info', '/cam/image_raw/compressed']
    camera.close()
    assert owner.subscribed == []


def test_trouble_with_one_camera_leaves_the_others_watched():
    watched = []

    def fail(*_):
        raise InvalidQosOverridesError('reliability is refused')

    def part(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, watch=lambda *_: watched.append(name))

    node = SimpleNamespace(
        state='active', config=SimpleNamespace(no_frame_timeout=2.0),
        cameras={'a': part('a'), 'bad': SimpleNamespace(name='bad', watch=fail), 'b': part('b')},
        worker=SimpleNamespace(stats=dict.fromkeys(('a', 'bad', 'b'), SimpleNamespace(mixed=0))),
        outputs={'a': SimpleNamespace(obstacles=part('obstacles'))})
    with pytest.raises(InvalidQosOverridesError):
        VjepaNode._on_watch(node)
    assert sorted(watched) == ['a', 'b', 'obstacles']

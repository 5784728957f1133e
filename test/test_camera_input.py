# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the input side of cameras without topics: what a refused subscription may cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from rclpy.qos import ReliabilityPolicy
from rclpy.qos_overriding_options import InvalidQosOverridesError
from sensor_msgs.msg import CompressedImage

from vjepa_ros.ros.perception_node import camera_input
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.node import VjepaNode

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


class Silent:
    """A node on whose image topic somebody publishes, or not, and nothing arrives."""

    def __init__(self, monkeypatch, **names: str) -> None:
        self.now, self.published, self.warnings = 0.0, False, []
        self.names = names
        self.topics = ['/cam/image_raw']
        self.callbacks = {}
        monkeypatch.setattr(camera_input.time, 'monotonic', lambda: self.now)

    def resolve_topic_name(self, name: str) -> str:
        return self.names.get(name, f'/{name}')

    def get_publishers_info_by_topic(self, topic: str) -> list:
        profile = SimpleNamespace(reliability=ReliabilityPolicy.RELIABLE)
        there = self.published and topic in self.topics
        return [SimpleNamespace(qos_profile=profile)] if there else []

    def create_subscription(self, kind, topic: str, callback, *_, **more) -> object:
        self.callbacks[topic] = callback
        return topic

    def get_logger(self) -> SimpleNamespace:
        return SimpleNamespace(warning=lambda text, **_: self.warnings.append(text))

    def watch(self, camera: CameraInput, seconds: float) -> None:
        """Let time go on as the timer of the node does, with a timeout of 2 s."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            camera.watch(2.0)


def test_transport_is_not_blamed_while_nobody_publishes_or_the_camera_is_starting(monkeypatch):
    node = Silent(monkeypatch)
    camera = CameraInput(node, 'cam', 'auto', lambda: None)
    camera.open()
    node.watch(camera, 4.0)
    assert camera.silent
    assert len(node.warnings) == 1
    assert '/cam/image_raw has 0 publisher(s)' in node.warnings[0]
    assert 'start the camera' in node.warnings[0] and 'FASTDDS' not in node.warnings[0]
    node.published = True
    node.watch(camera, 1.5)
    assert len(node.warnings) == 1
    node.watch(camera, 3.0)                      # now the camera has been there for the timeout
    assert len(node.warnings) == 2
    assert 'FASTDDS' in node.warnings[1] and 'start the camera' not in node.warnings[1]


def test_a_camera_that_comes_late_is_not_a_warning_before_the_timeout(monkeypatch):
    node = Silent(monkeypatch)
    camera = CameraInput(node, 'cam', 'raw', lambda: None)
    camera.open()
    node.watch(camera, 1.5)
    node.published = True
    node.watch(camera, 1.5)
    assert node.warnings == [] and camera.silent
    node.watch(camera, 1.0)
    assert len(node.warnings) == 1 and 'FASTDDS' in node.warnings[0]


@pytest.mark.parametrize(('sent', 'words', 'blamed'), [
    ('', 'still starting', False), ('cam/camera_info', 'arrives, images do not', True)])
def test_a_camera_info_tells_a_camera_that_starts_from_one_whose_images_are_lost(
        monkeypatch, sent, words, blamed):
    node = Silent(monkeypatch)
    node.topics.append('/cam/camera_info')
    node.published = True
    camera = CameraInput(node, 'cam', 'raw', lambda: None)
    camera.open()
    if sent:
        node.callbacks[sent](None)
    node.watch(camera, 4.0)
    assert len(node.warnings) == 1 and words in node.warnings[0]
    assert ('FASTDDS' in node.warnings[0]) is blamed


def test_a_topic_that_is_remapped_to_a_compressed_one_is_read_as_such(monkeypatch):
    node = Silent(monkeypatch, **{'cam/image_raw': '/front/image/compressed'})
    camera = CameraInput(node, 'cam', 'auto', lambda: None)
    camera.open()
    assert camera.chosen == 'compressed'
    assert camera.topics == {'raw': '/front/image', 'compressed': '/front/image/compressed'}
    with pytest.raises(ValueError, match=r"'raw', but .* /front/image/compressed; set the trans"):
        CameraInput(node, 'cam', 'raw', lambda: None)


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

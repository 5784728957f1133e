# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Poses from tf, with a stand-in for tf2_ros, which has no wheel: not a test with the real one."""

from __future__ import annotations

import math
import re
import sys
import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

pytest.importorskip('rclpy')

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Quaternion, Transform, Vector3
from guard_rig import guarding
from ros_harness import ros_session

from vjepa_ros.obstacles import Mount
from vjepa_ros.ros.perception_node.obstacle_output import Sources
from vjepa_ros.ros.perception_node.parameters import SCHEMA

pytestmark = pytest.mark.ros

# z of the optical frame is x of the base, or y.
AHEAD = Quaternion(x=-0.5, y=0.5, z=-0.5, w=0.5)
LEFT = Quaternion(x=-0.7071068, y=0.0, z=0.0, w=0.7071068)
CONFIG = SCHEMA.read({
    **{row.name: row.default for row in (*SCHEMA.rows, *SCHEMA.rows_of('camera'))},
    'obstacles.base_frame': 'base_link'}).obstacles


class TransformException(Exception):
    pass


class Tf:
    """What tf knows: a camera that looks ahead up to 5 s, and to the left from 6 s to 9 s."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []
        self.clear = MagicMock()
        self.until = 9.0

    def lookup_transform(self, target: str, source: str, time: object,
                         timeout: object) -> SimpleNamespace:
        at = time.nanoseconds / 1e9
        self.asked.append((at, timeout.nanoseconds / 1e9))
        if source != 'optical':
            raise TransformException(f'"{source}" passed to lookupTransform does not exist')
        if target != 'base_link' or 5 < at < 6 or at > self.until:
            raise TransformException('Lookup would require extrapolation')
        return SimpleNamespace(transform=Transform(
            translation=Vector3(x=0.1, z=0.4),
            rotation=AHEAD if 0 < at <= 5 else LEFT))      # 0 is the newest


@pytest.fixture
def tf(monkeypatch: pytest.MonkeyPatch) -> Tf:
    made = Tf()
    monkeypatch.setitem(sys.modules, 'tf2_ros', SimpleNamespace(
        Buffer=lambda: made, TransformException=TransformException, TransformListener=MagicMock()))
    return made


def test_a_pose_is_that_at_the_stamp_of_the_image_and_not_the_newest(tf):
    poses = Sources(MagicMock(), CONFIG)
    then, why = poses.mount('optical', Time(sec=4), time.monotonic() + 9.0)
    assert why == ''
    np.testing.assert_allclose(then.rotation, Mount.from_angles(0.4).rotation, atol=1e-6)
    now, _ = poses.mount('optical')
    np.testing.assert_allclose(now.heading, [0, 1, 0], atol=1e-6)
    assert tf.asked == [(4.0, pytest.approx(9.0, abs=1.0)), (0.0, 0.0)]


@pytest.mark.parametrize(('frame', 'stamp', 'reason'), [
    ('optical', Time(sec=12, nanosec=5), "'base_link' at the time 12.000000005.*extrapolation"),
    ('elsewhere', None, 'does not exist'), ('', None, 'frame_id'),
    ('optical', Time(), 'stamp')])                         # 0 would be the newest
def test_without_a_pose_the_reason_is_told(tf, frame, stamp, reason):
    mount, why = Sources(MagicMock(), CONFIG).mount(frame, stamp)
    assert mount is None and re.search(reason, why)


def test_after_a_jump_of_time_tf_begins_anew_and_it_ends_with_the_node(tf):
    node = MagicMock()
    poses = Sources(node, CONFIG)
    node.get_clock().create_jump_callback.call_args.kwargs['post_callback'](None)
    assert tf.clear.call_count == 1
    poses.close()
    assert poses.mount('optical', Time(sec=4)) == (None, 'tf is not listened to any more')


def test_a_camera_of_the_guard_looks_where_tf_says_and_is_at_fault_once_tf_is_silent(tf):
    tf.until = math.inf                    # to the left, now
    with ros_session() as ros, guarding(ros, camera__direction='tf') as rig, rig.driving():
        rig.wait_for_speed(1.0)
        rig.wait(lambda: rig.told(1)['yaw'] == '1.571')
        assert all(wait == 0 for _, wait in tf.asked)      # the executor must not wait for itself
        tf.until = 0.0
        rig.wait(lambda: 'no pose' in rig.states[-1].status[1].message)

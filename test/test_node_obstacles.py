# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test obstacles for planners over real DDS."""

from __future__ import annotations

import math
import re
import sys
import time
from functools import lru_cache
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

pytest.importorskip('rclpy')

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Quaternion, Transform, Twist, Vector3
from guard_rig import guarding
from node_fixtures import (
    ANSWER_S,
    NS,
    Publisher,
    exact,
    node_running,
    now_ns,
    raw,
    stamped,
    values_of,
)
from render_scenes import BOX, Camera, Thing, plain_bank, scene
from ros_harness import ros_session
from sensor_msgs.msg import CameraInfo, LaserScan, PointCloud2
from std_msgs.msg import Header

from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES
from vjepa_ros.obstacles import Mount
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Region
from vjepa_ros.ros import read
from vjepa_ros.ros.perception_node.obstacle_output import ObstacleOutput, Sources, detections
from vjepa_ros.ros.perception_node.parameters import ObstacleConfig, SCHEMA

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

SIZE, PERIOD, FRAMES = (384, 288), NS // 10, 14
HEIGHT, PITCH_DEG = 0.5, 8.6
MOUNT = Mount.from_angles(HEIGHT, x=0.2, pitch=math.radians(PITCH_DEG))
FOCAL = SIZE[0] / 2 / math.tan(math.radians(35))
GEOMETRY = {'weights': '', 'num_frames': NUM_FRAMES, 'image_size': IMAGE_SIZE,
            'camera__mount__height': HEIGHT, 'camera__mount__x': 0.2,
            'camera__mount__pitch': PITCH_DEG,
            'obstacles__base_frame': 'base_link', 'obstacles__scan': True,
            'obstacles__max_range': 3.0, **exact()}
SMALL = {'weights': 'random', 'num_frames': 4, 'image_size': 64}


@lru_cache
def drive(box: bool) -> list[np.ndarray]:
    """What a camera sees that drives at 1 m/s; at the newest frame a box is 1.8 m ahead of it."""
    things = [Thing(BOX, (0, -0.4, 2.2), (0.6, 0.4, 0.4), tile_m=0.8)] if box else []
    made = scene(things, Camera(at=(0, -HEIGHT, 0), velocity=(0, 0, 1.0),
                                pitch=-math.radians(PITCH_DEG)),
                 frames=FRAMES, interval_s=PERIOD / NS, size=SIZE)
    return [np.ascontiguousarray(p) for p in render(made, plain_bank(), SIZE)[0].numpy()]


def camera_info(focal: float = FOCAL, model: str = 'plumb_bob',
                d: tuple[float, ...] = (0.0,) * 5) -> CameraInfo:
    x, y = (SIZE[0] - 1) / 2, (SIZE[1] - 1) / 2
    return CameraInfo(width=SIZE[0], height=SIZE[1], distortion_model=model, d=d,
                      k=[focal, 0.0, x, 0.0, focal, y, 0.0, 0.0, 1.0])


def exists(node) -> bool:
    return bool(node.ros.node.get_publishers_info_by_topic(
        f'{node.name}/camera/obstacle_points'))


def show_info(node, message: CameraInfo, until) -> None:
    """Send a camera_info until something is so."""
    with Publisher(node.ros, 'camera/camera_info', CameraInfo, qos=10) as info:
        assert node.ros.spin_until(lambda: info.send(message, now_ns()) and until(),
                                   ANSWER_S), node.process.output


def begin(node, **params) -> int:
    """Begin anew with the geometry known; a place in the log."""
    node.begin_anew(**params)
    show_info(node, camera_info(), lambda: exists(node))
    return node.written


def published(node, pictures: list[np.ndarray]
              ) -> tuple[int, list[PointCloud2], list[LaserScan]]:
    """The stamp of the newest of these pictures, and what is published of them all.

    The first one is repeated until there are assessments: by then, other listeners are found.
    """
    with node.listen('obstacle_points') as clouds, node.listen('scan') as scans, \
            node.listen('assessment') as told, Publisher(node.ros) as camera:
        start = now_ns() - 10 * NS     # they come faster than their stamps, not from the future
        first = 1 + camera.play(lambda i: raw(pictures[0]), start, PERIOD, told)
        for i, picture in enumerate(pictures):
            stamp = camera.step(raw(picture), start + (first + i) * PERIOD, told)
        node.ros.spin_for(0.2)
    return stamp, clouds, scans


@pytest.fixture(scope='module')
def node():
    with ros_session() as session, node_running(session, **GEOMETRY) as node:
        yield node


def in_the_way(along: np.ndarray, across: np.ndarray) -> int:
    """How many points lie 2.5 m ahead of the robot; four of them stop it."""
    return int(((along > 0) & (along < 2.5) & (np.abs(across) < 0.3)).sum())


def hits(scan: LaserScan) -> tuple[np.ndarray, np.ndarray]:
    """Where rays ended, ahead and left [m]."""
    ranges = np.array(scan.ranges)
    angles = scan.angle_min + scan.angle_increment * np.arange(len(ranges))
    hit = (ranges >= scan.range_min) & (ranges <= scan.range_max)
    return (ranges * np.cos(angles))[hit], (ranges * np.sin(angles))[hit]


def test_a_box_stops_the_robot_by_the_collision_monitor(node):
    begin(node)
    stamp, (*_, cloud), (*_, scan) = published(node, drive(True))
    for msg in (cloud, scan):
        assert (read.stamp_ns(msg), msg.header.frame_id) == (stamp, 'base_link')
    points = read.records(cloud)
    assert ((points['z'] >= 0.05) & (points['z'] <= 0.5)).all()      # the band of the monitor
    for along, across in ((points['x'], points['y']), hits(scan)):
        assert in_the_way(along, across) >= 4
    # 1.8 m ahead of a camera that is 0.2 m ahead of the base. The end of the free way, which the
    # heads judge by what the scene looks like, is a bar nearer than that.
    box = points['x'][(points['x'] > 1.0) & (np.abs(points['y']) < 0.3)]
    assert np.median(box) == pytest.approx(2.0, rel=0.15)
    assert (points['intensity'] > 0).all() and (points['intensity'] <= 1).all()


def test_a_clear_view_is_an_empty_fresh_cloud_that_declares_its_fields(node):
    begin(node)
    stamp, (*_, cloud), (*_, scan) = published(node, drive(False))
    assert cloud.width == 0 and read.stamp_ns(cloud) == stamp and -np.inf not in scan.ranges
    assert [(f.name, f.offset, f.datatype) for f in cloud.fields] == [
        ('x', 0, 7), ('y', 4, 7), ('z', 8, 7), ('intensity', 12, 7)]
    assert in_the_way(*hits(scan)) < 4


@pytest.mark.parametrize(('params', 'moves', 'reason'), [
    ({}, False, 'withheld'), (SMALL, True, 'withheld.*there are no learned heads')])
def test_a_robot_that_stands_or_untrained_weights_give_no_cloud_and_the_log_says_why(
        node, params, moves, reason):
    since = begin(node, **params)
    shown = drive(False)
    assert published(node, shown if moves else [shown[0]] * FRAMES)[1] == []
    node.wait_for_log(reason, since)
    values = node.wait_for('camera camera', lambda v: v['obstacle_points'].startswith('withheld'))
    assert int(values['obstacle_points.withheld']) > 0


def test_a_camera_that_hangs_clears_nothing_from_its_first_repeated_picture_on(node):
    begin(node)
    shown = drive(False)
    last, clouds, _ = published(node, [*shown, *[shown[-1]] * 4])       # 0.4 s: not yet flagged
    assert max(map(read.stamp_ns, clouds)) == last - 4 * PERIOD


UNPLACED = {'camera__mount__height': 0.0, 'obstacles__base_frame': '', 'obstacles__scan': False}


@pytest.mark.parametrize(('params', 'info', 'reason'), [
    (UNPLACED, camera_info(), 'obstacle_points.*camera.mount'),
    ({}, camera_info(model='magic', d=(0.1,)), "distortion_model 'magic'")])
def test_without_pose_or_lens_there_is_no_topic_and_one_line_says_so(node, params, info, reason):
    since = node.written
    node.begin_anew(**params)
    show_info(node, info, lambda: re.search(reason, node.process.output[since:]))
    assert not exists(node)


def config_of(given: dict) -> ObstacleConfig:
    rows = (*SCHEMA.rows, *SCHEMA.rows_of('camera'))
    return SCHEMA.read({**{row.name: row.default for row in rows}, **given}).obstacles


@pytest.fixture
def output(monkeypatch) -> ObstacleOutput:
    """One with odometry, of a node without DDS, with a stand-in for the type of its messages."""
    monkeypatch.setitem(sys.modules, 'nav_msgs.msg', SimpleNamespace(Odometry=object))
    monkeypatch.setitem(sys.modules, 'vision_msgs.msg', None)
    node = MagicMock()
    config = config_of({'obstacles.odometry': 'odom', 'camera.mount.height': 0.5})
    made = ObstacleOutput(node, SimpleNamespace(name='camera'), config, Settings(),
                          Sources(node, config))
    made.heard = node.create_subscription.call_args[0][2]
    return made


def fed(output, speeds, yaw_rate=0.0, start_s=1.0) -> None:
    """Speeds [m/s] of every 0.1 s."""
    for i, speed in enumerate(speeds):
        msg = stamped(SimpleNamespace(header=Header(), child_frame_id='base_link'),
                      round((start_s + i * 0.1) * NS))
        msg.twist = SimpleNamespace(twist=Twist(
            linear=Vector3(x=float(speed)), angular=Vector3(z=yaw_rate)))
        output.heard(msg)


def test_finite_speeds_around_the_frame_count(output):
    mount, odometry = Mount.from_angles(0.5), output._sources.odometry
    assert math.isnan(odometry.closing_speed(mount, 2 * NS))
    fed(output, [*(0.1 * i for i in range(20)), math.nan, 1e308])
    assert odometry.closing_speed(mount, 2 * NS) == pytest.approx(0.85)  # .7 to 1.0
    assert math.isnan(odometry.closing_speed(mount, 9 * NS))
    fed(output, [5.0], start_s=0.5)                          # a jump back in time starts anew
    assert odometry.closing_speed(mount, NS // 2) == pytest.approx(5.0)


def test_regions_become_detections_with_a_stand_in_for_vision_msgs():
    """vision_msgs has no wheel: this is not a test with the real package."""
    module = MagicMock()
    module.Detection2DArray.side_effect = lambda **given: SimpleNamespace(detections=[], **given)
    (one,) = detections(module, Header(), (
        Region(10.0, 20.0, 30.0, 40.0, 0.0, 0.0, 1.0, 1.0, 'LEFT', 0.75, True),)).detections
    center, guess = one.bbox.center.position, module.ObjectHypothesisWithPose()
    assert (center.x, center.y, one.bbox.size_x, one.bbox.size_y) == (25.0, 40.0, 30.0, 40.0)
    assert (guess.hypothesis.class_id, guess.hypothesis.score) == ('on_course', 0.75)


def still(output, stamp_s: float, unchanged_s: float) -> bool:
    """Whether a picture that is the same for so long is excused."""
    return output.still(SimpleNamespace(
        unchanged_s=unchanged_s, assessment=SimpleNamespace(stamp_ns=round(stamp_s * NS))))


def test_a_picture_that_is_the_same_is_excused_only_where_the_robot_stood_as_long(output):
    fed(output, [1.0] * 10 + [0.0] * 10)                    # it drives until 1.9 s
    assert not still(output, 2.9, 1.4)
    fed(output, [0.0] * 500, start_s=3.0)                   # more than is kept
    assert not still(output, 52.9, 51.4)
    assert still(output, 52.9, 20.0)                        # another picture, since it stands
    fed(output, [0.0] * 5, 0.3, start_s=53.0)               # it turns on the spot
    assert not still(output, 53.4, 0.4)


# z of the optical frame is x of the base, or y.
AHEAD = Quaternion(x=-0.5, y=0.5, z=-0.5, w=0.5)
LEFT = Quaternion(x=-0.7071068, y=0.0, z=0.0, w=0.7071068)
TF_CONFIG = config_of({'obstacles.base_frame': 'base_link'})


class TransformException(Exception):
    pass


class Tf:
    """What tf knows: a camera that looks ahead up to 5 s, and to the left from 6 s to 9 s."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []
        self.until = 9.0

    def lookup_transform(self, target: str, source: str, time: object,
                         timeout: object) -> SimpleNamespace:
        at = time.nanoseconds / 1e9
        self.asked.append((at, timeout.nanoseconds / 1e9))
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
    poses = Sources(MagicMock(), TF_CONFIG)
    then, why = poses.mount('optical', Time(sec=4), time.monotonic() + 9.0)
    assert why == ''
    np.testing.assert_allclose(then.rotation, Mount.from_angles(0.4).rotation, atol=1e-6)
    now, _ = poses.mount('optical')
    np.testing.assert_allclose(now.heading, [0, 1, 0], atol=1e-6)
    assert tf.asked == [(4.0, pytest.approx(9.0, abs=1.0)), (0.0, 0.0)]


@pytest.mark.parametrize(('frame', 'stamp', 'reason'), [
    ('optical', Time(sec=12, nanosec=5), "'base_link' at the time 12.000000005.*extrapolation"),
    ('', None, 'frame_id'), ('optical', Time(), 'stamp')])   # 0 would be the newest
def test_without_a_pose_the_reason_is_told(tf, frame, stamp, reason):
    mount, why = Sources(MagicMock(), TF_CONFIG).mount(frame, stamp)
    assert mount is None and re.search(reason, why)


def test_a_camera_of_the_guard_looks_where_tf_says_and_is_at_fault_once_tf_is_silent(tf):
    tf.until = math.inf                    # to the left, now
    with ros_session() as ros, guarding(ros, camera__direction='tf') as rig, rig.driving():
        rig.wait_for_speed(1.0)
        rig.wait(lambda: values_of(rig.states[-1].status[1])['yaw'] == '1.571')
        assert all(wait == 0 for _, wait in tf.asked)      # the executor must not wait for itself
        tf.until = 0.0
        rig.wait(lambda: 'no pose' in rig.states[-1].status[1].message)

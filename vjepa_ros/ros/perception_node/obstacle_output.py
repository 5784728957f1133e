# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish obstacles in metres for planners such as Nav2, and regions as vision_msgs.

What is not known for sure is answered with silence: an empty cloud means clear to Nav2, and it
stops for a source that is stale.
"""

from __future__ import annotations

import importlib
import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, LaserScan, PointCloud2
from std_msgs.msg import Header

from vjepa_ros.clip.optics import Optics
from vjepa_ros.guard.settings import SILENCE_S
from vjepa_ros.guard.source import MOVED_S, STILL_TRAVEL
from vjepa_ros.guard.types import MAX_VELOCITY
from vjepa_ros.obstacles import (
    Mount,
    NEAREST_M,
    Obstacles,
    SCAN_STEP,
    base_points,
    find_obstacles,
    scan,
)
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Region, Result
from vjepa_ros.ros.common.endpoints import Transforms, Vector, advertise
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.parameters import ObstacleConfig
from vjepa_ros.ros.read import stamp_ns

# Layers and the monitor of Nav2 read x, y, z; filters and RViz know the name of the fourth.
POINT = np.dtype([('x', '<f4'), ('y', '<f4'), ('z', '<f4'), ('intensity', '<f4')])
METRES = POINTS, SCAN = ('obstacle_points', 'scan')
DETECTIONS = 'detections'
PATIENCE_S = 2.0         # from activation until what is missing is told
LOOKED_BACK_S = 0.35     # looming is measured over at most this time before the newest frame
AHEAD_S = 0.05           # odometry may be that much newer than a frame and still belong to it
KEPT = 400               # messages of odometry
WAIT_S = 0.05            # tf may come so much later than images; all cameras of a pass share it
NS = 1e9
LASTING = 4              # results withheld in a row, for one reason, until it is told
STANDS = 0.05            # m/s, rad/s, and m, rad in all: less of each is no motion
REPEAT_S = 30.0          # until it is told again


class Odometry:
    """Store the newest speeds of a nav_msgs/Odometry topic."""

    def __init__(self, node: LifecycleNode, topic: str, base_frame: str) -> None:
        try:
            kind = importlib.import_module('nav_msgs.msg').Odometry
        except ImportError:
            raise ValueError(f"parameter 'obstacles.odometry' is '{topic}', but nav_msgs is not "
                             'installed: install it, or set the parameter to an empty '
                             'text') from None
        self._node = node
        self._base_frame = base_frame
        self._seen: deque[tuple[int, Vector, Vector]] = deque(maxlen=KEPT)
        self._arrival = -math.inf
        self._told: set[str] = set()
        self.topic = node.resolve_topic_name(topic)
        self._subscription = node.create_subscription(
            kind, topic, self._on_message,
            QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT))

    def close(self) -> None:
        """Unsubscribe."""
        self._node.destroy_subscription(self._subscription)

    def closing_speed(self, mount: Mount, at_ns: int) -> float:
        """Return the speed of a camera along its axis around a stamp [m/s], NaN if unknown."""
        seen = self._fresh()
        if not seen:
            return math.nan
        near = [s for s in seen if -LOOKED_BACK_S <= (s[0] - at_ns) / NS <= AHEAD_S]
        if not near:
            closest = min(seen, key=lambda s: abs(s[0] - at_ns))
            if abs(closest[0] - at_ns) / NS > SILENCE_S:
                return math.nan
            near = [closest]
        return sum(mount.closing_speed(s[1], s[2]) for s in near) / len(near)

    def motion(self, since_ns: int, at_ns: int) -> tuple[float, float]:
        """Return the greatest speed around a stamp [m/s or rad/s], and the way since another.

        NaN and 0 if unknown; the way [m or rad] begins with the oldest message.
        """
        seen = self._fresh()
        if not seen:
            return math.nan, 0.0
        now = [s for s in seen if (s[0] - at_ns) / NS >= -LOOKED_BACK_S] or seen[-1:]
        way = sum(_fast(s) * max(0, min(until[0], at_ns) - max(s[0], since_ns)) / NS
                  for s, until in pairwise(seen))
        return max(map(_fast, now)), way

    def _fresh(self) -> list[tuple[int, Vector, Vector]]:
        """Return what is known; nothing while the topic is silent."""
        silent = time.monotonic() - self._arrival > SILENCE_S
        return [] if silent else list(self._seen)

    def _on_message(self, msg: Any) -> None:
        twist = msg.twist.twist
        linear = (twist.linear.x, twist.linear.y, twist.linear.z)
        angular = (twist.angular.x, twist.angular.y, twist.angular.z)
        if not all(abs(value) < MAX_VELOCITY for value in (*linear, *angular)):
            self._warn('speed', f'{self.topic}: a speed is not a number below {MAX_VELOCITY:g} '
                       '(m/s, rad/s); such messages count as none')
            return
        if self._base_frame and msg.child_frame_id not in ('', self._base_frame):
            self._warn('frame', f'{self.topic}: speeds are in the frame '
                       f"'{msg.child_frame_id:.99}', obstacles.base_frame is "
                       f"'{self._base_frame}'; they are taken as if they were the same")
        stamp = stamp_ns(msg)
        if self._seen and stamp < self._seen[-1][0]:     # time jumped back
            self._seen.clear()
        self._seen.append((stamp, linear, angular))
        self._arrival = time.monotonic()

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._node.get_logger().warning(text)


def _fast(seen: tuple[int, Vector, Vector]) -> float:
    """Return the greater of speed [m/s] and turn rate [rad/s]."""
    return max(math.hypot(*seen[1]), math.hypot(*seen[2]))


class Sources:
    """Speed of the robot and poses of cameras from tf, which all cameras of a node share."""

    def __init__(self, node: LifecycleNode, config: ObstacleConfig) -> None:
        self.odometry = Odometry(node, config.odometry, config.base_frame) \
            if config.odometry else None
        self.asks_tf = bool(config.base_frame and None in config.mounts.values())
        self.problem = '' if self.asks_tf else 'the pose of the camera is unknown'
        self._transforms: Transforms | None = None
        if self.asks_tf:
            try:
                self._transforms = Transforms(node, config.base_frame)
            except ImportError:
                self.problem = 'tf2_ros is not installed, so the pose can not come from tf'

    def close(self) -> None:
        """Unsubscribe, for all cameras."""
        if self.odometry is not None:
            self.odometry.close()
        transforms, self._transforms = self._transforms, None
        if transforms is not None:
            transforms.close()

    def mount(self, frame_id: str, stamp: Any | None = None, until_s: float = -math.inf
              ) -> tuple[Mount | None, str]:
        """Return the pose of an optical frame at a stamp, or the newest, or None and why.

        Waits for tf until a steady time [s]; only beside the executor.
        """
        transforms = self._transforms        # the executor may close it meanwhile
        if transforms is None:
            return None, self.problem or 'tf is not listened to any more'
        try:
            at, turn = transforms.pose(frame_id, stamp, max(0.0, until_s - time.monotonic()))
            return Mount.from_transform(at, turn), ''
        except ValueError as error:
            return None, str(error)


class ObstacleOutput:
    """Obstacles of one camera; `watch` runs on the executor, what publishes on the worker."""

    def __init__(self, node: LifecycleNode, camera: CameraInput, config: ObstacleConfig,
                 settings: Settings, sources: Sources) -> None:
        self._node, self._camera, self._sources = node, camera, sources
        self.pubs: Mapping[str, Any] = {}
        self._mount = config.mounts[camera.name]     # None: from tf
        self._active_since = math.nan
        self._told = ''
        self._withheld = ''
        self._in_a_row = 0
        self._moved_under = 0                 # since when the picture is the same [ns]; 0: none
        self._blind_since_s = math.nan        # since when the view stands, of a robot that moves
        self._said: dict[str, float] = {}     # when each reason was told last
        self.counts: Counter[str] = Counter()
        self._vision: Any = None
        self._live = config, settings
        try:
            self._vision = importlib.import_module('vision_msgs.msg')
        except ImportError:
            node.get_logger().info(f"camera '{camera.name}': no ~/{camera.name}/detections, "
                                   'vision_msgs is not installed')
        else:
            self._add(DETECTIONS, self._vision.Detection2DArray, enabled=False)

    def apply(self, config: ObstacleConfig, settings: Settings) -> None:
        """Take new live settings; frames and topics stay those of the start."""
        self._live = replace(self._live[0], settings=config.settings), settings

    def close(self) -> None:
        """Destroy the publishers."""
        pubs, self.pubs = self.pubs, {}
        for pub in pubs.values():
            self._node.destroy_lifecycle_publisher(pub)

    # -- on the executor -------------------------------------------------------------------

    def watch(self, active: bool) -> None:
        """Create the topics once the geometry is complete, else say what is missing."""
        now = time.monotonic()
        if not active or math.isnan(self._active_since):
            self._active_since = now if active else math.nan
        if not active or POINTS in self.pubs:
            return
        missing, name = self._missing(), self._camera.name
        if not missing:
            self._open()
        elif missing != self._told and now - self._active_since > PATIENCE_S:
            self._told, config = missing, self._live[0]
            text = f"camera '{name}': no ~/{name}/obstacle_points: {missing}"
            # Two calls: rclpy refuses another severity from the same line.
            if self._mount is not None or config.base_frame or config.odometry:
                self._node.get_logger().warning(text)
            else:
                self._node.get_logger().info(text)

    def _missing(self) -> str:
        """Return which geometry is missing and the remedy, '' when it is complete."""
        name = self._camera.name
        lacks = []
        info = self._camera.info
        if problem := self._camera.calibration_problem():
            lacks.append(problem)
        if self._mount is None:
            why = self._sources.problem
            if not why and info is not None:
                why = self._sources.mount(info.header.frame_id)[1]
            if why:
                or_tf = '' if self._sources.asks_tf else ', or obstacles.base_frame for tf'
                lacks.append(f'{why} (set {name}.mount.height and pitch{or_tf})')
        return '; '.join(lacks)

    def _open(self) -> None:
        config = self._live[0]
        self._add(POINTS, PointCloud2, enabled=True)
        if config.scan:
            self._add(SCAN, LaserScan, enabled=True)
        pose = 'tf' if self._mount is None else 'parameters'
        odometry = self._sources.odometry
        speed = 'the ground' if odometry is None else odometry.topic
        self._node.get_logger().info(
            f"camera '{self._camera.name}': obstacle_points are published; pose from {pose}, "
            f'speed from {speed}')

    def _add(self, name: str, kind: Any, enabled: bool) -> None:
        pub = advertise(self._node, kind, f'~/{self._camera.name}/{name}')
        if enabled:
            pub.on_activate(None)        # made while the node is active: no transition follows
        self.pubs = {**self.pubs, name: pub}      # replaced: the worker may be reading it

    # -- on the worker ---------------------------------------------------------------------

    def publish_detections(self, result: Result, header: Header) -> None:
        """Publish the regions in the image, which need no geometry."""
        if self._vision is not None:
            self.pubs[DETECTIONS].publish(
                detections(self._vision, header, result.assessment.regions))

    def publish(self, result: Result, header: Header, optics: Optics, wanted: frozenset[str],
                until_s: float) -> None:
        """Publish the obstacles of one result in metres, if known; wait for tf until then."""
        pubs, info = self.pubs, self._camera.info
        if POINTS not in pubs or info is None:
            return
        config, settings = self._live
        mount, problem = self._pose(header, info, until_s)
        if mount is None:
            self._withhold(problem)
            return
        found = self._find(result, optics, mount, config, settings)
        if found.withheld:
            self._withhold(found.withheld)
            return
        self._withheld = ''
        self.counts['published'] += 1
        base = Header(stamp=header.stamp, frame_id=config.base_frame)
        if POINTS in wanted:
            points = base_points(found, mount, config.settings)
            # Nav2 compares the height band with z in its base frame, but some sources of late 2025
            # did with z as it was published (`pointcloud.cpp`): the base frame suits all.
            if not config.base_frame:
                points[:, :3] = mount.to_camera(points[:, :3])
            packed = np.ascontiguousarray(points, '<f4').view(POINT).reshape(-1)
            out = cloud(base if config.base_frame else header, packed)
            out.is_dense = True
            pubs[POINTS].publish(out)
        if SCAN in wanted and SCAN in pubs:
            pubs[SCAN].publish(scan_message(base, found, mount, config))

    def _pose(self, header: Header, info: CameraInfo, until_s: float
              ) -> tuple[Mount | None, str]:
        """Return the pose of the camera when it took the image, or None and why."""
        if self._camera.info_problem:
            return None, self._camera.info_problem
        if self._mount is not None:
            return self._mount, ''
        if header.frame_id != info.header.frame_id:
            return None, (f"images are in the frame '{header.frame_id:.99}', but tf was asked for "
                          f"'{info.header.frame_id:.99}', which camera_info names")
        return self._sources.mount(header.frame_id, header.stamp, until_s)

    def _find(self, result: Result, optics: Optics, mount: Mount, config: ObstacleConfig,
              settings: Settings) -> Obstacles:
        odometry, at_ns = self._sources.odometry, result.assessment.stamp_ns
        speed = math.nan if odometry is None else odometry.closing_speed(mount, at_ns)
        blind = self._blind(result)      # also where something else withholds: it is remembered
        found = find_obstacles(result, optics, mount, speed, settings, config.settings,
                               self.still(result))
        if blind and not found.withheld:
            return replace(found, withheld='the view has not moved for '
                           f'{result.assessment.still_s:.1f} s, but the robot has: is the camera '
                           'hung or covered?')
        return found

    def _blind(self, result: Result) -> bool:
        """Return whether the robot has moved under a view that has not."""
        odometry, seen = self._sources.odometry, result.assessment
        if odometry is None or not seen.still_s > 0:       # or it is NaN
            return False
        since_s = seen.stamp_ns / 1e9 - seen.still_s
        _, way = odometry.motion(round(since_s * 1e9), seen.stamp_ns)
        # Once it has moved, that stays so until the view moves.
        blind = way > STILL_TRAVEL or abs(since_s - self._blind_since_s) < MOVED_S
        self._blind_since_s = since_s if blind else math.nan
        return blind

    def still(self, result: Result) -> bool:
        """Return whether the robot has stood for as long as the picture is the same."""
        odometry, at_ns = self._sources.odometry, result.assessment.stamp_ns
        if odometry is None or result.unchanged_s == 0:
            return False
        since_ns = at_ns - round(result.unchanged_s * 1e9)
        fast, way = odometry.motion(since_ns, at_ns)
        # Once it has moved under a picture, that stays so: odometry is not kept for ever.
        moved = self._moved_under == since_ns or way > STANDS
        self._moved_under = since_ns if moved else 0
        return fast < STANDS and not moved

    def _withhold(self, reason: str) -> None:
        """Publish nothing; warn with the reason when that lasts, but not repeatedly."""
        self.counts['withheld'] += 1
        kind, now = reason[:24], time.monotonic()     # the numbers in it change all the time
        self._in_a_row = self._in_a_row + 1 if kind == self._withheld[:24] else 1
        self._withheld = reason
        if self._in_a_row == LASTING and now - self._said.get(kind, -math.inf) > REPEAT_S:
            self._said[kind] = now
            self._node.get_logger().warning(
                f"camera '{self._camera.name}': obstacle_points are withheld, so that they become "
                f'stale: {reason}')

    def report(self) -> Mapping[str, object]:
        """Return values for diagnostics."""
        state = ('withheld: ' + self._withheld if self._withheld else 'published') \
            if POINTS in self.pubs else f'none: {self._told or "looking for geometry"}'
        return {'obstacle_points': state, 'obstacle_points.published': self.counts['published'],
                'obstacle_points.withheld': self.counts['withheld']}


def detections(module: Any, header: Header, regions: tuple[Region, ...]) -> Any:
    """Make a Detection2DArray of vision_msgs 4 of regions, in pixels of the source image."""
    out = module.Detection2DArray(header=header)
    for number, region in enumerate(regions):
        guess = module.ObjectHypothesisWithPose()
        guess.hypothesis.class_id = 'on_course' if region.on_course else 'approaching'
        guess.hypothesis.score = float(region.confidence)
        one = module.Detection2D(header=header, id=str(number), results=[guess])
        one.bbox.center.position.x = float(region.x + 0.5 * region.width)
        one.bbox.center.position.y = float(region.y + 0.5 * region.height)
        one.bbox.size_x, one.bbox.size_y = float(region.width), float(region.height)
        out.detections.append(one)
    return out


def scan_message(header: Header, found: Obstacles, mount: Mount,
                 config: ObstacleConfig) -> LaserScan:
    """Make a LaserScan: ranges for obstacles, inf for free, NaN for unknown."""
    rays = scan(found, mount, config.settings)
    out = LaserScan(header=header, angle_min=rays.angle_min,
                    angle_max=rays.angle_min + SCAN_STEP * (len(rays.ranges) - 1),
                    angle_increment=SCAN_STEP, range_min=NEAREST_M, range_max=rays.range_max)
    out.ranges.frombytes(np.ascontiguousarray(rays.ranges, '<f4').tobytes())
    return out

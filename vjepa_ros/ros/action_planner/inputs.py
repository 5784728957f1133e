# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscriptions of the action planner; the newest message of each is kept."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import CompressedImage, Image, JointState

from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.pipeline import known_age
from vjepa_ros.planning.base_world import CLIP_FPS, FRAMES
from vjepa_ros.ros.action_planner.parameters import JOINTS, PlannerConfig
from vjepa_ros.ros.action_planner.robot_state import state_of
from vjepa_ros.ros.command.inputs import odometry_message
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.perception_node.camera_input import CameraInput

NS = 1_000_000_000
# Of the images that are kept for a clip: the least time between them, and how long ago they came.
KEPT_NS, CLIP_NS = round(NS / CLIP_FPS / 2), round(NS * (FRAMES + 1) / CLIP_FPS)


class PlannerInputs:
    """The input side of a planner node; callbacks run on the executor and only store.

    Parameters
    ----------
    node
        The node that owns the subscriptions.
    config
        Camera and source of the state.
    """

    def __init__(self, node: LifecycleNode, config: PlannerConfig) -> None:
        self._node = node
        self._config = config
        self.camera = CameraInput(node, config.camera, config.transport)
        self.camera.notify = self._on_image
        self._subscriptions: list[Any] = []
        self.image: Any = None
        self.goal: Any = None
        self.goal_ns = 0
        self._image_ns = self._pose_ns = self._joints_ns = 0
        self._pose: PoseStamped | None = None
        self._joints: JointState | None = None
        self._twist: np.ndarray | None = None
        self._twist_ns = 0
        self._recent: deque[tuple[int, Any]] = deque()

    def open(self) -> None:
        """Subscribe (on activate); an earlier goal stays."""
        self.image = self._pose = self._joints = self._twist = None
        self._recent.clear()
        self.camera.open()
        config = self._config
        # A goal is sent once, so it is reliable; of states only the newest counts.
        self._subscribe(Image, 'goal/image_raw', self._on_goal, reliable=True)
        # The compressed topic follows a remapped raw topic, as in image_transport.
        raw = self._node.resolve_topic_name('goal/image_raw')
        self._subscribe(CompressedImage, f'{raw}/compressed', self._on_goal, reliable=True)
        if config.mount is not None:
            self._subscribe(odometry_message('weights, which is that of a base,', 'weights to '
                                             'a checkpoint of V-JEPA 2-AC'), 'odom',
                            self._on_odometry)
            return
        if config.state_source != JOINTS:
            self._subscribe(PoseStamped, 'state', self._on_pose)
        if config.state_source == JOINTS or config.gripper_joint:
            self._subscribe(JointState, 'joint_states', self._on_joints)

    def close(self) -> None:
        """Unsubscribe (on deactivate)."""
        self.camera.close()
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def problem(self, max_age_s: float) -> str:
        """Return why inputs are missing or too old to plan, '' when they are complete."""
        if self.goal is None:
            return ('there is no goal; publish a picture of it on '
                    f'{self._node.resolve_topic_name("goal/image_raw")}')
        topics = ' or '.join(self.camera.topics.values())
        if self.image is None:
            return f'there is no image; none came on {topics}'
        names = [('image', self._image_ns, topics)]
        if self._config.mount is not None:
            names.append(('speed', self._twist_ns, 'odom'))
            if self._twist is None:
                return ('there is no speed: no Odometry with finite numbers came on '
                        f'{self._node.resolve_topic_name("odom")}')
        elif self._config.state_source != JOINTS and self._pose is not None:
            names.append(('state', self._pose_ns, 'state'))
        if self._joints is not None:
            names.append(('state', self._joints_ns, 'joint_states'))
        now = self._now_ns()
        for what, came, topic in names:
            # Simulated time that stands at zero gives no age.
            wrong = age_problem(known_age(now, came), max_age_s)
            if wrong:
                return f'the newest {what} on {topic} is {wrong}, and max_age is {max_age_s:g} s'
        return ''

    def state(self) -> np.ndarray:
        """Return the state (7,) of the newest messages, of a base its twist (3,).

        Raises
        ------
        StateError
            Without a state.
        """
        if self._twist is not None:
            return self._twist
        return state_of(self._config, self._pose, self._joints)

    @property
    def recent(self) -> list[tuple[int, Any]]:
        """Stamps [ns] and messages of the newest clip of a base."""
        return list(self._recent)

    def focal(self, size: tuple[int, int]) -> tuple[float, float] | None:
        """Return fx and fy [px] of pictures of a size; None where they are not known."""
        found = self.camera.intrinsics_for(size)
        return None if found is None else found[:2]

    @property
    def frame_id(self) -> str:
        """Frame of the state and of actions; that of a base is not known."""
        source = self._joints if self._config.state_source == JOINTS else self._pose
        return '' if source is None else source.header.frame_id

    def _subscribe(self, kind: Any, topic: str, callback: Any,
                   reliable: bool = False) -> None:
        self._subscriptions.append(
            subscribe(self._node, kind, topic, callback, reliable=reliable))

    def _now_ns(self) -> int:
        return self._node.get_clock().now().nanoseconds

    def _on_image(self) -> None:
        waiting = self.camera.queue.claim(0)
        self.camera.queue.clear()
        if waiting:
            newest = waiting[-1]
            self.image, self._image_ns = newest.message, newest.stamp_ns or newest.arrival_ns
            if self._config.mount is not None:
                self._keep()

    def _keep(self) -> None:
        """Keep the newest image, and of the ones before as many as a clip needs."""
        recent, now = self._recent, self._image_ns
        if recent and now < recent[-1][0]:       # the clock went back
            recent.clear()
        if len(recent) > 1 and recent[-1][0] - recent[-2][0] < KEPT_NS:
            recent.pop()
        recent.append((now, self.image))
        while now - recent[0][0] > CLIP_NS:
            recent.popleft()

    def _on_goal(self, msg: Image | CompressedImage) -> None:
        self.goal, self.goal_ns = msg, self._now_ns()
        self._node.get_logger().info('there is a new goal')

    def _on_odometry(self, msg: Any) -> None:
        twist = msg.twist.twist
        found = np.array((twist.linear.x, twist.linear.y, twist.angular.z))
        if np.isfinite(found).all():
            self._twist, self._twist_ns = found, _stamp(msg) or self._now_ns()

    def _on_pose(self, msg: PoseStamped) -> None:
        self._pose, self._pose_ns = msg, _stamp(msg) or self._now_ns()

    def _on_joints(self, msg: JointState) -> None:
        self._joints, self._joints_ns = msg, _stamp(msg) or self._now_ns()


def _stamp(msg: Any) -> int:
    return msg.header.stamp.sec * NS + msg.header.stamp.nanosec

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Subscriptions of the action planner; the newest message of each is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import CompressedImage, Image, JointState

from vjepa_ros.perception.danger import age_problem
from vjepa_ros.perception.pipeline import known_age
from vjepa_ros.ros.action_planner.parameters import JOINTS, PlannerConfig
from vjepa_ros.ros.action_planner.robot_state import state_of
from vjepa_ros.ros.common.endpoints import subscribe
from vjepa_ros.ros.perception_node.camera_input import CameraInput

NS = 1_000_000_000


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

    def open(self) -> None:
        """Subscribe (on activate); an earlier goal stays."""
        self.image = self._pose = self._joints = None
        self.camera.open()
        config = self._config
        # A goal is sent once, so it is reliable; of states only the newest counts.
        self._subscribe(Image, 'goal/image_raw', self._on_goal, reliable=True)
        # The compressed topic follows a remapped raw topic, as in image_transport.
        raw = self._node.resolve_topic_name('goal/image_raw')
        self._subscribe(CompressedImage, f'{raw}/compressed', self._on_goal, reliable=True)
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
        if self._config.state_source != JOINTS and self._pose is not None:
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
        """Return the state (7,) of the newest messages; StateError without one."""
        return state_of(self._config, self._pose, self._joints)

    @property
    def frame_id(self) -> str:
        """Frame of the state and of actions."""
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

    def _on_goal(self, msg: Image | CompressedImage) -> None:
        self.goal, self.goal_ns = msg, self._now_ns()
        self._node.get_logger().info('there is a new goal')

    def _on_pose(self, msg: PoseStamped) -> None:
        self._pose, self._pose_ns = msg, _stamp(msg) or self._now_ns()

    def _on_joints(self, msg: JointState) -> None:
        self._joints, self._joints_ns = msg, _stamp(msg) or self._now_ns()


def _stamp(msg: Any) -> int:
    return msg.header.stamp.sec * NS + msg.header.stamp.nanosec

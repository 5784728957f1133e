# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Convert messages of a robot to states of the world model, and states to poses.

A state has seven numbers: x, y, z [m], Euler angles about the fixed axes x, y, z [rad], and the
closedness of the gripper, 0 to 1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from geometry_msgs.msg import Pose, PoseStamped, Quaternion
from sensor_msgs.msg import JointState

from vjepa_ros.planning.action_space import to_euler, to_matrix
from vjepa_ros.ros.action_planner.parameters import JOINTS, PlannerConfig


class StateError(ValueError):
    """A message without a valid state; the text gives cause and remedy."""


def state_of(config: PlannerConfig, pose: PoseStamped | None, joints: JointState | None
             ) -> np.ndarray:
    """Return the state (7,) float64 of the newest messages.

    Raises
    ------
    StateError
        When a message is missing, lacks a joint or has numbers that are not finite.
    """
    if config.state_source == JOINTS:
        if joints is None:
            raise StateError('there is no state: no JointState came on joint_states')
        state = np.array([_position(joints, name) if name else 0.0
                          for name in config.state_joints])
    else:
        if pose is None:
            raise StateError('there is no state: no PoseStamped came on state')
        p = pose.pose.position
        grip = _closedness(config, joints) if config.gripper_joint else 0.0
        state = np.array([p.x, p.y, p.z, *_angles(pose.pose.orientation), grip])
    if not np.isfinite(state).all():
        raise StateError(f'the state is {state.tolist()}: all its numbers must be finite')
    return state


def _position(joints: JointState, name: str) -> float:
    if name not in joints.name:
        there = ', '.join(joints.name) or 'none'
        raise StateError(f"joint_states has no joint '{name}', but {there:.399}; set the names in "
                         'the parameters')
    index = list(joints.name).index(name)
    if index >= len(joints.position):
        raise StateError(f"joint_states has no position for the joint '{name}'")
    return float(joints.position[index])


def _closedness(config: PlannerConfig, joints: JointState | None) -> float:
    if joints is None:
        raise StateError('there is no state of the gripper: no JointState came on joint_states; '
                         "set 'gripper_joint' to '' without a gripper")
    opened, closed = config.gripper_range
    share = (_position(joints, config.gripper_joint) - opened) / (closed - opened)
    return min(1.0, max(0.0, share)) if math.isfinite(share) else share


def _angles(q: Quaternion) -> list[float]:
    size = math.sqrt(q.x ** 2 + q.y ** 2 + q.z ** 2 + q.w ** 2)
    if not (size > 1e-3 and math.isfinite(size)):
        raise StateError(f'the orientation of state is ({q.x}, {q.y}, {q.z}, {q.w}), which is no '
                         'rotation')
    x, y, z, w = q.x / size, q.y / size, q.z / size, q.w / size
    matrix = [[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
              [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
              [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]]
    return to_euler(torch.tensor(matrix, dtype=torch.float64)).tolist()


def pose_of(state: np.ndarray) -> Pose:
    """Return position and orientation of a state (7,)."""
    pose = Pose()
    pose.position.x, pose.position.y, pose.position.z = (float(v) for v in state[:3])
    m = to_matrix(torch.as_tensor(state[3:6], dtype=torch.float64)).numpy()
    # By the largest component, which is safe to divide by.
    squares = np.array([1 + m[0, 0] - m[1, 1] - m[2, 2], 1 - m[0, 0] + m[1, 1] - m[2, 2],
                        1 - m[0, 0] - m[1, 1] + m[2, 2], 1 + m[0, 0] + m[1, 1] + m[2, 2]])
    rows = np.array([
        [squares[0], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0], m[2, 1] - m[1, 2]],
        [m[0, 1] + m[1, 0], squares[1], m[1, 2] + m[2, 1], m[0, 2] - m[2, 0]],
        [m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], squares[2], m[1, 0] - m[0, 1]],
        [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], squares[3]]])
    q = rows[squares.argmax()]
    q = q / np.linalg.norm(q)
    o = pose.orientation
    o.x, o.y, o.z, o.w = (float(v) for v in (q if q[3] >= 0 else -q))
    return pose

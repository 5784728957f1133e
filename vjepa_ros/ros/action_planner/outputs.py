# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish plans: candidates and best action as clouds, and the first action as a command."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from geometry_msgs.msg import PoseStamped, TwistStamped
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from vjepa_ros.planning.action_space import next_pose
from vjepa_ros.planning.goal_planner import Plan
from vjepa_ros.ros.action_planner.parameters import ARM
from vjepa_ros.ros.action_planner.robot_state import pose_of
from vjepa_ros.ros.common.endpoints import advertise, deliver_last_zero
from vjepa_ros.ros.common.message_conversion import cloud


class PlannerOutputs:
    """The publishers of a planner node.

    - ``~/candidates``: the plans of the last iteration, even of a refused plan.
    - ``~/best_action``: the best plan, one point for each step, unless it is refused.
    - ``~/target_pose`` (arm): the pose after the first action, ``~/twist`` (twist): the first
      action; unless it is refused or the weights are untrained, which these messages cannot
      express. A zero follows the last twist when a plan is refused, or the node stops.

    Parameters
    ----------
    node
        Lifecycle node that owns the publishers.
    action_space
        'arm' or 'twist'.
    """

    def __init__(self, node: LifecycleNode, action_space: str) -> None:
        self._node = node
        self._moves = False           # whether the last twist asked for motion
        self._arm = action_space == ARM
        self._pubs: dict[str, Any] = {}
        first = ('target_pose', PoseStamped) if self._arm else ('twist', TwistStamped)
        try:
            for name, kind in (('candidates', PointCloud2), ('best_action', PointCloud2), first):
                self._pubs[name] = advertise(node, kind, f'~/{name}')
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Destroy the publishers (also from the node's list of managed entities)."""
        for pub in self._pubs.values():
            self._node.destroy_lifecycle_publisher(pub)
        self._pubs.clear()

    def stop(self) -> bool:
        """Publish a zero after a twist that moves; return whether there was one."""
        if moves := self._moves:
            self._moves = False
            self._pubs['twist'].publish(TwistStamped(
                header=Header(stamp=self._node.get_clock().now().to_msg())))
        return moves

    def end_motion(self) -> None:
        """Publish a zero after the last twist, and wait until its subscribers have it."""
        if self.stop():
            deliver_last_zero(self._node, self._pubs['twist'])

    def publish(self, plan: Plan, header: Header, state: np.ndarray) -> None:
        """Publish a plan that starts at `state` (7,)."""
        if len(plan.samples):
            self._pubs['candidates'].publish(cloud(header, pack_candidates(plan)))
        if plan.refusal or plan.actions is None or plan.pose_changes is None:
            self.stop()
            return
        self._pubs['best_action'].publish(cloud(header, pack_best(plan)))
        if not plan.trained:
            return
        if self._arm:
            after = next_pose(*map(torch.from_numpy, (state, plan.pose_changes[0]))).numpy()
            self._pubs['target_pose'].publish(PoseStamped(header=header, pose=pose_of(after)))
        else:
            # Ahead and left of the base, whose frame is not that of the state.
            msg = TwistStamped(header=Header(stamp=header.stamp))
            vx, vy, omega = (float(v) for v in plan.actions[0])
            msg.twist.linear.x, msg.twist.linear.y, msg.twist.angular.z = vx, vy, omega
            self._pubs['twist'].publish(msg)
            self._moves = any((vx, vy, omega))


def pack_candidates(plan: Plan) -> np.ndarray:
    """Return a record for each sample: NAME_STEP..., energy, rank (0 best), trained, accepted."""
    steps, numbers = plan.samples.shape[1:]
    names = [f'{name}_{step}' for step in range(steps) for name in plan.names]
    out = np.zeros(len(plan.samples), np.dtype([
        *((name, '<f4') for name in names), ('energy', '<f4'), ('rank', '<u2'),
        ('trained', 'u1'), ('accepted', 'u1')]))
    for name, column in zip(names, plan.samples.reshape(-1, steps * numbers).T, strict=True):
        out[name] = column
    out['energy'], out['rank'] = plan.energies, plan.ranks
    out['trained'], out['accepted'] = plan.trained, not plan.refusal
    return out


def pack_best(plan: Plan) -> np.ndarray:
    """Return a record for each step: NAME..., and energies and gap of the whole plan.

    Raises
    ------
    ValueError
        For a plan without actions.
    """
    gap, actions = plan.gap, plan.actions
    if actions is None:
        raise ValueError(f'the plan has no actions: {plan.refusal}')
    out = np.zeros(len(actions), np.dtype([
        *((name, '<f4') for name in plan.names), ('energy', '<f4'),
        ('energy_now', '<f4'), ('gap', '<f4'), ('gap_sigma', '<f4'),
        ('step', '<u2'), ('trained', 'u1'), ('reserved', 'u1')]))
    for name, column in zip(plan.names, actions.T, strict=True):
        out[name] = column
    found = plan.energies.min() if len(plan.energies) else plan.energy_now    # it has arrived
    out['energy'] = found if gap is None else gap.energy
    out['energy_now'] = plan.energy_now
    out['gap'], out['gap_sigma'] = (np.nan, np.nan) if gap is None else (gap.mean, gap.sigma)
    out['step'], out['trained'] = np.arange(len(out)), plan.trained
    return out

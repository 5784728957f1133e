# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Action spaces of the planner, and their conversion to the terms of the world model.

The published world model (V-JEPA 2-AC, arXiv 2506.09985) has states and actions of seven numbers:
position x, y, z [m] in a fixed frame; rotation as Euler angles [rad] about the fixed axes x, y, z
in this order, R = Rz Ry Rx; closedness of the gripper, 0 (open) to 1. An action is the change of a
state: of the position, of the rotation, R' = dR R, and of the gripper.

A space converts its own numbers to these. B plans, T steps, S samples, A numbers of an action.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from vjepa_ros.model.ac_predictor import ACTION_DIM

GRIPPER_LIMIT = 0.75     # largest sampled change of the gripper, as published
GRIPPER_LEAST = 0.25     # smallest change of the gripper, as published
GIMBAL_LOCK = 1e-7       # cosine of the second angle below which the others are ambiguous


class ActionSpace(Protocol):
    """What `vjepa_ros.planning.search` requires of a space of actions."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the A numbers of an action."""
        ...

    @property
    def numbers(self) -> int:
        """Numbers of a state, 7 of a pose with a gripper."""
        ...

    @property
    def spread(self) -> Tensor:
        """Return the standard deviation of the first samples (A,) float32."""
        ...

    def clip(self, samples: Tensor) -> Tensor:
        """Return samples (..., A) within the limits."""
        ...

    def finish(self, mean: Tensor) -> Tensor:
        """Return the action (..., A) to take for the mean (..., A) of a search."""
        ...

    def to_model(self, actions: Tensor, states: Tensor) -> Tensor:
        """Return changes of the pose (B, 7) for actions (B, A) in states (B, 7) float64."""
        ...

    def advance(self, states: Tensor, changes: Tensor) -> Tensor:
        """Return the states (B, 7) float64 after changes of the pose (B, 7)."""
        ...


class Poses:
    """Base of the spaces here: states are poses with a gripper, actions their changes."""

    numbers = 7

    def advance(self, states: Tensor, changes: Tensor) -> Tensor:
        """See `ActionSpace.advance`."""
        return next_pose(states, changes)


class ArmSpace(Poses):
    """Steps of an arm: change of position [m], and of the gripper.

    The defaults are the published search: steps of at most 5 cm on each axis, no rotation.

    Parameters
    ----------
    max_step : float
        Largest change of each coordinate in a step [m].
    max_turn : float
        Largest change of each angle in a step [rad]; 0 leaves out rotation.
    gripper : bool
        Whether the gripper is searched.

    Raises
    ------
    ValueError
        With name and value of a limit that is out of range.
    """

    def __init__(self, max_step: float = 0.05, max_turn: float = 0.0,
                 gripper: bool = True) -> None:
        if not (max_step > 0 and math.isfinite(max_step)):
            raise ValueError(f'max_step is {max_step}, but must be more than 0 m')
        if not (0 <= max_turn <= math.pi):
            raise ValueError(f'max_turn is {max_turn}, but must be from 0 to pi rad')
        turns = ('droll', 'dpitch', 'dyaw') if max_turn else ()
        self.names = ('dx', 'dy', 'dz', *turns, *(('dgripper',) if gripper else ()))
        limits = [max_step] * 3 + [max_turn] * len(turns)
        self._turns, self._gripper = len(turns), gripper
        self._limits = torch.tensor(limits + [GRIPPER_LIMIT] * gripper)
        self.spread = torch.tensor(limits + [1.0] * gripper)

    def clip(self, samples: Tensor) -> Tensor:
        """See `ActionSpace.clip`."""
        return samples.clamp(-self._limits, self._limits)

    def finish(self, mean: Tensor) -> Tensor:
        """Return the mean, with small changes of the gripper set to zero."""
        if not self._gripper:
            return mean
        grip = mean[..., -1:]
        return torch.cat((mean[..., :-1],
                          torch.where(grip.abs() < GRIPPER_LEAST, torch.zeros(()), grip)), -1)

    def to_model(self, actions: Tensor, states: Tensor) -> Tensor:
        """See `ActionSpace.to_model`."""
        changes = actions.new_zeros(*actions.shape[:-1], ACTION_DIM)
        changes[..., :3 + self._turns] = actions[..., :3 + self._turns]
        if self._gripper:
            changes[..., -1] = actions[..., -1]
        return changes


class TwistSpace(Poses):
    """Velocities of a ground robot: vx ahead, vy left [m/s] and omega [rad/s].

    Each is held for a step, so the robot moves along an arc; the model gets the change of pose.

    Parameters
    ----------
    max_vx, max_vy : float
        Largest speed ahead and sideways [m/s].
    max_omega : float
        Largest turn rate [rad/s].
    step_s : float
        Duration of each action [s]. The published model was trained at 4 Hz.
    reverse : float
        Largest speed backward [m/s].

    Raises
    ------
    ValueError
        With name and value of a limit that is out of range.
    """

    names = ('vx', 'vy', 'omega')

    def __init__(self, max_vx: float = 0.5, max_vy: float = 0.0, max_omega: float = 1.0,
                 step_s: float = 0.25, reverse: float = 0.0) -> None:
        for name, value in (('max_vx', max_vx), ('max_vy', max_vy), ('max_omega', max_omega),
                            ('reverse', reverse)):
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f'{name} is {value}, but must be at least 0')
        if max(max_vx, max_vy, max_omega, reverse) <= 0:
            raise ValueError('max_vx, max_vy, max_omega and reverse are all 0: there is nothing '
                             'to choose from')
        if not (step_s > 0 and math.isfinite(step_s)):
            raise ValueError(f'step_s is {step_s}, but must be more than 0 s')
        self._low = torch.tensor([-reverse, -max_vy, -max_omega])
        self._high = torch.tensor([max_vx, max_vy, max_omega])
        self.spread = torch.maximum(self._high, -self._low)
        self.step_s = step_s

    def clip(self, samples: Tensor) -> Tensor:
        """See `ActionSpace.clip`."""
        return samples.clamp(self._low, self._high)

    def finish(self, mean: Tensor) -> Tensor:
        """Return the mean unchanged."""
        return mean

    def to_model(self, actions: Tensor, states: Tensor) -> Tensor:
        """See `ActionSpace.to_model`."""
        vx, vy, omega = actions.double().unbind(-1)
        turn, yaw = omega * self.step_s, states[..., 5].double()
        # Along and across an arc: sin(a)/a and (1 - cos(a))/a, also where a is 0.
        along = torch.sinc(turn / math.pi) * self.step_s
        across = torch.sinc(turn / (2 * math.pi)) * torch.sin(turn / 2) * self.step_s
        ahead, left = vx * along - vy * across, vx * across + vy * along
        changes = torch.zeros(*actions.shape[:-1], ACTION_DIM, dtype=torch.float64)
        changes[..., 0] = ahead * yaw.cos() - left * yaw.sin()
        changes[..., 1] = ahead * yaw.sin() + left * yaw.cos()
        changes[..., 5] = turn
        return changes.to(actions.dtype)


def next_pose(states: Tensor, changes: Tensor) -> Tensor:
    """Return the state after an action of the published world model, computed in float64.

    Parameters
    ----------
    states, changes : Tensor
        (..., 7), see the description of this module.

    Returns
    -------
    Tensor
        (..., 7) float64; the gripper within 0 to 1, the second angle within ±pi/2, the others
        within ±pi.
    """
    states, changes = states.double(), changes.double()
    rotation = to_matrix(changes[..., 3:6]) @ to_matrix(states[..., 3:6])
    grip = (states[..., 6:] + changes[..., 6:]).clamp(0.0, 1.0)
    return torch.cat((states[..., :3] + changes[..., :3], to_euler(rotation), grip), dim=-1)


def to_matrix(angles: Tensor) -> Tensor:
    """Return rotation matrices (..., 3, 3) of Euler angles (..., 3) [rad] about fixed x, y, z."""
    (sa, sb, sc), (ca, cb, cc) = angles.sin().unbind(-1), angles.cos().unbind(-1)
    rows = (cb * cc, sa * sb * cc - ca * sc, ca * sb * cc + sa * sc,
            cb * sc, sa * sb * sc + ca * cc, ca * sb * sc - sa * cc,
            -sb, sa * cb, ca * cb)
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def to_euler(matrix: Tensor) -> Tensor:
    """Return Euler angles (..., 3) [rad] about fixed x, y, z of rotation matrices (..., 3, 3).

    At a second angle of ±pi/2 only the sum or difference of the others is defined; the third is 0
    there, as in SciPy.
    """
    across = torch.hypot(matrix[..., 0, 0], matrix[..., 1, 0])
    locked = across < GIMBAL_LOCK
    first = torch.where(locked, torch.atan2(-matrix[..., 1, 2], matrix[..., 1, 1]),
                        torch.atan2(matrix[..., 2, 1], matrix[..., 2, 2]))
    third = torch.where(locked, torch.zeros_like(across),
                        torch.atan2(matrix[..., 1, 0], matrix[..., 0, 0]))
    return torch.stack((first, torch.atan2(-matrix[..., 2, 0], across), third), dim=-1)

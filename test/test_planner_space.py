# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the planner searches, and what the world model is told of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vjepa_ros.planning.action_space import ArmSpace, TwistSpace, next_pose, to_euler, to_matrix
from vjepa_ros.planning.search import unroll


def states(yaw=0.0, count=1):
    out = torch.zeros(count, 7, dtype=torch.float64)
    out[:, 5] = yaw
    return out


# -- arm ------------------------------------------------------------------------------------------

def test_the_published_space_has_position_and_gripper():
    space = ArmSpace()
    assert space.names == ('dx', 'dy', 'dz', 'dgripper')
    assert space.spread.tolist() == pytest.approx([0.05, 0.05, 0.05, 1.0])
    clipped = space.clip(torch.tensor([1.0, -1.0, 0.01, 2.0]))
    assert clipped.tolist() == pytest.approx([0.05, -0.05, 0.01, 0.75])
    told = space.to_model(clipped[None], states())
    assert told[0].tolist() == pytest.approx([0.05, -0.05, 0.01, 0, 0, 0, 0.75])


@pytest.mark.parametrize(('grip', 'taken'), [(0.24, 0.0), (-0.24, 0.0), (0.26, 0.26),
                                             (-0.7, -0.7)])
def test_the_gripper_moves_clearly_or_not_at_all(grip, taken):
    assert ArmSpace().finish(torch.tensor([0.01, 0.0, 0.0, grip]))[3].item() == pytest.approx(
        taken)


def test_turns_and_gripper_can_be_chosen():
    space = ArmSpace(max_turn=0.2, gripper=False)
    assert space.names == ('dx', 'dy', 'dz', 'droll', 'dpitch', 'dyaw')
    told = space.to_model(torch.arange(6.0)[None], states())
    assert told[0].tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert torch.equal(space.finish(torch.full((6,), 0.1)), torch.full((6,), 0.1))


@pytest.mark.parametrize(('make', 'named'), [
    (lambda: ArmSpace(max_step=0.0), 'max_step'), (lambda: ArmSpace(max_turn=-0.1), 'max_turn'),
    (lambda: TwistSpace(max_vx=-1.0), 'max_vx'), (lambda: TwistSpace(step_s=0.0), 'step_s'),
    (lambda: TwistSpace(max_vx=0.0, max_omega=0.0), 'nothing to choose')])
def test_illegal_limits_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


# -- twist ----------------------------------------------------------------------------------------

def driven(vx, vy, omega, yaw, seconds, pieces=20000):
    """Where a base comes that drives for a while, in many small pieces."""
    x = y = 0.0
    step = seconds / pieces
    for piece in range(pieces):
        angle = yaw + omega * step * (piece + 0.5)
        x += (vx * math.cos(angle) - vy * math.sin(angle)) * step
        y += (vx * math.sin(angle) + vy * math.cos(angle)) * step
    return x, y, yaw + omega * seconds


@pytest.mark.parametrize('twist', [(0.5, 0.0, 0.0), (0.5, 0.0, 1.2), (0.3, -0.2, -2.0),
                                   (0.0, 0.0, 1.0), (0.4, 0.1, 1e-9)])
@pytest.mark.parametrize('yaw', [0.0, 2.5])
def test_a_twist_becomes_the_pose_at_the_end_of_its_arc(twist, yaw):
    space = TwistSpace(max_vx=1.0, max_vy=1.0, max_omega=3.0, step_s=0.5)
    told = space.to_model(torch.tensor([twist]), states(yaw))
    after = space.advance(states(yaw), told)[0]
    x, y, end = driven(*twist, yaw, 0.5)
    assert after[:2].tolist() == pytest.approx([x, y], abs=1e-5)
    assert math.remainder(after[5].item() - end, 2 * math.pi) == pytest.approx(0.0, abs=1e-5)
    assert after[[2, 3, 4, 6]].abs().max() < 1e-6


def test_limits_of_a_base_hold_on_each_side():
    space = TwistSpace(max_vx=0.5, max_vy=0.0, max_omega=1.0, reverse=0.1)
    wild = torch.tensor([[9.0, 9.0, 9.0], [-9.0, -9.0, -9.0]])
    assert torch.allclose(space.clip(wild), torch.tensor([[0.5, 0.0, 1.0], [-0.1, 0.0, -1.0]]))
    assert space.spread.tolist() == pytest.approx([0.5, 0.0, 1.0])


def test_each_step_begins_where_the_last_one_ended():
    space = TwistSpace(max_omega=4.0, step_s=0.5)
    plans = torch.tensor([[[0.4, 0.0, math.pi], [0.4, 0.0, 0.0]]])
    told, before = unroll(space, plans, torch.zeros(7))
    assert before[0, 1, 5].item() == pytest.approx(math.pi / 2, abs=1e-5)
    assert told[0, 1, :2].tolist() == pytest.approx([0.0, 0.2], abs=1e-6)
    assert before[0, 1, :2].tolist() == pytest.approx(told[0, 0, :2].tolist(), abs=1e-6)


# -- rotations ------------------------------------------------------------------------------------

def test_angles_and_matrices_belong_together():
    angles = 1.5 * torch.rand(50, 3, generator=torch.Generator().manual_seed(0),
                              dtype=torch.float64) - 0.7
    matrices = to_matrix(angles)
    eye = torch.eye(3, dtype=torch.float64).expand(50, 3, 3)
    torch.testing.assert_close(matrices @ matrices.mT, eye)
    torch.testing.assert_close(to_euler(matrices), angles)


def test_a_quarter_turn_about_the_second_axis_still_has_angles():
    locked = torch.tensor([[0.3, math.pi / 2, 0.8], [0.3, -math.pi / 2, 0.8]],
                          dtype=torch.float64)
    angles = to_euler(to_matrix(locked))
    assert (angles[:, 2] == 0).all()
    torch.testing.assert_close(to_matrix(angles), to_matrix(locked), atol=1e-7, rtol=0)


def test_rotations_are_about_the_fixed_axes_in_their_order():
    quarter = math.pi / 2
    turned = to_matrix(torch.tensor([quarter, 0.0, quarter], dtype=torch.float64))
    # About x first: y goes to z; then about z, which leaves it there.
    np.testing.assert_allclose(turned @ torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64),
                               [0.0, 0.0, 1.0], atol=1e-12)


def test_the_gripper_stays_within_its_range():
    after = next_pose(torch.tensor([0.0] * 6 + [0.8]), torch.tensor([0.0] * 6 + [0.5]))
    assert after[6] == 1.0

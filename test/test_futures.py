# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the futures of one past: poses, contacts and pictures under other motions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from render_scenes import BOX, Camera, SIZE, Thing, look, plain_bank, scene

from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.episodes.contact import band_of, touching
from vjepa_ros.lab.world.episodes.robot import Drive, Unicycles, footprint
from vjepa_ros.lab.world.futures import (
    LOOK_S,
    Plans,
    contact_time,
    draw_plans,
    filmed,
    folded,
    ways,
)
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.textures.bank import TextureBank

ROBOT = Robot()


def plan(*twists: tuple[float, float, float], seconds: float = 0.5, offset: float = 0.3) -> Plans:
    """One plan of one robot."""
    return Plans(torch.tensor(twists)[None, None], torch.full((len(twists),), seconds),
                 torch.tensor([offset]))


def test_poses_are_those_of_a_unicycle_and_of_a_base_that_goes_sideways():
    offset = ROBOT.length / 2
    robot = Unicycles(1, Drive(speed=9, turn=9, acceleration=1e6, braking=1e6,
                               turn_acceleration=1e6))
    steps = ((1.0, 0.0, 0.8), (0.4, 0.0, -1.2), (-0.5, 0.0, 0.5))
    start, ends = robot.front(ROBOT)[0], []
    for speed, _, turn in steps:
        robot.speed, robot.turn = np.array([speed]), np.array([turn])
        robot.step(np.array([speed]), np.array([turn]), 0.5)
        ends.append((*(robot.front(ROBOT)[0] - start), robot.yaw[0]))
    found = plan(*steps, offset=offset).poses(torch.tensor([0.5, 1.0, 1.5]))[0, 0]
    np.testing.assert_allclose(found.numpy(), np.array(ends), atol=1e-5)
    aside = plan((0.0, 0.5, 0.0)).poses(torch.tensor([0.0, 0.4]))[0, 0]
    np.testing.assert_allclose(aside.numpy(), [[0, 0, 0], [-0.2, 0, 0]], atol=1e-6)


@pytest.fixture(scope='module')
def pasts():
    bank = TextureBank.procedural(0, count=30, size=32)
    return ClipWorld(32, 2, bank=bank, samples=1).sample(11, 24).scenes


def test_contacts_are_those_of_an_exact_search(pasts):
    plans = draw_plans(SceneRng(3, len(pasts)), pasts.camera_velocity.norm(dim=-1), 6, 6)
    found, moved_s = contact_time(pasts, plans, ROBOT).numpy(), ways(pasts, plans, ROBOT).moved_s
    times = np.arange(0, float(plans.duration_s.sum()) + LOOK_S / 2, LOOK_S)
    poses = plans.poses(torch.tensor(times, dtype=torch.float32)).double().numpy()
    rotation = pasts.camera_rotation[:, -1].double().numpy()
    expected = np.full(found.shape, np.inf)
    for b in range(len(pasts)):
        heading = math.atan2(rotation[b, 2, 0], rotation[b, 2, 2])
        at, height = pasts.camera_position[b, -1].numpy(), -float(pasts.camera_position[b, -1, 1])
        for f in range(found.shape[1]):
            x, z, yaw = poses[b, f].T
            yaw = yaw + heading
            c, s = math.cos(heading), math.sin(heading)
            front = np.stack((x * c + z * s + at[0], z * c - x * s + at[2]), -1)
            middle = front - ROBOT.length / 2 * np.stack((np.sin(yaw), np.cos(yaw)), -1)
            went = moved_s[b, f].numpy()
            moved = pasts.position[b, -1].numpy() + went[..., None] \
                * pasts.velocity[b].numpy() * np.array([1, 0, 1])
            hit = touching(
                footprint(middle, yaw, ROBOT),
                np.tile(band_of(ROBOT, np.array([height])), (len(times), 1)),
                pasts.kinds, np.tile(pasts.alive[b].numpy(), (len(times), 1)), moved,
                pasts.yaw[b, -1].numpy() + went * pasts.yaw_rate[b].numpy(),
                np.tile(pasts.half[b].numpy(), (len(times), 1, 1))).any(-1)
            if hit.any():
                expected[b, f] = times[hit.argmax()]
    assert 0.2 < np.isfinite(expected).mean() < 0.8
    early = np.isfinite(found) & ~np.isfinite(expected)      # round a section too widely
    assert early.mean() < 0.05
    both = np.isfinite(expected)
    assert np.abs(found[both] - expected[both]).max() <= 3 * LOOK_S
    assert (np.abs(found[both] - expected[both]) < 1e-3).mean() > 0.9


def test_bodies_wait_before_a_robot_that_stands_and_passers_by_also_before_one_that_drives():
    comes = Thing(BOX, (0.0, -0.5, 3.0), (0.3, 0.5, 0.3), velocity=(0.0, 0.0, -1.0))
    # Its arm, 0.2 m before its middle: both stop together.
    arm = Thing(BOX, (0.0, -0.8, 2.8), (0.1, 0.1, 0.1), velocity=(0.0, 0.0, -1.0))
    far = Thing(BOX, (0.0, -0.5, 90.0), (0.1, 0.5, 0.1))
    stop, drive = plan(*[(0.0, 0.0, 0.5)] * 6), plan(*[(0.3, 0.0, 0.0)] * 6)
    first = scene((comes, arm, *[far] * 13))
    # It stops 0.6 m and what it walks in 0.4 s before the outline of a robot, whose middle is
    # 0.3 m behind the camera, and which reaches 0.42 m.
    assert ways(first, stop, ROBOT).moved_s[0, 0, -1, :2].tolist() == pytest.approx([1.6, 1.6])
    assert contact_time(first, stop, ROBOT).isinf().all()
    assert ways(first, drive, ROBOT).moved_s[0, 0, -1, :2].tolist() == pytest.approx([3.0, 3.0])
    assert contact_time(first, drive, ROBOT).isfinite().all()
    by = scene((*[far] * 15, comes))
    waits = ways(by, drive, ROBOT).moved_s[0, 0, -1]
    assert waits[-1] == pytest.approx(1.3, abs=0.11) and waits[0] == pytest.approx(3.0)
    beside = replace(comes, at=(0.9, -0.5, 3.0))
    assert ways(scene((beside,)), stop, ROBOT).moved_s[0, 0, -1] == pytest.approx(3.0)
    leaves = replace(comes, velocity=(0.0, 0.0, 1.0))
    assert ways(scene((leaves,)), stop, ROBOT).moved_s[0, 0, -1] == pytest.approx(3.0)
    times = torch.tensor([[0.55, 2.9]])
    taken = filmed(first, stop, torch.tensor([0]), times, ROBOT)
    np.testing.assert_allclose(taken.position[0, :, 0, 2], [2.45, 1.4], atol=1e-5)


def test_parts_of_a_body_that_turns_wait_together():
    turning = Thing(BOX, (3.0, -0.5, 3.0), (0.3, 0.5, 0.3), (-1.0, 0.0, 0.0), yaw_rate=0.5)
    # 1.2 m to its side a part that is carried along; alone it would pass the robot.
    carried = Thing(BOX, (3.0, -0.8, 4.2), (0.1, 0.1, 0.1), (-0.4, 0.0, 0.0), yaw_rate=0.5)
    other = replace(carried, velocity=(-0.5, 0.0, 0.0))
    ahead = Camera(at=(0.0, -0.6, 3.0))
    stop = plan(*[(0.0, 0.0, 0.0)] * 6)
    moved = ways(scene((turning, carried, other), ahead), stop, ROBOT).moved_s[0, 0, -1]
    assert moved[0] == moved[1] < 2.0 < moved[2]


def test_pictures_of_a_plan_are_those_of_a_camera_that_goes_there():
    box = Thing(BOX, (0.2, -0.5, 3.0), (0.3, 0.5, 0.3), velocity=(0.2, 0.0, 0.0))
    past = scene((box,), Camera(yaw=0.3, pitch=-0.1))
    plans, times = plan((0.6, 0.1, 0.4), (0.6, 0.1, 0.4)), torch.tensor([0.3, 0.8])
    taken = filmed(past, plans, torch.tensor([0]), times[None], ROBOT)
    seen = render(taken, plain_bank(), SIZE)[0].int()
    assert all(v.is_contiguous() for v in vars(folded(taken, 1)).values()
               if isinstance(v, torch.Tensor))
    one_by_one = render(folded(taken, 1), plain_bank(), SIZE)[:, 0].int()
    assert (one_by_one - seen).abs().float().mean() < 0.5       # but for noise
    x, z, yaw = plans.poses(times)[0, 0].unbind(-1)
    for n, t in enumerate(times.tolist()):
        c, s = math.cos(0.3), math.sin(0.3)
        there = Camera(at=(float(x[n] * c + z[n] * s), -0.6, float(z[n] * c - x[n] * s)),
                       yaw=0.3 + float(yaw[n]), pitch=-0.1)
        moved = Thing(BOX, (0.2 + 0.2 * t, -0.5, 3.0), (0.3, 0.5, 0.3))
        wanted = render(scene((moved,), there), plain_bank(), SIZE)[0, -1].int()
        assert (seen[n] - wanted).abs().float().mean() < 0.5
    assert torch.allclose(look(Camera(yaw=0.3, pitch=-0.1)), past.camera_rotation[0, -1])


def test_plans_share_a_past_and_differ():
    with pytest.raises(ValueError, match='count is 1'):
        draw_plans(SceneRng(0, 2), torch.ones(2), 1, 6)
    speed = torch.tensor([0.0, 0.8, 2.0] * 20)
    plans = draw_plans(SceneRng(0, 60), speed, 8, 6)
    assert torch.equal(plans.twists[:, 0, :, 0], speed[:, None].expand(-1, 6))
    assert not plans.twists[:, 1].any()
    ends = plans.poses(plans.ends_s[-1:])[:, :, 0]
    assert (ends.std(1) > 1e-3).all()

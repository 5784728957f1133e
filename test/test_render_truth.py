# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Truth per pixel: equal to what projecting and moving the points gives."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest
import torch
from render_scenes import (
    BOX,
    CARD,
    CYLINDER,
    HOLED,
    SAMPLE,
    SIZE,
    Camera,
    Thing,
    joined,
    look,
    plain_bank,
    scene,
    spun,
)

from vjepa_ros.lab.world.rendering.lens import image_rays, pixel_rays, project
from vjepa_ros.lab.world.rendering.truth import Robot, Truth, contact, in_robot_axes, truth
from vjepa_ros.lab.world.scenes.scene import GROUND, SKY, Scenes

CAMERAS = {
    'turns_about_all_axes': Camera(velocity=(0.3, -0.1, 0.9), spin=(0.2, -0.5, 0.4), yaw=0.2,
                                   pitch=-0.1, roll=0.15),
    'wide_lens': Camera(velocity=(0.3, 0.1, 0.9), spin=(0.1, 0.4, -0.3), field=100.0,
                        distortion=(-0.08, 0.01)),
    'pincushion': Camera(velocity=(-0.2, 0.0, 0.5), spin=(0.0, -0.3, 0.1),
                         distortion=(0.1, 0.05)),
}


def of(scenes: Scenes, robot: Robot | None = None) -> Truth:
    return truth(scenes, plain_bank(), SIZE, robot)


def points(scenes: Scenes, found: Truth) -> torch.Tensor:
    """World points of all pixels (H, W, 3), float64; the sky at 1e6 m."""
    rays = image_rays(scenes.intrinsics, scenes.distortion, SIZE)
    ray = torch.stack((rays.x[0, 0], rays.y[0, 0], torch.ones(SIZE[::-1])), -1).double()
    depth = found.depth[0].double().clamp(max=1e6)
    rotation = scenes.camera_rotation[0, -1].double()
    return depth[..., None] * ray @ rotation + scenes.camera_position[0, -1].double()


def moved(world: torch.Tensor, shape: torch.Tensor, seconds: float) -> torch.Tensor:
    """Where points on the surfaces of `SAMPLE` are after some time."""
    out = world.clone()
    for number, thing in enumerate(SAMPLE):
        c, s = (f(thing.yaw_rate * seconds) for f in (math.cos, math.sin))
        turn = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]], dtype=torch.float64)
        at = torch.tensor(thing.at, dtype=torch.float64)
        gone = seconds * torch.tensor(thing.velocity, dtype=torch.float64)
        out[shape == number] = (world[shape == number] - at) @ turn.T + at + gone
    return out


def seen(world: torch.Tensor, camera: Camera, seconds: float) -> torch.Tensor:
    """World points in the camera's axes after some time."""
    at = torch.tensor(camera.at, dtype=torch.float64)
    gone = seconds * torch.tensor(camera.velocity, dtype=torch.float64)
    return (world - at - gone) @ spun(look(camera), camera.spin, seconds).double().T


@pytest.mark.parametrize('name', CAMERAS)
def test_flow_and_looming_are_the_changes_of_projection_and_depth(name):
    camera, step = CAMERAS[name], 1e-3
    scenes = scene(SAMPLE, camera)
    found = of(scenes)
    world, shape = points(scenes, found), found.shape[0]
    lens = scenes.intrinsics[0].double(), scenes.distortion[0].double()
    before, after = (project(seen(moved(world, shape, t), camera, t), *lens)
                     for t in (-step, step))
    numeric = (after - before) / (2 * step)
    # float32 turns over such a short time are good for some tenths of a pixel per second
    assert (numeric - found.flow[0]).abs().max() < 0.05 + 2e-3 * numeric.abs().max()
    assert found.flow[0].norm(dim=-1).median() > 3

    straight = replace(camera, spin=(0.0, 0.0, 0.0))      # looming is without the turn
    before, now, after = (seen(moved(world, shape, t), straight, t)[..., 2]
                          for t in (-0.1 * step, 0.0, 0.1 * step))
    numeric = (before - after) / (0.2 * step) / now
    assert (numeric - found.looming[0])[shape != SKY].abs().max() < 1e-3
    assert found.looming[0][shape == SKY].abs().max() == 0


@pytest.mark.parametrize(('thing', 'local'), [
    (SAMPLE[0], (0.13, -0.21, -0.3)),
    (SAMPLE[1], (0.3 * math.sin(2.9), 0.2, 0.3 * math.cos(2.9))),
    (SAMPLE[2], (0.09 / 1.118, -0.16 / 1.118, -0.2 / 1.118)),
    (SAMPLE[3], (0.9, 0.1, 0.0))], ids=['box', 'cylinder', 'ellipsoid', 'card'])
def test_a_point_of_a_shape_is_seen_where_it_projects(thing, local):
    """Shoot at the projection of a point on the surface: the depth is that of the point."""
    c, s = math.cos(thing.yaw), math.sin(thing.yaw)
    world = torch.tensor([c * local[0] + s * local[2], local[1], c * local[2] - s * local[0]])
    world = world + torch.tensor(thing.at)
    scenes = scene([thing], Camera(yaw=0.05, pitch=-0.05, distortion=(-0.05, 0.0)))
    inside = (world - scenes.camera_position[0, -1]) @ scenes.camera_rotation[0, -1].T
    pixel = project(inside, scenes.intrinsics[0], scenes.distortion[0])
    # Move the principal point so that the projection is the centre of a pixel.
    scenes.intrinsics[0, 2:] += pixel.round() - pixel
    column, row = (int(v) for v in pixel.round())
    found = of(scenes)
    assert found.shape[0, row, column] == 0
    assert found.depth[0, row, column] == pytest.approx(float(inside[2]), rel=1e-4)


def test_shapes_hide_one_another_and_holes_show_what_is_behind():
    front = Thing(CARD, (0.0, -0.6, 2.0), (0.8, 0.6, 0.001), texture=HOLED)
    back = Thing(BOX, (0.0, -0.6, 4.5), (3.0, 0.6, 0.5))
    found = of(scene([front, back]))
    assert found.shape[0, 60, 80] == 1                       # through the hole
    assert found.depth[0, 60, 80] == pytest.approx(4.0, rel=1e-5)
    half_hole = 0.4 * scene().intrinsics[0, 0] / 2.0
    assert found.shape[0, 60, 80 - round(float(half_hole)) - 4] == 0
    assert found.shape[0, 0, 80] == SKY
    assert found.shape[0, 119, 80] == GROUND


def test_only_what_moves_in_the_world_is_moving():
    things = (Thing(BOX, (-0.5, -0.3, 3.0), (0.3, 0.3, 0.3)),
              Thing(BOX, (0.5, -0.3, 3.0), (0.3, 0.3, 0.3), (0.0, 0.0, 0.8)),
              Thing(CYLINDER, (1.5, -0.3, 3.0), (0.3, 0.3, 0.3), yaw_rate=0.5))
    found = of(scene(things, Camera(velocity=(0.4, 0.0, 0.8), spin=(0.0, 0.5, 0.0))))
    shape, moving = found.shape[0], found.moving[0]
    assert not moving[(shape == 0) | (shape < 0)].any()
    assert moving[shape == 1].all() and (shape == 1).any()
    assert moving[shape == 2].all() and (shape == 2).any()


def test_entry_into_the_robots_volume_equals_a_simulation():
    generator = torch.Generator().manual_seed(3)
    count = 4000
    point = torch.rand(count, 3, generator=generator) * torch.tensor([3.0, 1.4, 5.0]) - (
        torch.tensor([1.5, 0.9, 1.0]))
    velocity = torch.randn(count, 3, generator=generator) * torch.tensor([0.5, 0.2, 1.0])
    velocity[::7] = 0
    velocity[::5, 0] = 0
    ahead = torch.nn.functional.normalize(torch.tensor([0.5, 0.2, 0.8]), dim=0)
    robot, height = Robot(half_width=0.25, height=0.5, length=0.7), torch.tensor(0.55)
    when, _ = contact(point, velocity, height, ahead.expand(count, 3), robot)

    step, last = 0.002, 6.0
    first = torch.full((count,), torch.inf)
    for t in torch.arange(0, last, step).flip(0):
        now = point + t * velocity
        x, z = in_robot_axes(now, ahead.expand(count, 3))
        up = height - now[:, 1]
        inside = (x.abs() <= 0.25) & (z <= 0) & (z >= -0.7) & (up >= 0.05) & (up <= 0.65)
        first[inside] = t
    both = torch.isfinite(first) & torch.isfinite(when)
    assert both.sum() > 100
    assert (first - when)[both].max() < 2 * step and (first - when)[both].min() > -1e-4
    # What the steps miss is in the volume only for an instant, or later.
    missed = torch.isfinite(when) & ~torch.isfinite(first) & (when < last - step)
    assert missed.sum() <= 0.01 * both.sum()
    assert not (torch.isfinite(first) & ~torch.isfinite(when)).any()


@pytest.mark.parametrize(('robot', 'touched'), [
    (None, set()), (Robot(half_width=1.0), {0, 1}), (Robot(height=1.3), {2})])
def test_ground_and_what_is_above_or_beside_the_robot_never_enter(robot, touched):
    gate = (Thing(BOX, (-1.2, -0.6, 4.0), (0.3, 0.6, 0.2)),
            Thing(BOX, (1.2, -0.6, 4.0), (0.3, 0.6, 0.2)),
            Thing(BOX, (0.0, -1.5, 4.0), (2.0, 0.3, 0.2)))
    # The camera shakes upwards: the robot does not leave the ground.
    found = of(scene(gate, Camera(velocity=(0.0, -0.4, 2.0))), robot)
    assert set(found.shape[found.enters].tolist()) == touched
    assert torch.isinf(found.clearance).all() == (not touched)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('g++') is None and shutil.which('clang++') is None,
                    reason='torch.compile needs a C++ compiler on the CPU')
def test_compiled_truth_is_the_same():
    scenes = joined(scene(SAMPLE, CAMERAS['turns_about_all_axes']),
                    scene(SAMPLE, CAMERAS['wide_lens']))
    plain, compiled = of(scenes), truth(scenes, plain_bank(), SIZE, compile=True)
    alike = plain.shape == compiled.shape        # rounding may tip the ray at an edge
    assert alike.float().mean() > 0.999 and plain.enters.any() and plain.moving.any()
    for name, values in vars(plain).items():
        other = getattr(compiled, name)
        assert other.dtype == values.dtype and other.shape == values.shape, name
        close = torch.isclose(values[alike].float(), other[alike].float(), 1e-3, 1e-3)
        assert close.float().mean() > 0.999, name


@pytest.mark.parametrize('distortion', [(0.0, 0.0), (-0.12, 0.02), (0.2, 0.1)])
def test_rays_and_projection_are_inverse(distortion):
    lens = torch.tensor([[90.0, 110.0, 80.0, 55.0]]), torch.tensor([distortion])
    columns, rows = torch.meshgrid(torch.arange(0.0, 161, 20), torch.arange(0.0, 121, 20),
                                   indexing='xy')
    rays = pixel_rays(*lens, columns, rows)
    ahead = torch.stack((rays.x[0, 0], rays.y[0, 0], torch.ones_like(columns)), -1)
    found = project(3.7 * ahead, lens[0][0], lens[1][0])
    assert (found - torch.stack((columns, rows), -1)).abs().max() < 2e-3

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Truth per pixel is what moving the points gives; pictures show what it says, and repeat."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from render_scenes import Camera, SAMPLE, SIZE, Thing, look, plain_bank, project, scene, spun

from vjepa_ros.lab.world.rendering import render as drawing
from vjepa_ros.lab.world.rendering.lens import all_rays
from vjepa_ros.lab.world.rendering.render import Truth, truth
from vjepa_ros.lab.world.scenes.scene import BOX, ELLIPSOID, Robot, SKY, Scenes
from vjepa_ros.lab.world.textures.bank import fetch

CROWD = (*SAMPLE, Thing(BOX, (1.2, -1.0, 7.0), (0.3, 1.0, 3.0), yaw=-0.2, tile_m=0.7),
         Thing(ELLIPSOID, (-1.6, -0.3, 2.2), (0.2, 0.3, 0.2)))


def one(value: float) -> torch.Tensor:
    return torch.full((1,), value)


def test_the_frame_before_warped_by_the_flow_is_the_newest_frame():
    camera = Camera(velocity=(0.2, 0.0, 0.5), spin=(0.3, -0.4, 0.5), distortion=(-0.08, 0.01),
                    field=90.0)
    scenes = scene(SAMPLE, camera, interval_s=0.05, sun=torch.zeros(1), ambient=torch.ones(1))
    old, new = drawing.render(scenes, plain_bank(), SIZE)[0].numpy().astype(np.float32)
    found = truth(scenes, plain_bank(), SIZE)
    flow = 0.05 * found.flow[0].numpy()
    columns, rows = np.meshgrid(np.arange(SIZE[0], dtype=np.float32),
                                np.arange(SIZE[1], dtype=np.float32))
    warped = cv2.remap(old, columns - flow[..., 0], rows - flow[..., 1], cv2.INTER_LINEAR,
                       borderMode=cv2.BORDER_CONSTANT, borderValue=(-1, -1, -1))
    shape = found.shape[0].numpy()
    edge = cv2.dilate((cv2.morphologyEx(shape, cv2.MORPH_GRADIENT, np.ones((3, 3))) != 0
                       ).astype(np.uint8), np.ones((9, 9))) > 0
    use = ~edge & (found.depth[0].numpy() < 8) & (warped[..., 0] >= 0)
    assert use.sum() > 3000
    error, change = (np.abs(a - new).mean(-1)[use] for a in (warped, old))
    assert np.median(error) < 0.25 * np.median(change)
    assert error.mean() < 0.4 * change.mean()


@pytest.mark.parametrize('camera', [
    Camera(at=(0.0, -0.9, 2.0), yaw=0.6, roll=0.3), Camera(field=100.0, distortion=(-0.08, 0.01))])
def test_drawing_shape_by_shape_in_windows_gives_what_trying_all_everywhere_gives(camera):
    scenes = scene(CROWD, camera, shutter=one(0.4), shadow=one(0.9), blur_px=one(0.6),
                   vignette=one(0.4), read_noise=one(3.0), shot_noise=one(2.0), gamma=one(0.45),
                   white_balance=torch.tensor([[1.1, 1.0, 0.8]]))
    fast, whole = (draw(scenes, plain_bank(), SIZE)
                   for draw in (drawing.render, drawing.render_together))
    gap = (fast.int() - whole.int()).abs().float()
    assert gap.mean() < 0.6           # bilinear weights of 5 bits, and rounding
    assert (gap.amax(-1) > 8).float().mean() < 2e-3
    assert whole.float().std() > 15


CAMERAS = {
    'turns_about_all_axes': Camera(velocity=(0.3, -0.1, 0.9), spin=(0.2, -0.5, 0.4), yaw=0.2,
                                   pitch=-0.1, roll=0.15),
    'pincushion': Camera(velocity=(-0.2, 0.0, 0.5), spin=(0.0, -0.3, 0.1),
                         distortion=(0.1, 0.05)),
}


def points(scenes: Scenes, found: Truth) -> torch.Tensor:
    """World points of all pixels (H, W, 3), float64; the sky at 1e6 m."""
    rays = all_rays(scenes, slice(None), SIZE)
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
    found = truth(scenes, plain_bank(), SIZE)
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
    when, _ = drawing.contact(point, velocity, height, ahead.expand(count, 3), robot)

    step, last = 0.002, 6.0
    first = torch.full((count,), torch.inf)
    for t in torch.arange(0, last, step).flip(0):
        now = point + t * velocity
        x, z = drawing.in_robot_axes(now, ahead.expand(count, 3))
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


def test_textures_are_bilinear_wrap_and_are_squared(bank):
    atlas, index = bank.atlas, torch.tensor(bank.groups['wall'][0])
    column, row = (int(v) + 1 for v in atlas.origin(index))
    texels = atlas.texels[row:row + 64, column:column + 64].contiguous()
    image = texels.numpy().view(np.uint8).reshape(64, 64, 4).astype(np.float32) / 255
    u, v = 6 * torch.rand(2, 40, 50, generator=torch.Generator().manual_seed(1)) - 3
    x, y = ((w - torch.floor(w)).numpy() * 64 + 1.5 for w in (u, v))
    expected = cv2.remap(np.pad(image, ((2, 2), (2, 2), (0, 0)), 'wrap'), x.astype(np.float32),
                         y.astype(np.float32), cv2.INTER_LINEAR) ** 2
    origin, level = [o.expand(u.shape) for o in atlas.origin(index)], torch.full_like(u, -1.0)
    for fast in (False, True):
        found = fetch(atlas, (origin[0], origin[1]), u, v, level, level, fast).numpy()
        assert np.abs(found - expected).max() < 0.03

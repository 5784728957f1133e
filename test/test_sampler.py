# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the random scenes: what occurs how often, and that motion and geometry are consistent."""

from __future__ import annotations

import math
from dataclasses import fields
from itertools import pairwise

import pytest
import torch

from vjepa_ros.lab.world.rendering.lens import undistort
from vjepa_ros.lab.world.scenes.motion import camera_path, frame_times, picture_of
from vjepa_ros.lab.world.scenes.sampler import Sample, SceneSampler
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.scenes.scene_spec import (
    CONTACT,
    OUTCOME,
    OUTCOMES,
    PLACE,
    PLACES,
    WorldConfig,
)
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials

SIZE, FRAMES, COUNT = 96, 8, 3000
NUMBERS = {name: (3 * i, 3 * i + 1, 3 * i + 2) for name, i in GROUPS.items()}
WALKS = tuple(tuple(range(200 + 8 * i, 208 + 8 * i)) for i in range(3))
MATERIALS = Materials(NUMBERS, WALKS)


def sampler(frames: int = FRAMES, size: int = SIZE, **config: object) -> SceneSampler:
    return SceneSampler(MATERIALS, size, frames, WorldConfig(**config))


@pytest.fixture(scope='module')
def many() -> Sample:
    return sampler().sample(7, COUNT)


def share(condition: torch.Tensor) -> float:
    return condition.float().mean().item()


def values(scenes: Scenes) -> dict[str, torch.Tensor]:
    return {f.name: getattr(scenes, f.name) for f in fields(Scenes) if f.name != 'kinds'}


def test_every_place_and_outcome_occurs(many):
    for number in range(len(PLACES)):
        assert share(many.place == number) > 0.04
    for number in range(len(OUTCOMES)):
        assert share(many.outcome == number) > 0.015
    # No walls are driven up to on motorways, and hands hold things on tables only.
    motorway = many.place == PLACE['motorway']
    assert not (motorway & (many.outcome == OUTCOME['drive_wall'])).any()
    assert (many.scenes.camera_velocity[many.place == PLACE['table']] == 0).all()


def test_about_two_in_five_clips_end_in_a_contact_soon(many):
    assert 0.36 < share(many.planned_s < 3) < 0.46
    soon = [share(many.planned_s < limit) for limit in (0.5, 1, 1.5, 2, 3)]
    steps = [b - a for a, b in pairwise(soon)]
    assert soon[0] > 0.03
    assert min(steps) > 0.04
    planned = many.planned_s.isfinite()
    contact = torch.tensor([name in CONTACT for name in OUTCOMES])[many.outcome]
    assert not (planned & ~contact).any()
    assert share(planned[contact]) > 0.95


def test_robots_rest_drive_and_reverse(many):
    speed = many.scenes.camera_velocity.norm(dim=-1)
    assert 0.25 < share(speed == 0) < 0.5
    resting = many.outcome == OUTCOME['rest']
    assert 0.08 < share(resting) < 0.2
    assert (speed[resting] == 0).all()
    assert (many.scenes.velocity[resting][many.scenes.alive[resting]].norm(dim=-1) < 35).all()
    ahead = many.scenes.camera_rotation[:, -1, 2]
    backwards = (ahead * many.scenes.camera_velocity).sum(-1) < -0.05
    assert 0.003 < share(backwards) < 0.1
    assert speed.max() < 60


def test_intervals_are_spread_evenly_over_their_logarithms(many):
    low, high = WorldConfig().interval_s
    place = (many.scenes.interval_s / low).log() / math.log(high / low)
    assert place.min() >= 0
    assert place.max() <= 1.0001
    for limit in (0.25, 0.5, 0.75):
        assert share(place < limit) == pytest.approx(limit, abs=0.07)
    assert share(many.hold == 2) == pytest.approx(0.2, abs=0.05)
    assert (many.scenes.interval_s * many.hold).max() <= high * 1.0001


@pytest.mark.parametrize('size', [64, 256])
def test_lenses_show_the_field_of_view_and_can_be_inverted(size):
    s = sampler(size=size).sample(1, 1500).scenes
    fx, fy, cx, cy = s.intrinsics.unbind(-1)
    assert (cx - (size - 1) / 2).abs().max() <= 0.041 * size
    k1, k2 = s.distortion.unbind(-1)
    edge = undistort(size / 2 / fx, torch.zeros_like(fx), k1, k2).x
    degrees = torch.rad2deg(2 * edge.atan())
    assert degrees.min() > 34
    assert degrees.max() < 131
    assert share(degrees > 100) > 0.08
    assert share(degrees < 50) > 0.05
    reach_x, reach_y = ((size / 2 + (c - (size - 1) / 2).abs()) / f
                        for c, f in ((cx, fx), (cy, fy)))
    corner = undistort(reach_x, reach_y, k1, k2)
    r2 = corner.x.square() + corner.y.square()
    assert (1 + 3 * k1 * r2 + 5 * k2 * r2.square()).min() > 0.1
    assert share(k1 < -1e-3) > 0.3


def test_no_camera_is_within_a_shape_or_under_the_ground(many):
    s = many.scenes
    assert (s.camera_position[..., 1] < 0).all()
    sine, cosine = s.yaw.sin(), s.yaw.cos()
    offset = s.camera_position.unsqueeze(2) - s.position
    own = torch.stack((offset[..., 0] * cosine - offset[..., 2] * sine, offset[..., 1],
                       offset[..., 0] * sine + offset[..., 2] * cosine), -1)
    for part in torch.linspace(0, 1, 9):
        between = own[:, :-1] + part * (own[:, 1:] - own[:, :-1])
        inside = (between.abs() <= s.half[:, None]).all(-1) & s.alive[:, None]
        assert not inside.any()


def test_velocities_are_those_of_the_paths_at_the_newest_frame():
    dt = 1e-3
    s = sampler(interval_s=(dt, dt), hold_share=0, jitter=0).sample(2, 400).scenes

    def rate(path: torch.Tensor) -> torch.Tensor:
        path = path.double()
        return ((3 * path[:, -1] - 4 * path[:, -2] + path[:, -3]) / (2 * dt)).float()

    # Positions are some tens of metres in float32: this is as exact as differences get.
    torch.testing.assert_close(rate(s.camera_position), s.camera_velocity, atol=0.06, rtol=0.02)
    alive = s.alive
    torch.testing.assert_close(rate(s.position)[alive], s.velocity[alive], atol=0.08, rtol=0.03)
    torch.testing.assert_close(rate(s.yaw)[alive], s.yaw_rate[alive], atol=0.01, rtol=0.02)
    # Spin w: in camera axes a fixed direction d moves by -w x d.
    turned = rate(s.camera_rotation)                                    # d/dt of world to camera
    cross = turned @ s.camera_rotation[:, -1].mT                        # minus the matrix of w
    w = torch.stack((cross[:, 1, 2], cross[:, 2, 0], cross[:, 0, 1]), -1)
    torch.testing.assert_close(w, s.camera_spin, atol=0.02, rtol=0.03)


def test_walkers_step_through_the_pictures_of_their_walk():
    scenes = sampler(interval_s=(0.2, 0.2), hold_share=0).sample(4, 600).scenes
    walking = (scenes.texture >= 200).all(1) & scenes.alive
    assert walking.any()
    pictures = scenes.texture.transpose(1, 2)[walking] - 200
    assert (pictures // 8 == pictures[:, :1] // 8).all()                # one person each
    moves = scenes.velocity[walking].norm(dim=-1) > 0.5
    assert share((pictures[moves] != pictures[moves][:, :1]).any(1)) > 0.95


@pytest.mark.parametrize(('change', 'message'), [
    ({'interval_s': (0.5, 0.1)}, 'interval_s'),
    ({'interval_s': (0.0, 0.1)}, 'interval_s'),
    ({'hold_share': 1.5}, 'hold_share'),
    ({'jitter': 0.6}, 'jitter')])
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        WorldConfig(**change)


def test_times_of_a_slow_camera_come_in_pairs():
    times = frame_times(torch.tensor([0.1, 0.1]), torch.tensor([1, 2]), 5)
    torch.testing.assert_close(times, torch.tensor([
        [-0.4, -0.3, -0.2, -0.1, 0.0], [-0.4, -0.2, -0.2, 0.0, 0.0]]))
    shown = picture_of(torch.tensor([1, 2]), 6)
    assert shown.tolist() == [[0, 1, 2, 3, 4, 5], [1, 1, 3, 3, 5, 5]]


def test_a_turning_camera_goes_along_a_circle():
    times = torch.linspace(-2, 0, 9)[None]
    path = camera_path(torch.zeros(1), torch.zeros(1), torch.tensor([0.8]), -times, times)
    centre = torch.tensor([1 / 0.8, 0.0])                               # to the right
    radius = (path.place[0] - centre).norm(dim=-1)
    torch.testing.assert_close(radius, torch.full((9,), 1 / 0.8), atol=1e-4, rtol=0)

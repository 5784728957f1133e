# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test clips of the world: pictures, truth that agrees with the spec, and no giveaways."""

from __future__ import annotations

import pytest
import torch

from vjepa_ros.lab.world.clips import ClipWorld, WorldClips, soonest
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.rendering.truth import Robot, Truth, truth
from vjepa_ros.lab.world.scenes.sampler import Sample
from vjepa_ros.lab.world.scenes.scene_spec import OUTCOME, WorldConfig
from vjepa_ros.lab.world.textures.bank import TextureBank

SIZE = 32
# Of six clips of a seed: mean depths [m], and mean greys of the newest picture in three rows.
DEPTHS = [30.336, 2.3441, 10.315, 4.9009, 0.62391, 1.395]
GREYS = [166.7, 144.1, 79.4, 158.2, 159.6, 145.9, 101.7, 81.7, 87.2, 74.2, 62.7, 44.9, 50.8,
         53.2, 43.8, 109.5, 105.4, 101.0]


@pytest.fixture(scope='module')
def bank() -> TextureBank:
    return TextureBank.procedural(0, count=30, size=32)


@pytest.fixture(scope='module')
def world(bank) -> ClipWorld:
    return ClipWorld(SIZE, 4, bank=bank, samples=1)


@pytest.fixture(scope='module')
def known(world) -> tuple[Sample, Truth]:
    sample = world.sample(3, 200)
    return sample, truth(sample.scenes, world.bank, (SIZE, SIZE), world.config.robot)


@pytest.fixture(scope='module')
def clips(world) -> WorldClips:
    return world.clips(9, 90)


def share(condition: torch.Tensor) -> float:
    return condition.float().mean().item()


def test_geometry_does_not_depend_on_the_size_of_the_pictures(bank, world):
    other = ClipWorld(SIZE * 2, 4, bank=bank).sample(4, 50).scenes
    scenes = world.sample(4, 50).scenes
    assert torch.equal(other.position, scenes.position)
    torch.testing.assert_close(other.intrinsics[:, :2], 2 * scenes.intrinsics[:, :2])


@pytest.mark.slow
def test_a_slow_camera_shows_every_picture_twice(clips):
    slow = clips.hold == 2
    assert slow.sum() > 6
    pairs = clips.frames[slow]
    assert torch.equal(pairs[:, 0], pairs[:, 1])
    assert torch.equal(pairs[:, 2], pairs[:, 3])
    noisy = ~slow & (clips.scenes.read_noise > 2)
    assert (clips.frames[noisy][:, 2] != clips.frames[noisy][:, 3]).flatten(1).any(1).all()


def test_contacts_count_when_enough_of_the_picture_shows_them():
    times = torch.full((1, 50, 40), torch.inf)
    times[0, 0, 0] = 0.5
    assert soonest(times).isinf().all()          # 0.1 % of 2000 pixels are two
    times[0, 3, 1] = 0.7
    assert soonest(times).tolist() == pytest.approx([0.7])


def test_truth_follows_the_plan(known):
    sample, seen = known
    contact = soonest(seen.enter_time)
    planned = sample.planned_s.isfinite()
    ratio = contact[planned] / sample.planned_s[planned]
    assert ratio.median() == pytest.approx(1, abs=0.08)
    assert share((ratio - 1).abs() < 0.35) > 0.75
    # What is not planned hardly ever happens soon, whatever else stands in the scene.
    assert share(contact[~planned] < 3) < 0.03
    rest = sample.outcome == OUTCOME['rest']
    assert contact[rest].isinf().all()


def test_contact_times_are_balanced(known):
    contact = soonest(known[1].enter_time)
    shares = [share(contact < limit) for limit in (0.5, 1, 2, 3)]
    assert 0.03 < shares[0] < 0.12
    assert 0.10 < shares[1] < 0.25
    assert 0.20 < shares[2] < 0.38
    assert 0.32 < shares[3] < 0.46


def test_the_robot_of_the_configuration_decides_what_is_a_contact(bank, world):
    wide = ClipWorld(SIZE, 4, bank=bank, config=WorldConfig(robot=Robot(half_width=0.6)))
    sample = wide.sample(3, 40)
    slim = truth(sample.scenes, bank, (SIZE, SIZE), world.config.robot)
    broad = truth(sample.scenes, bank, (SIZE, SIZE), wide.config.robot)
    assert share(broad.enters) > share(slim.enters)
    far = soonest(broad.enter_time)
    assert share(far[~sample.planned_s.isfinite()] < 3) < 0.05


def area_under_curve(score: torch.Tensor, label: torch.Tensor) -> float:
    above = score[label][:, None] - score[~label]
    return ((above > 0).float() + 0.5 * (above == 0).float()).mean().item()


@pytest.mark.slow
def test_brightness_and_the_like_give_no_contact_away(bank):
    world = ClipWorld(24, 4, bank=bank)
    sample = world.sample(17, 320)
    two = slice(2, None)
    grey = render(sample.scenes, bank, (24, 24), frames=two, samples=1).float().mean(-1)
    newest, change = grey[:, -1], (grey[:, -1] - grey[:, 0]).abs()
    scores = {
        'brightness': newest.mean((1, 2)), 'contrast': newest.std((1, 2)),
        'mean change': change.mean((1, 2)), 'largest change': change.amax((1, 2)),
        'sharpness': (newest[:, 1:] - newest[:, :-1]).abs().mean((1, 2)),
        'interval': sample.scenes.interval_s, 'noise': sample.scenes.read_noise,
        'height': sample.scenes.camera_position[:, -1, 1],
        'shapes': sample.scenes.alive.float().sum(1)}
    known = truth(sample.scenes, bank, (24, 24), world.config.robot)
    label = soonest(known.enter_time) < 3
    for name, score in scores.items():
        # With 120 contacts among 320 clips chance alone spreads by 0.034.
        assert 0.37 < area_under_curve(score, label) < 0.66, name


@pytest.mark.slow
def test_pictures_are_neither_dark_nor_empty(clips):
    grey = clips.frames[:, -1].float().mean(-1)
    assert 60 < grey.mean() < 160
    assert share(grey.mean((1, 2)) < 20) < 0.04
    assert share(grey.std((1, 2)) > 15) > 0.7


def test_the_clips_of_a_seed_never_change(world):
    clips = world.clips(9, 6)
    # Not a hash: another machine may round the last bit differently.
    newest = clips.frames[:, -1].float().mean(-1)[:, :30].reshape(6, 3, -1).mean(-1)
    assert clips.truth.depth.clamp(max=50).mean((1, 2)).tolist() == pytest.approx(DEPTHS, 1e-3)
    assert newest.flatten().tolist() == pytest.approx(GREYS, abs=0.1)

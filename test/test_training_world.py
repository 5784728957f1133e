# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what training has in the rough world beside the clips of figures: stops, late stamps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.world.scenes.bodies import HERO
from vjepa_ros.lab.world.scenes.capture import APART_S, MOST_DELAY, arrival_times
from vjepa_ros.lab.world.scenes.motion import Steady, travelled
from vjepa_ros.lab.world.scenes.platforms import NAMES, Ride, pace, ridden
from vjepa_ros.lab.world.scenes.sampler import SceneSampler
from vjepa_ros.lab.world.scenes.scene import BOX, CARD
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.scenes.scene_spec import OUTCOME, WorldConfig
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials, TextureBank


@pytest.fixture(scope='module')
def materials():
    bank = TextureBank.procedural(0, count=30, size=32)
    return Materials(bank.groups, bank.walks)


def test_what_brakes_was_steady_before():
    times = -torch.arange(0.0, 3.0, 0.01).flip(0)[None]
    speed, braking = torch.tensor([0.5]), torch.tensor([1.0])
    fastest = Steady(torch.tensor([1.5]), torch.tensor([math.inf]), torch.tensor([0.0]))
    speeds = pace(speed, braking, times, fastest)[0]
    assert speeds[-1] == 0.5 and speeds[0] == 1.5 and (speeds.diff() <= 1e-6).all()
    gone = travelled(speed, braking, torch.tensor([1e4]), times, fastest)[0]
    torch.testing.assert_close(-gone.diff() / 0.01, (speeds[1:] + speeds[:-1]) / 2, atol=1e-2,
                               rtol=1e-2)
    # 1 s of braking over 1 m, and 2 s before it.
    assert gone[0].item() == pytest.approx(1.0 + 1.99 * 1.5, abs=0.01)


@pytest.mark.parametrize('slower', [0.0, 0.4])
def test_what_speeds_up_was_steady_before(slower):
    times = -torch.arange(0.0, 3.0, 0.01).flip(0)[None]
    speed, braking = torch.tensor([-1.0]), torch.tensor([-2.0])
    steady = Steady(*(torch.tensor([one]) for one in (math.inf, 3.0, slower)))
    speeds = pace(speed, braking, times, steady)[0]
    assert speeds[-1] == -1 and speeds[0] == -slower and (speeds.diff() <= 1e-6).all()
    gone = travelled(speed, braking, torch.tensor([1e4]), times, steady)[0]
    torch.testing.assert_close(-gone.diff() / 0.01, (speeds[1:] + speeds[:-1]) / 2, atol=2e-2,
                               rtol=1e-2)


def test_a_drone_leans_while_it_speeds_up():
    times = -torch.arange(0.0, 3.0, 0.005).flip(0)[None]

    def ride(braking, training=True):
        one = torch.ones(1)
        spec = SimpleNamespace(speed=0.8 * one, drift=0 * one, turn=0 * one,
                               happens=lambda outcome: torch.tensor([False]))
        on = Ride(torch.tensor([NAMES.index('drone')]), one, one, one > 2, one, 0 * one, 0 * one,
                  Steady(math.inf * one, math.inf * one, 0 * one))
        encounter = SimpleNamespace(spec=spec, robot_braking=braking * one)
        world = WorldConfig('rough', training=training)
        return ridden(SceneRng(4, 1), on, encounter, times, world)

    even, speeds_up = ride(0.0), ride(-1.0)     # it stood until 0.8 s before the newest picture
    pitch = (speeds_up.angles - even.angles)[0, :, 1]
    drag = math.atan(0.35 * 0.8 / 9.81)
    at = {time: float(pitch[(times[0] - time).abs().argmin()]) for time in (-2.5, -0.4, -0.01)}
    assert at[-2.5] == pytest.approx(drag, abs=1e-5)                 # hovers: no drag
    assert at[-0.4] == pytest.approx(drag - math.atan((1 + 0.35 * 0.4) / 9.81), abs=5e-3)
    turned, rates = (pitch[2:] - pitch[:-2]) / 0.01, (speeds_up.rates - even.rates)[0, 1:-1, 1]
    assert (turned - rates).abs().median() < 1e-3 and 0.1 < rates.abs().max() < 3      # [rad/s]
    figures = (ride(-1.0, False).angles - ride(0.0, False).angles)[0, :, 1]
    assert figures.std() < 1e-6                                      # one lean all the time


def test_robots_that_stopped_stand_until_the_newest_frame(materials):
    samples = {stops: SceneSampler(materials, 48, 14, WorldConfig('rough', training=stops))
               .sample(5, 4000) for stops in (False, True)}
    shares = {stops: float((one.outcome == OUTCOME['stopped']).float().mean())
              for stops, one in samples.items()}
    assert shares[True] > 2 * shares[False]
    plain = SceneSampler(materials, 48, 14, WorldConfig('rough')).sample(5, 4000)
    assert torch.equal(plain.scenes.camera_position, samples[False].scenes.camera_position)

    one = samples[True]
    chosen = (one.outcome == OUTCOME['stopped']) & (one.platform == 4)   # small cars hardly shake
    way, times = one.scenes.camera_position[chosen][..., 0::2], one.stamps_s[chosen]
    left = (way - way[:, -1:]).norm(dim=-1)
    stood = torch.where(left < 0.02, times, 0.0).amin(1)     # since when
    drove = left[:, 0] > 0.3                                 # the others did not move at all
    assert drove.sum() > 10
    assert (stood[drove] < -0.3).float().mean() > 0.2 and (stood[drove] > -2.5).all()


def test_many_bodies_in_training_are_plain(materials):
    plain = set(materials.numbers[GROUPS['plain'], :materials.count[GROUPS['plain']]].tolist())
    shares = {}
    for training in (False, True):
        world = WorldConfig('rough', training=training)
        one = SceneSampler(materials, 48, 14, world).sample(5, 800)
        box, card = (HERO.kinds.index(kind) for kind in (BOX, CARD))
        texture, alive = (getattr(one.scenes, name) for name in ('texture', 'alive'))
        texture = texture if texture.dim() == 2 else texture[:, -1]
        shown = one.hero & alive[:, box]
        bare = torch.tensor([[int(t) in plain for t in row] for row in texture[:, [box]].tolist()])
        shares[training] = float(bare[shown, 0].float().mean())
        assert not (bare[:, 0] & alive[:, card] & shown).any()       # nothing sticks on them
    assert shares[False] == 0 and 0.15 < shares[True] < 0.35     # no cars, which are a third


def test_half_of_the_cameras_are_stamped_when_pictures_arrive(materials):
    exact, told = (SceneSampler(materials, 48, 14, WorldConfig('rough', training=training))
                   .sample(5, 3000) for training in (False, True))
    late, times = told.stamps_s, told.scenes
    assert (late.diff() >= 0).all() and (late[:, -1] == 0).all()
    # A picture that arrives with the delay of the newest seems as old as it is; others are off.
    own = told.platform > 0
    uneven = (late.diff() - times.interval_s[:, None]).abs() / times.interval_s[:, None]
    usual = (exact.stamps_s.diff() - exact.scenes.interval_s[:, None]).abs() \
        / exact.scenes.interval_s[:, None]
    assert uneven[own].mean() > 1.05 * usual[exact.platform > 0].mean()
    draws, ride = SceneRng(3, 4000), SimpleNamespace(
        own=torch.arange(4000) < 3000, period_s=torch.full((4000,), 0.15))
    true = -0.15 * torch.arange(8.0).flip(0).expand(4000, 8)
    said = arrival_times(draws, true, ride)
    wrong = (said != true).any(1)
    assert not wrong[3000:].any() and 0.45 < wrong[:3000].float().mean() < 0.55
    off = (said - true)[wrong]
    assert (said.diff() >= 0.9 * APART_S).all() and (off[:, -1] == 0).all()
    assert 0.01 < off[:, :-1].abs().mean() < 0.03 and off.abs().max() <= 2.5 * MOST_DELAY * 0.15


def test_contacts_in_training_are_farther_off(materials):
    far = {}
    for training in (False, True):
        world = WorldConfig('rough', training=training)
        planned = SceneSampler(materials, 48, 4, world).sample(5, 3000).planned_s
        far[training] = float((planned[planned.isfinite()] > 3).float().mean())
    assert 0.04 < far[False] < 0.1 and 0.15 < far[True] < 0.25


def test_training_has_more_and_figures_do_not():
    worlds = TrainConfig(out='x', clips=1, world='both').worlds
    assert [world.rough for world in worlds] == [False, True]
    assert [world.training for world in worlds] == [False, True]
    assert not WorldConfig('rough').training

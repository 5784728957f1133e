# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what training has in the rough world beside the clips of figures: stops, late stamps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.world.scenes.camera import APART_S, MOST_DELAY, arrival_times
from vjepa_ros.lab.world.scenes.motion import Steady, travelled
from vjepa_ros.lab.world.scenes.platforms import NAMES, Ride, pace, ridden
from vjepa_ros.lab.world.scenes.scene import SceneRng
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig


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


def test_a_drone_leans_while_it_speeds_up():
    times = -torch.arange(0.0, 3.0, 0.005).flip(0)[None]

    def ride(braking, training=True):
        one = torch.ones(1)
        spec = SimpleNamespace(speed=0.8 * one, drift=0 * one, turn=0 * one,
                               happens=lambda outcome: torch.tensor([False]))
        on = Ride(torch.tensor([NAMES.index('drone')]), one, one, one > 2, one, 0 * one, 0 * one,
                  Steady(math.inf * one, math.inf * one, 0 * one))
        encounter = SimpleNamespace(spec=spec, robot_braking=braking * one)
        return ridden(SceneRng(4, 1), on, encounter, times, training)

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


def test_half_of_the_cameras_are_stamped_when_pictures_arrive():
    draws, ride = SceneRng(3, 4000), SimpleNamespace(
        own=torch.arange(4000) < 3000, period_s=torch.full((4000,), 0.15))
    true = -0.15 * torch.arange(8.0).flip(0).expand(4000, 8)
    said = arrival_times(draws, true, ride)
    wrong = (said != true).any(1)
    assert not wrong[3000:].any() and 0.45 < wrong[:3000].float().mean() < 0.55
    off = (said - true)[wrong]
    assert (said.diff() >= 0.9 * APART_S).all() and (off[:, -1] == 0).all()
    assert 0.01 < off[:, :-1].abs().mean() < 0.03 and off.abs().max() <= 2.5 * MOST_DELAY * 0.15


def test_training_has_more_and_figures_do_not():
    worlds = TrainConfig(out='x', clips=1, world='both').worlds
    assert [world.rough for world in worlds] == [False, True]
    assert [world.training for world in worlds] == [False, True]
    assert not WorldConfig('rough').training

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test stops of the rough world: what has stopped stands, and braked from a steady speed."""

from __future__ import annotations

import pytest
import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.world.scenes.motion import travelled
from vjepa_ros.lab.world.scenes.platforms import pace
from vjepa_ros.lab.world.scenes.sampler import SceneSampler
from vjepa_ros.lab.world.scenes.scene_spec import OUTCOME, WorldConfig
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank


@pytest.fixture(scope='module')
def materials():
    bank = TextureBank.procedural(0, count=30, size=32)
    return Materials(bank.groups, bank.walks)


def test_what_brakes_was_steady_before():
    times = -torch.arange(0.0, 3.0, 0.01).flip(0)[None]
    speed, braking, fastest = torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor([1.5])
    speeds = pace(speed, braking, times, fastest)[0]
    assert speeds[-1] == 0.5 and speeds[0] == 1.5 and (speeds.diff() <= 1e-6).all()
    gone = travelled(speed, braking, torch.tensor([1e4]), times, fastest)[0]
    torch.testing.assert_close(-gone.diff() / 0.01, (speeds[1:] + speeds[:-1]) / 2, atol=1e-2,
                               rtol=1e-2)
    # 1 s of braking over 1 m, and 2 s before it.
    assert gone[0].item() == pytest.approx(1.0 + 1.99 * 1.5, abs=0.01)


def test_robots_that_stopped_stand_until_the_newest_frame(materials):
    samples = {stops: SceneSampler(materials, 48, 14, WorldConfig('rough', stops=stops))
               .sample(5, 3000) for stops in (False, True)}
    shares = {stops: float((one.outcome == OUTCOME['stopped']).float().mean())
              for stops, one in samples.items()}
    assert shares[True] > 2 * shares[False]
    plain = SceneSampler(materials, 48, 14, WorldConfig('rough')).sample(5, 3000)
    assert torch.equal(plain.scenes.camera_position, samples[False].scenes.camera_position)

    one = samples[True]
    chosen = (one.outcome == OUTCOME['stopped']) & (one.platform == 4)   # small cars hardly shake
    way, times = one.scenes.camera_position[chosen][..., 0::2], one.stamps_s[chosen]
    left = (way - way[:, -1:]).norm(dim=-1)
    stood = torch.where(left < 0.02, times, 0.0).amin(1)     # since when
    drove = left[:, 0] > 0.3                                 # the others did not move at all
    assert drove.sum() > 10
    assert (stood[drove] < -0.3).float().mean() > 0.2 and (stood[drove] > -2.5).all()


def test_training_has_stops_and_figures_do_not():
    worlds = TrainConfig(out='x', clips=1, world='both').worlds
    assert [world.stops for world in worlds] == [world.rough for world in worlds] == [False, True]
    assert not WorldConfig('rough').stops

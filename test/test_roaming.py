# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The roaming world moves in all ways, and what stands before its cameras hides nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from render_scenes import Camera, SIZE, Thing, plain_bank, scene, taken

from vjepa_ros.lab.world.clips import patch_mean, soonest
from vjepa_ros.lab.world.rendering import front
from vjepa_ros.lab.world.rendering import render as drawing
from vjepa_ros.lab.world.rendering.render import truth
from vjepa_ros.lab.world.scenes import platforms, roaming
from vjepa_ros.lab.world.scenes.sampler import SceneSampler
from vjepa_ros.lab.world.scenes.scene import BOX, Front, SceneRng, Scenes, Shake
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig, make_spec
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank

ROAMING = WorldConfig('roaming', training=True)
#      across (down), middle, half width, and so on, see `Front`: a level bar in mid picture
BAR = (0.0, 1.0, 0.0, 0.2, 0.0, 3.0, 0.0, 0.02, 0.3, 0.5, 10.0)
DROP = (-0.6, -0.6, 0.3, 0.5, 0.9, 1.0, 0.0)


@pytest.fixture(scope='module')
def bank() -> TextureBank:
    return TextureBank.procedural(0, count=30, size=32)


@pytest.fixture(scope='module')
def sampled(bank) -> Scenes:
    return SceneSampler(Materials(bank.groups, bank.walks), 32, 3, ROAMING).sample(4, 300).scenes


def behind(bar: tuple[float, ...], blob: tuple[float, ...] = DROP) -> Scenes:
    """A wall that is driven into, behind a band and dirt."""
    wall = Thing(BOX, (0.0, -1.0, 3.0), (2.0, 1.0, 0.2))
    scenes = scene([wall], Camera(velocity=(0.0, 0.0, 1.0), spin=(0.0, 0.3, 0.0)))
    return taken(scenes, front=Front(torch.tensor([[bar]]), torch.ones(1, 2),
                                     torch.tensor([[blob]])))


def test_a_bar_stands_still_and_what_is_behind_it_is_still_hit():
    free, barred = (truth(behind(band), plain_bank(), SIZE)
                    for band in ((*BAR[:3], -1.0, *BAR[4:]), BAR))
    bar = front.part(torch.tensor([[BAR]]), SIZE[1], SIZE[0])[0][0] > 0.5
    assert bar.float().mean() == pytest.approx(0.2, abs=0.02)
    assert (barred.looming[0][bar] == 0).all() and (barred.flow[0][bar] == 0).all()
    assert not (barred.enters | barred.moving)[0][bar].any()
    assert free.enters[0][bar].any() and free.looming[0][bar].min() > 0.2
    for name in ('looming', 'enter_time', 'clearance', 'depth'):
        assert torch.equal(getattr(barred, name)[0][~bar], getattr(free, name)[0][~bar])
    assert soonest(barred.enter_time).item() == pytest.approx(2.8, abs=0.05)
    assert soonest(barred.clearance).item() == pytest.approx(2.8, abs=0.05)


def test_dirt_and_bars_are_drawn_alike_by_both_ways_and_stay_where_they_are():
    clean = behind((*BAR[:3], -1.0, *BAR[4:]), (*DROP[:4], 0.0, *DROP[5:]))
    scenes = behind(BAR)
    fast, whole = (draw(scenes, plain_bank(), SIZE)
                   for draw in (drawing.render, drawing.render_together))
    assert (fast.int() - whole.int()).abs().float().mean() < 0.8
    bar = front.part(torch.tensor([[BAR]]), SIZE[1], SIZE[0])[0][0] > 0.99
    assert torch.equal(fast[0, 0][bar], fast[0, 1][bar])
    changed = (fast != drawing.render(clean, plain_bank(), SIZE)).any(-1)[0, 1]
    assert changed[bar].float().mean() > 0.9
    assert changed[24, 32] and not changed[-20:].any()      # under the drop; beside all


def test_cameras_near_and_leave_and_look_round(bank, sampled):
    found = truth(sampled, bank, (32, 32))
    rate = patch_mean(torch.nan_to_num(found.looming))
    assert (rate > 0.02).float().mean() > 0.4
    assert (rate < -0.02).float().mean() > 0.05
    turns = torch.rad2deg(sampled.camera_spin.norm(dim=-1))
    assert 0.3 < (turns > 30).float().mean() < 0.6
    speed = sampled.camera_velocity.norm(dim=-1)
    assert (speed < 1e-3).float().mean() < 0.14
    assert (speed[speed > 1e-3].log10().quantile(torch.tensor([0.1, 0.9])).diff() > 1.5).all()
    assert (soonest(found.enter_time) < 6).float().mean() > 0.2
    assert found.moving.flatten(1).any(1).float().mean() > 0.25


def test_some_cameras_see_their_robot_and_some_have_dirt(sampled):
    seen = sampled.capture.front
    cover = front.part(seen.bands, 32, 32)[0].mean((1, 2))
    assert 0.06 < (cover > 0).float().mean() < 0.18
    assert 0.05 < cover[cover > 0].median() < 0.4 and cover.max() < 0.55
    assert 0.04 < (seen.blobs[..., 4] > 0).any(1).float().mean() < 0.16


def test_looking_round_has_the_rates_at_which_its_angles_change():
    draws = SceneRng(1, 200)
    spec, ride = platforms.mount(draws, make_spec(draws, ROAMING), ROAMING)
    none = Shake(*(torch.zeros(200, 3, 3) for _ in range(4)))
    step = 1e-3
    times = torch.tensor([-2 * step, -step, 0.0]).expand(200, -1)
    turned = roaming.look_round(SceneRng(2, 200), spec, ride, times, none)
    numeric = (turned.angles[:, 2] - turned.angles[:, 0]) / (2 * step)
    np.testing.assert_allclose(numeric, turned.rates[:, 1], atol=2e-3)
    assert turned.rates.abs().max() > 1.5


def test_cameras_on_a_rail_do_not_shake():
    draws = SceneRng(1, 400)
    spec, ride = platforms.mount(draws, make_spec(draws, ROAMING), ROAMING)
    spec = replace(spec, speed=torch.full_like(spec.speed, 0.02))
    shaken = Shake(*(torch.ones(400, 2, 3) for _ in range(4)))
    moved = roaming.look_round(SceneRng(2, 400), spec, ride, torch.zeros(400, 2), shaken)
    still = (moved.angles == 0).all(-1).all(-1) & (moved.speed == 0).all(-1).all(-1)
    assert still.float().mean() == pytest.approx(roaming.RAIL_SHARE, abs=0.08)

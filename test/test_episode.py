# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test random episodes: the same from a seed, some free and some not, drawn and driven."""

from __future__ import annotations

import numpy as np
import pytest

from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, draw
from vjepa_ros.lab.world.episodes.robot import Drive, Route, free_run
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank

CONFIG = EpisodeConfig(settle_s=0.2)


@pytest.fixture(scope='module')
def bank() -> TextureBank:
    return TextureBank.procedural(1, count=30, size=64)


@pytest.fixture(scope='module')
def materials(bank) -> Materials:
    return Materials(bank.groups, bank.walks)


@pytest.fixture(scope='module')
def driven(bank, materials) -> EpisodeWorld:
    """Thirty episodes driven to their ends by a controller that sees nothing."""
    episodes = [draw(5, number, materials, CONFIG) for number in range(30)]
    world = EpisodeWorld(episodes, CONFIG, bank, 64)
    count, frame = len(episodes), 0
    ends = np.array([e.run.duration for e in episodes])
    while frame / CONFIG.rate < ends.max():
        active = frame / CONFIG.rate < ends
        commands = np.array([e.route.command(world.robots.place[n], float(world.robots.yaw[n]))
                             for n, e in enumerate(episodes)])
        world.step(commands[:, 0], commands[:, 1], active)
        frame += 1
    assert count == len(world.collided)
    return world


@pytest.mark.slow
def test_what_is_planned_as_free_is_free_and_what_stands_in_the_way_is_hit(driven):
    planned = np.array([e.scenario for e in driven.episodes])
    free = planned == 'free'
    assert 5 <= free.sum() <= 20
    assert not driven.collided[free].any()
    still = np.isin(planned, ('static', 'wall'))
    assert driven.collided[still].mean() > 0.8
    assert 0.3 < driven.collided.mean() < 0.85
    assert all(bool(what) == hit for what, hit in zip(driven.touched, driven.collided,
                                                      strict=True))


def test_free_way_ahead_shrinks_by_what_is_driven(bank, materials):
    number = next(n for n in range(99) if draw(5, n, materials, CONFIG).scenario == 'wall')
    world = EpisodeWorld([draw(5, number, materials, CONFIG)], CONFIG, bank, 64)
    before, start = world.clearance(0, 30.0), world.robots.place[0].copy()
    for _ in range(12):
        world.step(np.array([0.5]), np.zeros(1))
    gone = float(np.linalg.norm(world.robots.place[0] - start))
    assert gone > 0.2
    assert world.clearance(0, 30.0) == pytest.approx(before - gone, abs=0.01)


def test_a_mover_waits_for_a_robot_that_stands(bank, materials):
    drawn = (draw(5, n, materials, CONFIG) for n in range(99))
    meets = next(e for e in drawn if e.scenario == 'approach')
    world = EpisodeWorld([meets], CONFIG, bank, 64)
    for _ in range(round(10 * CONFIG.rate)):
        world.step(np.zeros(1), np.zeros(1))
    assert not world.collided.any()


def test_a_route_bends_and_ends():
    route = Route(np.array([(0.0, 0.0), (0.0, 4.0), (3.0, 8.0)]), 1.0)
    assert route.length == pytest.approx(9.0)
    assert route.at(6.5) == pytest.approx((1.5, 6.0))
    assert route.gone(np.array((0.2, 3.0))) == pytest.approx(3.0)
    run = free_run(route, Drive())
    assert np.linalg.norm(run.place[-1] - route.points[-1]) < 0.5
    assert 9.0 < run.duration < 14.0
    assert route.command(np.array((3.0, 8.0)), 0.0) == (0.0, 0.0)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test episodes about getting to a goal: ways, drawing, the oracle, figures, the command line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from vjepa_ros.cli import drive
from vjepa_ros.cli import main as cli
from vjepa_ros.lab.drive.figures import figures_of_goals
from vjepa_ros.lab.drive.loop import Loop, LoopConfig, MODES, ORACLE, Outcome
from vjepa_ros.lab.world.episodes import get_past
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.planning import imagined_risk
from vjepa_ros.planning.ways import Grid, LONGER
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.imagination import Imagination

QUICK = EpisodeConfig(rate=8.0, settle_s=0.2)
KINDS = get_past.SCENARIOS


def test_ways_lead_around_walls_and_are_hardly_too_long():
    grid = Grid(np.zeros(2), np.array((6.0, 4.0)), 0.1)
    goal, cost = np.array((5.05, 1.05)), np.ones(grid.shape)
    lengths, away = grid.lengths(cost, goal), np.linalg.norm(grid.middles() - goal, axis=-1)
    assert (lengths >= away - 1e-9).all() and (lengths <= LONGER * away + 1e-9).all()
    cost[:30, 28:32] = np.inf                       # a wall with a gap above z = 3
    start = grid.index(np.array((1.05, 1.05)))
    around = 2 * math.hypot(1.75, 2.0) + 0.5
    assert around - 0.1 < grid.lengths(cost, goal)[start] < LONGER * around
    cost[:, 28:32] = np.inf
    assert np.isinf(grid.lengths(cost, goal)[start])


def test_episodes_belong_to_their_number_and_block_the_way_straight_on(bank, materials):
    episodes = [get_past.draw(3, number, materials, QUICK) for number in range(len(KINDS))]
    assert [e.scenario for e in episodes] == list(KINDS)
    again = get_past.draw(3, 3, materials, QUICK)
    assert again.shapes.position.equal(episodes[3].shapes.position)
    assert all(0 < e.shortest < 2 * e.route.length and e.ends_s > 2.9 * e.run.duration
               for e in episodes)
    blind = Loop(EpisodeWorld(episodes, QUICK, bank), MODES[0], None).run()
    assert sum(o.collided for o in blind) >= 5
    assert all(o.reached != o.collided for o in blind)


def test_a_robot_wider_than_every_door_has_no_way(materials):
    episode = get_past.draw(3, KINDS.index('doorway'), materials, QUICK)
    assert math.isfinite(get_past.shortest_way(episode, QUICK))
    assert math.isinf(get_past.shortest_way(episode, replace(QUICK, robot=Robot(half_width=4))))


def test_the_oracle_gets_past_what_stands_in_the_way(bank, materials):
    numbers = [KINDS.index(name) for name in ('beside', 'doorway', 'slalom')]
    episodes = [get_past.draw(1, number, materials, QUICK) for number in numbers]
    outcomes = Loop(EpisodeWorld(episodes, QUICK, bank), ORACLE, None).run()
    assert [o.reached and not o.collided for o in outcomes] == [True] * 3
    assert all(o.driven >= o.shortest for o in outcomes)


def test_figures_weigh_success_by_the_way():
    def outcome(number: int, reached: bool, driven: float) -> Outcome:
        return Outcome(number, 'slalom', 'room', 1.0, not reached, False, '', 1.0, number, 0,
                       reached, driven, shortest=4.0, plan_ms=2.0 * number)
    found = figures_of_goals({'without_guard': [outcome(0, True, 8.0), outcome(1, True, 4.0),
                                                outcome(2, False, 8.0)]})
    assert found['without_guard'] == {
        'success': pytest.approx(2 / 3, abs=1e-4), 'collisions_per_km': 50.0, 'spl': 0.5,
        'stops_per_episode': 1.0, 'plan_ms': 2.0}
    assert found['details']['without_guard']['missed'] == [2]


def test_a_planner_that_is_given_a_predictor_of_twists_asks_it(bank, materials, monkeypatch):
    monkeypatch.setattr(get_past, 'LENGTH', (3.0, 3.5))
    monkeypatch.setattr(get_past, 'SPEED', (1.4, 1.5))
    monkeypatch.setattr(imagined_risk, 'MOVES', 0.0)        # something always moves
    config = replace(QUICK, rate=4.0)
    loop = Loop(EpisodeWorld([get_past.draw(1, 0, materials, config)], config, bank, 96),
                'with_planner', Engine.load(EngineConfig(device='cpu')))
    model = Imagination.random(device='cpu', precision='fp32')
    asked, score = [], model.imagine
    monkeypatch.setattr(model, 'imagine', lambda plans, lasts: asked.append(len(plans))
                        or score(plans, lasts))
    loop.imagine(model)
    loop.run()
    assert len(asked) > 3 and max(asked) == 64
    assert model.view is not None and model.view.interval_s == pytest.approx(0.25, rel=0.1)


def test_the_command_drives_all_modes(bank, tmp_path, monkeypatch, capsys):
    model = EngineConfig(num_frames=4, image_size=64, device='cpu', weights='random',
                         allow_random_weights=True)
    monkeypatch.setattr(TextureBank, 'procedural', lambda *more: bank)
    monkeypatch.setattr(get_past, 'LENGTH', (3.0, 3.5))
    monkeypatch.setattr(get_past, 'SPEED', (1.4, 1.5))
    monkeypatch.setattr(drive, 'EpisodeConfig', lambda: replace(QUICK, rate=4.0))
    monkeypatch.setattr(drive, 'LoopConfig', partial(LoopConfig, width=96))
    monkeypatch.setattr(drive, 'EngineConfig', lambda **more: model)
    file = tmp_path / 'figures.json'
    assert cli.main(['drive', '--set', 'get_past', '--episodes', '1', '--seed', '1', '--device',
                     'cpu', '--jobs', '1', '--json', str(file)]) == 0
    result = json.loads(file.read_text())
    assert set(result) == {*MODES, ORACLE, 'configuration'}
    for mode in (*MODES, ORACLE):
        assert 0 <= result[mode]['spl'] <= result[mode]['success'] <= 1
        assert (result[mode]['plan_ms'] is None) == (mode == MODES[0])
    assert result['configuration']['set'] == 'get_past'
    assert file.with_suffix('.png').stat().st_size > 10_000

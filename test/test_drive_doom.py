# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the world of Doom: poses, depth, monsters and contacts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from vjepa_ros.cli import drive
from vjepa_ros.lab.drive import doom, doom_map
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig

CONFIG = EpisodeConfig(settle_s=0.5)
EVERY = np.ones(1, bool)
STEP_M = 0.231          # of the depth buffer, whose values are whole numbers


@pytest.fixture(scope='module')
def episode() -> doom.DoomEpisode:
    pytest.importorskip('vizdoom', reason=doom_map.NEEDS)
    return doom.draw(1, 3, CONFIG)


@pytest.fixture
def world(episode):
    world = doom.DoomWorld([episode], CONFIG)
    yield world
    world.close()


def _monsters(world: doom.DoomWorld) -> np.ndarray:
    return doom_map.UNIT_M * np.array([
        (o.position_x, o.position_y) for o in world.maps[0].state.objects
        if o.name.startswith('Calm')])


@pytest.mark.slow
def test_walls_are_where_the_depth_buffer_has_them_in_every_direction(world):
    agree = []
    for _ in range(8):
        depth = world.maps[0].state.depth_buffer[doom.SIZE[1] // 2] * STEP_M
        eye, yaw = world.robots.front(CONFIG.robot)[0], world.robots.yaw[0]
        seen = world.surfaces(np.array([0]), doom.SIZE[0])[0, 0, :, 0::2]
        ahead = (seen - eye) @ np.array((math.sin(yaw), math.cos(yaw)))
        agree.append(np.abs(depth + STEP_M / 2 - ahead) < 0.05 * ahead + STEP_M)
        world.step(np.zeros(1), np.full(1, 1.2), EVERY)
    assert np.mean(agree) > 0.7          # the rest: low edges, and gaps in bodies
    assert 0 < world.clearance(0) <= 8


@pytest.mark.slow
def test_the_picture_turns_to_the_left_with_a_robot_that_does(world):
    before = world.maps[0].state.depth_buffer[doom.SIZE[1] // 2].astype(float)
    world.step(np.zeros(1), np.full(1, 1.2), EVERY)
    world.step(np.zeros(1), np.full(1, 1.2), EVERY)
    after = world.maps[0].state.depth_buffer[doom.SIZE[1] // 2].astype(float)
    assert world.robots.yaw[0] < math.atan2(*world.episodes[0].route.direction(0))
    lag = min(range(-60, 61), key=lambda n: np.abs(np.roll(before, n) - after)[60:-60].mean())
    assert lag > 10                      # what was ahead is now at the right


@pytest.mark.slow
def test_monsters_wander_but_stop_before_the_robot_and_walls_are_felt(world, episode):
    begun, nearest = _monsters(world), math.inf
    for _ in range(60):
        world.step(np.zeros(1), np.zeros(1), EVERY)
        nearest = min(nearest, np.linalg.norm(
            _monsters(world) - episode.start * doom_map.UNIT_M, axis=-1).min())
    assert np.median(np.linalg.norm(_monsters(world) - begun, axis=-1)) > 0.3
    assert not world.collided[0] and nearest > 0.7
    for _ in range(200):
        world.step(np.full(1, 2.0), np.zeros(1), EVERY)
    assert world.collided[0] and world.touched[0]
    assert world.clearance(0) < 0.1 and not world.struck[0]


@pytest.mark.slow
def test_the_camera_stays_on_the_floor_wherever_the_robot_is(world, episode):
    here = world.maps[0]
    monster = next(o for o in here.state.objects if o.name.startswith('Calm')
                   and abs(o.position_z - episode.level) < 1)
    at = np.array((monster.position_x - 26.37, monster.position_y))
    here.go(at, episode.level, 0.0, 3)
    robot = next(o for o in here.state.objects if o.name == 'Robot')
    assert (robot.position_x, robot.position_y) == pytest.approx(at, abs=0.01)
    assert robot.position_z == pytest.approx(episode.level, abs=2)


@pytest.mark.slow
def test_an_episode_is_driven_by_the_command(tmp_path, episode):
    out = tmp_path / 'doom.json'
    assert drive.main(['--world', 'vizdoom', '--episodes', '1', '--seed', '1', '--first', '3',
                       '--modes', 'without_guard', '--device', 'cpu', '--jobs', '1',
                       '--json', str(out)]) == 0
    found = json.loads(out.read_text())
    details = found['configuration']['details']['without_guard']
    assert 0.001 < details['kilometres'] < 0.02
    assert {one['number'] for one in details['collided']} <= set(details['missed']) == {3}


def test_a_missing_game_and_options_that_do_not_fit_are_named(monkeypatch, capsys):
    monkeypatch.setattr(drive.importlib.util, 'find_spec', lambda name: None)
    for words, text in ((['--world', 'vizdoom'], 'pip install vizdoom'),
                        (['--world', 'vizdoom', '--set', 'stop'], 'does not go with --set')):
        with pytest.raises(SystemExit):
            drive.main(words)
        assert text in capsys.readouterr().err

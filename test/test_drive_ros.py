# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive an episode over real DDS: robot, perception node and guard as processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip('rclpy')

from vjepa_ros.lab.drive.loop import Recipe
from vjepa_ros.lab.drive.ros import SETTLE_S, drive_over_dds
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.runtime.model import ModelConfig

pytestmark = [pytest.mark.slow, pytest.mark.ros, pytest.mark.any_distro]

SEED, DOOR = 1, 9     # a door stands in the way
DOORWAY = 1           # of the set get_past
RECIPE = Recipe(SEED, ModelConfig(), EpisodeConfig(rate=6.0, settle_s=SETTLE_S), width=256)


def test_robot_node_and_guard_close_the_loop(tmp_path):
    driven = drive_over_dds(RECIPE, ['with_guard'], [DOOR], tmp_path, lambda count: None)
    outcome = driven['with_guard'][0]
    assert outcome.scenario == 'static' and not outcome.collided
    moments = outcome.moments
    assert moments[0].time < -3 and moments[-1].time > 4
    # It drove freely first, came near the door, and was slowed down by what was seen of it:
    # simulated time waits for the perception, so a slow computer is no reason to stop.
    assert max(m.speed for m in moments) > 0.8, {m.state for m in moments}
    assert outcome.progress > 0.4
    assert 0.02 < min(m.distance for m in moments) < 2.0
    assert any(m.wanted > 0.8 and m.speed < 0.6 and m.state in ('slowed', 'stopped')
               and m.time > 2 for m in moments)
    assert not [m.reason for m in moments if m.time > 0.5 and m.state == 'fault']
    assert any(m.level < 255 for m in moments)
    assert not list(tmp_path.iterdir())       # no logs of failures


def test_the_planner_drives_through_a_doorway_to_its_goal(tmp_path):
    film, logs = tmp_path / 'film', tmp_path / 'logs'
    recipe = replace(RECIPE, set='get_past', follow=frozenset([DOORWAY]), film=film)
    driven = drive_over_dds(recipe, ['with_planner'], [DOORWAY], logs, lambda count: None)
    outcome = driven['with_planner'][0]
    assert outcome.scenario == 'doorway' and outcome.reached and not outcome.collided
    assert outcome.shortest < outcome.driven < 2 * outcome.shortest and outcome.plan_ms > 0
    for folder in ('0001', '0001_map'):
        assert len([*(film / 'with_planner' / folder).glob('*.png')]) == len(outcome.moments)
    assert not logs.exists()

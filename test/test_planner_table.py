# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the action planner reach it, and illegal ones are refused."""

from __future__ import annotations

import pytest

from vjepa_ros.planning.action_space import ArmSpace, TwistSpace
from vjepa_ros.planning.energy_test import USUAL_GAP
from vjepa_ros.planning.search import PUBLISHED_SEARCH
from vjepa_ros.planning.world_model import WorldConfig
from vjepa_ros.ros.action_planner.parameters import SCHEMA, make_config

DEFAULTS = {row.name: row.default for row in SCHEMA.rows}


def test_the_defaults_are_the_published_planner():
    config = make_config(DEFAULTS)
    assert config.search == PUBLISHED_SEARCH
    assert config.gap == USUAL_GAP
    assert config.world == WorldConfig()
    assert config.space.names == ArmSpace().names
    assert config.space.spread.tolist() == ArmSpace().spread.tolist()


def test_values_reach_the_planner():
    config = make_config({**DEFAULTS, 'action_space': 'twist', 'twist.max_vx': 0.7,
                             'twist.step': 0.5, 'samples': 33, 'gap.least': 1.5, 'steps': 3,
                             'random_predictor.width': 96, 'random_predictor.heads': 2})
    assert isinstance(config.space, TwistSpace)
    assert config.space.spread[0].item() == pytest.approx(0.7)
    assert config.space.step_s == 0.5
    assert (config.search.samples, config.search.steps, config.world.steps) == (33, 3, 3)
    assert config.gap.least == 1.5
    assert config.world.random_predictor == (96, 24, 2)


@pytest.mark.parametrize(('change', 'named'), [
    ({'elites': 500}, 'elites'), ({'gap.repetitions': 1}, 'repetitions'),
    ({'action_space': 'twist', 'twist.max_vx': 0.0, 'twist.max_omega': 0.0}, 'max_vx'),
    ({'gripper.open': 1.0}, 'gripper.closed'),
    ({'state_source': 'joints', 'state_joints': ('a', 'b')}, 'state_joints'),
    ({'random_predictor.heads': 7}, 'random_predictor.width')])
def test_values_that_do_not_fit_together_are_refused_with_the_reason(change, named):
    assert SCHEMA.problem(DEFAULTS) == ''
    assert named in SCHEMA.problem({**DEFAULTS, **change})

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The planner computes what the published one computes.

The values in test/golden/planner.npz were computed with facebookresearch/vjepa2 by
make_planner.py: equal weights, pictures, state and noise, at reduced size.
"""

import math

import numpy as np
import pytest
import torch
from golden import planner_case as case
from golden.cases import FOLDER, fill

from vjepa_ros.model.ac_predictor import ActionPredictor
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant
from vjepa_ros.planning.action_space import ArmSpace, next_pose, to_matrix
from vjepa_ros.planning.energy_test import GapConfig
from vjepa_ros.planning.goal_planner import Planner
from vjepa_ros.planning.search import SearchConfig
from vjepa_ros.planning.world_model import WorldConfig, WorldModel
from vjepa_ros.runtime.device import DeviceChoice

pytestmark = pytest.mark.usefixtures('one_thread')

TOLERANCE = 1e-5  # 1e-4 was asked for; plans of small random networks differ by little more
GOLDEN = dict(np.load(FOLDER / case.FILE))


def planned(batch=0, dtype=torch.float32, **more):
    choice = DeviceChoice(torch.device('cpu'), dtype, 'test')
    encoder = fill(Encoder(Variant('test', *case.ENCODER)))
    predictor = fill(ActionPredictor(case.ENCODER[0], *case.PREDICTOR))
    world = WorldModel(encoder, predictor, choice, WorldConfig(
        image_size=case.SIDE, steps=case.STEPS, batch=batch))
    config = SearchConfig(samples=case.SAMPLES, elites=case.ELITES, iterations=case.ITERATIONS,
                          steps=case.STEPS)
    planner = Planner(world, ArmSpace(), config, GapConfig(repetitions=0))
    planner.set_goal(case.picture(2))
    plan = planner.plan(case.picture(1), np.array(case.STATE), noise=case.search_noise(), **more)
    world.close()
    return plan


@pytest.mark.parametrize('batch', [0, 7])
def test_energies_and_action_equal_those_of_the_published_planner(batch):
    plan = planned(batch)
    assert plan.history.shape == (case.ITERATIONS, case.SAMPLES)
    np.testing.assert_allclose(plan.history, GOLDEN['energies'], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(plan.pose_changes, GOLDEN['action'], rtol=0, atol=1e-5)
    # A wrong energy would be seen: those of the plans of an iteration differ by far more.
    assert np.ptp(GOLDEN['energies'], axis=1).min() > 50 * TOLERANCE


def test_half_precision_ranks_plans_nearly_alike():
    """Energies differ by a tenth of what plans differ by; what is found may be another plan."""
    got, exact = planned(dtype=torch.bfloat16).history[0], GOLDEN['energies'][0]
    ranks = [np.argsort(np.argsort(each)) for each in (got, exact)]
    # 0.976 to 0.99, as CPUs multiply half precision in different ways.
    assert np.corrcoef(*ranks)[0, 1] > 0.95
    assert (got - exact).std() < 0.2 * exact.std()


def test_poses_follow_actions_as_in_the_published_planner():
    moved = next_pose(*case.poses())
    expected = torch.from_numpy(GOLDEN['poses']).double()
    # Rotations are compared as such: near the end of their ranges angles jump.
    torch.testing.assert_close(to_matrix(moved[:, 3:6]), to_matrix(expected[:, 3:6]),
                               rtol=0, atol=1e-5)
    torch.testing.assert_close(moved[:, [0, 1, 2, 6]], expected[:, [0, 1, 2, 6]], rtol=0,
                               atol=1e-6)
    wrong = (moved[:, 3:6] - expected[:, 3:6]).remainder(2 * math.pi)
    assert torch.minimum(wrong, 2 * math.pi - wrong).max() < 1e-3

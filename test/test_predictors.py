# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Predictors of masked tokens and of actions; test_golden.py compares their numbers."""

from __future__ import annotations

import pytest
import torch
from golden.cases import fill, noise, some_tokens

from vjepa_ros.model.ac_predictor import ActionPredictor, normalised
from vjepa_ros.model.predictor import Predictor

pytestmark = pytest.mark.usefixtures('one_thread')

STEPS, ROWS, COLS = 3, 2, 4


def world():
    return fill(ActionPredictor(48, 64, 2, 2))


def inputs():
    """Features, actions, states, extrinsics."""
    return [noise(2, STEPS, ROWS, COLS, 48), noise(2, STEPS, 7, seed=1),
            noise(2, STEPS, 7, seed=2), noise(2, STEPS, 6, seed=3)]


@pytest.mark.parametrize('changed', range(4))
@torch.inference_mode()
def test_a_step_is_told_of_itself_and_the_past_but_not_of_the_future(changed):
    before = world()(*inputs())
    told = inputs()
    told[changed][:, 1] += 0.5
    after = world()(*told)
    assert torch.equal(after[:, 0], before[:, 0])
    for step in (1, 2):
        assert (after[:, step] - before[:, step]).abs().amax(dim=(1, 2, 3)).min() > 1e-3


@pytest.mark.parametrize(('number', 'name'), [(1, 'actions'), (2, 'states'), (3, 'extrinsics')])
def test_numbers_that_do_not_go_with_the_features_are_refused_by_name(number, name):
    told = inputs()
    told[number] = told[number][:, :2]
    with pytest.raises(ValueError, match=rf'{name} are \(2, 2, .*must be \(2, 3, '):
        world()(*told)


@torch.inference_mode()
def test_a_rollout_step_by_step_equals_the_whole_clip_with_its_own_predictions():
    predictor = world()
    frame, actions, states = noise(ROWS, COLS, 48), noise(5, 3, 7, seed=1), noise(5, 3, 7, seed=2)
    features = normalised(frame).expand(5, 1, ROWS, COLS, 48)
    rollout = predictor.rollout(features[0, 0], steps=3)
    for step in range(3):
        got = rollout.step(actions[:, step], states[:, step])
        whole = predictor(features, actions[:, :step + 1], states[:, :step + 1])
        expected = normalised(whole[:, -1])
        torch.testing.assert_close(got, expected.flatten(1, 2), rtol=1e-4, atol=1e-5)
        features = torch.cat((features, expected[:, None]), dim=1)
    assert rollout._past == [None, None]            # no step is to come
    with pytest.raises(ValueError, match='made for 3 steps'):
        rollout.step(actions[:, 0], states[:, 0])


@pytest.mark.slow
def test_predictors_can_be_trained_and_traced_in_one_piece_once_their_tables_are_made():
    grid, tokens = (3, 4, 4), (some_tokens(2, 48, 20), some_tokens(2, 48, 15, start=20))
    masked, actions = fill(Predictor(48, 64, 2, 2)), world()
    with torch.inference_mode():
        masked.prepare(grid, torch.device('cpu'))
        actions.prepare((STEPS, ROWS, COLS), torch.device('cpu'), extrinsics=True)
    for network, given in ((masked, (noise(2, 20, 48), *tokens, grid)), (actions, inputs())):
        network.requires_grad_(True)
        explained = torch._dynamo.explain(network)(*given)
        assert (explained.graph_count, explained.graph_break_count) == (1, 0)
        network(*given).square().mean().backward()
        assert all(p.grad.abs().sum() > 0 for p in network.parameters())

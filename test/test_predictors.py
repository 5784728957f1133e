# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Predictors of masked tokens; test_golden.py compares their numbers."""

from __future__ import annotations

import pytest
import torch
from golden.cases import fill, noise, some_tokens

from vjepa_ros.model.predictor import Predictor

pytestmark = pytest.mark.usefixtures('one_thread')

@pytest.mark.slow
def test_predictors_can_be_trained_and_traced_in_one_piece_once_their_tables_are_made():
    grid, tokens = (3, 4, 4), (some_tokens(2, 48, 20), some_tokens(2, 48, 15, start=20))
    network, given = fill(Predictor(48, 64, 2, 2)), (noise(2, 20, 48), *tokens, grid)
    with torch.inference_mode():
        network.prepare(grid, torch.device('cpu'))
    network.requires_grad_(True)
    explained = torch._dynamo.explain(network)(*given)
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)
    network(*given).square().mean().backward()
    assert all(p.grad.abs().sum() > 0 for p in network.parameters())

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Attentive probes; their numbers are compared in test_golden.py."""

import pytest
import torch
from golden.cases import fill, noise

from vjepa_ros.model.classifier import Classifier

pytestmark = pytest.mark.usefixtures('one_thread')


@torch.inference_mode()
def test_a_probe_takes_grids_and_lists_of_tokens_alike():
    probe, features = fill(Classifier(64, 5)), noise(2, 3, 4, 2, 64)
    scores = probe(features)
    assert scores['class'].shape == (2, 5)
    torch.testing.assert_close(probe(features.flatten(1, 3))['class'], scores['class'])


@torch.inference_mode()
def test_the_order_of_tokens_does_not_matter_and_clips_do_not_mix():
    probe, tokens = fill(Classifier(64, 5)), noise(2, 24, 64)
    scores = probe(tokens)['class']
    torch.testing.assert_close(probe(tokens.flip(1))['class'], scores, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(probe(tokens[1:])['class'], scores[1:], rtol=1e-4, atol=1e-5)
    tokens[0, 7, ::2] += 1.0
    changed = probe(tokens)['class']
    assert (changed[0] - scores[0]).abs().max() > 1e-3


@torch.inference_mode()
def test_each_classification_has_a_query_and_a_layer_of_its_own():
    probe = fill(Classifier(64, {'verb': 3, 'noun': 4}))
    assert {key for key in probe.state_dict() if 'pooler' not in key} == {
        f'{name}_classifier.{kind}' for name in ('verb', 'noun') for kind in ('weight', 'bias')}
    before = probe(noise(1, 24, 64))
    probe.pooler.query_tokens[:, 1, ::2] += 1.0
    after = probe(noise(1, 24, 64))
    torch.testing.assert_close(after['verb'], before['verb'], rtol=1e-4, atol=1e-5)
    assert (after['noun'] - before['noun']).abs().max() > 1e-3


def test_a_width_that_16_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match='72 wide cannot be probed with 16 heads'):
        Classifier(72, 5)


def test_a_probe_can_learn():
    """Two classes told apart by one token among twelve."""
    probe = Classifier(32, 2, blocks=1)
    probe.init_random(0)
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(probe.parameters(), 3e-3)
    mark = torch.randn(2, 32, generator=generator)
    for _ in range(60):
        truth = torch.randint(2, (32,), generator=generator)
        tokens = torch.randn(32, 12, 32, generator=generator)
        tokens[:, 5] += 3.0 * mark[truth]
        loss = torch.nn.functional.cross_entropy(probe(tokens)['class'], truth)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.2


def test_start_values_depend_on_the_seed_alone():
    one, same, other = (Classifier(32, 2) for _ in range(3))
    for built, seed in ((one, 1), (same, 1), (other, 2)):
        built.init_random(seed)
    for key, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[key]), key
    assert not torch.equal(one.pooler.query_tokens, other.pooler.query_tokens)

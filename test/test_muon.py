# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test Muon: steps are orthogonal, fused projections are taken apart, states are exact."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vjepa_ros.lab.training.optimizers import Muon, RMS, orthogonal


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def stepped(weight, gradient, parts=1, **options):
    """A copy of a weight after one step."""
    parameter = nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    Muon([{'params': [parameter], 'parts': [parts]}],
         **{'lr': 0.1, 'momentum': 0.0, **options}).step()
    return parameter.detach()


@pytest.mark.parametrize('shape', [(1, 24, 24), (1, 96, 16), (1, 16, 96), (5, 32, 48)])
@pytest.mark.parametrize('scale', [1e-5, 1.0, 1e5])
def test_singular_values_become_one(shape, scale):
    values = torch.linalg.svdvals(orthogonal(scale * random(*shape)))
    assert values.min() > 0.6 and values.max() < 1.3


def test_a_step_has_the_size_of_one_of_adamw_and_goes_down():
    for shape in ((64, 64), (256, 64), (64, 256)):
        gradient = 1e-3 * random(*shape)
        change = stepped(torch.zeros(shape), gradient)
        assert change.square().mean().sqrt() == pytest.approx(0.1 * RMS, rel=0.15)
        assert (change * gradient).sum() < 0
    weight = random(8, 8, seed=1)
    decayed = stepped(weight, torch.zeros(8, 8), weight_decay=0.5)
    assert torch.allclose(decayed, weight * (1 - 0.1 * 0.5))


def test_a_fused_projection_is_three():
    gradient = random(48, 16) * torch.tensor([1.0, 100.0, 0.01]).repeat_interleave(16)[:, None]
    fused = stepped(torch.zeros(48, 16), gradient, parts=3)
    apart = [stepped(torch.zeros(16, 16), part) for part in gradient.split(16)]
    assert torch.allclose(fused, torch.cat(apart), atol=1e-6)
    for part in fused.split(16):            # as one, the small part would hardly move
        assert torch.linalg.svdvals(part).min() > 0.6 * 0.1 * RMS * 4


def test_matrices_of_many_shapes_are_each_changed_as_if_alone():
    shapes = [(16, 32), (32, 16), (16, 32), (48, 16), (16, 16), (48, 16)]
    parts = [1, 1, 1, 3, 1, 1]
    parameters = [nn.Parameter(random(*s, seed=i)) for i, s in enumerate(shapes)]
    before = [p.detach().clone() for p in parameters]
    for i, p in enumerate(parameters):
        p.grad = random(*p.shape, seed=10 + i)
    Muon([{'params': parameters, 'parts': parts}], 0.1, 0.0).step()
    for p, old, count in zip(parameters, before, parts, strict=True):
        assert torch.allclose(p, stepped(old, p.grad, count), atol=1e-5)


def test_momentum_looks_ahead():
    parameter = nn.Parameter(torch.zeros(6, 6))
    optimizer = Muon([parameter], lr=1.0, momentum=0.9)
    first, second = random(6, 6), random(6, 6, seed=1)
    for gradient in (first, second):
        before = parameter.detach().clone()
        parameter.grad = gradient.clone()
        optimizer.step()
    kept = 0.9 * 0.1 * first + 0.1 * second
    ahead = 0.1 * second + 0.9 * kept
    expected = -RMS * 6 ** 0.5 * orthogonal(ahead[None])[0]
    assert torch.allclose(parameter - before, expected, atol=1e-4)

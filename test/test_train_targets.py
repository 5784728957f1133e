# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the targets of training, and the losses."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from vjepa_ros.lab.training.network import head_losses
from vjepa_ros.lab.world.clips import WorldClips, clip_targets
from vjepa_ros.lab.world.rendering.render import Truth
from vjepa_ros.model.head_specs import CLEARANCE_BINS, CONTACT_BINS, HeadOutputs

pytestmark = pytest.mark.usefixtures('one_thread')
SIDE, INTERVAL_S = 32, 0.1
KNOWN = torch.ones(2, dtype=torch.bool)


def make_truth(**changed):
    """Truth of two far walls that stand still; what is given is spread over all pixels."""
    shape = (2, SIDE, SIDE)
    inf, no = torch.full(shape, math.inf), torch.zeros(shape, dtype=torch.bool)
    truth = Truth(depth=torch.full(shape, 4.0), looming=torch.zeros(shape), moving=no.clone(),
                  flow=torch.zeros(*shape, 2), enters=no.clone(), enter_time=inf.clone(),
                  clearance=inf, shape=torch.zeros(shape, dtype=torch.int16))
    return replace(truth, **{name: torch.as_tensor(value).expand_as(getattr(truth, name)).clone()
                             for name, value in changed.items()})


def targets_of(truth=None, contact_s=1.0, velocity=(1.0, 0.0, 0.0), **changed):
    """Targets of a shape that moves before a camera with a focal length of 40 px."""
    scenes = SimpleNamespace(velocity=torch.tensor([[velocity]] * 2), yaw_rate=torch.zeros(2, 1),
                             intrinsics=torch.tensor([[40.0, 99.0, 16.0, 16.0]] * 2))
    each, frames = torch.ones(2), torch.zeros(2, 4, SIDE, SIDE, 3, dtype=torch.uint8)
    clips = WorldClips(frames, INTERVAL_S * each, each.long(), truth or make_truth(), scenes,
                       contact_s * each, 2 * each, each[:, None])
    return replace(clip_targets(clips), **changed)


def make_outputs(**changed):
    zero = torch.zeros(2, 2, 2)
    return HeadOutputs(**{'expansion': zero, 'log_scale': zero, 'moving': zero, 'course': zero,
                          'contact': torch.zeros(2, CONTACT_BINS + 1),
                          'clearance': torch.zeros(2, CLEARANCE_BINS + 1)} | changed)


def test_expansion_is_the_patch_mean_of_looming_times_interval():
    truth = make_truth()
    truth.looming[:, :16, :16], truth.looming[:, :16, 16:] = 1.0, -2.0
    truth.looming[:, 16:, :8] = 4.0
    assert torch.allclose(targets_of(truth).expansion[0],
                          torch.tensor([[0.1, -0.2], [0.2, 0.0]]))


def test_patches_that_move_in_part_are_not_asked_and_a_thin_pole_on_course_counts():
    truth = make_truth()
    truth.moving[:, :16, :16] = True            # all of it
    truth.moving[:, :16, 16:20] = True          # a quarter
    truth.moving[:, 16, 0] = True               # a single pixel
    truth.enters[:, :16, :5] = True
    targets = targets_of(truth)
    assert targets.moving_known[0].tolist() == [[True, False], [True, True]]
    assert targets.moving[0].tolist() == [[1, 0], [0, 0]]
    assert targets.course[0, 0, 0] == 1 and targets.course_known[0, 0, 0]


@pytest.mark.parametrize(('pixels', 'expected'), [(12, math.inf), (13, 2.0)])
def test_a_patch_enters_when_a_twentieth_of_it_has(pixels, expected):
    truth = make_truth()
    spread = torch.randperm(256, generator=torch.Generator().manual_seed(0))[:pixels]
    truth.enter_time[0, spread // 16, 16 + spread % 16] = torch.linspace(1.0, 2.0, pixels)
    assert targets_of(truth).enter_s[0].tolist() == [[math.inf, expected], [math.inf, math.inf]]


def test_mirrors_take_every_dense_target_along():
    targets, numbered = targets_of(), torch.arange(8).view(2, 2, 2)
    dense = {name: numbered.to(v.dtype) for name, v in vars(targets).items() if v.ndim == 3}
    turned = replace(targets, **dense).flipped(torch.tensor([True, False]))
    for name in ('enter_s', 'log_depth', 'flow_x', 'flow_y'):
        sign = -1 if name == 'flow_x' else 1           # right becomes left, down stays
        assert (sign * getattr(turned, name)).tolist()[0] == [[1, 0], [3, 2]]
        assert getattr(turned, name).tolist()[1] == [[4, 5], [6, 7]]


# Seen at 4 m with 40 px for 3 intervals of 0.1 s, 1 m/s are 3 px.
@pytest.mark.parametrize(('speed', 'asked'), [(0.16, False), (0.18, True)])
def test_a_patch_is_asked_when_it_moves_by_half_a_pixel(speed, asked):
    targets = targets_of(make_truth(moving=True), velocity=[-0.6 * speed, 0.0, 0.8 * speed])
    assert (targets.moving_known == asked).all() and (targets.moving == 1).all()


@pytest.mark.parametrize('size', [1e4, -1e4])
def test_gradients_are_finite_whatever_the_heads_say(size):
    leaves = {name: torch.full_like(value, size, requires_grad=True)
              for name, value in vars(make_outputs()).items()}
    with torch.no_grad():
        leaves['contact'][:, ::2] *= -1
    targets = targets_of(contact_s=0.3, danger=torch.ones(2), danger_known=KNOWN)
    total = sum(head_losses(HeadOutputs(**leaves), targets).values())
    total.backward()
    assert total.isfinite() and all(leaf.grad.isfinite().all() for leaf in leaves.values())

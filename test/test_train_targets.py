# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the targets of training, auxiliary predictions, and the losses."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from vjepa_ros.lab.training import losses
from vjepa_ros.lab.training.network import Auxiliary
from vjepa_ros.lab.world.clips import WorldClips
from vjepa_ros.lab.world.rendering.render import Truth
from vjepa_ros.lab.world.targets import clip_targets, world_targets
from vjepa_ros.model.head_specs import (
    CLEARANCE_BINS,
    CONTACT_BINS,
    CONTACT_EDGES,
    HEADS,
    HeadOutputs,
)

pytestmark = pytest.mark.usefixtures('one_thread')
SIDE, NUM_FRAMES, INTERVAL_S = 32, 4, 0.1
KNOWN = torch.ones(2, dtype=torch.bool)


def make_truth(count=1, **changed):
    """Truth of a far wall that stands still; what is given is spread over all pixels."""
    shape = (count, SIDE, SIDE)
    inf, no = torch.full(shape, math.inf), torch.zeros(shape, dtype=torch.bool)
    truth = Truth(depth=torch.full(shape, 4.0), looming=torch.zeros(shape), moving=no.clone(),
                  flow=torch.zeros(*shape, 2), enters=no.clone(),
                  enter_time=inf.clone(), clearance=inf,
                  shape=torch.zeros(shape, dtype=torch.int16))
    return replace(truth, **{name: torch.as_tensor(value).expand_as(getattr(truth, name)).clone()
                             for name, value in changed.items()})


def targets_of(truth=None, contact_s=1.0, **changed):
    truth = truth or make_truth(2)
    each = torch.ones(len(truth.depth))
    targets = world_targets(truth, INTERVAL_S * each, contact_s * each, 2.0 * each)
    return replace(targets, **changed)


def make_outputs(**changed):
    zero = torch.zeros(2, 2, 2)
    return HeadOutputs(**{'expansion': zero, 'log_scale': zero, 'moving': zero, 'course': zero,
                          'contact': torch.zeros(2, CONTACT_BINS + 1),
                          'clearance': torch.zeros(2, CLEARANCE_BINS + 1)} | changed)


def certain(bins, number):
    """Logits of a head that is sure of one bin."""
    logits = torch.full((2, bins + 1), -20.0)
    logits[:, number] = 20.0
    return logits


class TestTargets:
    def test_expansion_is_the_patch_mean_of_looming_times_interval(self):
        truth = make_truth()
        truth.looming[:, :16, :16], truth.looming[:, :16, 16:] = 1.0, -2.0
        truth.looming[:, 16:, :8] = 4.0
        assert torch.allclose(targets_of(truth).expansion[0],
                              torch.tensor([[0.1, -0.2], [0.2, 0.0]]))

    def test_patches_that_move_in_part_are_not_asked_and_a_thin_pole_on_course_counts(self):
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
    def test_a_patch_enters_when_a_twentieth_of_it_has(self, pixels, expected):
        truth = make_truth()
        patch = truth.enter_time[0, :16, 16:]
        spread = torch.randperm(256, generator=torch.Generator().manual_seed(0))[:pixels]
        patch[spread // 16, spread % 16] = torch.linspace(1.0, 2.0, pixels)
        assert targets_of(truth).enter_s[0].tolist() == [[math.inf, expected],
                                                         [math.inf, math.inf]]

    def test_mirrors_take_every_dense_target_along(self):
        targets = targets_of()
        numbered = torch.arange(8).view(2, 2, 2)
        dense = {name: values for name, values in vars(targets).items() if values.ndim == 3}
        assert {'expansion', 'moving_known', 'enter_s', 'scene_known'} < set(dense)
        targets = replace(targets, **{n: numbered.to(v.dtype) for n, v in dense.items()})
        turned = targets.flipped(torch.tensor([True, False]))
        for name in ('enter_s', 'log_depth', 'flow_x', 'flow_y'):
            sign = -1 if name == 'flow_x' else 1           # right becomes left, down stays
            assert (sign * getattr(turned, name)).tolist()[0] == [[1, 0], [3, 2]]
            assert getattr(turned, name).tolist()[1] == [[4, 5], [6, 7]]


class TestVisibleMotion:
    def targets(self, truth, velocity):
        """Targets of a shape that moves before a camera with a focal length of 40 px."""
        scenes = SimpleNamespace(velocity=torch.tensor([[velocity]]),
                                 yaw_rate=torch.zeros(1, 1),
                                 intrinsics=torch.tensor([[40.0, 99.0, 16.0, 16.0]]))
        number, one = torch.zeros(1, dtype=torch.long), torch.ones(1)
        frames = torch.zeros(1, NUM_FRAMES, SIDE, SIDE, 3, dtype=torch.uint8)
        return clip_targets(WorldClips(frames, INTERVAL_S * one, number + 1, truth, scenes, one,
                                       one, one[None]))

    # Seen at 4 m with 40 px for 3 intervals of 0.1 s, 1 m/s are 3 px.
    @pytest.mark.parametrize(('speed', 'asked'), [(0.16, False), (0.18, True)])
    @pytest.mark.parametrize('direction', [(1, 0, 0), (-0.6, 0, 0.8)])
    def test_a_patch_is_asked_when_it_moves_by_half_a_pixel(self, speed, asked, direction):
        targets = self.targets(make_truth(moving=True), [speed * d for d in direction])
        assert (targets.moving_known == asked).all()
        assert (targets.moving == 1).all()


class TestLosses:
    @pytest.mark.parametrize(('seconds', 'bin_'), [
        (0.0, 0), (CONTACT_EDGES[3] * 0.1001, 3), (11.9, CONTACT_BINS - 1), (12.1, CONTACT_BINS),
        (math.inf, CONTACT_BINS)])
    def test_the_right_bin_costs_little(self, seconds, bin_):
        outputs = make_outputs(contact=certain(CONTACT_BINS, bin_))
        targets = targets_of(contact_s=seconds)
        assert losses.loss_of(HEADS['contact'], outputs, targets).item() < 1e-6

    @pytest.mark.parametrize('size', [1e4, -1e4])
    def test_gradients_are_finite_whatever_the_heads_say(self, size):
        leaves = {name: torch.full_like(value, size, requires_grad=True)
                  for name, value in vars(make_outputs()).items()}
        with torch.no_grad():
            leaves['contact'][:, ::2] *= -1
        targets = targets_of(contact_s=0.3, danger=torch.ones(2), danger_known=KNOWN)
        total = sum(losses.head_losses(HeadOutputs(**leaves), targets).values())
        total.backward()
        assert total.isfinite()
        assert all(leaf.grad.isfinite().all() for leaf in leaves.values())

    @pytest.mark.parametrize(('contact', 'clearance', 'low', 'high'), [
        (0, CLEARANCE_BINS, 0, 1e-3),                # contact at once, way free
        (CONTACT_BINS, 0, 0, 1e-3),                  # nothing comes, way blocked
        (CONTACT_BINS, CLEARANCE_BINS, 10, 1e3)])
    def test_people_call_both_dangerous_what_comes_and_what_blocks_the_way(
            self, contact, clearance, low, high):
        outputs = make_outputs(contact=certain(CONTACT_BINS, contact),
                               clearance=certain(CLEARANCE_BINS, clearance))
        targets = targets_of(danger=torch.ones(2), danger_known=KNOWN)
        assert low <= losses.danger(outputs, targets).item() < high


class TestAuxiliary:
    """Predictions of patches that teach the network and are then dropped."""

    def asked(self, **changed):
        return targets_of(make_truth(2, enter_time=1.0, flow=torch.tensor([30.0, -10.0])),
                          **changed)

    def test_what_is_unknown_may_be_anything(self):
        module = Auxiliary(32)
        torch.nn.init.normal_(module.read.weight, generator=torch.Generator().manual_seed(0))
        known = torch.randn(2, 2, 2, 32, generator=torch.Generator().manual_seed(4))
        half = self.asked(scene_known=torch.tensor([True, False])
                          [:, None, None].expand(2, 2, 2))
        wrong = {name: getattr(half, name).clone()
                 for name in ('enter_s', 'log_depth', 'flow_x', 'flow_y')}
        for values in wrong.values():
            values[1] = math.inf
        plain = module(known, half)
        assert plain == module(known, replace(half, **wrong)) and all(plain.values())
        nothing = replace(half, scene_known=torch.zeros(2, 2, 2, dtype=torch.bool), **wrong)
        assert not any(module(known, nothing).values())

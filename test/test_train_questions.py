# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test what patches are asked: entry time, depth, flow, motion that is visible; the losses."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from vjepa_ros.lab.training.losses import squared
from vjepa_ros.lab.training.network import Auxiliary, Batch, Network
from vjepa_ros.lab.world.clips import WorldClips
from vjepa_ros.lab.world.rendering.truth import Truth
from vjepa_ros.lab.world.scenes.scene import GROUND, SKY
from vjepa_ros.lab.world.targets import (
    DEPTH_M,
    FLOW_UNIT,
    VISIBLE_PX,
    clip_targets,
    world_targets,
)
from vjepa_ros.model.head_specs import CONTACT_EDGES
from vjepa_ros.model.heads import Heads

SIDE, NUM_FRAMES, INTERVAL_S = 32, 4, 0.1
QUESTIONS = {'enter', 'depth', 'flow'}


def make_truth(count=1, **changed):
    """Truth of a far wall that stands still; what is given is spread over all pixels."""
    shape = (count, SIDE, SIDE)
    inf, no = torch.full(shape, math.inf), torch.zeros(shape, dtype=torch.bool)
    truth = Truth(depth=torch.full(shape, 4.0), looming=torch.zeros(shape), moving=no,
                  flow=torch.zeros(*shape, 2), time_to_contact=inf, enters=no, enter_time=inf,
                  clearance=inf, shape=torch.zeros(shape, dtype=torch.int16))
    return replace(truth, **{name: torch.as_tensor(value).expand_as(getattr(truth, name)).clone()
                             for name, value in changed.items()})


def targets_of(truth):
    count = len(truth.depth)
    return world_targets(truth, torch.full((count,), INTERVAL_S), torch.ones(count),
                         torch.ones(count))


def make_clips(truth, velocity, yaw_rate=None):
    """Clips of shapes with velocities (B, K, 3) before a camera with a focal length of 40 px."""
    count = len(truth.depth)
    velocity = torch.tensor(velocity)
    turns = torch.zeros(velocity.shape[:2]) if yaw_rate is None else torch.tensor(yaw_rate)
    scenes = SimpleNamespace(velocity=velocity, yaw_rate=turns,
                             intrinsics=torch.tensor([[40.0, 99.0, 16.0, 16.0]]).expand(count, 4))
    number = torch.zeros(count, dtype=torch.long)
    frames = torch.zeros(count, NUM_FRAMES, SIDE, SIDE, 3, dtype=torch.uint8)
    return WorldClips(frames, torch.full((count,), INTERVAL_S), number + 1, truth, scenes,
                      torch.ones(count), torch.ones(count), number, number)


def lively_heads(dim=48):
    heads = Heads(dim)
    heads.init_random(0)
    return heads


def features(count=2, dim=48):
    return torch.randn(count, 2, 2, 2, dim, generator=torch.Generator().manual_seed(1))


class TestEntry:
    @pytest.mark.parametrize(('pixels', 'expected'), [(12, math.inf), (13, 2.0)])
    def test_a_patch_enters_when_a_twentieth_of_it_has(self, pixels, expected):
        truth = make_truth()
        patch = truth.enter_time[0, :16, 16:]
        spread = torch.randperm(256, generator=torch.Generator().manual_seed(0))[:pixels]
        patch[spread // 16, spread % 16] = torch.linspace(1.0, 2.0, pixels)
        assert targets_of(truth).enter_s[0].tolist() == [[math.inf, expected],
                                                         [math.inf, math.inf]]



class TestDepth:
    def test_it_is_the_logarithm_within_limits(self):
        truth = make_truth(depth=math.inf)          # the sky
        truth.depth[0, :16, :16] = 1e-4
        truth.depth[0, :16, 16:] = 3.0
        truth.depth[0, 16:, :8] = 1.0               # half of it, beside sky
        near, far = map(math.log, DEPTH_M)
        assert torch.allclose(targets_of(truth).log_depth[0],
                              torch.tensor([[near, math.log(3.0)], [far / 2, far]]))


class TestFlow:
    def test_it_bends_beyond_a_part_of_a_patch_per_interval(self):
        steps = 16 * FLOW_UNIT / INTERVAL_S        # [px/s] for one unit
        targets = targets_of(make_truth(flow=torch.tensor([3.0 * steps, -0.01 * steps])))
        assert targets.flow_x[0, 0, 0].item() == pytest.approx(math.asinh(3.0), rel=1e-4)
        assert targets.flow_y[0, 0, 0].item() == pytest.approx(-0.01, rel=1e-3)

    def test_a_mirror_turns_right_into_left_and_leaves_down(self):
        truth = make_truth(2, flow=torch.tensor([20.0, 5.0]))
        truth.flow[:, :, 16:] *= 2.0
        plain = targets_of(truth)
        turned = plain.flipped(torch.tensor([True, False]))
        assert torch.equal(turned.flow_x[0], -plain.flow_x[0].flip(1))
        assert torch.equal(turned.flow_y[0], plain.flow_y[0].flip(1))
        assert turned.flow_x[0, 0, 0] < turned.flow_x[0, 0, 1] < 0 < turned.flow_y.min()
        assert torch.equal(turned.flow_x[1], plain.flow_x[1])


def test_places_take_every_question_along():
    targets = targets_of(make_truth(2))
    places = torch.tensor([[1, 2], [0, 3]])
    numbered = torch.arange(8).view(2, 2, 2)
    dense = {name: values for name, values in vars(targets).items() if values.ndim == 3}
    assert {'expansion', 'moving_known', 'enter_s', 'scene_known'} < set(dense)
    targets = replace(targets, **{n: numbered.to(values.dtype) for n, values in dense.items()})
    chosen, turned = targets.at(places), targets.flipped(torch.tensor([True, True]))
    for name in ('enter_s', 'log_depth', 'flow_x', 'flow_y'):
        assert getattr(chosen, name)[..., 0].tolist() == [[1, 2], [4, 7]]
        assert getattr(turned, name).abs()[0].tolist() == [[1, 0], [3, 2]]


class TestVisibleMotion:
    # Seen at 4 m with 40 px for 3 intervals of 0.1 s, 1 m/s are 3 px.
    @pytest.mark.parametrize(('speed', 'asked'), [(0.16, False), (0.18, True)])
    @pytest.mark.parametrize('direction', [(1, 0, 0), (0, 0, -1), (-0.6, 0, 0.8)])
    def test_a_patch_is_asked_when_it_moves_by_half_a_pixel(self, speed, asked, direction):
        assert VISIBLE_PX == 0.5
        clips = make_clips(make_truth(moving=True), [[[speed * d for d in direction]]])
        targets = clip_targets(clips)
        assert (targets.moving_known == asked).all()
        assert (targets.moving == 1).all()

    def test_what_stands_still_is_asked(self):
        truth = make_truth()
        truth.shape[0, :16], truth.shape[0, 16:] = SKY, GROUND
        truth.depth[0, :16] = math.inf
        targets = clip_targets(make_clips(truth, [[[0.0, 0.0, 0.0]]]))
        assert targets.moving_known.all() and not targets.moving.any()



class TestAuxiliary:
    def asked(self, **changed):
        truth = make_truth(2, enter_time=1.0, flow=torch.tensor([30.0, -10.0]))
        return replace(targets_of(truth), **changed)

    def losses(self, known, targets, seed=0):
        module = Auxiliary(known.shape[-1])
        with torch.no_grad():
            module.read.weight.normal_(generator=torch.Generator().manual_seed(seed))
        return module(known, targets)

    @pytest.mark.parametrize('seconds', [0.0, INTERVAL_S * CONTACT_EDGES[3] * 1.001, math.inf])
    def test_the_right_answers_cost_nothing(self, seconds):
        targets = self.asked(enter_s=torch.full((2, 2, 2), seconds))
        module = Auxiliary(32)
        with torch.no_grad():
            number = sum(seconds / INTERVAL_S >= edge for edge in CONTACT_EDGES[1:])
            module.read.bias[number] = 30.0
            for place, name in ((-3, 'log_depth'), (-2, 'flow_x'), (-1, 'flow_y')):
                module.read.bias[place] = getattr(targets, name)[0, 0, 0]
        values = module(torch.randn(2, 2, 2, 32), targets)
        assert all(v.item() < 1e-6 for v in values.values()), values

    def test_what_is_unknown_may_be_anything(self):
        known = torch.randn(2, 2, 2, 32, generator=torch.Generator().manual_seed(4))
        plain = self.asked()
        half = replace(plain, scene_known=torch.tensor([True, False])[:, None, None]
                       .expand(2, 2, 2))
        wrong = {}
        for name, value in (('enter_s', math.inf), ('log_depth', math.nan),
                            ('flow_x', math.inf), ('flow_y', math.nan)):
            wrong[name] = getattr(plain, name).clone()
            wrong[name][1] = value
        for a, b in zip(self.losses(known, half).values(),
                        self.losses(known, replace(half, **wrong)).values(), strict=True):
            assert a == b != 0
        nothing = replace(half, scene_known=torch.zeros(2, 2, 2, dtype=torch.bool), **wrong)
        assert all(v == 0 for v in self.losses(known, nothing).values())

    @pytest.mark.parametrize('size', [1e4, -1e4])
    def test_gradients_are_finite_whatever_is_known(self, size):
        known = torch.full((2, 2, 2, 32), size, requires_grad=True)
        sum(self.losses(known, self.asked()).values()).backward()
        assert known.grad.isfinite().all() and known.grad.any()


class TestHeadsAndQuestions:
    def network(self, auxiliary):
        from vjepa_ros.model.encoder import Encoder
        from vjepa_ros.model.variants import Variant

        encoder = Encoder(Variant('test', 48, 2, 3, 96))
        encoder.init_random(0)
        return Network(encoder, lively_heads(), auxiliary=auxiliary)

    def batch(self, **changed):
        return Batch(torch.empty(0), replace(targets_of(make_truth(2, enter_time=1.0)), **changed),
                     features=features())

    def test_the_questions_teach_the_heads_and_change_no_other_loss(self):
        network, plain = self.network(True), self.network(False)
        values = network(self.batch())
        others = plain(self.batch())
        assert values.keys() - others.keys() == QUESTIONS
        assert all(values[k] == others[k] for k in others)
        # Like the other last layers it starts at zero: what is below learns from step 2 on.
        sum(values[k] for k in QUESTIONS).backward()
        assert network.auxiliary.read.weight.grad.any()
        network.zero_grad()
        with torch.no_grad():
            network.auxiliary.read.weight.normal_()
        for name in QUESTIONS:
            reached = torch.autograd.grad(network(self.batch())[name],
                                          network.heads.dense[1].weight)[0]
            assert reached.any(), name

    def test_where_nothing_is_known_every_parameter_still_takes_part(self):
        network = self.network(True)
        nothing = torch.zeros(2, 2, 2, dtype=torch.bool)
        batch = self.batch(**{f'{name}_known': nothing
                              for name in ('expansion', 'moving', 'course', 'scene')})
        sum(network(batch).values()).backward()
        for name, parameter in network.named_parameters():
            if not name.startswith('encoder.'):
                assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert not network.auxiliary.read.weight.grad.any()


def test_the_squared_error_asks_for_the_mean():
    # A patch where a surface is near in one of four clips that look the same.
    truth = torch.tensor([0.0, 0.0, 0.0, 0.8])
    known = torch.ones(4, dtype=torch.bool)
    costs = [squared(torch.full((4,), m / 100), truth, known).item() for m in range(81)]
    assert min(range(81), key=costs.__getitem__) == 20
    assert squared(torch.full((4,), 2.0), truth, torch.tensor([False] * 3 + [True])).item() == \
        pytest.approx(1.2 ** 2 / 2)
    assert squared(torch.full((4,), 0.5), truth, ~known).item() == 0

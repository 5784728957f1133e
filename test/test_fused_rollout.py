# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The world model with kernels: its order of work with stand-ins, its numbers on a real GPU."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from golden.cases import fill, noise

from vjepa_ros.model.ac_predictor import ActionPredictor, normalised
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.device import PRECISIONS, DeviceChoice
from vjepa_ros.runtime.forward import fused_rollout
from vjepa_ros.runtime.forward.base import FUSED, PLAIN
from vjepa_ros.runtime.forward.fused_rollout import FusedPredictor, prepare_world
from vjepa_ros.runtime.forward.kernels import PlainSteps

pytestmark = pytest.mark.usefixtures('one_thread')

ROWS, COLS, DIM, PLANS = 2, 3, 48, 5
CPU = torch.device('cpu')
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')


def plain_steps(dim, head_dim, grid, dtype, eps):
    """Stands for `build`: the kernels by operations of PyTorch."""
    return PlainSteps(head_dim, eps, 0.0)


def model(dim=DIM, width=64, depth=3, heads=2):
    return fill(ActionPredictor(dim, width, depth, heads))


def play(world, steps, made_for=None, dim=DIM):
    """Predictions of all steps of random plans from a random frame."""
    device = getattr(world, 'device', CPU)
    frame = normalised(noise(ROWS, COLS, dim)).to(device)
    rollout = world.rollout(frame, made_for or steps)
    return torch.stack([rollout.step(noise(PLANS, 7, seed=step + 1).to(device),
                                     noise(PLANS, 7, seed=step + 9).to(device)).cpu()
                        for step in range(steps)])


@pytest.fixture
def stand_ins(monkeypatch):
    monkeypatch.setattr(fused_rollout, 'build', plain_steps)
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())


@pytest.mark.parametrize('steps', [1, 2, 3])
@torch.inference_mode()
def test_the_order_of_work_gives_the_predictions_of_the_plain_path(stand_ins, steps):
    plain = model()
    fused = FusedPredictor(plain, (ROWS, COLS), 3)
    torch.testing.assert_close(play(fused, steps), play(plain, steps), rtol=1e-4, atol=1e-5)


def on_cuda(monkeypatch, build, precision=torch.float16):
    """What is chosen where a device claims to be CUDA, but computes here."""
    monkeypatch.setattr(fused_rollout, 'build', build)
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    choice = DeviceChoice(torch.device('cuda:0'), precision, 'test')
    trial = fused_rollout._trial
    monkeypatch.setattr(fused_rollout, '_trial',
                        lambda *given: trial(*given[:-1], CPU))
    return prepare_world(model(), choice, (ROWS, COLS), 2)


def test_kernels_that_agree_serve(monkeypatch):
    world, kind = on_cuda(monkeypatch, plain_steps)
    assert (type(world), kind) == (FusedPredictor, FUSED)


def test_kernels_that_disagree_do_not_serve_and_it_is_said(monkeypatch, caplog):
    monkeypatch.setattr(PlainSteps, 'gelu', lambda self, values: values.copy_(F.relu(values)))
    world, kind = on_cuda(monkeypatch, plain_steps)
    assert (type(world), kind) == (ActionPredictor, PLAIN)
    assert 'the kernels are not used for the world model' in caplog.text


def test_kernels_that_cannot_be_made_are_done_without(monkeypatch, caplog):
    def missing(*args):
        raise KernelsMissing('no compiler')

    caplog.set_level('INFO', 'vjepa_ros')
    world, kind = on_cuda(monkeypatch, missing)
    assert (type(world), kind) == (ActionPredictor, PLAIN)
    assert 'no compiler' in caplog.text


def test_in_full_precision_and_elsewhere_the_plain_path_runs(monkeypatch):
    assert on_cuda(monkeypatch, None, torch.float32)[1] == PLAIN
    choice = DeviceChoice(CPU, torch.bfloat16, 'test')
    assert prepare_world(model(), choice, (ROWS, COLS), 2)[1] == PLAIN


@needs_cuda
@pytest.mark.parametrize(('precision', 'bound'), [('fp16', 5e-3), ('bf16', 3e-2)])
@torch.inference_mode()
def test_predictions_on_a_gpu_are_those_in_full_precision(precision, bound):
    exact = play(model(192, 256, 4, 4), 2, dim=192)
    predictor = model(192, 256, 4, 4)
    predictor.set_branch_precision(PRECISIONS[precision])
    choice = DeviceChoice(torch.device('cuda:0'), PRECISIONS[precision], 'test')
    world, kind = prepare_world(predictor.to('cuda:0'), choice, (ROWS, COLS), 2)
    assert kind == FUSED
    got = play(world, 2, dim=192)
    assert float((got - exact).norm() / exact.norm()) < bound

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
from vjepa_ros.runtime.device import DeviceChoice, PRECISIONS
from vjepa_ros.runtime.forward import fused_rollout
from vjepa_ros.runtime.forward.base import FUSED, PLAIN
from vjepa_ros.runtime.forward.fused_rollout import FusedPredictor, prepare_world
from vjepa_ros.runtime.forward.kernels import PlainSteps

pytestmark = pytest.mark.usefixtures('one_thread')

ROWS, COLS, DIM, PLANS = 2, 3, 48, 5
CPU = torch.device('cpu')


def plain_steps(dim, head_dim, grid, dtype, eps):
    """Stands for `build`: the kernels by operations of PyTorch."""
    return PlainSteps(head_dim, eps, 0.0)


def model(dim=DIM, width=64, depth=3, heads=2):
    return fill(ActionPredictor(dim, width, depth, heads))


def play(world, steps, dim=DIM):
    """Predictions of all steps of random plans from a random frame."""
    device = getattr(world, 'device', CPU)
    frame = normalised(noise(ROWS, COLS, dim)).to(device)
    rollout = world.rollout(frame, steps)
    return torch.stack([rollout.step(noise(PLANS, 7, seed=step + 1).to(device),
                                     noise(PLANS, 7, seed=step + 9).to(device)).cpu()
                        for step in range(steps)])


@pytest.mark.parametrize('steps', [1, 3])
@torch.inference_mode()
def test_the_order_of_work_gives_the_predictions_of_the_plain_path(monkeypatch, steps):
    monkeypatch.setattr(fused_rollout, 'build', plain_steps)
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    plain = model()
    fused = FusedPredictor(plain, (ROWS, COLS), 3)
    torch.testing.assert_close(play(fused, steps), play(plain, steps), rtol=1e-4, atol=1e-5)


def missing(*args):
    raise KernelsMissing('no compiler')


@pytest.mark.parametrize(('build', 'precision', 'agree', 'served', 'said'), [
    (plain_steps, torch.float16, True, (FusedPredictor, FUSED), ''),
    (plain_steps, torch.float16, False, (ActionPredictor, PLAIN), 'the kernels are not used'),
    (missing, torch.float16, True, (ActionPredictor, PLAIN), 'no compiler'),
    (None, torch.float32, True, (ActionPredictor, PLAIN), '')])
def test_kernels_serve_only_where_they_agree(monkeypatch, caplog, build, precision, agree, served,
                                             said):
    """The device claims to be CUDA, but computes here."""
    caplog.set_level('INFO', 'vjepa_ros')
    trial = fused_rollout._trial
    monkeypatch.setattr(fused_rollout, 'build', build)
    monkeypatch.setattr(fused_rollout, '_trial', lambda *given: trial(*given[:-1], CPU))
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    if not agree:
        monkeypatch.setattr(PlainSteps, 'gelu', lambda self, values: values.copy_(F.relu(values)))
    choice = DeviceChoice(torch.device('cuda:0'), precision, 'test')
    world, kind = prepare_world(model(), choice, (ROWS, COLS), 2)
    assert (type(world), kind) == served
    assert said in caplog.text


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')
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

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The benchmark of the planner measures what it says."""

from __future__ import annotations

import json

import pytest
import torch

from vjepa_ros.cli.benchmark import plan as benchmark_plan
from vjepa_ros.cli.benchmark.plan_floor import PlanFloor
from vjepa_ros.model.variants import find_variant
from vjepa_ros.planning.cost import Shapes

pytestmark = pytest.mark.usefixtures('one_thread')

SMALL = ['--model-size', 'tiny', '--image-size', '32', '--predictor', '48,2,2', '--samples', '12',
         '--elites', '3', '--iterations', '2', '--device', 'cpu', '--precision', 'fp32',
         '--runs', '1']


def test_a_run_writes_its_figures_and_says_how_they_came_about(tmp_path, capsys):
    file = tmp_path / 'plan.json'
    assert benchmark_plan.main([*SMALL, '--batch', '0,5', '--json', str(file)]) == 0
    found = json.loads(file.read_text())
    assert found['command'].startswith('vjepa-ros benchmark-plan --model-size tiny')
    told = found['configuration']
    assert (told['samples'], told['iterations'], told['steps']) == (12, 2, 2)
    assert [one['batch'] for one in found['tried']] == [12, 5]
    assert found['plan_ms']['median'] == min(one['plan_ms']['median'] for one in found['tried'])
    shapes = Shapes(find_variant('tiny'), 48, 2, 4)
    assert found['plan_flops'] == 24 * shapes.rollout_flops(2) + shapes.encode_flops()
    assert found['gap_flops'] == 6 * 9 * shapes.rollout_flops(2) + 12 * shapes.encode_flops()
    assert found['ratio_to_floor'] > 0
    assert 'PFLOP' in capsys.readouterr().out


@torch.inference_mode()
def test_the_floor_does_the_products_that_are_counted():
    shapes = Shapes(find_variant('tiny'), 48, 2, 4)
    batch = 5
    floor = PlanFloor(shapes, 2, batch, 2, torch.device('cpu'), torch.float32)
    with torch.profiler.profile(with_flops=True) as profile:
        floor.one_pass()
    products = sum(event.flops for event in profile.key_averages() if event.key == 'aten::mm')
    n, p = shapes.tokens, shapes.width
    counted = batch * shapes.rollout_flops(2)
    attention = batch * shapes.depth * 4 * n * p * (n + 2 * n)
    # The projection runs on all tokens; the frame and its first products are made once for all.
    more = batch * 2 * 2 * 2 * p * shapes.encoder.dim
    less = (batch - 1) * 2 * shapes.patches * p * (shapes.encoder.dim + 3 * p)
    assert products == counted - attention + more - less


@pytest.mark.parametrize(('words', 'named'), [
    (['--predictor', '48,2'], 'predictor'), (['--attention', 'magic'], 'attention'),
    (['--runs', '0'], 'runs'), (['--elites', '99'], 'elites'), (['--image-size', '33'], 'image')])
def test_illegal_arguments_are_named(words, named, capsys):
    with pytest.raises(SystemExit):
        benchmark_plan.main([*SMALL, *words])
    assert named in capsys.readouterr().err

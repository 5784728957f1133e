# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The profile says where the time goes."""

from __future__ import annotations

import json
import os
import re

import pytest

from vjepa_ros.cli import main as cli
from vjepa_ros.cli.benchmark import case
from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.profile import time_layers
from vjepa_ros.runtime.device import choose_device

pytestmark = pytest.mark.usefixtures('one_thread')

@pytest.mark.slow
def test_a_profile_tells_stages_layers_operators_and_precisions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(case, 'SCENE_S', 0.2)
    out, trace = tmp_path / 'profile.json', tmp_path / 'trace.json'
    assert cli.main(['profile', '--num-frames', '4', '--image-size', '64', '--device', 'cpu',
                     '--source', '160x120', '--runs', '3', '--json', str(out), '--trace',
                     str(trace)]) == 0
    text = out.read_text()
    told = json.loads(text)
    assert {'end_to_end', 'encode', 'looming', 'assess'} <= told['stages_ms'].keys()
    total = told['layer_totals_ms']
    assert 0 < total['attention'] + total['mlp'] <= total['block']
    assert total['qkv'] + total['projection'] < total['attention']
    products = {'aten::addmm', 'mkldnn::_linear_pointwise'}    # which of them depends on the CPU
    assert products & {each['name'] for each in told['operators'][:4]}
    times = [each['ms'] for each in told['operators']]
    assert times == sorted(times, reverse=True)
    found = told['precisions']
    # Pictures this small are far from what the weights were trained for, which exaggerates.
    assert found['fp32']['error'] == 0.0 < found['bf16']['error'] < 0.05
    assert found['bf16']['memory_bytes'] < found['fp32']['memory_bytes']
    events = json.loads(trace.read_text())['traceEvents']
    assert any(event.get('name') in products for event in events)
    assert os.uname().nodename not in text
    # Without a terminal there is no spinner: a line tells of each step as it begins.
    steps = re.findall(r'^ +\d+\.\d s  (.+)$', capsys.readouterr().out, re.MULTILINE)
    assert steps[:5] == ['stages', 'operators', 'layers', 'precisions: fp32', 'precisions: bf16']


@pytest.mark.parametrize('version', ['2.0', '2.1'])
def test_layers_of_both_versions_are_timed_over_all_blocks(version):
    case = Case(model_version=version, weights='random', num_frames=4, image_size=32)
    found = time_layers(case, choose_device('cpu'), 3)
    assert min(found.values()) > 0
    whole = found['block']
    assert 0.5 * whole < sum(found[name] for name in (
        'norm 1', 'attention', 'norm 2', 'mlp')) < whole
    assert found['fc1'] + found['fc2'] < found['mlp'] > found['final norm']

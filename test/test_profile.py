# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The profile says where the time goes."""

from __future__ import annotations

import json
import os
import re

import pytest
import torch

from vjepa_ros.cli import main as cli
from vjepa_ros.cli.benchmark import contenders
from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.profile.layers import Layer, Watch, parts, time_layers, totals
from vjepa_ros.cli.profile.trace import record
from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.runtime.device import choose_device

pytestmark = pytest.mark.usefixtures('one_thread')

WORDS = ['--num-frames', '4', '--image-size', '64', '--device', 'cpu', '--source', '160x120']


def test_a_profile_tells_stages_layers_operators_and_precisions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(contenders, 'SCENE_S', 0.2)
    out, trace = tmp_path / 'profile.json', tmp_path / 'trace.json'
    words = [*WORDS, '--runs', '3', '--json', str(out), '--trace', str(trace)]
    assert cli.main(['profile', *words]) == 0
    text = out.read_text()
    told = json.loads(text)
    assert {'end_to_end', 'encode', 'looming', 'assess'} <= told['stages_ms'].keys()
    assert len([layer for layer in told['layers'] if layer['part'] == 'block']) == 12
    total = told['layer_totals_ms']
    assert 0 < total['attention'] + total['mlp'] <= total['block']
    assert total['qkv'] + total['projection'] < total['attention']
    names = [each['name'] for each in told['operators']]
    products = {'aten::addmm', 'mkldnn::_linear_pointwise'}    # which of them depends on the CPU
    assert products & set(names[:4])
    times = [each['ms'] for each in told['operators']]
    assert times == sorted(times, reverse=True)
    found = told['precisions']
    # Pictures this small are far from what the weights were trained for, which exaggerates.
    assert found['fp32']['error'] == 0.0 < found['bf16']['error'] < 0.05
    assert found['bf16']['memory_bytes'] < found['fp32']['memory_bytes']
    events = json.loads(trace.read_text())['traceEvents']
    assert any(event.get('name') in products for event in events)
    assert os.uname().nodename not in text
    said = capsys.readouterr().out
    assert 'layers of the plain network' in said
    # Without a terminal there is no spinner: a line tells of each step as it begins.
    steps = re.findall(r'^ +\d+\.\d s  (.+)$', said, re.MULTILINE)
    assert steps[:5] == ['stages', 'operators', 'layers', 'precisions: fp32', 'precisions: bf16']
    assert steps[5:] in ([], ['precisions: int8'])      # which CPUs without bf16 have


def test_a_watch_takes_no_time_once_it_is_removed():
    encoder, _ = load_encoder('tiny', weights='random', allow_random_weights=True)
    watch = Watch(torch.device('cpu'))
    named = parts(encoder)
    for module in named:
        watch.add(module)
    clip = torch.zeros(1, 3, 2, 32, 32)
    encoder(clip)
    assert watch.times().keys() == named.keys()
    assert all(ms > 0 for ms in watch.times().values())
    watch.remove()
    before = watch.times()
    encoder(clip)
    assert watch.times() == before


@pytest.mark.parametrize('version', ['2.0', '2.1'])
def test_layers_of_both_versions_are_timed_and_none_from_graphs_on_a_cpu(version):
    case = Case(model_version=version, weights='random', num_frames=4, image_size=32)
    layers, graphs = time_layers(case, choose_device('cpu'), 2)
    assert graphs == {}
    assert {layer.part for layer in layers} >= {'patch embedding', 'qkv', 'mlp', 'final norm'}


def test_totals_add_up_over_blocks():
    layers = [Layer('mlp', 0, 1.0), Layer('mlp', 1, 2.5), Layer('final norm', -1, 0.5)]
    assert totals(layers) == {'mlp': 3.5, 'final norm': 0.5}


def test_operators_are_those_of_the_work():
    class Product:
        def step(self):
            torch.ones(300, 300) @ torch.ones(300, 300)
            return {}

    found = record(Product(), cuda=False, top=20)
    assert next(o for o in found if o.name == 'aten::mm').calls == 1


@pytest.mark.parametrize(('words', 'said'), [(['--device', 'cuda:7'], 'cuda:7'),
                                             (['--num-frames', '5'], 'num_frames is 5')])
def test_what_cannot_be_profiled_is_said(words, said, capsys):
    assert cli.main(['profile', *words]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize('words', [['--runs', '0'], ['--seconds', '-1']])
def test_a_profile_of_nothing_is_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(['profile', *words])
    assert end.value.code == 2
    assert words[0] in capsys.readouterr().err

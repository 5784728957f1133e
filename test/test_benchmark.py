# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The benchmark measures what it says, and fails when a part does."""

from __future__ import annotations

import json
import os

import pytest
import torch
from bundles import save_causal_bundle
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vjepa_ros import cli
from vjepa_ros.cli import benchmark
from vjepa_ros.runtime.model import ModelConfig

pytestmark = pytest.mark.usefixtures('one_thread')

WORDS = ['benchmark', '--num-frames', '4', '--image-size', '32', '--source', '160x120',
         '--iterations', '4']


def test_the_floor_has_the_products_of_the_network_and_nothing_else():
    """As many multiplications as the encoder: 24 D^2 + 4 N D per token and layer, and patches."""
    config = ModelConfig(num_frames=4, image_size=64)
    floor = benchmark.Floor(config, 2, torch.device('cpu'), torch.float32)
    # The counter does not know the fused attention of the CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        floor.step()
    n, dim = 32, 192
    per_clip = n * (12 * (24 * dim ** 2 + 4 * n * dim) + 2 * 1536 * dim)
    assert counter.get_total_flops() == 2 * per_clip


@pytest.mark.parametrize('cameras', [1, 2])
def test_a_run_tells_all_and_nothing_about_the_host(cameras, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, 'SCENE_S', 0.2)     # rendering takes longer than the rest
    out, trace, streams = tmp_path / 'run.json', tmp_path / 'trace.json', cameras == 2
    words = [*WORDS, '--device', 'cpu', '--cameras', str(cameras), '--baseline', 'floor',
             '--json', str(out), '--profile', str(trace)]
    words += (['--weights', save_causal_bundle(tmp_path / 'causal.safetensors')] if streams else
              ['--num-frames', '6'])
    assert cli.main(words) == 0
    text = out.read_text()
    run = json.loads(text)
    for key in ('encode_ms', 'encode_call_ms', 'end_to_end_ms', 'beyond_encode_ms'):
        assert run[key]['runs'] == 4 and 0 < run[key]['median'] <= run[key]['p95']
    encode = run['encode_ms']['median']
    assert ('stream_encode_ms' in run) == streams
    assert encode < run['encode_call_ms']['median']
    assert run['end_to_end_ms']['median'] > run['beyond_encode_ms']['median']
    floor = run['baselines']['floor']
    assert run['ratios']['floor'] == pytest.approx(encode / floor['median'], rel=0.01)
    assert {'cameras': cameras, 'frames_on': 'host', 'device': 'cpu',
            'tokens': 8 if streams else 12}.items() <= run['configuration'].items()
    assert run['memory_bytes']['process_peak'] > run['memory_bytes']['engine'] > 1e6
    assert 0 < run['start']['load_s'] < run['start']['ready_s']
    assert os.uname().nodename not in text and str(tmp_path) not in text
    assert 'end_to_end' in trace.read_text()


@pytest.mark.parametrize('words', [line.split() for line in (
    '--iterations 0', '--seconds nan', '--source 12', '--source 8x8', '--compare cpu',
    '--compare cpu,auto', '--compare cpu,cuda --device cpu')])
def test_words_that_mean_nothing_are_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(['benchmark', *words])
    assert end.value.code == 2 and words[-2] in capsys.readouterr().err


def test_devices_are_compared_and_one_that_fails_leaves_the_others(tmp_path, capsys):
    out = tmp_path / 'compared.json'
    assert cli.main([*WORDS, '--encode-only', '--compare', 'cuda:9,cpu', '--json', str(out)]) == 1
    result = json.loads(out.read_text())
    cpu = result['compared']['encode_ms']['cpu']
    assert cpu['factor'] == 1.0 and cpu['fps'] == pytest.approx(1e3 / cpu['ms'])
    assert list(result['devices']) == ['cpu'] and str(tmp_path) not in str(result)
    assert 'cuda:9: NOT MEASURED' in capsys.readouterr().out

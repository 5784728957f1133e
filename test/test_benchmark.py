# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The benchmark measures what it says, and fails when a part does."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
import torch
from bundles import save_causal_bundle
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vjepa_ros.cli import main as cli
from vjepa_ros.cli.benchmark import baselines, case, compare, main, suite
from vjepa_ros.cli.benchmark import model as benchmark_model
from vjepa_ros.cli.benchmark.baselines import Floor
from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.benchmark.clock import BLOCK, measure

pytestmark = pytest.mark.usefixtures('one_thread')

CPU = torch.device('cpu')
WORDS = ['--num-frames', '4', '--image-size', '32', '--device', 'cpu', '--source', '160x120']


@pytest.fixture(autouse=True)
def _short_drive(monkeypatch):
    """A few frames, because rendering them takes longer than the rest."""
    monkeypatch.setattr(case, 'SCENE_S', 0.2)


def test_contenders_take_turns_and_all_runs_are_kept():
    log = []

    def contender(name):
        return SimpleNamespace(step=lambda: log.append(name) or {'encode': float(len(log))})
    samples = measure({name: contender(name) for name in 'ab'}, 25, 60.0)
    assert ''.join(log) == 'a' * BLOCK + 'b' * BLOCK + 'a' * BLOCK + 'b' * BLOCK + 'aaaaabbbbb'
    assert samples['a']['encode'] == [n + 1.0 for n, name in enumerate(log) if name == 'a']


def test_who_was_displaced_gets_ready_before_each_turn():
    log = []
    contenders = {'a': SimpleNamespace(step=lambda: log.append('a') or {}),
                  'b': SimpleNamespace(step=lambda: log.append('b') or {'encode': 1.0},
                                       resume=lambda: log.append('r'))}
    samples = measure(contenders, BLOCK + 2, 60.0)
    assert ''.join(log) == 'a' * BLOCK + 'r' + 'b' * BLOCK + 'aa' + 'rbb'
    assert len(samples['b']['encode']) == BLOCK + 2


def test_the_floor_has_the_products_of_the_network_and_nothing_else():
    """As many multiplications as the encoder: 24 D^2 + 4 N D per token and layer, and patches."""
    case = Case(num_frames=4, image_size=64, cameras=2)
    floor = Floor(case, CPU, torch.float32)
    # The counter does not know the fused attention of the CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        floor.step()
    n, dim = case.tokens, 192
    per_clip = n * (12 * (24 * dim ** 2 + 4 * n * dim) + 2 * 1536 * dim)
    assert counter.get_total_flops() == 2 * per_clip


@pytest.mark.parametrize('cameras', [1, 2])
def test_a_run_tells_all_and_nothing_about_the_host(cameras, tmp_path, capsys):
    out, streams = tmp_path / 'run.json', cameras == 2
    words = ['benchmark', *WORDS, '--cameras', str(cameras), '--engine', 'torch', '--iterations',
             '4', '--baseline', 'floor', '--json', str(out)]
    if streams:
        words += ['--weights', save_causal_bundle(tmp_path / 'causal.safetensors')]
    assert cli.main(words) == 0
    text = out.read_text()
    run = json.loads(text)
    for key in ('encode_ms', 'encode_call_ms', 'end_to_end_ms', 'beyond_encode_ms'):
        assert run[key]['runs'] == 4 and 0 < run[key]['median'] <= run[key]['p95']
    encode = run['encode_ms']['median']
    both = {'clip_encode_ms', 'stream_encode_ms'}       # of the same weights in one run
    assert run.keys() & both == (both if streams else set())
    if streams:
        assert run['clip_encode_ms'] == run['encode_ms']
        assert run['stream_encode_ms']['runs'] == 4 and run['stream_encode_ms']['median'] > 0
    assert encode < run['encode_call_ms']['median']
    assert run['end_to_end_ms']['median'] > run['beyond_encode_ms']['median']
    floor = run['baselines']['floor']
    assert run['ratios']['floor'] == pytest.approx(encode / floor['median'], rel=0.01)
    told = {'cameras': cameras, 'engine': 'torch', 'geometry': 'host', 'device': 'cpu',
            'tokens': 8}
    assert told.items() <= run['configuration'].items()
    spent = sum(run['stages_ms'][stage] for stage in (
        'preprocess', 'gather', 'submit', 'looming', 'await', 'motion', 'assess'))
    assert spent < 1.2 * run['end_to_end_ms']['p95']
    assert cameras > 1 or spent > 0.5 * run['end_to_end_ms']['min']
    assert run['throughput_clips_per_s']['encode'] == pytest.approx(
        1e3 * cameras / encode, rel=0.01)
    assert run['memory_bytes']['engine'] > 1e6 < run['memory_bytes']['process_peak']
    assert 0 < run['start']['load_s'] <= run['start']['first_result_s'] < run['start']['ready_s']
    assert run['date'] and {'torch', 'numpy'} <= run['versions'].keys()
    assert os.uname().nodename not in text and str(tmp_path) not in text
    assert 'floor' in capsys.readouterr().out


def test_a_baseline_that_fails_is_told_and_the_rest_is_kept(tmp_path, monkeypatch, capsys):
    def broken(*more):
        raise RuntimeError('no room for the floor')
    monkeypatch.setattr(baselines, 'Floor', broken)
    out = tmp_path / 'run.json'
    assert cli.main(['benchmark', *WORDS, '--iterations', '1', '--encode-only', '--baseline',
                     'floor', '--json', str(out)]) == 1
    run = json.loads(out.read_text())
    assert 'no room' in run['baselines']['floor']['error'] and run['encode_ms']['runs'] == 1
    assert 'floor' not in run['ratios']
    assert 'NOT MEASURED' in capsys.readouterr().out


@pytest.mark.parametrize('words', [line.split() for line in (
    '--iterations 0', '--seconds nan', '--source 12', '--source 8x8', '--suite cpu --rows none',
    '--sweep --sizes vast', '--suite cpu --json a.json', '--suite cpu --model-size large',
    '--suite cpu --baseline floor', '--suite cpu --plot a.png', '--sweep --json a.json',
    '--sweep --rows tiny', '--sweep --model-size large', '--sizes tiny', '--plot a.png',
    '--rows tiny', '--out there', '--sweep --suite cpu', '--compare cpu', '--compare cpu,auto',
    '--compare cpu,cuda --device cpu', '--compare cpu,mps --json a.json')])
def test_words_that_mean_nothing_are_refused(words, capsys, monkeypatch):
    def measured(*more):
        raise AssertionError('was measured')
    monkeypatch.setattr(benchmark_model, 'measure', measured)
    monkeypatch.setattr(suite, 'run_row', measured)
    with pytest.raises(SystemExit) as end:
        cli.main(['benchmark', *words])
    assert end.value.code == 2
    assert words[-2].removeprefix('--').removesuffix('s') in capsys.readouterr().err


def test_devices_are_compared_and_one_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    def measured(words, file, kept):
        ms = {'cpu': 100.0, 'cuda': 4.0}.get(words[1])
        if ms is None:
            return 'no such device'
        file.write_text(json.dumps({
            'encode_ms': {'median': ms}, 'end_to_end_ms': {'median': 2 * ms}, 'baselines': {},
            'configuration': {'cameras': 2}}))
        assert words[2:] == ['--model-size', 'tiny']
        return ''
    monkeypatch.setattr(compare, 'run_row', measured)
    words = ['benchmark', '--compare', 'cpu,mps,cuda', '--out', str(tmp_path), '--model-size',
             'tiny']
    assert cli.main(words) == 1
    result = json.loads((tmp_path / 'compare_cpu_mps_cuda.json').read_text())
    assert result['compared']['end to end'] == {
        'cpu': {'ms': 200.0, 'fps': 10.0, 'factor': 1.0},
        'cuda': {'ms': 8.0, 'fps': 250.0, 'factor': 25.0}}
    assert 'mps: NOT MEASURED' in capsys.readouterr().out and str(tmp_path) not in str(result)


@pytest.mark.parametrize('name', suite.SUITES)
def test_the_rows_of_every_suite_are_command_lines(name):
    for words in suite.suite_rows(name, '').values():
        case.case_of(main.make_parser().parse_args(words))


@pytest.mark.slow
def test_rows_run_alone_and_one_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    rows = {'good': ' '.join([*WORDS, '--cpu-threads', '1', '--iterations', '1',
                              '--encode-only']),
            'bad': '--device cpu --num-frames 3'}
    monkeypatch.setitem(suite.SUITES, 'cpu', rows)
    stale = tmp_path / 'cpu_bad.json'
    stale.write_text('{}')
    assert cli.main(['benchmark', '--suite', 'cpu', '--out', str(tmp_path)]) == 1
    assert json.loads((tmp_path / 'cpu_good.json').read_text())['encode_ms']['runs'] == 1
    assert not stale.exists()
    text = capsys.readouterr().out
    assert 'num-frames is 3' in text and 'FAILED: bad' in text and '1 of 2 rows' in text

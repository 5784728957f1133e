# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tables of speeds say what files say, and say so where there is no file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vjepa_ros.cli.benchmark.report import performance
from vjepa_ros.cli.benchmark.report.performance_targets import GOALS, standings
from vjepa_ros.cli.benchmark.suite import SUITES

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, FOLDER = ROOT / 'docs' / 'performance.md', ROOT / 'docs' / 'benchmarks'


def run(encode=4.0, beyond=1.5, **ratios):
    times = {'median': encode, 'p95': encode + 0.1, 'p99': encode + 0.2, 'min': encode,
             'runs': 9}
    return {
        'command': 'vjepa-ros benchmark --cameras 1', 'date': '2026-01-02',
        'hardware': {'cpu': 'a processor', 'cores': 16, 'gpu': 'NVIDIA H200'},
        'versions': {'torch': '2.11.0'}, 'encode_ms': times, 'encode_call_ms': times,
        'end_to_end_ms': {**times, 'median': encode + beyond},
        'beyond_encode_ms': {**times, 'median': beyond}, 'stages_ms': {'encode': encode},
        'configuration': {'model_size': 'large', 'model_version': '2.0', 'cameras': 1,
                          'num_frames': 16, 'image_size': 256, 'precision': 'bf16',
                          'execution': 'graph', 'source': [1280, 720]},
        'memory_bytes': {'engine': 2**20 * 640}, 'start': {'ready_s': 12.0},
        'baselines': {name: {'median': 40.0} for name in ratios}, 'ratios': ratios}


def standing(results, what):
    return next(s for s in standings(results) if s.goal.what.startswith(what))


def test_nothing_is_made_up():
    assert all(s.value is None and s.verdict == 'not measured' for s in standings({}))
    found = performance.blocks({}, 'benchmarks')
    assert found['goals'].count('not measured') == 2 * len(GOALS)
    assert 'not measured' in found['stages'] and 'not measured' in found['errors']
    assert found['node'] == found['whole'] == 'not measured\n'
    assert '[`' not in found['speeds']              # no link to a file that is not there


@pytest.mark.parametrize(('encode', 'verdict'), [
    (3.1, 'better reached'), (3.2, 'better reached'), (3.5, 'reached'),
    (3.96, '**missed by 10 %**')])
def test_a_time_is_reached_from_below(encode, verdict):
    assert standing({'h200_large_compile': run(encode)}, 'ViT-L, 16').verdict == verdict


@pytest.mark.parametrize(('ratio', 'verdict'), [
    (12.5, 'better reached'), (10.0, 'reached'), (8.0, '**missed by 25 %**')])
def test_a_ratio_is_reached_from_above(ratio, verdict):
    found = standing({'h200_large_graph': run(hf_eager=ratio)}, 'Hugging Face eager')
    assert found.verdict == verdict


def test_the_best_of_several_rows_counts_and_is_named():
    results = {'h200_large_compile': run(3.4, floor=1.2), 'h200_large_graph': run(3.3)}
    found = standing(results, 'ViT-L, 16')
    assert (found.value, found.row) == (3.3, 'h200_large_graph')
    assert standing(results, 'the same without').value == 3.3
    assert standing(results, 'the same over').row == 'h200_large_compile'   # alone has a floor


def test_fp8_is_held_against_the_bf16_that_was_measured():
    results = {'h200_large_graph': run(3.3), 'h200_large_fp8': run(3.5)}
    assert standing(results, 'ViT-L in fp8').verdict == '**missed by 6 %**'
    results['h200_large_fp8'] = run(3.0)
    assert standing(results, 'ViT-L in fp8').verdict == 'reached'
    del results['h200_large_graph']
    assert standing(results, 'ViT-L in fp8').verdict == 'measured'


def test_tables_show_figures_ratios_and_what_failed():
    failed = run(5.0)
    failed['baselines'] = {'hf_compiled': {'error': 'no compiler'}}
    found = performance.blocks({'h200_large_compile': run(4.0, hf_eager=10.0, floor=1.4),
                                'mine': failed, 'world_h200': {'ways': {}}}, 'benchmarks')
    row = next(line for line in found['speeds'].splitlines() if '_compile`' in line)
    assert '| 4.00 |' in row and '40.00 (10.00)' in row and '40.00 (1.40)' in row
    assert '640' in row and '(benchmarks/h200_large_compile.json)' in row
    assert 'failed' in next(line for line in found['speeds'].splitlines() if 'mine' in line)
    assert '1280x720' in found['whole'] and '5.50' in found['whole']
    assert 'NVIDIA H200, a processor, 16 cores, PyTorch 2.11.0' in found['commands']
    assert 'world_h200' not in ''.join(found.values())


@pytest.mark.parametrize(('overhead', 'verdict'), [
    (7.5, 'better reached'), (11.0, 'reached'), (13.2, '**missed by 10 %**')])
def test_the_node_over_dds_has_its_row_goal_and_command(overhead, verdict):
    def times(median):
        return {'median': median, 'p95': median + 1, 'p99': median + 2}

    node = {
        'command': 'vjepa-ros benchmark-node --seconds 60', 'date': '2026-01-02',
        'hardware': {'cpu': 'a processor', 'cores': 2}, 'versions': {'torch': '2.13.0'},
        'configuration': {'model_size': 'tiny', 'model_version': '2.0', 'num_frames': 8,
                          'image_size': 192, 'precision': 'bf16', 'device': 'cpu',
                          'looming_method': 'fused', 'source': [1280, 720], 'transport': 'raw',
                          'rate_hz': 5.0},
        'overhead_ms': times(overhead), 'latency_ms': times(overhead + 60),
        'session_ms': times(60.0), 'beyond_model_ms': times(overhead + 15),
        'parts_ms': {'transport': times(4.5), 'session': times(60.0), 'back': times(1.5)},
        'counts': {'frames': 150, 'results': 149}}
    found = standing({'node_h200': node}, 'node over DDS')
    assert (found.value, found.verdict, found.row) == (overhead, verdict, 'node_h200')
    assert standing({'node_720p': node}, 'the same on 2 CPU').verdict == verdict
    tables = performance.blocks({'node_720p': node, 'node_720p_jpeg': node}, 'benchmarks')
    row = tables['node'].splitlines()[2]
    assert '(benchmarks/node_720p.json)' in row and '1280x720 raw, 5 Hz' in row
    assert f'| {overhead:.2f} | {overhead + 1:.2f} / {overhead + 2:.2f} |' in row
    assert 'transport 4.50, back 1.50' in row and row.endswith('| 149 |')
    assert 'node_720p_jpeg' in tables['node']
    assert tables['commands'].count('`vjepa-ros benchmark-node --seconds 60`') == 2
    assert 'node_720p' not in tables['speeds']


def test_errors_come_from_files_of_the_self_test():
    told = {'command': 'vjepa-ros selftest', 'date': '2026-01-02', 'device': 'cuda:0 (H200)',
            'versions': {'torch': '2.11.0'}, 'paths': [
                {'model': 'tiny', 'path': 'bf16', 'execution': 'graph', 'encode_ms': 1.5,
                 'ok': True, 'problem': '',
                 'checks': {'features': {'error': 0.0123, 'limit': 0.03}}},
                {'model': 'tiny', 'path': 'fp8', 'execution': '', 'encode_ms': None, 'ok': False,
                 'problem': 'does not load', 'checks': {}}]}
    text = performance.blocks({'selftest_h200': told}, 'benchmarks')['errors']
    assert '1.2 %' in text and '3 %' in text and '**failed** does not load' in text


def test_every_goal_has_its_file():
    """A goal whose row nobody measures would stand as not measured for ever."""
    expected = {f'{suite}_{row}' for suite, rows in SUITES.items() for row in rows}
    expected |= {path.stem for path in FOLDER.glob('*.json')}
    assert {row for goal in GOALS for row in goal.rows} <= expected
    results = performance.load(FOLDER)
    assert [s.goal.what for s in standings(results) if s.value is None] == []


def test_prose_by_hand_stays_and_tables_are_replaced(tmp_path):
    folder = tmp_path / 'benchmarks'
    folder.mkdir()
    document = tmp_path / 'performance.md'
    document.write_text(DOCUMENT.read_text().replace('## Encoder', 'By hand.\n\n## Encoder'))
    (folder / 'h200_giant.json').write_text(json.dumps(run(7.5)))
    assert performance.main([str(document), str(folder)]) == 0
    first = document.read_text()
    assert 'By hand.' in first and '| 7.50 |' in first
    (folder / 'h200_giant.json').write_text(json.dumps(run(6.5)))
    assert performance.main([str(document), str(folder)]) == 0
    assert document.read_text() == first.replace('7.50', '6.50').replace(
        '9.00', '8.00').replace('7.60 / 7.70', '6.60 / 6.70')


@pytest.mark.parametrize(('name', 'text'), [('bad.json', '{'), ('performance.md', 'no marks')])
def test_what_cannot_be_read_is_said(name, text, tmp_path, capsys):
    document = tmp_path / 'performance.md'
    document.write_text(DOCUMENT.read_text())
    (tmp_path / name).write_text(text)
    assert performance.main([str(document), str(tmp_path)]) == 1
    assert name.removesuffix('.md') in capsys.readouterr().err or name == 'performance.md'


def test_the_document_is_what_the_files_give(tmp_path):
    """After a change run `python -m vjepa_ros.cli.benchmark.report.performance`."""
    copy = tmp_path / 'performance.md'
    copy.write_text(DOCUMENT.read_text())
    performance.write(copy, FOLDER)
    assert copy.read_text() == DOCUMENT.read_text()

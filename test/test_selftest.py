# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The self-test passes where all is right, and fails loudly for each thing that may be wrong."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vjepa_ros.cli import main as cli
from vjepa_ros.cli.selftest import main as selftest
from vjepa_ros.cli.selftest import operators, parity
from vjepa_ros.cli.selftest.cases import ExecutionPath, LIMITS, Model, weights_of
from vjepa_ros.cli.selftest.page import make_page
from vjepa_ros.cli.selftest.parity import make_reference, try_path
from vjepa_ros.perception.types import Assessment, Level, Quality
from vjepa_ros.runtime import engine as engine_module
from vjepa_ros.runtime.device import find_devices, formats
from vjepa_ros.runtime.engine import Engine
from vjepa_ros.runtime.outputs import Output

pytestmark = pytest.mark.usefixtures('one_thread')

TRAINED = Model('tiny', '2.1', 8, 128)     # sizes far from the trained one exaggerate errors
RANDOM = Model('tiny', '2.0', 4, 32)
SMALL = Model('tiny', '2.1', 4, 96)        # enough to see whether a fault is found
SEEN = [Assessment('camera', n, '', motion_score=0.1 * n, obstacle_score=0.2,
                   collision_probability=0.3 * n, collision_if_ahead=0.1 * n,
                   looming_rate=0.1, time_to_contact=10.0,
                   bearing=0.0, elevation=0.0, level=Level.CLEAR, flags=Quality(0),
                   timings={'encode': 1.0}) for n in range(3)]


@pytest.fixture(scope='module')
def reference():
    return make_reference(SMALL)


def run(*words):
    return cli.main(['selftest', '--device', 'cpu', *words])


@pytest.mark.slow
def test_a_sound_machine_passes_and_the_file_tells_all(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(selftest, 'USUAL', (TRAINED, RANDOM))
    monkeypatch.setattr(parity, 'SPEED_S', 0.01)
    monkeypatch.setattr(parity, 'RATE_HZ', 4.0)
    monkeypatch.setattr(parity, 'FRAMES', 11)      # of which 8 make the first clip
    out = tmp_path / 'selftest.json'
    page = tmp_path / 'selftest.md'
    assert run('--json', str(out), '--page', str(page)) == 0
    text = out.read_text()
    told = json.loads(text)
    assert told['ok'] is True and told['problems'] == []
    int8 = torch.int8 in formats(find_devices()['cpu']).able
    assert {(p['model'], p['path'].split(',')[0]) for p in told['paths']} == {
        (model.name, precision) for model in (TRAINED, RANDOM)
        for precision in ('fp32', 'bf16', *['int8'] * int8)}
    assert ('int8' in told['left_out']) != int8 and 'fp16' in told['left_out']
    names = {'features', 'worst token', 'repeated', 'kept', 'together'}
    for path in told['paths']:
        assert path['ok'] and path['encode_ms'] > 0 and names <= path['checks'].keys()
        # A path compared with itself would say nothing.
        assert path['checks']['features']['error'] > 0
    assert 'heads' in told['paths'][0]['checks']
    assert told['operators']['bf16']['ran']['aten.addmm.default'] > 10
    shown = page.read_text()
    for each in (text, shown):                      # safe to send in
        assert os.uname().nodename not in each and str(tmp_path) not in each
        assert str(Path.home()) not in each
    assert shown.count('| ok |') == len(told['paths']) + 1 and '**FAILED**' not in shown
    assert all(f'**{name}**: ' in shown for name in ('fp16', 'Apple GPU', 'nodes, guard, topics'))
    said = capsys.readouterr().out
    assert 'SELF-TEST PASSED' in said
    # Without a terminal there is no bar: a line tells of each step as it begins.
    assert re.search(r'^ +\d+\.\d s  operators \(\d of \d done\)$', said, re.MULTILINE)
    assert said.count('done)') == 2 + len(told['paths']) + 2


def spoiled(name, run):
    """`Engine.run` with a fault."""
    last = {}

    def spoiling(clips, **more):
        out = run(clips, **more)
        first = out[0].features
        if name == 'reused buffer':         # the next result overwrites the last
            buffer = last.setdefault('buffer', first)
            buffer[...] = first
            out = [Output(buffer, out[0].heads), *out[1:]]
        elif name == 'stale input':         # the clip before is encoded
            if len(clips) == 1:
                out, last['out'] = last.get('out', out), out
        elif name == 'one token':
            first[0, 0, 0] = 0.0
        elif name == 'not finite':
            first[0, 0, 0, 0] = np.nan
        elif name == 'mixed clips':
            out = out[::-1]
        elif name == 'deaf heads':
            out = [Output(o.features, None) for o in out]
        return out
    return spoiling


@pytest.mark.parametrize(('name', 'check'), [
    ('reused buffer', 'kept'), ('stale input', 'features'), ('one token', 'worst token'),
    ('not finite', 'features'), ('mixed clips', 'together'), ('deaf heads', 'heads')])
def test_each_fault_is_found_by_its_check(reference, monkeypatch, name, check):
    load = Engine.load

    def spoiling(config):
        engine = load(config)
        engine.run = spoiled(name, engine.run)
        return engine
    monkeypatch.setattr(parity.Engine, 'load', spoiling)
    monkeypatch.setattr(parity, '_speed', lambda *more: 1.0)
    outcome = try_path(SMALL, ExecutionPath('bf16'), 'cpu', reference)
    assert not outcome.ok and not outcome.problem
    assert check in {c.name for c in outcome.checks if not c.ok}


def test_under_the_random_weights_a_wrong_rotation_is_far_beyond_the_limit(tmp_path, monkeypatch):
    """With the start values of training it would be within it: the reason for these weights."""
    model = Model('tiny', '2.0', 4, 64, weights_of(RANDOM, tmp_path))
    reference, load_model = make_reference(model), engine_module.load_model

    def turned(*args):
        encoder, heads, report = load_model(*args)
        encoder._positions.version = '2.1'      # the other order of the angles
        return encoder, heads, report
    monkeypatch.setattr(engine_module, 'load_model', turned)
    outcome = try_path(model, ExecutionPath('fp32'), 'cpu', reference)
    assert {c.name: c.value for c in outcome.checks}['features'] > 2 * LIMITS['bf16']


class Lacking(torch.utils._python_dispatch.TorchDispatchMode):
    """A device, played by the meta device, that has no gelu and no layer norm."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if any(t.device.type == 'meta' for t in tensors) and (
                func.overloadpacket.__name__ in ('gelu', 'native_layer_norm')):
            raise NotImplementedError(f"The operator '{func}' is not currently implemented")
        return func(*args, **(kwargs or {}))


def test_operators_that_a_device_lacks_are_all_named(monkeypatch, tmp_path):
    def meta_to_cpu(value):
        return torch.zeros(value.shape, dtype=value.dtype) if isinstance(
            value, torch.Tensor) else value
    monkeypatch.setattr(operators, '_to_cpu', meta_to_cpu)
    monkeypatch.setattr(torch.Tensor, 'cpu', meta_to_cpu)
    model = Model('tiny', '2.0', 4, 32, weights_of(RANDOM, tmp_path))
    with Lacking():
        found = operators.coverage(model, torch.device('meta'), torch.float32)
    assert found.missing.keys() == {'aten.gelu.default', 'aten.native_layer_norm.default'}
    assert 'not currently implemented' in found.missing['aten.gelu.default']
    assert found.ran['aten.addmm.default'] > 10


def test_a_missing_operator_fails_the_test(monkeypatch, capsys):
    monkeypatch.setattr(selftest, 'USUAL', (SMALL,))
    monkeypatch.setattr(parity, 'SPEED_S', 0.01)
    monkeypatch.setattr(parity, 'assessments', lambda *more: SEEN)       # without the drive
    found = operators.Operators(missing={'aten.flip.default': 'not implemented'})
    monkeypatch.setattr(selftest, 'coverage', lambda *more: found)
    assert run() == 1
    assert 'aten.flip.default does not run here' in ' '.join(capsys.readouterr().out.split())


def test_other_assessments_fail(monkeypatch):
    bad = [replace(a, collision_probability=1.0 - a.collision_probability) for a in SEEN]
    said = {('cpu', 'fp32'): SEEN, ('cuda:0', 'auto'): bad, ('cuda:1', 'auto'): SEEN[:-1]}
    monkeypatch.setattr(parity, 'assessments', lambda *key: said[key])
    assert not parity.compare_detectors('cuda:0').ok
    assert 'gives' in parity.compare_detectors('cuda:1').problem
    said['cuda:0', 'auto'] = SEEN
    assert parity.compare_detectors('cuda:0').ok


def test_a_device_that_is_not_there_is_no_success(tmp_path, capsys):
    out = tmp_path / 'selftest.json'
    assert cli.main(['selftest', '--device', 'cuda:9', '--json', str(out)]) == 1
    assert 'SELF-TEST NOT DONE' in capsys.readouterr().out
    told = json.loads(out.read_text())
    assert told['ok'] is False and "'cuda:9' is not available" in told['problems'][0]
    page = make_page(told)
    assert 'FAILED' in page and 'not available' in page and 'What was tested' not in page


def test_the_verdict_is_told_where_a_file_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(selftest, 'run', lambda *more: {
        'ok': True, 'problems': [], 'device': 'cpu', 'versions': {'torch': '2'}, 'paths': [],
        'left_out': {}, 'operators': {}})
    monkeypatch.setattr(selftest, 'make_page', lambda result: 'page')
    (blocked := tmp_path / 'file').touch()
    page = tmp_path / 'new' / 'page.md'
    assert run('--json', str(blocked / 'a.json'), '--page', str(page)) == 1
    said = capsys.readouterr().out
    assert 'SELF-TEST PASSED' in said and f"--json '{blocked / 'a.json'}' cannot be" in said
    assert page.read_text() == 'page'

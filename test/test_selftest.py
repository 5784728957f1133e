# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The self-test passes where all is right, and fails loudly for each thing that may be wrong."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vjepa_ros.cli import main as cli
from vjepa_ros.cli.selftest import main as selftest
from vjepa_ros.cli.selftest import operators, parity
from vjepa_ros.cli.selftest.cases import (
    LIMITS,
    ExecutionPath,
    Model,
    find_paths,
    limits,
    lively,
    weights_of,
)
from vjepa_ros.cli.selftest.parity import (
    Check,
    Outcome,
    as_json,
    compare,
    make_reference,
    relative,
    try_path,
    worst_token,
)
from vjepa_ros.runtime import engine as engine_module
from vjepa_ros.runtime.device import DeviceChoice, find_devices, formats
from vjepa_ros.runtime.engine import Engine
from vjepa_ros.runtime.outputs import Output

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('one_thread')]

TRAINED = Model('tiny', '2.0', 8, 128)     # sizes far from the trained one exaggerate errors
RANDOM = Model('tiny', '2.1', 4, 32)
SMALL = Model('tiny', '2.0', 4, 96)        # enough to see whether a fault is found


@pytest.fixture(scope='module')
def drive():
    """What the detector says on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, 'RATE_HZ', 4.0)
        patch.setattr(parity, 'FRAMES', 11)      # of which 8 make the first clip
        return parity.assessments('cpu', 'fp32')


@pytest.fixture
def quick(monkeypatch, drive):
    """A self-test of small clips."""
    monkeypatch.setattr(selftest, 'USUAL', (TRAINED, RANDOM))
    monkeypatch.setattr(parity, 'SPEED_S', 0.01)
    # A second drive with the same device would say nothing.
    monkeypatch.setattr(parity, 'assessments', lambda *more: drive)


@pytest.fixture
def quickest(quick, monkeypatch):
    """A self-test of what is small."""
    monkeypatch.setattr(selftest, 'USUAL', (SMALL,))


@pytest.fixture(scope='module')
def reference():
    return make_reference(SMALL)


def int8_is_offered():
    return torch.int8 in formats(find_devices()['cpu']).able


def run(*words):
    return cli.main(['selftest', '--device', 'cpu', *words])


def test_a_sound_machine_passes_and_the_file_tells_all(quick, tmp_path, capsys):
    out = tmp_path / 'selftest.json'
    assert run('--json', str(out)) == 0
    text = out.read_text()
    told = json.loads(text)
    assert told['ok'] is True and told['problems'] == []
    assert {(p['model'], p['path'].split(',')[0]) for p in told['paths']} == {
        (model.name, precision) for model in (TRAINED, RANDOM)
        for precision in ('fp32', 'bf16', *['int8'] * int8_is_offered())}
    assert ('int8' in told['left_out']) != int8_is_offered()
    for path in told['paths']:
        assert path['ok'] and path['encode_ms'] > 0
        names = {'features', 'worst token', 'repeated', 'kept', 'together'}
        assert names <= path['checks'].keys()
    errors = [p['checks']['features']['error'] for p in told['paths']]
    assert min(errors) > 0          # a path compared with itself would say nothing
    assert 'heads' in told['paths'][0]['checks']
    assert told['operators']['bf16']['ran']['aten.addmm.default'] > 10
    assert 'fp16' in told['left_out']
    assert told['command'] == 'vjepa-ros selftest --device cpu'
    assert os.uname().nodename not in text and str(tmp_path) not in text
    said = capsys.readouterr().out
    assert 'SELF-TEST PASSED' in said
    # Without a terminal there is no bar: a line tells of each step as it begins.
    assert re.search(r'^ +\d+\.\d s  operators \(\d of \d done\)$', said, re.MULTILINE)
    assert said.count('done)') == 2 + len(told['paths']) + 2


def sabotaged(monkeypatch, spoil, precision='bf16'):
    """Let `spoil` have every engine of one precision after it is loaded."""
    load = Engine.load

    def spoiling(config):
        engine = load(config)
        if config.precision == precision:
            spoil(engine)
        return engine
    monkeypatch.setattr(parity.Engine, 'load', spoiling)


def misloaded(monkeypatch, spoil, precision='bf16'):
    """Let `spoil` have the network of every engine of one precision before it is prepared."""
    load, load_model = Engine.load, engine_module.load_model

    def spoiling(*args):
        encoder, heads, report = load_model(*args)
        with torch.inference_mode():
            spoil(encoder)
        return encoder, heads, report

    def loading(config):
        with pytest.MonkeyPatch.context() as patch:
            if config.precision == precision:
                patch.setattr(engine_module, 'load_model', spoiling)
            return load(config)
    monkeypatch.setattr(parity.Engine, 'load', loading)


def test_one_path_with_other_weights_fails_loudly(quickest, monkeypatch, tmp_path, capsys):
    misloaded(monkeypatch, lambda encoder: encoder.blocks[5].attn.qkv.weight.mul_(1.5))
    out = tmp_path / 'selftest.json'
    assert run('--json', str(out)) == 1
    told = json.loads(out.read_text())
    assert told['ok'] is False
    assert {p['path'].split(',')[0] for p in told['paths'] if not p['ok']} == {'bf16'}
    text = capsys.readouterr().out
    assert 'SELF-TEST FAILED' in text and 'bf16' in text and 'PASSED' not in text


def replaced(name):
    """Spoil the results of an engine."""
    def spoil(engine):
        run = engine.run
        last = {}

        def spoiled(clips, **more):
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
        engine.run = spoiled
    return spoil


@pytest.mark.parametrize(('name', 'check'), [
    ('reused buffer', 'kept'), ('stale input', 'features'), ('one token', 'worst token'),
    ('not finite', 'features'), ('mixed clips', 'together'), ('deaf heads', 'heads')])
def test_each_fault_is_found_by_its_check(reference, monkeypatch, name, check):
    sabotaged(monkeypatch, replaced(name))
    monkeypatch.setattr(parity, '_speed', lambda *more: 1.0)
    outcome = try_path(SMALL, ExecutionPath('bf16'), 'cpu', reference)
    assert not outcome.ok and not outcome.problem
    assert check in {c.name for c in outcome.checks if not c.ok}
    assert try_path(SMALL, ExecutionPath('fp32'), 'cpu', reference).ok


def test_a_path_that_does_not_load_or_run_fails(reference, monkeypatch):
    outcome = try_path(SMALL, ExecutionPath('fp7'), 'cpu', reference)
    assert 'does not load' in outcome.problem and 'fp7' in outcome.problem and not outcome.ok

    def fall(engine):
        engine.run = lambda clips: torch.ones(2) @ torch.ones(3)
    sabotaged(monkeypatch, fall)
    outcome = try_path(SMALL, ExecutionPath('bf16'), 'cpu', reference)
    assert 'does not run' in outcome.problem and not outcome.ok


def test_nothing_compared_is_no_success():
    assert not Outcome('model', 'path').ok
    assert not Check('features', float('nan'), 1.0).ok
    assert as_json([Outcome('model', 'path')])[0]['encode_ms'] is None


def test_errors_are_relative():
    wanted = np.full((2, 4), 2.0, np.float32)
    assert relative(wanted * 1.01, wanted) == pytest.approx(0.01, rel=1e-4)
    assert np.isnan(relative(wanted[:1], wanted))
    got = wanted.copy()
    got[1] = 0.0
    assert worst_token(got, wanted) == pytest.approx(1.0)
    assert relative(got, wanted) == pytest.approx(0.5 ** 0.5)


def test_under_the_random_weights_a_wrong_rotation_is_far_beyond_the_limit(tmp_path, monkeypatch):
    """With the start values of training it would be within it: the reason for these weights."""
    model = Model('tiny', '2.1', 4, 64, weights_of(RANDOM, tmp_path))
    reference = make_reference(model)

    def turned(encoder):
        encoder._positions.version = '2.0'      # the other order of the angles
    misloaded(monkeypatch, turned, 'fp32')
    outcome = try_path(model, ExecutionPath('fp32'), 'cpu', reference)
    found = {c.name: c.value for c in outcome.checks}
    assert found['features'] > 2 * LIMITS['bf16']


def test_random_weights_are_the_same_in_every_run(tmp_path):
    first, second = (lively(RANDOM).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert weights_of(TRAINED, tmp_path) == '' and not list(tmp_path.iterdir())


# -- paths ------------------------------------------------------------------------------------

def test_paths_are_what_the_device_and_the_engine_offer(monkeypatch):
    from vjepa_ros.cli.selftest import cases as selftest_paths
    offered = {'fp32', 'fp16', 'bf16', 'fp8'}

    def choose(device, require, precision):
        if precision not in (*offered, 'auto'):
            raise selftest_paths.DeviceError(f'{precision} is not here')
        name = 'bf16' if precision == 'auto' else precision
        return SimpleNamespace(precision=name)
    monkeypatch.setattr(selftest_paths, 'choose_device', choose)
    monkeypatch.setattr(selftest_paths, 'compile_problem', lambda device: '')
    paths, left_out = find_paths('cuda:0')
    assert [(p.precision, p.compile) for p in paths] == [
        *((p, 'off') for p in ('fp32', 'fp16', 'bf16', 'fp8')), ('bf16', 'on')]
    assert left_out.keys() == {'int8'}
    paths, left_out = find_paths('cuda:0', 'off')
    assert {p.compile for p in paths} == {'off'} and 'compile' in left_out
    paths, left_out = find_paths('cpu')
    assert {p.compile for p in paths} == {'off'} and '--compile on' in left_out['compile']
    assert 'on' in {p.compile for p in find_paths('cpu', 'on')[0]}


def test_compiling_is_left_out_where_it_cannot_work(monkeypatch):
    from vjepa_ros.cli.selftest import cases as selftest_paths
    from vjepa_ros.runtime.forward.compilation import Toolchain
    tools = {'triton': True, 'compiler': False}
    monkeypatch.setattr(selftest_paths.Toolchain, 'here', lambda: Toolchain(**tools))
    assert 'compiler' in selftest_paths.compile_problem('cuda:0')
    assert 'compiler' in find_paths('cpu', 'on')[1]['compile']
    tools.update(triton=False, compiler=True)
    assert 'Triton' in selftest_paths.compile_problem('cuda:0')
    assert selftest_paths.compile_problem('cpu') == ''
    assert 'MPS' in selftest_paths.compile_problem('mps')


def test_limits_follow_the_precision():
    assert limits('fp16')['features'] < limits('bf16')['features'] <= 0.03
    assert set(limits('fp32')) == set(limits('fp8')) == set(limits('int8'))
    assert limits('int8')['features'] <= 0.03


# -- operators --------------------------------------------------------------------------------

class Lacking(torch.utils._python_dispatch.TorchDispatchMode):
    """A device, played by the meta device, that has no gelu and no layer norm."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if any(t.device.type == 'meta' for t in tensors) and (
                func.overloadpacket.__name__ in ('gelu', 'native_layer_norm')):
            # Plays a device that lacks an operator, in PyTorch's own words.
            raise NotImplementedError(f"The operator '{func}' is not currently implemented")
        return func(*args, **(kwargs or {}))


def test_operators_that_a_device_lacks_are_all_named(monkeypatch, tmp_path):
    def meta_to_cpu(value):
        return torch.zeros(value.shape, dtype=value.dtype) if isinstance(
            value, torch.Tensor) else value
    monkeypatch.setattr(operators, '_to_cpu', meta_to_cpu)
    monkeypatch.setattr(torch.Tensor, 'cpu', meta_to_cpu)
    model = Model('tiny', '2.1', 4, 32, weights_of(RANDOM, tmp_path))
    with Lacking():
        found = operators.coverage(model, torch.device('meta'), torch.float32)
    assert found.missing.keys() == {'aten.gelu.default', 'aten.native_layer_norm.default'}
    assert 'not currently implemented' in found.missing['aten.gelu.default']
    assert found.ran['aten.addmm.default'] > 10


def test_a_missing_operator_fails_the_test(quickest, monkeypatch, capsys):
    found = operators.Operators(missing={'aten.flip.default': 'not implemented'})
    monkeypatch.setattr(selftest, 'coverage', lambda *more: found)
    assert run() == 1
    assert 'aten.flip.default does not run here' in ' '.join(capsys.readouterr().out.split())


@pytest.mark.parametrize('error', [
    torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB'), MemoryError('no'),
    RuntimeError('MPS backend out of memory (MPS allocated: 5 GB)')])
def test_a_coverage_without_memory_fails_the_test_and_is_told(quickest, monkeypatch, tmp_path,
                                                              error):
    def full(module, pixels):
        raise error
    real = operators.load_model

    def load(*more):
        loaded = real(*more)
        loaded[0].patch_embed.register_forward_pre_hook(full)
        return loaded
    monkeypatch.setattr(operators, 'load_model', load)
    out = tmp_path / 'selftest.json'
    assert run('--json', str(out)) == 1
    told = json.loads(out.read_text())
    assert [p.split(':')[0] for p in told['problems']] == ['operators in fp32',
                                                           'operators in bf16']
    assert str(error) in told['operators']['bf16']['problem']
    assert all(p['ok'] for p in told['paths'])


def test_memory_that_is_used_up_is_no_missing_operator(monkeypatch):
    class Full(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ == 'gelu':
                raise RuntimeError('MPS backend out of memory (MPS allocated: 5 GB)')
            return func(*args, **(kwargs or {}))
    with Full(), pytest.raises(RuntimeError, match='out of memory'):
        operators.coverage(Model('tiny', '2.0', 4, 32), torch.device('meta'),
                                    torch.float32)


def test_a_silent_fallback_of_mps_is_a_problem(monkeypatch):
    mps = torch.device('mps')
    monkeypatch.delenv(operators.FALLBACK, raising=False)
    assert operators.fallback_problem(mps) == ''
    monkeypatch.setenv(operators.FALLBACK, '1')
    assert 'unset it' in operators.fallback_problem(mps)
    assert operators.fallback_problem(torch.device('cpu')) == ''


# -- image to assessment ----------------------------------------------------------------------

def test_other_assessments_fail(monkeypatch, drive):
    assert len(drive) == 4
    bad = [replace(a, collision_probability=1.0 - a.collision_probability) for a in drive]
    said = {('cpu', 'fp32'): drive, ('cuda:0', 'auto'): bad, ('cuda:1', 'auto'): drive[:-1]}
    monkeypatch.setattr(parity, 'assessments', lambda *key: said[key])
    assert not parity.compare_detectors('cuda:0').ok
    assert 'gives' in parity.compare_detectors('cuda:1').problem
    said['cuda:0', 'auto'] = drive
    assert parity.compare_detectors('cuda:0').ok


def test_a_device_that_is_not_there_is_no_success(tmp_path, capsys):
    out = tmp_path / 'selftest.json'
    assert cli.main(['selftest', '--device', 'cuda:9', '--json', str(out)]) == 1
    assert 'SELF-TEST NOT DONE' in capsys.readouterr().out
    told = json.loads(out.read_text())
    assert told['ok'] is False and told['command'] == 'vjepa-ros selftest --device cuda:9'
    assert "'cuda:9' is not available" in told['problems'][0]
    assert told['hardware']['cpu'] and told['versions']['torch']


def test_every_path_of_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip('PyTorch finds no CUDA device here')
    assert selftest.run('cuda', compiled='off')['problems'] == []


def test_compare_looks_at_what_the_engine_gives(reference):
    choice = DeviceChoice(torch.device('cpu'), torch.float32, 'test')
    echo = SimpleNamespace(choice=choice, run=lambda clips: [
        reference.outputs[[c is k for k in reference.clips].index(True)] for c in clips],
        encode=lambda clips: [reference.outputs[0].features])
    assert all(c.value == 0.0 for c in compare(echo, reference, limits('fp32')))

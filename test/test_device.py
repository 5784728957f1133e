# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Device and precision are chosen from what is present (here: described), never silently."""

import logging
import warnings

import pytest
import torch

from vjepa_ros.runtime import device as policy
from vjepa_ros.runtime.device import Device, DeviceError, all_operators_on, choose_device

FP32, FP16, BRAIN = torch.float32, torch.float16, torch.bfloat16
GB = 2 ** 30


def gpu(index=0, capability=(9, 0), **more):
    return Device(f'cuda:{index}', policy.CUDA, 'NVIDIA Test', capability, **more)


def amd(architecture, **more):
    return Device('cuda:0', policy.ROCM, 'AMD Test', architecture=architecture, **more)


def machine(*devices, cpu=frozenset()):
    here = Device('cpu', policy.CPU, features=frozenset(cpu))
    return {one.name: one for one in (here, *devices)}


def mac(*features):
    return machine(Device('mps', policy.MPS, 'Apple GPU', features=frozenset(features)))


PLAIN = machine()
ZEN4 = machine(cpu={policy.AVX512_BF16, policy.AVX512_VNNI})
SAPPHIRE = machine(cpu={policy.AVX512_BF16, policy.AMX, policy.AVX512_VNNI, policy.AVX_VNNI})
CASCADE = machine(cpu={policy.AVX512_VNNI})
GPUS = machine(gpu(0), gpu(1))
TURING, PASCAL = machine(gpu(capability=(7, 5))), machine(gpu(capability=(6, 1)))


@pytest.mark.parametrize(('present', 'wanted', 'precision', 'device', 'dtype'), [
    (PLAIN, 'auto', 'auto', 'cpu', FP32),
    (ZEN4, 'auto', 'auto', 'cpu', BRAIN),
    (CASCADE, 'cpu', 'auto', 'cpu', FP32),     # never int8 unasked
    (CASCADE, 'auto', 'int8', 'cpu', torch.int8),
    (GPUS, 'auto', 'auto', 'cuda:0', BRAIN),
    (GPUS, 'cuda:1', 'fp32', 'cuda:1', FP32),
    (machine(gpu(capability=(8, 9))), 'auto', 'fp8', 'cuda:0', torch.float8_e4m3fn),
    (TURING, 'auto', 'auto', 'cuda:0', FP16),
    (PASCAL, 'auto', 'auto', 'cuda:0', FP32),
    (machine(amd('gfx942')), 'auto', 'auto', 'cuda:0', BRAIN),
    (machine(amd('gfx1030')), 'auto', 'auto', 'cuda:0', FP16),
    (mac(), 'auto', 'auto', 'mps', FP16),
])
def test_a_present_device_is_used_as_asked(present, wanted, precision, device, dtype, caplog,
                                           monkeypatch):
    monkeypatch.setattr(policy, 'find_spec', lambda name: name)     # torchao is there
    with caplog.at_level(logging.INFO):
        choice = choose_device(wanted, True, precision, present)
    assert (choice.device, choice.dtype) == (torch.device(device), dtype)
    assert not choice.fell_back
    assert choice.reason in caplog.text


def test_a_missing_device_that_is_not_required_falls_back_and_says_so(caplog):
    choice = choose_device('cuda:0', False, 'fp16', ZEN4)
    assert (choice.device.type, choice.dtype, choice.fell_back) == ('cpu', BRAIN, True)
    assert "'cuda:0' is not available" in choice.reason and choice.precision in choice.reason
    assert choice.reason in caplog.text


BROKEN = machine(gpu(problem='this PyTorch has no code for it'))
SMALL = machine(gpu(memory_bytes=1 * GB))


@pytest.mark.parametrize('wanted', ['auto', 'cuda:0'])
@pytest.mark.parametrize(('present', 'words'), [
    (BROKEN, 'no code for it'), (SMALL, 'needs 2.0 GB and it has 1.0 GB')])
def test_a_gpu_that_cannot_be_used_is_not_passed_over_in_silence(present, words, wanted, caplog):
    with pytest.raises(DeviceError, match=words):
        choose_device(wanted, True, 'auto', present, need_bytes=2 * GB)
    choice = choose_device(wanted, False, 'auto', present, need_bytes=2 * GB)
    assert (choice.device.type, choice.fell_back) == ('cpu', True)
    assert words in choice.reason
    assert choice.reason in caplog.text


@pytest.mark.parametrize(('capability', 'architectures', 'runs'), [
    ((8, 6), ['sm_80'], True), ((8, 0), ['sm_86'], False),
    ((12, 0), ['sm_90', 'compute_90'], True), ((12, 0), ['sm_90'], False)])
def test_a_build_runs_on_gpus_that_it_has_code_for(capability, architectures, runs):
    problem = policy.unsupported(capability, architectures)
    assert (problem == '') == runs
    assert runs or '.'.join(map(str, capability)) in problem


@pytest.mark.parametrize(('wanted', 'precision', 'present', 'words'), [
    ('cpu', 'fp16', PLAIN, r"'fp16' is not available on cpu.*one of fp32, bf16"),
    ('mps', 'bf16', mac(), "'bf16' is not available on mps"),
    ('auto', 'bf16', TURING, r'not available on cuda:0 \(NVIDIA Test\).*fp32, fp16'),
    ('cpu', 'int8', SAPPHIRE, "'int8' is not available on cpu; set `precision` to auto")])
def test_a_precision_the_device_cannot_compute_is_refused_with_the_alternatives(
        wanted, precision, present, words):
    with pytest.raises(DeviceError, match=words):
        choose_device(wanted, False, precision, present)


@pytest.mark.parametrize('wanted', ['gpu', 'cuda:x', 'rocm'])
def test_an_unknown_device_name_is_refused_even_when_falling_back_is_allowed(wanted):
    with pytest.raises(DeviceError, match='is not one of auto') as error:
        choose_device(wanted, False, 'auto', GPUS)
    assert ('AMD GPUs are called cuda' in str(error.value)) == (wanted == 'rocm')


def test_an_operator_that_mps_lacks_is_named():
    mps = torch.device('mps')
    with pytest.raises(DeviceError, match=r"mps has no operator 'aten::_fft_r2c'.*device: cpu"), \
            all_operators_on(mps):
        # In the words in which PyTorch refuses an operator on MPS.
        raise NotImplementedError("The operator 'aten::_fft_r2c' is not currently implemented for "
                                  'the MPS device. If you want this op to be added ...')
    with pytest.raises(DeviceError, match=r"mps has no operator 'aten::erfinv'"), \
            all_operators_on(mps):
        warnings.warn("The operator 'aten::erfinv' is not currently supported on the MPS backend "
                      'and will fall back to run on the CPU. This may have performance '
                      'implications.', UserWarning, stacklevel=1)

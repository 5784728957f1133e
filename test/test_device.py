# SPDX-License-Identifier: Apache-2.0
"""Device and precision are chosen from what is present, never silently."""

import logging

import pytest
import torch

from vjepa_ros.runtime.device import (
    PRECISIONS,
    DeviceError,
    choose_device,
    device_name,
    find_devices,
)

ALL = frozenset({torch.float32, torch.float16, torch.bfloat16})
CPU = {'cpu': frozenset({torch.float32, torch.bfloat16})}
OLD_GPU = CPU | {'cuda:0': frozenset({torch.float32})}
GPUS = CPU | {'cuda:0': ALL, 'cuda:1': ALL}
MAC = CPU | {'mps': frozenset({torch.float32, torch.float16})}


@pytest.mark.parametrize(('present', 'wanted', 'precision', 'device', 'dtype'), [
    (CPU, 'auto', 'auto', 'cpu', torch.float32),
    (CPU, 'cpu', 'bf16', 'cpu', torch.bfloat16),
    (GPUS, 'auto', 'auto', 'cuda:0', torch.float16),
    (GPUS, 'cuda', 'bf16', 'cuda:0', torch.bfloat16),
    (GPUS, 'cuda:1', 'fp32', 'cuda:1', torch.float32),
    (GPUS, 'cpu', 'auto', 'cpu', torch.float32),
    (OLD_GPU, 'auto', 'auto', 'cuda:0', torch.float32),
    (MAC, 'auto', 'auto', 'mps', torch.float16),
    (MAC, 'mps', 'fp32', 'mps', torch.float32),
])
@pytest.mark.parametrize('require', [False, True])
def test_a_present_device_is_used_as_asked(present, wanted, precision, device, dtype, require):
    choice = choose_device(wanted, require, precision, present)
    assert (choice.device, choice.dtype) == (torch.device(device), dtype)
    assert not choice.fell_back
    assert PRECISIONS[choice.precision] == dtype


@pytest.mark.parametrize('wanted', ['cuda', 'cuda:2', 'mps'])
def test_a_missing_device_that_is_required_is_an_error_naming_what_is_there(wanted):
    present = CPU if wanted == 'cuda' else GPUS
    with pytest.raises(DeviceError) as error:
        choose_device(wanted, True, 'auto', present)
    assert f"'{wanted}' is not available" in str(error.value)
    assert all(name in str(error.value) for name in present)
    assert 'require_device' in str(error.value)


@pytest.mark.parametrize('precision', ['auto', 'fp32', 'fp16'])
def test_a_missing_device_that_is_not_required_falls_back_and_says_so(caplog, precision):
    with caplog.at_level(logging.WARNING):
        choice = choose_device('cuda:0', False, precision, CPU)
    assert (choice.device.type, choice.dtype, choice.fell_back) == ('cpu', torch.float32, True)
    assert "'cuda:0' is not available" in choice.reason
    assert choice.reason in caplog.text


def test_a_precision_the_device_cannot_compute_is_refused_with_the_alternatives():
    with pytest.raises(DeviceError, match=r"'fp16' is not available on cpu.*one of fp32"):
        choose_device('cpu', False, 'fp16', CPU)
    with pytest.raises(DeviceError, match="'bf16' is not available on mps"):
        choose_device('mps', True, 'bf16', MAC)


@pytest.mark.parametrize('wanted', ['gpu', 'cuda:', 'cuda:x', '', 'CPU', 'cuda:0 '])
def test_an_unknown_device_name_is_refused_even_when_falling_back_is_allowed(wanted):
    with pytest.raises(DeviceError, match='is not one of auto'):
        choose_device(wanted, False, 'auto', GPUS)


def test_an_unknown_precision_is_refused():
    with pytest.raises(DeviceError, match="'int8' is not one of auto, fp32, fp16, bf16"):
        choose_device('cpu', False, 'int8', CPU)


def test_every_machine_has_a_cpu_that_computes_float32():
    found = find_devices()
    assert torch.float32 in found['cpu']
    assert choose_device().device.type in {name.split(':')[0] for name in found}
    assert 'threads' in device_name(torch.device('cpu'))

# SPDX-License-Identifier: Apache-2.0
"""Choose device and precision, and say why."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

log = logging.getLogger(__name__)

PRECISIONS = {'fp32': torch.float32, 'fp16': torch.float16, 'bf16': torch.bfloat16}
WANTED = re.compile(r'auto|cpu|mps|cuda(:\d+)?')

# Names of usable devices, such as 'cuda:0', and the types each of them may be asked to compute.
Present = Mapping[str, frozenset[torch.dtype]]


class DeviceError(RuntimeError):
    """The wanted device or precision is not available."""


@dataclass(frozen=True)
class DeviceChoice:
    """Where the model runs.

    Attributes
    ----------
    device : torch.device
        Device of the weights.
    dtype : torch.dtype
        Type in which attention and MLP are computed.
    reason : str
        One sentence for logs and diagnostics.
    fell_back : bool
        True when another device was wanted but is missing.

    """

    device: torch.device
    dtype: torch.dtype
    reason: str
    fell_back: bool = False

    @property
    def precision(self) -> str:
        """'fp32', 'fp16' or 'bf16'."""
        return next(name for name, dtype in PRECISIONS.items() if dtype == self.dtype)


def choose_device(wanted: str = 'auto', require: bool = False, precision: str = 'auto',
                  present: Present | None = None) -> DeviceChoice:
    """Decide on device and precision.

    Parameters
    ----------
    wanted : str
        auto (CUDA, then MPS, then CPU), cpu, cuda, cuda:N or mps.
    require : bool
        Raise when `wanted` is missing; otherwise run on the CPU with a warning.
    precision : str
        auto, fp32, fp16 or bf16. Auto is fp16 on accelerators that compute it fast (it keeps
        three more bits than bf16) and fp32 elsewhere.
    present : mapping of str to set of torch.dtype, optional
        Devices to choose from; those of this machine when omitted.

    Raises
    ------
    DeviceError
        When a value is illegal, or a required device or an explicit precision is missing.

    """
    present = find_devices() if present is None else present
    if not WANTED.fullmatch(wanted):
        raise DeviceError(f"device '{wanted}' is not one of auto, cpu, cuda, cuda:N, mps")
    if precision != 'auto' and precision not in PRECISIONS:
        raise DeviceError(f"precision '{precision}' is not one of auto, {', '.join(PRECISIONS)}")

    name = _resolve(wanted, present)
    if name in present:
        dtype = _pick_dtype(name, precision, present[name])
        reason = f'{name} was asked for' if wanted != 'auto' else f'{name} is the best device here'
        return DeviceChoice(torch.device(name), dtype, reason)

    missing = f"device '{wanted}' is not available here (found: {', '.join(sorted(present))})"
    if require:
        raise DeviceError(f'{missing}; set `device` to one of these or `require_device: false`')
    dtype = PRECISIONS.get(precision, torch.float32)
    if dtype not in present['cpu']:
        dtype = torch.float32
    reason = f'{missing}; running on the CPU instead, which is slower'
    log.warning('%s', reason)
    return DeviceChoice(torch.device('cpu'), dtype, reason, fell_back=True)


def _resolve(wanted: str, present: Present) -> str:
    if wanted == 'auto':
        return next(n for n in ('cuda:0', 'mps', 'cpu') if n in present)
    return 'cuda:0' if wanted == 'cuda' else wanted


def _pick_dtype(name: str, precision: str, able: frozenset[torch.dtype]) -> torch.dtype:
    if precision == 'auto':
        fast_half = name != 'cpu' and torch.float16 in able
        return torch.float16 if fast_half else torch.float32
    if PRECISIONS[precision] not in able:
        names = ', '.join(n for n, dtype in PRECISIONS.items() if dtype in able)
        raise DeviceError(f"precision '{precision}' is not available on {name}; "
                          f'set `precision` to auto or one of {names}')
    return PRECISIONS[precision]


def find_devices() -> dict[str, frozenset[torch.dtype]]:
    """Devices of this machine and the types each of them may be asked to compute.

    Half precision is left out where it is known to be slower than float32. On a CPU bf16 is fast
    only with AVX512-BF16 or AMX instructions; it is never chosen there unless asked for.
    """
    found = {'cpu': frozenset({torch.float32, torch.bfloat16})}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found[f'cuda:{index}'] = _cuda_dtypes(torch.cuda.get_device_capability(index))
    if torch.backends.mps.is_available():
        found['mps'] = _mps_dtypes()
    return found


def _cuda_dtypes(capability: tuple[int, int]) -> frozenset[torch.dtype]:
    dtypes = {torch.float32}
    if capability >= (7, 0):  # tensor cores; before them half precision is slower than float32
        dtypes.add(torch.float16)
    if capability >= (8, 0):
        dtypes.add(torch.bfloat16)
    return frozenset(dtypes)


def _mps_dtypes() -> frozenset[torch.dtype]:
    dtypes = {torch.float32, torch.float16}
    try:  # bfloat16 depends on the version of macOS, which only a trial shows reliably
        torch.ones(2, device='mps', dtype=torch.bfloat16).add_(1).cpu()
        dtypes.add(torch.bfloat16)
    except (RuntimeError, TypeError) as error:
        log.info('no bf16 on mps: %s', error)
    return frozenset(dtypes)


def device_name(device: torch.device) -> str:
    """Name of a device for people, such as 'cuda:0 (NVIDIA H200)'."""
    if device.type == 'cuda':
        return f'{device} ({torch.cuda.get_device_name(device)})'
    if device.type == 'cpu':
        return f'cpu ({torch.get_num_threads()} threads)'
    return str(device)

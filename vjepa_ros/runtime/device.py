# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose device and precision, and say why; never replace one device by another silently.

Precision `auto` is

- bf16 on NVIDIA GPUs from compute capability 8.0 on, on AMD GPUs from CDNA 2 and RDNA 3 on, and
  on CPUs with AVX512-BF16 or AMX. There fp16 is no faster; it is eight times as exact
  (docs/notebook/numerics.md), but ends at 65,504, and the published networks were trained in bf16.
- fp16 on older NVIDIA GPUs with tensor cores, on AMD GPUs with fast fp16, and on Apple GPUs.
- fp32 on everything else, where half precision is slower.

It is never fp8 or int8, see `vjepa_ros.runtime.forward.quantized`.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CPU, CUDA, ROCM, MPS = 'cpu', 'cuda', 'rocm', 'mps'
AVX512_BF16, AMX = 'avx512_bf16', 'amx_bf16'
AVX512_VNNI, AVX_VNNI = 'avx512_vnni', 'avx_vnni'
BF16 = 'bf16'
VNNI = frozenset({AVX512_VNNI, AVX_VNNI})      # either multiplies int8 without overflow


@dataclass(frozen=True)
class Device:
    """What is known of one device."""

    name: str  # as PyTorch calls it: cpu, cuda:0, mps. AMD GPUs are cuda devices, too.
    kind: str  # `CPU`, `CUDA`, `ROCM` or `MPS`
    label: str = ''  # of the product, such as 'NVIDIA H200'; '' unknown
    capability: tuple[int, int] = (0, 0)  # compute capability of an NVIDIA GPU
    architecture: str = ''  # of an AMD GPU, such as 'gfx942'
    memory_bytes: int = 0  # of its own, on MPS the recommended working set; 0 unknown
    # Of a CPU: instructions, see `cpu_features`. Of MPS: `BF16` when a trial succeeded.
    features: frozenset[str] = frozenset()
    problem: str = ''  # why it cannot be used although it is there; '' when it can

    @property
    def title(self) -> str:
        words = [self.label] * bool(self.label) + ['ROCm'] * (self.kind == ROCM)
        return f'{self.name} ({", ".join(words)})' if words else self.name


def find_devices() -> dict[str, Device]:
    """Return the devices of this machine by name; those that cannot be used say why."""
    found = [Device('cpu', CPU, features=cpu_features())]
    if torch.cuda.is_available():
        found += [_gpu(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append(Device('mps', MPS, 'Apple GPU', features=_mps_features(),
                            memory_bytes=torch.mps.recommended_max_memory()))
    return {device.name: device for device in found}


def build() -> str:
    if torch.version.hip:
        return f'ROCm {torch.version.hip}'
    if torch.version.cuda:
        return f'CUDA {torch.version.cuda}'
    return 'Apple MPS' if torch.backends.mps.is_built() else 'the CPU alone'


def unsupported(capability: tuple[int, int], architectures: list[str]) -> str:
    """Why a build for `architectures` has no code for an NVIDIA GPU; '' when it has."""
    for name in architectures:
        kind, _, digits = name.partition('_')
        digits = digits.rstrip('af')
        if not digits.isdecimal():
            continue
        major, minor = int(digits[:-1]), int(digits[-1])
        if (kind == 'sm' and capability[0] == major and capability[1] >= minor) or (
                kind == 'compute' and capability >= (major, minor)):
            return ''
    have = '.'.join(map(str, capability))
    return (f'this PyTorch has no code for its compute capability {have} (only '
            f'{", ".join(architectures) or "none"}); install one that has')


def _gpu(index: int) -> Device:
    about = torch.cuda.get_device_properties(index)
    common = {'name': f'cuda:{index}', 'label': about.name, 'memory_bytes': about.total_memory}
    architectures = torch.cuda.get_arch_list()
    if torch.version.hip:
        name = about.gcnArchName.partition(':')[0]
        problem = '' if name in architectures else (
            f'this PyTorch has no code for its architecture {name} (only '
            f'{", ".join(architectures)})')
        return Device(kind=ROCM, architecture=name, problem=problem, **common)
    capability = (about.major, about.minor)
    return Device(kind=CUDA, capability=capability,
                  problem=unsupported(capability, architectures), **common)


def cpu_features() -> frozenset[str]:
    """Return the instructions of this CPU that matter here, as Linux tells of them."""
    info = Path('/proc/cpuinfo')
    text = info.read_text(encoding='utf-8', errors='replace') if info.is_file() else ''
    flags = next((line for line in text.splitlines() if line.startswith('flags')), '')
    return frozenset(flags.split()) & {AVX512_BF16, AMX, AVX512_VNNI, AVX_VNNI}


def _mps_features() -> frozenset[str]:
    try:  # bfloat16 depends on the version of macOS, which only a trial shows reliably
        torch.ones(2, device='mps', dtype=torch.bfloat16).add_(1).cpu()
    except (RuntimeError, TypeError) as error:
        log.info('no bf16 on mps: %s', error)
        return frozenset()
    return frozenset({BF16})


class SessionError(RuntimeError):
    """The model is closed, out of memory, or computes no usable numbers on this device."""


PRECISIONS = {'fp32': torch.float32, 'fp16': torch.float16, 'bf16': torch.bfloat16,
              'fp8': torch.float8_e4m3fn, 'int8': torch.int8}
SLOW = (', but without AVX512-BF16 or AMX instructions it is two to five times slower than fp32, '
        'which `precision: auto` takes')
WANTED = re.compile(r'auto|cpu|mps|cuda(:\d+)?')
FULL, HALF, BRAIN, EIGHT, INT8 = PRECISIONS.values()
INSTEAD = {'fp8': 'bf16', 'int8': 'fp32'}       # where layers cannot be quantised
QUANTIZED = "pip install 'vjepa_ros[quantized]'"

# AMD GPUs, by the beginning of their architecture, and which half precision is fast.
ROCM_BF16 = ('gfx90a', 'gfx94', 'gfx95', 'gfx11', 'gfx12')   # CDNA 2 and later, RDNA 3 and later
ROCM_FP16 = ('gfx906', 'gfx908', 'gfx10')                    # Vega 20, CDNA 1, RDNA 1 and 2

OPERATOR = re.compile(r"operator '?([\w:.]+)'?")

Present = Mapping[str, Device]


class DeviceError(RuntimeError):
    """The wanted device or precision is not available."""


class OperatorError(DeviceError):
    """The device lacks an operator of the model."""


@dataclass(frozen=True)
class DeviceChoice:
    """Where the model runs."""

    device: torch.device  # device of the weights
    dtype: torch.dtype  # of attention and MLP; of fp8 and int8 the narrowest one
    reason: str  # why this device and this type, for logs and diagnostics
    fell_back: bool = False  # another device was wanted but is missing or cannot be used

    @property
    def precision(self) -> str:
        return _name(self.dtype)

    @property
    def branches(self) -> torch.dtype:
        """Type of the weights of attention and MLP, but for those that are quantised."""
        narrow = {EIGHT: BRAIN, INT8: FULL if self.device.type == CPU else BRAIN}
        return narrow.get(self.dtype, self.dtype)


def formats(device: Device) -> tuple[tuple[torch.dtype, ...], torch.dtype, str]:
    """Return the number formats a device may compute, that of `auto`, and why."""
    if device.kind == CPU:
        fast = [text for name, text in ((AMX, 'AMX'), (AVX512_BF16, 'AVX512-BF16'))
                if name in device.features]
        if fast:
            return (FULL, BRAIN), BRAIN, f'bf16 is fast with its {fast[0]} instructions'
        return (FULL, BRAIN, INT8), FULL, 'it has no instructions for bf16'
    if device.kind == CUDA:
        name = 'compute capability ' + '.'.join(map(str, device.capability))
        if device.capability >= (8, 9):
            return (FULL, HALF, BRAIN, EIGHT, INT8), BRAIN, f'bf16 is fast with {name}'
        if device.capability >= (8, 0):
            return (FULL, HALF, BRAIN, INT8), BRAIN, f'bf16 is fast with {name}'
        if device.capability >= (7, 0):
            return (FULL, HALF), HALF, f'{name} has fast fp16, but no bf16'
        return (FULL,), FULL, f'half precision is slow with {name}'
    if device.kind == ROCM:
        name = device.architecture or 'an unknown architecture'
        if name.startswith(ROCM_BF16):
            return (FULL, HALF, BRAIN), BRAIN, f'bf16 is fast on {name}'
        if name.startswith(ROCM_FP16):
            return (FULL, HALF), HALF, f'{name} has fast fp16, but no fast bf16'
        return (FULL,), FULL, f'half precision is not known to be fast on {name}'
    able = (FULL, HALF, BRAIN) if BF16 in device.features else (FULL, HALF)
    return able, HALF, 'fp16 is fast on Apple GPUs of every generation'


def choose_device(wanted: str = 'auto', require: bool = False, precision: str = 'auto',
                  present: Present | None = None, need_bytes: int = 0) -> DeviceChoice:
    """Decide on device and precision; the reason is logged."""
    built = '' if present is not None else f'; this PyTorch is built for {build()}'
    present = find_devices() if present is None else present
    if not WANTED.fullmatch(wanted):
        hint = '; AMD GPUs are called cuda, too' if wanted.startswith(ROCM) else ''
        raise DeviceError(f"device '{wanted}' is not one of auto, cpu, cuda, cuda:N, mps{hint}")
    if precision != 'auto' and precision not in PRECISIONS:
        raise DeviceError(f"precision '{precision}' is unknown; set `precision` to one of auto, "
                          f'{", ".join(PRECISIONS)}')
    problems = {name: problem for name, device in present.items()
                if (problem := _problem(device, need_bytes))}
    usable = {name: device for name, device in present.items() if name not in problems}
    name, trouble = _resolve(wanted, usable, problems)
    if trouble and require:
        raise DeviceError(f'{trouble}{built}; set `device` to one of {", ".join(sorted(usable))} '
                          'or `require_device: false`')
    device = usable[name]
    dtype, why = _pick_dtype(device, precision, lenient=bool(trouble))
    if trouble:
        reason = _instead(trouble + built, name, dtype, why)
    else:
        picked = 'was asked for' if wanted != 'auto' else 'is the best device here'
        reason = f'{device.title} {picked}; {_name(dtype)}: {why}'
        log.log(logging.WARNING if why.endswith(SLOW) else logging.INFO, '%s', reason)
    return DeviceChoice(torch.device(name), dtype, reason, fell_back=bool(trouble))


def cpu_instead(error: OperatorError, precision: str) -> DeviceChoice:
    dtype, why = _pick_dtype(find_devices()[CPU], precision, lenient=True)
    return DeviceChoice(torch.device(CPU), dtype, _instead(str(error), CPU, dtype, why),
                        fell_back=True)


def _instead(trouble: str, name: str, dtype: torch.dtype, why: str) -> str:
    reason = (f'{trouble}; running on {name} instead, '
              f'{"which is slower, " * (name == CPU)}in {_name(dtype)}: {why}')
    log.warning('%s', reason)
    return reason


def _problem(device: Device, need_bytes: int) -> str:
    """Why a device cannot be used for a model; '' when it can."""
    if not device.problem and 0 < device.memory_bytes < need_bytes:
        return (f'the model needs {need_bytes / 2**30:.1f} GB and it has '
                f'{device.memory_bytes / 2**30:.1f} GB')
    return device.problem


def _resolve(wanted: str, usable: Present, problems: Mapping[str, str]) -> tuple[str, str]:
    """Return the device to use, and what is wrong with the wanted one."""
    if wanted == 'auto':
        gpus = (name for name in usable if name.startswith('cuda'))
        name = min(gpus, key=lambda one: int(one.partition(':')[2] or 0),
                   default='mps' if 'mps' in usable else CPU)
        lost = [f'{other} cannot be used: {problem}' for other, problem in problems.items()]
        return name, '; '.join(lost) if name == CPU else ''
    name = 'cuda:0' if wanted == 'cuda' else wanted
    if name in usable:
        return name, ''
    if name in problems:
        return CPU, f"device '{wanted}' cannot be used: {problems[name]}"
    found = ', '.join(sorted((*usable, *problems)))
    return CPU, f"device '{wanted}' is not available here (found: {found})"


def _pick_dtype(device: Device, precision: str, lenient: bool) -> tuple[torch.dtype, str]:
    """Return the type to compute in, and why; `lenient` if another device was asked for."""
    able, best, why = formats(device)
    if precision == 'auto':
        return best, why
    dtype = PRECISIONS[precision]
    if dtype in able:
        if precision in INSTEAD and find_spec('torchao') is None:
            raise DeviceError(f"precision '{precision}' needs torchao, which is not installed: "
                              f'{QUANTIZED}, or set `precision` to {INSTEAD[precision]} or auto')
        slow = device.kind == CPU and dtype == BRAIN != best
        return dtype, f'precision {precision} was asked for{SLOW * slow}'
    if lenient:
        return best, f'{precision} is not available there, {why}'
    names = ', '.join(n for n, one in PRECISIONS.items() if one in able)
    raise DeviceError(f"precision '{precision}' is not available on {device.title}; set "
                      f'`precision` to auto or one of {names}')


def _name(dtype: torch.dtype) -> str:
    return next(name for name, one in PRECISIONS.items() if one == dtype)


@contextmanager
def all_operators_on(device: torch.device) -> Iterator[None]:
    """Make an operator that MPS lacks an error that names it.

    PyTorch raises an error for developers, or computes on the CPU (PYTORCH_ENABLE_MPS_FALLBACK).
    """
    if device.type != 'mps':
        yield
        return
    always = torch.is_warn_always_enabled()
    # By default PyTorch warns once in a process, about the first operator, and loading a model has
    # run most of them.
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings('error', r'.*fall back to run on the CPU', UserWarning)
            yield
    # The error of PyTorch for an operator that MPS lacks, or its warning that the CPU takes over,
    # raised again with the remedy; anything else passes.
    except (NotImplementedError, UserWarning) as error:
        text = str(error)
        name = OPERATOR.search(text)
        if name is None:
            raise
        raise OperatorError(f"{device} has no operator '{name[1]}'; set `device: cpu`, or use "
                            'a newer PyTorch') from error
    finally:
        torch.set_warn_always(always)


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Let PyTorch compute in the calling thread with so many threads."""
    before = torch.get_num_threads()
    if threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_name(device: torch.device) -> str:
    """Return the name of a device for logs, such as 'cuda:0 (NVIDIA H200)'."""
    if device.type == 'cuda':
        kind = ROCM if torch.version.hip else CUDA
        return Device(str(device), kind, torch.cuda.get_device_name(device)).title
    if device.type == 'cpu':
        return f'cpu ({torch.get_num_threads()} threads)'
    return str(device)

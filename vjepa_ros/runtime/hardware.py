# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Describe the devices of this machine in plain values, without deciding anything."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CPU, CUDA, ROCM, MPS = 'cpu', 'cuda', 'rocm', 'mps'
AVX512_BF16, AMX = 'avx512_bf16', 'amx_bf16'
AVX512_VNNI, AVX_VNNI = 'avx512_vnni', 'avx_vnni'
BF16, FALLBACK = 'bf16', 'fallback'
FALLBACK_VARIABLE = 'PYTORCH_ENABLE_MPS_FALLBACK'
# What PyTorch calls the instructions; older versions are silent and the kernel knows.
_PROBES = {AVX512_BF16: '_is_avx512_bf16_supported', AMX: '_is_amx_tile_supported',
           AVX512_VNNI: '_is_vnni_supported'}
VNNI = frozenset({AVX512_VNNI, AVX_VNNI})      # either multiplies int8 without overflow


@dataclass(frozen=True)
class Device:
    """What is known of one device.

    Attributes
    ----------
    name : str
        As PyTorch calls it: cpu, cuda:0, mps. AMD GPUs are cuda devices, too.
    kind : str
        `CPU`, `CUDA`, `ROCM` or `MPS`.
    label : str
        Of the product, such as 'NVIDIA H200'; '' unknown.
    capability : tuple of int
        Compute capability of an NVIDIA GPU.
    architecture : str
        Of an AMD GPU, such as 'gfx942'.
    memory_bytes : int
        Memory of its own; 0 unknown, or the memory of the machine.
    features : frozenset of str
        Of a CPU: instructions, see `cpu_features`. Of MPS: `BF16` when a trial succeeded,
        `FALLBACK` when operators that it lacks would silently run on the CPU.
    problem : str
        Why it cannot be used although it is there; '' when it can.

    """

    name: str
    kind: str
    label: str = ''
    capability: tuple[int, int] = (0, 0)
    architecture: str = ''
    memory_bytes: int = 0
    features: frozenset[str] = frozenset()
    problem: str = ''

    @property
    def title(self) -> str:
        """For people, such as 'cuda:0 (AMD Instinct MI300X, ROCm)'."""
        words = [self.label] * bool(self.label) + ['ROCm'] * (self.kind == ROCM)
        return f'{self.name} ({", ".join(words)})' if words else self.name


def find_devices() -> dict[str, Device]:
    """The devices of this machine by name; those that cannot be used say why."""
    found = [Device('cpu', CPU, features=cpu_features())]
    if torch.cuda.is_available():
        found += [_gpu(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append(Device('mps', MPS, 'Apple GPU', features=_mps_features(os.environ)))
    return {device.name: device for device in found}


def build() -> str:
    """Which accelerators this PyTorch was built for, in words."""
    if torch.version.hip:
        return f'ROCm {torch.version.hip}'
    if torch.version.cuda:
        return f'CUDA {torch.version.cuda}'
    return 'Apple MPS' if torch.backends.mps.is_built() else 'the CPU alone'


def unsupported(capability: tuple[int, int], architectures: list[str]) -> str:
    """Why a build for `architectures` has no code for an NVIDIA GPU; '' when it has.

    Parameters
    ----------
    capability : tuple of int
        Of the GPU.
    architectures : list of str
        As of `torch.cuda.get_arch_list`: code for one generation ('sm_86', which newer GPUs of
        the same major number run, too) or for all later ones ('compute_90').

    """
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
    """Instructions of this CPU that matter here, where they exist.

    These are `AVX512_BF16`, `AMX`, `AVX512_VNNI` and `AVX_VNNI`; PyTorch is not asked for the
    last, as it has no word for it.
    """
    known = _cpu_words()
    found = {name for name, probe in _PROBES.items()
             if getattr(torch.cpu, probe, lambda name=name: name in known)()}
    return frozenset(found | {AVX_VNNI} & known)


def _cpu_words() -> frozenset[str]:
    info = Path('/proc/cpuinfo')
    if not info.is_file():
        return frozenset()
    lines = info.read_text(encoding='utf-8', errors='replace').splitlines()
    flags = next((line for line in lines if line.startswith('flags')), '')
    return frozenset(flags.partition(':')[2].split())


def _mps_features(environ: Mapping[str, str]) -> frozenset[str]:
    features = set()
    if environ.get(FALLBACK_VARIABLE, '0') not in ('', '0'):
        features.add(FALLBACK)
    try:  # bfloat16 depends on the version of macOS, which only a trial shows reliably
        torch.ones(2, device='mps', dtype=torch.bfloat16).add_(1).cpu()
        features.add(BF16)
    except (RuntimeError, TypeError) as error:
        log.info('no bf16 on mps: %s', error)
    return frozenset(features)

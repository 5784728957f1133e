# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decide whether torch.compile is used, and compile an encoder with it."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.torch_private import uncompile

log = logging.getLogger(__name__)

MODES = ('off', 'auto', 'on')
# Each number of clips in a pass and each model since the process started is one entry.
MOST_SHAPES = 64


@dataclass(frozen=True)
class Toolchain:
    """Which tools of torch.compile are installed."""

    triton: bool  # whether Triton is installed: it makes kernels for GPUs
    # Whether there is a C++ compiler: it makes those for the CPU, and what launches the others
    compiler: bool

    @classmethod
    def here(cls) -> Toolchain:
        """Look for the tools on this machine."""
        named = [os.environ[name] for name in ('CXX', 'CC') if os.environ.get(name)]
        return cls(importlib.util.find_spec('triton') is not None,
                   any(map(shutil.which, [*named, 'c++', 'g++', 'clang++', 'gcc', 'cc'])))

    def missing(self, device: str) -> list[str]:
        """Name the tools that torch.compile lacks on a type of device."""
        lacks = [] if self.triton or device != 'cuda' else ['Triton']
        return lacks if self.compiler else [*lacks, 'a C compiler']


@dataclass(frozen=True)
class CompileChoice:
    """Whether to compile, and why, for logs and diagnostics."""

    compile: bool
    reason: str


def choose_compile(wanted: str, device: str, instead: str, tools: Toolchain) -> CompileChoice:
    """Decide on torch.compile.

    'off' never compiles. 'on' always does, and fails where that is impossible. 'auto' compiles
    on CUDA only, if all tools are there and this package has no kernels of its own for the model
    and the GPU. On the CPU it saves less than the start-up time that it costs.
    """
    if wanted not in MODES:
        raise ValueError(f"compile is '{wanted}', but must be one of {', '.join(MODES)}")
    lacks = ' and '.join(tools.missing(device))
    if wanted == 'off':
        return CompileChoice(False, 'compile is off')
    if wanted == 'on':
        if device not in ('cpu', 'cuda'):
            raise SessionError(f"compile is 'on', but torch.compile is not used on {device}; set "
                               '`compile: auto`')
        if lacks:
            raise SessionError(f"compile is 'on', but torch.compile needs {lacks}, which this "
                               'machine does not have; install it, or set `compile: auto`')
        return CompileChoice(True, 'compile is on')
    if device != 'cuda':
        return CompileChoice(False, f'torch.compile costs more time than it saves on {device}')
    if instead:
        return CompileChoice(False, f'{instead} run instead of torch.compile')
    if lacks:
        return CompileChoice(False, f'torch.compile needs {lacks}, which is not installed')
    return CompileChoice(True, 'all tools of torch.compile are installed')


def allow_shapes() -> None:
    """Let this thread compile for many numbers of clips; the setting is one of each thread.

    Passes of another number of clips, and models loaded later, count as more of the same code.
    """
    limit = torch._dynamo.config.cache_size_limit
    torch._dynamo.config.cache_size_limit = max(limit, MOST_SHAPES)


def compile_blocks(blocks: Iterable[nn.Module], choice: CompileChoice, must: bool,
                   trial: Callable[[], object]) -> str:
    """Compile the blocks of an encoder if that was decided; the reason is logged."""
    log.info('encoder %s: %s', 'compiled' if choice.compile else 'not compiled', choice.reason)
    if not choice.compile:
        return choice.reason
    allow_shapes()
    for block in blocks:
        # Block by block: all blocks share one compilation, which takes a tenth of the time. What
        # cannot be compiled raises instead of running slowly in silence.
        block.compile(dynamic=False, fullgraph=True)
    try:
        trial()
    except SessionError:
        raise
    except Exception as error:  # of many types, out of several libraries
        if is_out_of_memory(error):
            raise
        problem = f'torch.compile failed: {type(error).__name__}: {str(error).strip()[:300]}'
        if must:
            raise SessionError(f'{problem}; set `compile: off` or `auto`') from error
    else:
        return ''
    for block in blocks:
        uncompile(block)
    log.warning('%s; the model runs without it, which is slower', problem)
    return problem

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Decide whether torch.compile is used, and compile an encoder with it."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Callable, Iterable

import torch
from torch import nn

from vjepa_ros.runtime.device import SessionError
from vjepa_ros.runtime.memory import is_out_of_memory

log = logging.getLogger(__name__)

MODES = ('off', 'auto', 'on')
# Each number of clips in a pass and each model since the process started is one entry.
MOST_SHAPES = 64


def missing_tools(device: str) -> str:
    """Name the tools that torch.compile lacks for a type of device; '' for none."""
    named = [os.environ[name] for name in ('CXX', 'CC') if os.environ.get(name)]
    lacks = []
    if device == 'cuda' and importlib.util.find_spec('triton') is None:
        lacks.append('Triton')
    # It makes the kernels for the CPU, and what launches the others.
    if not any(map(shutil.which, [*named, 'c++', 'g++', 'clang++', 'gcc', 'cc'])):
        lacks.append('a C compiler')
    return ' and '.join(lacks)


def why_not_compiled(wanted: str, device: str, instead: str, lacks: str) -> str:
    """Return why torch.compile is not used; '' where it is.

    'off' never compiles. 'on' always does, and fails where that is impossible. 'auto' compiles
    on CUDA only, if all tools are there and this package has no kernels of its own for the model
    and the GPU. On the CPU it saves less than the start-up time that it costs.
    """
    if wanted == 'off':
        return 'compile is off'
    if wanted == 'on':
        if device not in ('cpu', 'cuda'):
            raise SessionError(f"compile is 'on', but torch.compile is not used on {device}; set "
                               '`compile: auto`')
        if lacks:
            raise SessionError(f"compile is 'on', but torch.compile needs {lacks}, which this "
                               'machine does not have; install it, or set `compile: auto`')
        return ''
    if device != 'cuda':
        return f'torch.compile costs more time than it saves on {device}'
    if instead:
        return f'{instead} run instead of torch.compile'
    return f'torch.compile needs {lacks}, which is not installed' if lacks else ''


def allow_shapes() -> None:
    """Let this thread compile for many numbers of clips; the setting is one of each thread.

    Passes of another number of clips, and models loaded later, count as more of the same code.
    """
    limit = torch._dynamo.config.cache_size_limit
    torch._dynamo.config.cache_size_limit = max(limit, MOST_SHAPES)


def compile_blocks(blocks: Iterable[nn.Module], must: bool, trial: Callable[[], object]) -> str:
    """Compile the blocks of an encoder; '', or why that failed. SessionError with `must`."""
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
        block._compiled_call_impl = None    # there is no public way back
    log.warning('%s; the model runs without it, which is slower', problem)
    return problem

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Functions of PyTorch for CUDA that have no public name, and what runs where they are missing.

`vjepa_ros.runtime.forward.cpu` does the same for oneDNN, by a trial of its product.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def addmm_gelu(bias: Tensor, x: Tensor, matrix: Tensor) -> Tensor:
    """Return the GELU, in its tanh form, of ``x @ matrix + bias``; one kernel if possible.

    The tanh form is 5e-4 off at most; a step of bf16 is 4e-3 to 8e-3.
    """
    fused = getattr(torch, '_addmm_activation', None)
    if fused is not None:
        return fused(bias, x, matrix, use_gelu=True)
    return F.gelu(torch.addmm(bias, x, matrix), approximate='tanh')


def clear_workspaces() -> None:
    """Free the scratch memory that matrix products keep for each CUDA stream.

    A graph that is captured while a stream has none allocates one of its own, in its pool.
    """
    clear = getattr(torch._C, '_cuda_clearCublasWorkspaces', None)
    if clear is not None:
        clear()


def abandon_pool(pool: tuple[int, int], device: torch.device) -> None:
    """Close the pool of a failed capture, which PyTorch leaves open with all its memory.

    Before version 2.6 that is impossible, and the memory is lost.
    """
    end = getattr(torch._C, '_cuda_endAllocateToPool', None)
    release = getattr(torch._C, '_cuda_releasePool', None)
    if end is None or release is None:
        return
    try:
        end(device.index, pool)
    except RuntimeError:
        return  # the capture had not begun, or had ended
    release(device.index, pool)


def empty_host_cache() -> None:
    """Free the pinned memory that is not in use; versions before 2.6 keep it."""
    empty = getattr(torch._C, '_host_emptyCache', None)
    if empty is not None:
        empty()


def uncompile(module: nn.Module) -> None:
    """Undo `nn.Module.compile`."""
    module._compiled_call_impl = None

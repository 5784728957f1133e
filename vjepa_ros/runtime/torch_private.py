# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Functions of PyTorch for CUDA that have no public name, and what runs where they are missing.

`vjepa_ros.runtime.forward.cpu` and `int8` do the same for oneDNN, by trials of each product.
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


def scaled_mm(x: Tensor, x_scale: Tensor, matrix: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Multiply float8 tensors with one scale each: (M, K) @ (K, L) + bias (L,) in bfloat16."""
    fused = getattr(torch, '_scaled_mm', None)
    if fused is not None:
        return fused(x, matrix, scale_a=x_scale, scale_b=scale, bias=bias,
                     out_dtype=torch.bfloat16, use_fast_accum=True)
    product = x.bfloat16() @ matrix.bfloat16()
    return (product.float() * (x_scale * scale) + bias.float()).bfloat16()


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

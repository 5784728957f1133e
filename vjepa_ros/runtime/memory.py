# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell when memory is used up, and give it back."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import torch

# A process captures one CUDA graph at a time, and frees no memory meanwhile.
CAPTURING = threading.RLock()

# How backends without a type of their own for it say that there is no memory.
# The last two are of cuBLAS, cuDNN and their kin on AMD GPUs: *_STATUS_ALLOC_FAILED and, of newer
# ones, *_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.
PHRASES = ('out of memory', "can't allocate memory", 'not enough memory', 'ALLOC_FAILED',
           'ALLOCATION_FAILED')


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or the one that it hides, says that memory is used up."""
    seen: BaseException | None = error
    while seen is not None:
        # torch.OutOfMemoryError, which older versions have under this name only.
        if isinstance(seen, MemoryError | torch.cuda.OutOfMemoryError):
            return True
        if isinstance(seen, RuntimeError) and any(p in str(seen) for p in PHRASES):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def clear_workspaces() -> None:
    """Free the scratch memory that the matrix products of PyTorch keep for each CUDA stream.

    A graph that is captured while a stream has none allocates one of its own, in its pool.
    """
    torch._C._cuda_clearCublasWorkspaces()  # there is no public name for it


def abandon_pool(pool: tuple[int, int], device: torch.device) -> None:
    """Close the pool of a capture that broke, which PyTorch leaves open, with all its memory."""
    end = getattr(torch._C, '_cuda_endAllocateToPool', None)
    if end is None:  # before version 2.6; there the memory is lost
        return
    try:
        end(device.index, pool)
    except RuntimeError:
        return  # the capture had not begun, or had come to its end
    torch._C._cuda_releasePool(device.index, pool)


def release_memory(device: torch.device) -> None:
    """Return unused memory to the device and the operating system."""
    gc.collect()
    if device.type == 'cuda':
        with CAPTURING, torch.cuda.device(device):
            clear_workspaces()
            torch.cuda.empty_cache()
            empty_host_cache = getattr(torch._C, '_host_emptyCache', None)
            if empty_host_cache is not None:  # pinned memory; versions before 2.6 keep it
                empty_host_cache()
    elif device.type == 'mps':
        torch.mps.empty_cache()
    if sys.platform == 'linux':
        # glibc keeps freed blocks for itself; without this a swapped model stays resident.
        trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)
        if trim is not None:
            trim(0)

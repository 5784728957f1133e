# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recognise that memory ran out, and release it."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import torch

from vjepa_ros.runtime.torch_private import clear_workspaces, empty_host_cache

# A process captures one CUDA graph at a time, and frees no memory meanwhile.
CAPTURING = threading.RLock()

# In errors of backends without a type for it. The last two are of cuBLAS, cuDNN and their kin on
# AMD GPUs: *_STATUS_ALLOC_FAILED and, newer, *_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.
PHRASES = ('out of memory', "can't allocate memory", 'not enough memory', 'ALLOC_FAILED',
           'ALLOCATION_FAILED')


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one that it hides, says that memory ran out."""
    seen: BaseException | None = error
    while seen is not None:
        # torch.OutOfMemoryError, which older versions have under this name only.
        if isinstance(seen, MemoryError | torch.cuda.OutOfMemoryError):
            return True
        if isinstance(seen, RuntimeError) and any(p in str(seen) for p in PHRASES):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def release_memory(device: torch.device) -> None:
    """Return unused memory to the device and the operating system."""
    gc.collect()
    if device.type == 'cuda':
        with CAPTURING, torch.cuda.device(device):
            clear_workspaces()
            torch.cuda.empty_cache()
            empty_host_cache()
    elif device.type == 'mps':
        torch.mps.empty_cache()
    if sys.platform == 'linux':
        # glibc keeps freed blocks for itself; without this a swapped model stays resident.
        trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)
        if trim is not None:
            trim(0)

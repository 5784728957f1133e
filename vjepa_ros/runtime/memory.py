# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recognise that the memory of a device ran out, and release it."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from dataclasses import dataclass

import torch

from vjepa_ros.runtime.device import SessionError

SMALLER = ('choose a smaller model_size, image_size or num_frames, or half precision '
           '(precision: fp16 or bf16)')

# A process captures one CUDA graph at a time, and frees no memory meanwhile.
CAPTURING = threading.RLock()

# In errors of backends without a type for it. The last two are of cuBLAS, cuDNN and their kin on
# AMD GPUs: *_STATUS_ALLOC_FAILED and, newer, *_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.
PHRASES = ('out of memory', "can't allocate memory", 'not enough memory', 'ALLOC_FAILED',
           'ALLOCATION_FAILED')


class OutOfMemory(SessionError):
    """There is no memory for the weights, or for a single clip; the text has the remedy."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one that it hides, says that memory ran out."""
    seen: BaseException | None = error
    while seen is not None:
        # torch.OutOfMemoryError, which older versions have under this name only.
        if isinstance(seen, MemoryError | torch.cuda.OutOfMemoryError | OutOfMemory):
            return True
        if isinstance(seen, RuntimeError) and any(p in str(seen) for p in PHRASES):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def stored_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor, or of those that a quantised one consists of."""
    flatten = getattr(tensor, '__tensor_flatten__', None)
    if flatten is None:
        return tensor.nbytes
    return sum(getattr(tensor, name).nbytes for name in flatten()[0])


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a device [bytes]."""

    used: int  # by all processes on CUDA, by this one on MPS
    limit: int  # what there is; on MPS what the system recommends as the working set

    @property
    def share(self) -> float:
        return self.used / max(1, self.limit)


def device_memory(device: torch.device) -> DeviceMemory | None:
    """Return the memory of a device; None for a CPU, which has that of the machine."""
    if device.type == 'cuda':
        free, limit = torch.cuda.mem_get_info(device)
        return DeviceMemory(limit - free, limit)
    if device.type == 'mps':
        return DeviceMemory(torch.mps.driver_allocated_memory(),
                            torch.mps.recommended_max_memory())
    return None


def clear_workspaces() -> None:
    """Free the scratch memory of matrix products, of which a graph then gets its own."""
    # PyTorch has no public name for it, nor for the other functions of `torch._C` here.
    getattr(torch._C, '_cuda_clearCublasWorkspaces', _nothing)()


def abandon_pool(pool: tuple[int, int], device: torch.device) -> None:
    """Close the pool of a failed capture, which PyTorch leaves open with all its memory."""
    end = getattr(torch._C, '_cuda_endAllocateToPool', None)
    release = getattr(torch._C, '_cuda_releasePool', None)
    if end is None or release is None:
        return
    try:
        end(device.index, pool)
    except RuntimeError:
        return  # the capture had not begun, or had ended
    release(device.index, pool)


def _nothing() -> None:
    """Stand for a function that this PyTorch does not have."""


def release_memory(device: torch.device) -> None:
    """Return unused memory to the device and the operating system."""
    gc.collect()
    if device.type == 'cuda':
        with CAPTURING, torch.cuda.device(device):
            clear_workspaces()
            torch.cuda.empty_cache()
            # Pinned memory that is not in use; versions before 2.6 keep it.
            getattr(torch._C, '_host_emptyCache', _nothing)()
    elif device.type == 'mps':
        torch.mps.empty_cache()
    if sys.platform == 'linux':
        # glibc keeps freed blocks for itself; without this a swapped model stays resident.
        trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)
        if trim is not None:
            trim(0)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recognise that memory ran out, release it, and run clips in passes that fit into it."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.torch_private import clear_workspaces, empty_host_cache

log = logging.getLogger(__name__)

SMALLER = ('choose a smaller model_size, image_size or num_frames, or half precision '
           '(precision: fp16 or bf16)')
Part = TypeVar('Part')

# A process captures one CUDA graph at a time, and frees no memory meanwhile.
CAPTURING = threading.RLock()
_limits: dict[torch.device, float] = {}     # of this process, as `limit_memory` has set them

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


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a device [bytes]."""

    used: int  # by all processes on CUDA, by this one on MPS
    limit: int  # what there is; on MPS what the system recommends as the working set

    @property
    def share(self) -> float:
        """Return the used part of the limit."""
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


def limit_memory(device: torch.device, fraction: float) -> None:
    """Let this process use at most a part, 0..1, of the memory of a device."""
    _limits[device] = fraction
    if device.type == 'cuda':
        torch.cuda.set_per_process_memory_fraction(fraction, device)
    elif device.type == 'mps':
        torch.mps.set_per_process_memory_fraction(fraction)


@contextmanager
def limited_memory(device: torch.device, fraction: float) -> Iterator[None]:
    """Do what `limit_memory` does, and take it back where what follows fails."""
    before = _limits.get(device, 1.0)
    limit_memory(device, fraction)
    try:
        yield
    except BaseException:
        limit_memory(device, before)
        raise


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


class Parts:
    """Split clips into passes, whose size it learns from those that ran out of memory.

    Parameters
    ----------
    choice : DeviceChoice
        Where they run.
    clip_shape : tuple of int
        (T, S, S, 3).
    trim : callable
        Frees all memory that can be allocated again.

    Attributes
    ----------
    most : int, optional
        Clips of one pass; None until memory has run out once.

    """

    def __init__(self, choice: DeviceChoice, clip_shape: tuple[int, ...],
                 trim: Callable[[], None]):
        self._choice = choice
        self._clip_shape = clip_shape
        self._trim = trim
        self.most: int | None = None

    def run(self, clips: int, run: Callable[[slice], Part]) -> list[Part]:
        """Run all clips, one part after the other, halving the parts when memory runs out."""
        done, results = 0, []
        while done < clips:
            left = clips - done
            part = slice(done, done + (left if self.most is None else min(left, self.most)))
            try:
                results.append(run(part))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).partition('\n')[0]
            else:
                done = part.stop
                continue
            # Not above: the traceback of an error keeps what the failed pass has allocated.
            self._make_room(part.stop - part.start, problem)
        return results

    def _make_room(self, failed: int, problem: str) -> None:
        """Free what can be made again, and take fewer clips from now on."""
        self._trim()
        release_memory(self._choice.device)
        frames, side = self._clip_shape[:2]
        what = f'{failed} clips' if failed > 1 else 'one clip'
        what += f' of {frames} frames of {side} px in {self._choice.precision}'
        if failed <= 1:
            raise OutOfMemory(f'{self._choice.device} has no memory for {what} ({problem}); '
                              f'{SMALLER}')
        self.most = failed // 2
        log.warning('%s has no memory for %s in one pass (%s); at most %d in one pass from now on',
                    self._choice.device, what, problem, self.most)

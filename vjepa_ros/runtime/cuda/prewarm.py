# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start a GPU and its libraries while the weights are read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import torch
import torch.nn.functional as F

from vjepa_ros.runtime.cuda.compiler import compiler

log = logging.getLogger(__name__)

NOTHING = 'extern "C" __global__ void nothing() {}'


@contextmanager
def waking(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Within the block, a thread starts what takes seconds to start on CUDA.

    These are its context, the libraries for products and attention, and the kernel compiler.
    """
    if device.type != 'cuda':
        yield
        return
    # A driver that hangs must not keep the process from ending.
    thread = Thread(target=_wake, args=(device, dtype), name='wake', daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@torch.no_grad()
def _wake(device: torch.device, dtype: torch.dtype) -> None:
    try:
        with torch.cuda.device(device):
            rows = torch.zeros(64, 64, device=device, dtype=dtype)
            torch.addmm(rows[0], rows, rows)
            tokens = rows[None, None]
            F.scaled_dot_product_attention(tokens, tokens, tokens)
            compiler()(NOTHING, 'nothing')
            torch.cuda.synchronize(device)
    # Libraries of drivers raise anything. The model meets the same error where it needs them, and
    # reports it.
    except Exception as error:
        log.debug('%s did not start before its time: %s: %s', device, type(error).__name__,
                  error)

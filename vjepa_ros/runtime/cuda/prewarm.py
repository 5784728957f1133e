# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Let a GPU and its libraries start while the weights are read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import torch
import torch.nn.functional as F

from vjepa_ros.runtime.forward.kernels import compiler

log = logging.getLogger(__name__)

NOTHING = 'extern "C" __global__ void nothing() {}'


@contextmanager
def waking(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Within the block, a thread uses for the first time what takes seconds to start on CUDA.

    That are its context, the libraries of products and attention, and the compiler of kernels.

    Parameters
    ----------
    device : torch.device
        Nothing happens on devices that are not CUDA.
    dtype : torch.dtype
        Type of the products.

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
            F.scaled_dot_product_attention(*rows.expand(3, 1, 1, 64, 64))
            compiler()(NOTHING, 'nothing')
            torch.cuda.synchronize(device)
    # Whatever is wrong, of whatever kind, will be met again, and told, where the model itself
    # needs it; libraries of drivers raise what they like.
    except Exception as error:
        log.debug('%s did not start before its time: %s: %s', device, type(error).__name__,
                  error)

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Choose between the CUDA kernels of looming and the plain path, by comparing them."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import lru_cache

import torch

from vjepa_ros.clip.gpu.kernels import prepare_resizing
from vjepa_ros.looming.affine import _FAKE
from vjepa_ros.looming.gpu.comparison import disagreement
from vjepa_ros.looming.gpu.flow import STEPS, STIFFNESS
from vjepa_ros.looming.gpu.kernels import LoomingKernels
from vjepa_ros.runtime.forward.kernels import KernelsMissing, begin_build, loading_on

log = logging.getLogger(__name__)


@lru_cache(maxsize=16)
def prepare_kernels(device: torch.device) -> Future[LoomingKernels] | None:
    """Begin to compile the kernels for a device, once, beside what else happens.

    Those that resize images first: a camera's first frame needs them before.
    """
    prepare_resizing(device)
    return begin_build(_build, device, 'looming_kernels')


def _build(device: torch.device) -> LoomingKernels:
    with loading_on(device):
        return LoomingKernels.build(STEPS, STIFFNESS, _FAKE)


@lru_cache(maxsize=16)
def choose_kernels(device: torch.device) -> tuple[LoomingKernels | None, str]:
    """Kernels that agree with the plain path on a device, or None and why; '' off CUDA.

    They are made once for each device; that takes a second or two, see `prepare_kernels`.
    """
    pending = prepare_kernels(device)
    if pending is None:
        return None, ''
    try:
        kernels = pending.result()
        problem = disagreement(kernels, device)
    except KernelsMissing as error:
        log.info('looming on %s runs without kernels of its own: %s', device, error)
        return None, str(error)
    if problem:
        log.warning('the looming kernels are wrong on %s: %s; the plain path is used instead, '
                    'which is slower', device, problem)
        return None, problem
    return kernels, ''

# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find out which operators of a model a device supports."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from vjepa_ros.cli.selftest.cases import Model
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.runtime.memory import is_out_of_memory

FALLBACK = 'PYTORCH_ENABLE_MPS_FALLBACK'


@dataclass
class Operators:
    """How often each operator ran, why others could not run, and why the run was aborted."""

    ran: Counter[str] = field(default_factory=Counter)
    missing: dict[str, str] = field(default_factory=dict)
    problem: str = ''


class _Watch(TorchDispatchMode):
    """Run each operator on the device of its tensors, or on the CPU when that fails.

    So all operators that a device lacks are found in one run.
    """

    def __init__(self, device: torch.device, found: Operators) -> None:
        super().__init__()
        self._device, self._found = device, found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                           ) -> Any:
        kwargs = kwargs or {}
        try:
            out = func(*args, **kwargs)
        # It is reported as missing, which fails the self-test; continuing finds the others.
        except (NotImplementedError, RuntimeError, TypeError) as error:
            if self._device.type == 'cpu' or is_out_of_memory(error):
                raise
            self._found.missing[str(func)] = f'{type(error).__name__}: {error}'.strip()[:300]
            out = func(*tree_map(_to_cpu, args), **tree_map(_to_cpu, kwargs))
            return tree_map(self._back, out)
        self._found.ran[str(func)] += 1
        return out

    def _back(self, value: Any) -> Any:
        return value.to(self._device) if isinstance(value, torch.Tensor) else value


def _to_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return torch.device('cpu') if isinstance(value, torch.device) else value


@torch.no_grad()
def coverage(model: Model, device: torch.device, dtype: torch.dtype) -> Operators:
    """Run a network and its heads on a device, operator by operator."""
    encoder, heads, _ = load_model(model.size, model.version, model.weights)
    encoder.set_branch_precision(dtype)
    encoder = encoder.to(device).eval()
    side = model.image_size
    pixels = torch.randn(1, 3, model.num_frames, side, side).to(device)
    found = Operators()
    with _Watch(device, found):
        features = encoder(pixels)
        if heads is not None:
            heads.to(device).eval()(features)
        features.float().cpu()
    return found


def fallback_problem(device: torch.device) -> str:
    """Return why operators might silently run on the CPU; '' when they cannot."""
    if device.type == 'mps' and os.environ.get(FALLBACK, '0') not in ('', '0'):
        return f'{FALLBACK} is set: operators that MPS lacks run silently on the CPU; unset it'
    return ''
